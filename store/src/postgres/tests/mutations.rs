//! Mistakes of the fleet that a test has to notice.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::runtime::Runtime;

use super::counted;
use crate::{
    contract::decide::SubmitOutcome,
    postgres::testing::{Servers, numbered, of_seeds, with_servers},
    testing::{
        cluster::Cluster,
        fixtures::{create, report},
    },
};

/// Two servers insert the same identifiers at once: PostgreSQL finds no deadlock.
#[test]
fn locks_are_taken_in_order() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let servers = Servers::start(&cluster, 2);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let study = create(&servers.stores[0], &of_seeds()).await;
        let everywhere = servers.everywhere(&study).await;
        for round in 0..15 {
            let mut tasks = tokio::task::JoinSet::new();
            for (number, store) in servers.stores.iter().enumerate() {
                for study in [&everywhere[number]; 4] {
                    let reports = (0..300).map(|n| numbered(study, 1_000 * round + n));
                    let (reports, store) = (reports.collect(), store.clone());
                    let study = Arc::clone(study);
                    tasks.spawn(async move { store.submit(&study, reports).await.is_ok() });
                }
            }
            tasks.join_all().await;
        }
        assert_eq!(counted(&servers.stores[0], &everywhere[0]), 4_500);
    });
    let select = "SELECT pg_stat_force_next_flush(); SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(servers.found(select), 0);
}

/// By a statement that sorts them: an UPDATE takes them in the order of its plan, which today happens to be the same.
#[test]
fn buckets_are_locked_in_order() {
    with_servers(1, async |servers| {
        let store = &servers.stores[0];
        let study = create(store, &of_seeds()).await;
        let lock = "BEGIN; SELECT 1 FROM eigenveil.buckets FOR UPDATE; SELECT hold_until_waited_for();
                    SELECT query FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))";
        let waiting = servers.hold(lock).await;
        let sent = store.submit(&study, vec![report(&study, 1)]).await;
        assert_eq!(sent.unwrap(), [SubmitOutcome::Accepted]);
        let waiting = waiting.await.unwrap();
        assert!(waiting.contains("ORDER BY b.study, b.bucket"), "{waiting}");
    });
}

/// The outcome of a report whose commit gets its lock after the study's last moment.
fn after_the_last_moment(clock: &str) -> Option<SubmitOutcome> {
    let servers = Servers::start(&Cluster::shared()?, 1);
    servers.sql(&format!(
        "CREATE OR REPLACE FUNCTION eigenveil.moment() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT {clock}'"
    ));
    let store = &servers.stores[0];
    let runtime = Runtime::new().unwrap();
    let outcomes = runtime.block_on(async {
        let study = create(store, &of_seeds()).await;
        let end = "BEGIN; SELECT 1 FROM eigenveil.buckets FOR UPDATE; SELECT hold_until_waited_for();
                   UPDATE eigenveil.buckets SET until = clock_timestamp(); SELECT pg_sleep(0.01); COMMIT";
        let ending = servers.hold(end).await;
        let outcomes = store.submit(&study, vec![report(&study, 1)]).await.unwrap();
        ending.await.unwrap();
        outcomes
    });
    Some(outcomes[0])
}

#[test]
fn a_lock_got_after_the_last_moment_counts_nothing() {
    let Some(outcome) = after_the_last_moment("clock_timestamp()") else {
        return;
    };
    assert_eq!(outcome, SubmitOutcome::Ended);
    // The time at which the transaction began.
    assert_eq!(
        after_the_last_moment("now()"),
        Some(SubmitOutcome::Accepted)
    );
}

/// A commit that wrote nothing would not wait.
#[test]
fn a_duplicate_waits_for_the_standby_like_its_original() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    let servers = Servers::start(&cluster, 1);
    let store = &servers.stores[0];
    Runtime::new().unwrap().block_on(async {
        let study = create(store, &of_seeds()).await;
        let set = |value: &str| cluster.set("synchronous_standby_names", value);
        set("nobody");
        let send = || {
            let (store, study) = (store.clone(), Arc::clone(&study));
            tokio::spawn(async move { store.submit(&study, vec![report(&study, 1)]).await })
        };
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let original = send();
        servers.until(waiting, "1").await;
        // The wait is cancelled: the row is visible from now on, and no standby has it.
        let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        cluster.sql("postgres", cancel);
        servers.until("SELECT count(*) FROM eigenveil.identifiers", "1").await;
        let mut copies = vec![original, send()];
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) && !copies.iter().any(tokio::task::JoinHandle::is_finished) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!copies.iter().any(tokio::task::JoinHandle::is_finished));
        set("");
        for copy in copies.drain(..) {
            assert!(copy.await.unwrap().is_ok());
        }
        assert_eq!(counted(store, &study), 1);
    });
}
