//! Databases and servers over a real PostgreSQL, for tests: clusters of their own, as another user where this one is
//! root. Where there is no PostgreSQL they say SKIPPED.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail that way")]

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{Postgres, migrate_store};
pub use crate::testing::fixtures::{numbered, of_seeds, with_payload};
use crate::{
    Store,
    config::StoreConfig,
    contract::{
        decide::SubmitOutcome,
        study::{Study, StudyId},
    },
    environment::Environment,
    testing::{cluster::Cluster, fixtures::create},
};

/// An empty database.
pub struct Database {
    pub(super) cluster: Arc<Cluster>,
    name: String,
}

impl Database {
    /// One in the cluster that other tests use, too.
    pub fn create() -> Self {
        Self::in_cluster(Cluster::shared().expect("looked for before"))
    }

    /// One in this cluster.
    pub fn in_cluster(cluster: Arc<Cluster>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        cluster.sql("postgres", &format!("CREATE DATABASE {name}"));
        cluster.sql(&name, HOLD_UNTIL);
        Self { cluster, name }
    }

    /// Its address.
    pub fn url(&self) -> String {
        self.cluster.url(&self.name)
    }

    /// Makes the tables, and a configuration that uses them.
    pub fn migrate(&self, config: &mut StoreConfig) {
        self.migrate_at(config, &self.url());
    }

    fn migrate_at(&self, config: &mut StoreConfig, url: &str) {
        config.database = Some(url.parse().unwrap());
        let migrated = migrate_store(config, &Environment::system()).unwrap();
        assert!(migrated.operator_token.unwrap().is_file());
    }

    /// From now on the database's time stands still.
    pub fn set_clock(&self, unix_ms: u64) {
        self.sql(&format!(
            "CREATE OR REPLACE FUNCTION eigenveil.moment() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS 'SELECT to_timestamp({unix_ms}::bigint / 1000.0)'"
        ));
    }

    /// Ends the connections of all servers.
    pub fn cut_off(&self) {
        self.sql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE datname = current_database() AND pid != pg_backend_pid()",
        );
    }

    /// The answer of a query.
    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }
}

/// Shows what other servers have done.
pub fn refresh(store: &Store) {
    if let Some(fleet) = engine(store) {
        fleet.wait(fleet.inner.refresh()).unwrap();
    }
}

/// A column of blobs of one study.
pub fn blobs(store: &Store, query: &str, study: StudyId) -> Vec<Vec<u8>> {
    let inner = &fleet(store).inner;
    inner.wait(async {
        let session = inner.pool.take().await.unwrap();
        let rows = session.query(query, &[&study.0.as_slice()]).await.unwrap();
        session.done();
        rows.iter().map(|row| row.get(0)).collect()
    })
}

/// Functions for a transaction that holds something: until a condition is met, or until somebody waits for it.
const HOLD_UNTIL: &str = "
    CREATE FUNCTION hold_until(condition text) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE met boolean;
    BEGIN
        FOR i IN 1..6000 LOOP
            EXECUTE 'SELECT ' || condition INTO met;
            IF met THEN RETURN; END IF;
            PERFORM pg_sleep(0.05);
        END LOOP;
        RAISE EXCEPTION 'held for five minutes: %', condition;
    END $$;
    CREATE FUNCTION hold_until_waited_for() RETURNS void LANGUAGE sql AS $$
        SELECT public.hold_until(
            'EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))')
    $$";

/// Sessions of a database that sleep.
pub const SLEEPS: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";

/// Servers over one database.
pub struct Servers {
    /// The store of each.
    pub stores: Vec<Store>,
    /// Their settings.
    pub config: StoreConfig,
    pub(super) database: Database,
    pub(super) _directory: TempDir,
}

impl Servers {
    /// So many over a new database.
    pub fn start(cluster: &Arc<Cluster>, number: usize) -> Self {
        Self::start_behind(cluster, &[], number)
    }

