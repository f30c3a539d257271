//! The fleet over a real PostgreSQL: a cluster made for the test, as another user where this one is root. Where there is
//! no PostgreSQL the tests say SKIPPED.

#[path = "../../../tests/common/postgres.rs"]
pub(crate) mod postgres;

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use eigenveil_estimation::Cancel;
use eigenveil_shared::{
    ErrorCode,
    api::{EstimateRequest, StudyState},
    codec,
    report::{Report, ReportId},
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha20Rng};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use self::postgres::Cluster;
use super::{
    migrate_store,
    races::fleet,
    statements::{GIVE_BACK, KNOWN, SPEND, SPENT, TAKE, TAKE_BACK},
};
use crate::{
    Environment, ServerConfig,
    store::{
        NewReport, Store, Study, StudyId, SubmitOutcome,
        conformance::{Kind, failing},
        engine::Engine,
        fixtures::{START_MS, admissions, create, report},
    },
};

/// An empty database.
pub(crate) struct Database {
    cluster: Arc<Cluster>,
    name: String,
}

impl Database {
    pub(crate) fn create() -> Self {
        Self::in_cluster(Cluster::shared().expect("looked for before"))
    }

    pub(super) fn in_cluster(cluster: Arc<Cluster>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        cluster.sql("postgres", &format!("CREATE DATABASE {name}"));
        Self { cluster, name }
    }

    fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// Makes the tables, and a configuration that uses them.
    pub(crate) fn migrate(&self, config: &mut ServerConfig) {
        self.migrate_at(config, &self.url());
    }

    fn migrate_at(&self, config: &mut ServerConfig, url: &str) {
        config.store = Some(url.parse().unwrap());
        let migrated = migrate_store(config, &Environment::system()).unwrap();
        assert!(migrated.operator_token.unwrap().is_file());
    }

    /// From now on the database's time stands still.
    pub(in crate::store) fn set_clock(&self, unix_ms: u64) {
        self.sql(&format!(
            "CREATE OR REPLACE FUNCTION eigenveil.moment() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS 'SELECT to_timestamp({unix_ms}::bigint / 1000.0)'"
        ));
    }

    /// Ends the connections of all servers.
    pub(crate) fn cut_off(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE datname = current_database() AND pid != pg_backend_pid()",
        );
    }

    pub(in crate::store) fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }
}

/// Shows what other servers have done.
pub(crate) fn refresh(store: &Store) {
    if let Engine::Fleet(fleet) = &store.shared.engine {
        fleet.wait(fleet.inner.refresh()).unwrap();
    }
}

/// A column of blobs of one study.
pub(crate) fn blobs(store: &Store, query: &str, study: StudyId) -> Vec<Vec<u8>> {
    let inner = &fleet(store).inner;
    inner.wait(async {
        let session = inner.pool.take().await.unwrap();
        let rows = session.query(query, &[&study.0.as_slice()]).await.unwrap();
        session.done();
        rows.iter().map(|row| row.get(0)).collect()
    })
}

/// Sessions of a database that sleep.
pub(super) const SLEEPS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

/// Servers over one database.
pub(super) struct Servers {
    pub(super) stores: Vec<Store>,
    pub(super) config: ServerConfig,
    database: Database,
    _directory: TempDir,
}

impl Servers {
    pub(super) fn start(cluster: &Arc<Cluster>, number: usize) -> Self {
        Self::start_behind(cluster, &[], number)
    }

    /// Servers that use the standby where it has become the primary.
    pub(super) fn start_behind(
        cluster: &Arc<Cluster>,
        standbys: &[&Cluster],
        number: usize,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = ServerConfig::new(directory.path().join("data"));
        let database = Database::in_cluster(Arc::clone(cluster));
        let all: Vec<&Cluster> = [&**cluster]
            .into_iter()
            .chain(standbys.iter().copied())
            .collect();
        database.migrate_at(&mut config, &Cluster::url_of(&all, &database.name));
        let open = || Store::open(&config, Environment::system()).unwrap();
        Self {
            stores: (0..number).map(|_| open()).collect(),
            config,
            database,
            _directory: directory,
        }
    }

    pub(super) fn url(&self) -> String {
        self.database.url()
    }

