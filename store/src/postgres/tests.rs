//! The fleet over a real PostgreSQL: a cluster made for the test, as another user where this one is root. Where there is
//! no PostgreSQL the tests say SKIPPED.

mod failover;
mod mutations;
mod races;

use std::{
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use eigenveil_estimation::Cancel;
use eigenveil_shared::{
    ErrorCode,
    api::{EstimateRequest, StudyState},
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha20Rng};
use serde_json::json;

use super::{
    migrate_store,
    statements::{GIVE_BACK, KNOWN, SPEND, SPENT, TAKE, TAKE_BACK},
    testing::{
        Database, Servers, eventually, fleet, numbered, of_seeds, with_payload, with_servers,
    },
};
use crate::{
    Store,
    config::StoreConfig,
    contract::{decide::SubmitOutcome, study::Study},
    environment::Environment,
    testing::{
        cluster::Cluster,
        conformance::{Kind, failing},
        fixtures::{admissions, create, report},
        insider::{assert_counted, send},
    },
};

/// Devices that send reports, each to a server that is drawn, until they are acknowledged.
struct Devices {
    acknowledged: Arc<AtomicU64>,
    tasks: tokio::task::JoinSet<Sent>,
}

/// Outcomes of the devices' reports.
struct Sent {
    acknowledged: u64,
    /// From a first attempt to its acknowledgement.
    longest: Duration,
}

impl Devices {
    /// `studies`: the study as each server has it.
    fn start(servers: &Servers, studies: &[Arc<Study>], reports: u32) -> Self {
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
    async fn until(&self, wanted: u64) {
        eventually(async || (self.acknowledged.load(Ordering::SeqCst) >= wanted).then_some(()))
            .await;
    }

    async fn end(self) -> Sent {
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

fn counted(store: &Store, study: &Study) -> u64 {
    store.bucket_sums(study, Cancel::NEVER).unwrap().n
}

#[test]
fn the_fleet_conforms() {
    let Some(_cluster) = Cluster::shared() else {
        return;
    };
    assert_eq!(failing(Kind::Postgres), Vec::<&str>::new());
}

/// Three servers get the same reports at once, with tokens and without: each is counted once. What one closes is closed
/// for all, before they know it.
#[test]
fn servers_share_what_is_counted() {
    with_servers(3, async |servers| {
        let first = &servers.stores[0];
        let open = create(first, &of_seeds()).await;
        let design = json!({
            "enrolment": "token", "features": [{"name": "a"}, {"name": "b"}, {"name": "c"}],
            "about": {"purpose": "sleep", "features": [{"label": "A", "unit": "cm"}, {}, {}]},
        });
        let enrolled = create(first, &design).await;
        let admissions = admissions(first, &enrolled, 200).await;
        let (all_open, all_enrolled) = (
            servers.everywhere(&open).await,
            servers.everywhere(&enrolled).await,
        );
        assert!(enrolled.about().feature(0).is_some());
        for elsewhere in &all_enrolled {
            assert_eq!(elsewhere.about(), enrolled.about());
        }
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
        let identities = |wanted| {
            outcomes
                .iter()
                .filter(|outcome| **outcome == wanted)
                .count()
        };
        assert_eq!(
            (
                identities(SubmitOutcome::Accepted),
                identities(SubmitOutcome::Duplicate)
            ),
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
            if let crate::Notice::JobCancelled(job) = notice {
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

/// A database that cannot keep the promise is refused with a way out, and no message has the password.
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
        assert!(refused(&url).contains("migrate the store, which makes it"));
        servers.sql("UPDATE eigenveil.schema_version SET version = 99");
        assert!(refused(&url).contains("schema version 99"));
        servers.sql("UPDATE eigenveil.schema_version SET version = 0");
        assert!(refused(&url).contains("migrate the store"));
        let empty = Database::in_cluster(Arc::clone(&servers.database.cluster));
        assert!(refused(&empty.url()).contains("migrate the store"));
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
        let mut config = StoreConfig {
            database: Some(url.parse().unwrap()),
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
        config.database = Some(empty.url().replace("postgres@", "lesser@").parse().unwrap());
        let migrate = || migrate_store(&config, &Environment::system());
        assert!(migrate().unwrap_err().to_string().contains("42501"));
        // One that was made for it will do.
        empty.sql("CREATE SCHEMA eigenveil AUTHORIZATION lesser");
        migrate().unwrap();
    });
}

/// A purpose with a character that its encoding has not would be refused by the database, long after.
#[test]
fn a_database_of_another_encoding_is_refused() {
    with_servers(0, async |servers| {
        servers.sql("CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
        let config = StoreConfig {
            database: Some(servers.database.cluster.url("latin1").parse().unwrap()),
            ..servers.config.clone()
        };
        let refused = migrate_store(&config, &Environment::system()).unwrap_err();
        assert!(refused.detail().contains("ENCODING 'UTF8'"), "{refused}");
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
                let conditions = plan.matches("Index Cond").count();
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
                    (statement == TAKE || conditions > 0)
                        && !whole.iter().any(|way| plan.contains(way)),
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

/// A cluster logs all statements: in its log is nothing of reports, of copies, or of a commit that fails, with what is
/// asked for; otherwise a warning comes, and everything is there.
#[test]
fn a_log_of_statements_has_no_reports() {
    let cases: [(&'static [&'static str], bool); 2] = [
        (
            &[
                "log_statement=all",
                "log_parameter_max_length=0",
                "log_parameter_max_length_on_error=-1",
            ],
            true,
        ),
        (&["log_min_duration_statement=0"], false),
    ];
    for (settings, is_asked_for) in cases {
        let Some(cluster) = Cluster::start_with(settings) else {
            return;
        };
        let cluster = Arc::new(cluster);
        let servers = Servers::start(&cluster, 1);
        let store = &servers.stores[0];
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let all = runtime.block_on(async {
            let (study, all) = send(store, 10, |_| ()).await;
            assert_counted(store, &study, &all).await;
            servers.sql(
                "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql
                 AS 'BEGIN RAISE EXCEPTION ''for the test''; END';
                 CREATE TRIGGER fail BEFORE INSERT ON eigenveil.chunks FOR EACH ROW EXECUTE FUNCTION fail()",
            );
            let open = create(store, &of_seeds()).await;
            let failed = store.submit(&open, vec![with_payload(&open, 7, 0x5eed_1e55)]);
            assert!(failed.await.is_err());
            all
        });
        let log = std::fs::read_to_string(cluster.directory().join("log")).unwrap();
        assert!(log.contains("INSERT INTO chunks") && log.contains("for the test"));
        let has = |bytes: &[u8]| {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            log.contains(&hex)
        };
        let parts = all
            .iter()
            .flat_map(|sent| [&sent.id, &sent.seed, &sent.token]);
        assert_eq!(parts.filter(|part| has(part)).count() == 0, is_asked_for);
        assert_eq!(has(&0x5eed_1e55_u32.to_le_bytes()), !is_asked_for);
        let warnings = crate::check(&servers.config).unwrap();
        let warns = warnings
            .iter()
            .any(|warning| warning.contains("log_parameter_max_length = 0"));
        assert_eq!(warns, !is_asked_for, "{warnings:?}");
    }
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
        config: StoreConfig::new(directory.path().join("data")),
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