    /// Servers that use the standby where it has become the primary.
    pub fn start_behind(cluster: &Arc<Cluster>, standbys: &[&Cluster], number: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut config = StoreConfig::new(directory.path().join("data"));
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

    /// The address of their database.
    pub fn url(&self) -> String {
        self.database.url()
    }

    /// The answer of a query of their database.
    pub fn sql(&self, sql: &str) -> String {
        self.database.sql(sql)
    }

    /// Runs a query like [`sql`](Self::sql) on a thread of its own, and returns once it sleeps.
    pub async fn hold(&self, sql: &str) -> tokio::task::JoinHandle<String> {
        let (cluster, name) = (
            Arc::clone(&self.database.cluster),
            self.database.name.clone(),
        );
        let sql = sql.to_owned();
        let held = tokio::task::spawn_blocking(move || cluster.sql(&name, &sql));
        self.until(SLEEPS, "1").await;
        held
    }

    /// Until this is what a query finds.
    pub async fn until(&self, query: &str, wanted: &str) {
        eventually(async || (self.sql(query) == wanted).then_some(())).await;
    }

    /// A number, once the servers have ended and told the database what they know.
    pub fn found(self, sql: &str) -> u64 {
        drop(self.stores);
        std::thread::sleep(Duration::from_millis(500));
        self.database.sql(sql).trim().parse().unwrap()
    }

    /// The refusal of a start with this address, and of a check. It has no password.
    pub fn refusal(&self, url: &str) -> String {
        let config = StoreConfig {
            database: Some(url.parse().unwrap()),
            ..self.config.clone()
        };
        let opened = Store::open(&config, Environment::system()).map(drop);
        let checked = crate::check(&config).map(drop);
        assert_eq!(checked, opened);
        let text = opened.unwrap_err().to_string();
        assert!(!text.contains("secret"), "{text}");
        text
    }

    /// The study as each server has it, once all of them do.
    pub async fn everywhere(&self, study: &Study) -> Vec<Arc<Study>> {
        let mut results = Vec::new();
        for store in &self.stores {
            results.push(eventually(async || store.study(study.id()).ok()).await);
        }
        results
    }
}

/// Runs this with so many servers over an empty database, where there is PostgreSQL.
pub fn with_servers(number: usize, test: impl AsyncFnOnce(&Servers)) {
    if let Some(cluster) = Cluster::shared() {
        let servers = Servers::start(&cluster, number);
        Runtime::new().unwrap().block_on(test(&servers));
    }
}

/// The first result of `look`, within five minutes.
pub async fn eventually<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "what is waited for does not come"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn engine(store: &Store) -> Option<&Postgres> {
    let engine: &dyn Any = &*store.shared.engine;
    engine.downcast_ref()
}

/// The engine of a store.
pub(super) fn fleet(store: &Store) -> &Postgres {
    engine(store).unwrap()
}

/// Runs this with so many servers, and a study of seeds with one bucket as each of them has it.
pub fn with_one_bucket(number: usize, test: impl AsyncFnOnce(&Servers, &[Arc<Study>])) {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let mut servers = Servers::start(&cluster, 1);
    Runtime::new().unwrap().block_on(async {
        let id = create(&servers.stores[0], &of_seeds()).await.id();
        servers.sql(
            "UPDATE eigenveil.studies SET buckets = 1; DELETE FROM eigenveil.buckets WHERE bucket > 0;
             DELETE FROM eigenveil.sums WHERE bucket > 0",
        );
        let open = || Store::open(&servers.config, Environment::system()).unwrap();
        servers.stores = (0..number).map(|_| open()).collect();
        let studies = servers.stores.iter().map(|store| store.study(id).unwrap());
        test(&servers, &studies.collect::<Vec<_>>()).await;
    });
}

/// These commits: 512 reports each, as many as are multiplied at once, so that sums do not depend on where others
/// end. `seed`: of a report with this number.
pub async fn commit(
    store: &Store,
    study: &Arc<Study>,
    commits: std::ops::Range<u32>,
    seed: fn(u32) -> u32,
) {
    for commit in commits {
        let reports = (512 * commit..512 * commit + 512)
            .map(|number| with_payload(study, number, seed(number)))
            .collect();
        let outcomes = store.submit(study, reports).await.unwrap();
        assert!(
            outcomes
                .iter()
                .all(|outcome| *outcome == SubmitOutcome::Accepted)
        );
    }
}