    pub(super) fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }

    /// As [`sql`](Self::sql), on a thread of its own.
    fn begin_sql(&self, sql: &str) -> tokio::task::JoinHandle<()> {
        let (cluster, name) = (
            Arc::clone(&self.database.cluster),
            self.database.name.clone(),
        );
        let sql = sql.to_owned();
        tokio::task::spawn_blocking(move || {
            cluster.sql(&name, &sql);
        })
    }

    /// As [`begin_sql`](Self::begin_sql), once it sleeps.
    pub(super) async fn hold(&self, sql: &str) -> tokio::task::JoinHandle<()> {
        let held = self.begin_sql(sql);
        self.until(SLEEPS, "1").await;
        held
    }

    /// Until this is what a query finds.
    pub(super) async fn until(&self, query: &str, wanted: &str) {
        eventually(async || (self.sql(query) == wanted).then_some(())).await;
    }

    /// A number, once the servers have ended and told the database what they know.
    pub(super) fn found(self, sql: &str) -> u64 {
        drop(self.stores);
        std::thread::sleep(Duration::from_millis(500));
        self.database.sql(sql).trim().parse().unwrap()
    }

    /// What a start with this address says, as a check does. It has no password.
    fn refusal(&self, url: &str) -> String {
        let config = ServerConfig {
            store: Some(url.parse().unwrap()),
            ..self.config.clone()
        };
        let opened = Store::open(&config, Environment::system()).map(drop);
        let checked = crate::store::check(&config).map(drop);
        assert_eq!(checked, opened);
        let text = opened.unwrap_err().to_string();
        assert!(!text.contains("secret"), "{text}");
        text
    }

    /// The study as each server has it, once all of them do.
    pub(super) async fn everywhere(&self, study: &Study) -> Vec<Arc<Study>> {
        let mut found = Vec::new();
        for store in &self.stores {
            found.push(eventually(async || store.study(study.id()).ok()).await);
        }
        found
    }
}

/// Devices that send reports, each to a server that is drawn, until they are acknowledged.
pub(super) struct Devices {
    acknowledged: Arc<AtomicU64>,
    tasks: tokio::task::JoinSet<Sent>,
}

/// What devices have met.
pub(super) struct Sent {
    pub(super) acknowledged: u64,
    /// From a first attempt to its acknowledgement.
    pub(super) longest: Duration,
}

impl Devices {
    /// `studies`: the study as each server has it.
    pub(super) fn start(servers: &Servers, studies: &[Arc<Study>], reports: u32) -> Self {
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for device in 0..24_u32 {
            let stores = servers.stores.iter().cloned();
            let pairs: Vec<_> = stores.zip(studies.iter().cloned()).collect();
            let acknowledged = Arc::clone(&acknowledged);
            tasks.spawn(async move {
                let mut rng = ChaCha20Rng::seed_from_u64(device.into());
                let mut longest = Duration::ZERO;
                for number in 0..reports {
                    let begun = Instant::now();
                    let next = || &pairs[rng.random_range(0..pairs.len())];
                    until_acknowledged(next, 1_000 * device + number).await;
                    longest = longest.max(begun.elapsed());
                    acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Sent {
                    acknowledged: reports.into(),
                    longest,
                }
            });
        }
        Self {
            acknowledged,
            tasks,
        }
    }

    /// Until so many reports are acknowledged.
    pub(super) async fn until(&self, wanted: u64) {
        eventually(async || (self.acknowledged.load(Ordering::SeqCst) >= wanted).then_some(()))
            .await;
    }

    pub(super) async fn end(self) -> Sent {
        let all = self.tasks.join_all().await.into_iter();
        let together = |one: Sent, other: Sent| Sent {
            acknowledged: one.acknowledged + other.acknowledged,
            longest: one.longest.max(other.longest),
        };
        all.reduce(together).unwrap()
    }
}

/// Sends this report to one store after another until it is acknowledged.
async fn until_acknowledged<'a>(mut next: impl FnMut() -> &'a (Store, Arc<Study>), number: u32) {
    loop {
        let (store, study) = next();
        match store.submit(study, vec![numbered(study, number)]).await {
            Ok(outcomes) => {
                use SubmitOutcome::{Accepted, Duplicate};
                assert!(
                    matches!(outcomes[..], [Accepted | Duplicate]),
                    "{outcomes:?}"
                );
                return;
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::StoreUnavailable, "{error}");
                // Where the database is concerns no device.
                assert!(!error.detail().contains("postgres://"), "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Runs this with so many servers over an empty database, where there is PostgreSQL.
pub(super) fn with_servers(number: usize, test: impl AsyncFnOnce(&Servers)) {
    if let Some(cluster) = Cluster::shared() {
        let servers = Servers::start(&cluster, number);
        Runtime::new().unwrap().block_on(test(&servers));
    }
}

pub(super) async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "what is waited for does not come"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// As [`report`], for more than 256.
pub(super) fn numbered(study: &Study, number: u32) -> NewReport {
    with_payload(study, number, number)
}

/// As [`numbered`], with the payload of another one.
pub(super) fn with_payload(study: &Study, number: u32, payload_of: u32) -> NewReport {
    let mut random = [0; 16];
    // The first bytes of an identifier are its time.
    random[12..].copy_from_slice(&number.to_le_bytes());
    let mut payload = vec![0; study.report_format().payload_len()];
    payload[..4].copy_from_slice(&payload_of.to_le_bytes());
    let body = codec::encode_report(&Report {
        id: ReportId::from_parts(START_MS, random),
        fingerprint: study.report_format().fingerprint(),
        payload,
    });
    NewReport::decode(&body.into(), study).unwrap()
}

pub(super) fn counted(store: &Store, study: &Study) -> u64 {
    store.bucket_sums(study, Cancel::NEVER).unwrap().n
}

const SEEDS: &str = "double-cap";

pub(super) fn of_seeds() -> serde_json::Value {
    json!({"mechanism": SEEDS, "delta": null})
}

#[test]
fn the_fleet_conforms() {
    let Some(_cluster) = Cluster::shared() else {
        return;
    };
    assert_eq!(failing(Kind::Fleet), Vec::<&str>::new());
}

/// Three servers get the same reports at once, with tokens and without: each is counted once. What one closes is closed
/// for all, before they know it.
#[test]
fn servers_share_what_is_counted() {
    with_servers(3, async |servers| {
        let first = &servers.stores[0];
        let open = create(first, &of_seeds()).await;
        let enrolled = create(first, &json!({"enrolment": "token"})).await;
        let admissions = admissions(first, &enrolled, 200).await;
        let (all_open, all_enrolled) = (
            servers.everywhere(&open).await,
            servers.everywhere(&enrolled).await,
        );
        let mut tasks = tokio::task::JoinSet::new();
        for (number, store) in servers.stores.iter().enumerate() {
            for (study, is_enrolled) in [(&all_open[number], false), (&all_enrolled[number], true)]
            {
                for part in 0..20 {
                    let reports: Vec<_> = (10 * part..10 * part + 10)
                        .map(|n| match is_enrolled {
                            true => numbered(study, n).admitted_by(&admissions[n as usize]),
                            false => numbered(study, n),
                        })
                        .collect();
                    let (store, study) = (store.clone(), Arc::clone(study));
                    tasks.spawn(async move { store.submit(&study, reports).await.unwrap() });
                }
            }
        }
        let outcomes: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
        let of = |wanted| {
            outcomes
                .iter()
                .filter(|outcome| **outcome == wanted)
                .count()
        };
        assert_eq!(
            (of(SubmitOutcome::Accepted), of(SubmitOutcome::Duplicate)),
            (400, 800)
        );
        for store in &servers.stores {
            assert_eq!(
                (counted(store, &open), counted(store, &enrolled)),
                (200, 200)
            );
            assert_eq!(store.token_counts(&enrolled).unwrap().spent, 200);
        }
        servers.stores[1]
            .set_state(&all_open[1], StudyState::Closed)
            .await
            .unwrap();
        let late = servers.stores[2]
            .submit(&all_open[2], vec![numbered(&open, 7), numbered(&open, 999)])
            .await;
        assert_eq!(
            late.unwrap(),
            [SubmitOutcome::Duplicate, SubmitOutcome::NotOpen]
        );
        eventually(async || (all_open[0].state() == StudyState::Closed).then_some(())).await;
    });
}

/// A server that has gone leaves its job to another, and its result counts no more; a job cancelled by one server ends on
/// the other that computes it.
#[test]
fn a_job_passes_to_another_server_when_its_lease_is_over() {
    with_servers(2, async |servers| {
        let [first, second] = [&servers.stores[0], &servers.stores[1]];
        let study = create(first, &json!({})).await;
        first
            .add_job(&study, EstimateRequest::default())
            .await
            .unwrap();
        let (_, job) = first.claim_job().unwrap().unwrap();
        assert!(second.claim_job().unwrap().is_none());
        servers.sql("UPDATE eigenveil.estimates SET lease = clock_timestamp() - interval '1 s'");
        let (_, again) = second.claim_job().unwrap().unwrap();
        assert_eq!((again.id, again.attempts), (job.id, 1));
        let failed = || {
            let error = eigenveil_shared::Error::estimate_failed("for the test");
            eigenveil_shared::api::Problem::new(&error)
        };
        first.finish_job(job.id, Err(failed())).unwrap();
        let state = || first.estimate(&study, 1).unwrap().state;
        assert_eq!(state(), eigenveil_shared::api::EstimateState::Running);
        let cancelled = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&cancelled);
        second.listen(move |notice| {
            if let crate::store::Notice::JobCancelled(job) = notice {
                heard.store(job as u64, Ordering::SeqCst);
            }
        });
        first.cancel_job(&study, 1).await.unwrap();
        eventually(async || (cancelled.load(Ordering::SeqCst) == again.id as u64).then_some(()))
            .await;
    });
}

/// Small chunks are merged and spent tokens rewritten, while nothing of what is counted changes.
#[test]
fn what_is_merged_and_rewritten_counts_as_before() {
    with_servers(1, async |servers| {
        let store = &servers.stores[0];
        let mut design = of_seeds();
        design["enrolment"] = "token".into();
        let study = create(store, &design).await;
        let tokens = admissions(store, &study, 150).await;
        for (number, token) in (0..).zip(&tokens[..100]) {
            store
                .submit(&study, vec![numbered(&study, number).admitted_by(token)])
                .await
                .unwrap();
        }
        let before = store.bucket_sums(&study, Cancel::NEVER).unwrap();
        let export = |store: &Store| {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut store.export(&study).unwrap(), &mut bytes).unwrap();
            bytes.len()
        };
        store.sweep(&|| false).unwrap();
        let chunks = || {
            servers
                .sql("SELECT count(*) FROM eigenveil.chunks")
                .parse::<u64>()
                .unwrap()
        };
        assert_eq!(chunks(), 100, "an open study with few seeds was touched");
        store.set_state(&study, StudyState::Closed).await.unwrap();
        let exported = export(store);
        store.sweep(&|| false).unwrap();
        assert_eq!(chunks(), before.buckets.len() as u64);
        assert_eq!(store.bucket_sums(&study, Cancel::NEVER).unwrap(), before);
        assert_eq!(export(store), exported);
        let states =
            servers.sql("SELECT string_agg(DISTINCT spent::text, ' ') FROM eigenveil.tokens");
        assert_eq!(states, "0 2");
        assert_eq!(store.token_counts(&study).unwrap().spent, 100);
        // Rows of a deleted study go, and those of another stay.
        let other = create(store, &of_seeds()).await;
        store.submit(&other, vec![report(&other, 1)]).await.unwrap();
        store.delete_study(&study).await.unwrap();
        store.sweep(&|| false).unwrap();
        let mut left = String::new();
        for table in ["identifiers", "tokens", "chunks", "sums"] {
            write!(
                left,
                "{} ",
                servers.sql(&format!("SELECT count(*) FROM eigenveil.{table}"))
            )
            .unwrap();
        }
        assert_eq!(left, "1 0 1 32 ");
    });
}

/// What cannot keep the promise is refused with its way out, and no message has the password.
#[test]
fn a_database_that_cannot_be_used_is_refused() {
    with_servers(0, async |servers| {
        let refused = |url: &str| servers.refusal(url);
        let url = servers.database.url();
        let with_password = url.replace("postgres@", "postgres:secret@");
        for (url, says) in [
            (
                with_password.replace("postgres:secret@", "nobody:secret@"),
                "role \"nobody\" does not exist",
            ),
            (format!("{with_password}x"), "3D000"),
            (
                "postgres://postgres:secret@127.0.0.1:1/x".to_owned(),
                "Connection refused",
            ),
            (format!("{with_password}?nonsense=1"), "nonsense"),
            (format!("{with_password}?sslrootcert=/nowhere"), "/nowhere"),
        ] {
            let text = refused(&url);
            assert!(text.contains(says), "{url}: {text}");
        }
        servers.sql("UPDATE eigenveil.settings SET value = 'short'");
        assert!(refused(&url).contains("5 bytes instead of 32"));
        servers.sql("DELETE FROM eigenveil.settings");
        assert!(refused(&url).contains("store migrate, which makes it"));
        servers.sql("UPDATE eigenveil.schema_version SET version = 99");
        assert!(refused(&url).contains("schema version 99"));
        servers.sql("UPDATE eigenveil.schema_version SET version = 0");
        assert!(refused(&url).contains("store migrate"));
        let empty = Database::in_cluster(Arc::clone(&servers.database.cluster));
        assert!(refused(&empty.url()).contains("store migrate"));
    });
}

/// A role needs no more than the rights of the guide, without which it is refused; and for a migration a schema of its own.
#[test]
fn a_role_without_a_right_is_refused() {
    with_servers(0, async |servers| {
        servers.sql("CREATE ROLE lesser LOGIN");
        let url = servers.url().replace("postgres@", "lesser@");
        assert!(servers.refusal(&url).contains("SQLSTATE 42501"));
        servers.sql("GRANT USAGE ON SCHEMA eigenveil TO lesser");
        assert!(servers.refusal(&url).contains("SQLSTATE 42501"));
        servers.sql(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA eigenveil TO lesser",
        );
        let mut config = ServerConfig {
            store: Some(url.parse().unwrap()),
            ..servers.config.clone()
        };
        let store = Store::open(&config, Environment::system()).unwrap();
        let study = create(&store, &of_seeds()).await;
        let reports = vec![numbered(&study, 1)];
        let outcomes = store.submit(&study, reports).await.unwrap();
        assert_eq!(outcomes, [SubmitOutcome::Accepted]);
        let closed = store.set_state(&study, StudyState::Closed);
        closed.await.unwrap();
        store.delete_study(&study).await.unwrap();
        store.sweep(&|| false).unwrap();
        // Rows that a policy hides would make a token unknown, which a device is told for ever.
        let enrolled = create(&store, &json!({"enrolment": "token"})).await;
        let tokens = admissions(&store, &enrolled, 1).await;
        let send = || {
            let report = numbered(&enrolled, 1).admitted_by(&tokens[0]);
            store.submit(&enrolled, vec![report])
        };
        servers.sql("ALTER TABLE eigenveil.tokens ENABLE ROW LEVEL SECURITY");
        let refused = send().await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::StoreUnavailable);
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        assert!(store.check_writable().await.is_err());
        servers.sql("ALTER TABLE eigenveil.tokens DISABLE ROW LEVEL SECURITY");
        eventually(async || store.check_writable().await.ok()).await;
        assert_eq!(send().await.unwrap(), [SubmitOutcome::Accepted]);
        let empty = Database::in_cluster(Arc::clone(&servers.database.cluster));
        config.store = Some(empty.url().replace("postgres@", "lesser@").parse().unwrap());
        let migrate = || migrate_store(&config, &Environment::system());
        assert!(migrate().unwrap_err().to_string().contains("42501"));
        // One that was made for it will do.
        empty.sql("CREATE SCHEMA eigenveil AUTHORIZATION lesser");
        migrate().unwrap();
    });
}

/// However many keys a commit has, and however many were stored since PostgreSQL has last counted them, each is found by
/// its index.
#[test]
fn keys_of_a_commit_are_found_by_their_index() {
    with_servers(1, async |servers| {
        for (table, column) in [("tokens", "key"), ("identifiers", "id")] {
            servers.sql(&format!(
                "INSERT INTO eigenveil.{table} (study, {column})
                 SELECT 1, sha256(number::text::bytea) FROM generate_series(1, 20000) number"
            ));
        }
        let target = &fleet(&servers.stores[0]).inner.pool.target;
        let committing = target.connect_to_commit().await.unwrap();
        let all_are = |spent: u8| {
            format!(
                "UPDATE eigenveil.tokens SET spent = {spent}; ANALYZE eigenveil.tokens; ANALYZE eigenveil.identifiers"
            )
        };
        // As after a study was deleted whose rows lay before another's: their pages are there, and may be full again.
        let holds = |rows: u8| {
            format!(
                "UPDATE pg_class SET reltuples = {rows} WHERE relnamespace = 'eigenveil'::regnamespace
                 AND relname ~ '^(tokens|identifiers)'"
            )
        };
        for state in [
            String::new(),
            all_are(0),
            all_are(1),
            all_are(2),
            holds(0),
            holds(1),
            holds(3),
        ] {
            servers.sql(&state);
            for (statement, number) in [SPEND, SPENT, KNOWN, TAKE_BACK, GIVE_BACK, TAKE]
                .into_iter()
                .flat_map(|statement| [1, 1_000, 65_536_u32].map(|number| (statement, number)))
            {
                let keys: Vec<Vec<u8>> =
                    (0..number).map(|key| key.to_be_bytes().to_vec()).collect();
                let studies = vec![1_i64; keys.len()];
                let explained = committing
                    .query(&format!("EXPLAIN {statement}"), &[&studies, &keys])
                    .await
                    .unwrap();
                let plan: Vec<&str> = explained.iter().map(|line| line.get(0)).collect();
                let plan = plan.join("\n");
                let found = plan.matches("Index Cond").count();
                let whole = [
                    "Seq Scan",
                    "using",
                    "Materialize",
                    "Merge",
                    "Hash Join",
                    "Hash Left",
                    "Hash Right",
                ];
                assert!(
                    (statement == TAKE || found > 0) && !whole.iter().any(|way| plan.contains(way)),
                    "{state}: {plan}"
                );
            }
        }
    });
}

/// Whatever part of a commit fails, nothing of it is counted, and what the database said is for the log. The server is not
/// ready until a trial of all parts succeeds: one that wrote less would succeed where every report is refused.
#[test]
fn a_server_is_not_ready_while_a_commit_fails() {
    let failed = "the database is away or has failed";
    with_servers(1, async |servers| {
        let store = &servers.stores[0];
        let study = create(store, &of_seeds()).await;
        for (number, (event, code, says)) in (0..).zip([
            (
                "INSERT ON eigenveil.chunks",
                "53100",
                "the disk of the database is full",
            ),
            ("INSERT ON eigenveil.identifiers", "53200", failed),
            ("INSERT ON eigenveil.arrivals", "25006", failed),
            ("UPDATE ON eigenveil.buckets", "42501", failed),
        ]) {
            servers.sql(&format!(
                "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql
                 AS 'BEGIN RAISE EXCEPTION ''for the operator'' USING ERRCODE = ''{code}''; END';
                 CREATE TRIGGER fail BEFORE {event} FOR EACH ROW EXECUTE FUNCTION fail()"
            ));
            let send = || store.submit(&study, vec![numbered(&study, number)]);
            let assert_told = |error: &eigenveil_shared::Error| {
                assert!(!error.detail().contains("for the operator"), "{error}");
                assert!(error.detail().starts_with(says), "{error}");
            };
            assert_told(&send().await.unwrap_err());
            assert_eq!(counted(store, &study), u64::from(number));
            // Through a look of the watcher at least.
            let until = Instant::now() + Duration::from_millis(1_200);
            while Instant::now() < until {
                assert_told(&store.check_writable().await.unwrap_err());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            servers.sql("DROP FUNCTION fail() CASCADE");
            eventually(async || store.check_writable().await.ok()).await;
            assert_eq!(send().await.unwrap(), [SubmitOutcome::Accepted]);
        }
        let rehearsed = "SELECT count(*) FROM eigenveil.buckets WHERE study < 0";
        assert_eq!(servers.sql(rehearsed).trim(), "0");
    });
}

#[test]
fn a_cluster_that_cannot_keep_reports_is_refused() {
    let Some(cluster) = Cluster::start_with(&["fsync=off"]) else {
        return;
    };
    let standby = cluster.standby("standby");
    let cluster = Arc::new(cluster);
    let directory = tempfile::tempdir().unwrap();
    let database = Database::in_cluster(Arc::clone(&cluster));
    let servers = Servers {
        stores: Vec::new(),
        config: ServerConfig::new(directory.path().join("data")),
        database,
        _directory: directory,
    };
    let url = servers.database.url();
    assert!(servers.refusal(&url).contains("set fsync = on"));
    let text = servers.refusal(&standby.url("postgres"));
    assert!(text.contains("does not allow writes"), "{text}");
    cluster.sql("postgres", "CREATE ROLE locked LOGIN PASSWORD 'right'");
    cluster.ask_for_password("locked");
    let text = servers.refusal(&url.replace("postgres@", "locked:secret@"));
    assert!(text.contains("authentication failed"), "{text}");
    cluster.sql("postgres", "ALTER ROLE locked CONNECTION LIMIT 0");
    let text = servers.refusal(&url.replace("postgres@", "locked:right@"));
    assert!(text.contains("53300") && !text.contains("right"), "{text}");
}
