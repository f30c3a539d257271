//! Queues of several servers over one PostgreSQL.

use std::time::Duration;

use eigenveil_estimation::linalg::Threads;
use eigenveil_shared::api::{EstimateRequest, EstimateState};
use eigenveil_store::{
    Store,
    testing::{
        cluster::Cluster,
        fixtures::create,
        fleet::{Servers, commit, eventually, numbered, of_seeds, with_one_bucket},
    },
};
use tokio::runtime::Runtime;

use super::EstimateQueue;
use crate::metrics::Metrics;

const KEPT: &str = "SELECT upto || ' ' || n FROM eigenveil.sums";

fn start(store: &Store) -> EstimateQueue {
    let metrics = Metrics::new(store.counters(), 1, false);
    EstimateQueue::start(store.clone(), Threads::current(), metrics).unwrap()
}

/// Another server takes a job over and ends at once: the first one computes it after all.
#[test]
fn a_job_that_comes_back_is_computed() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let servers = Servers::start(&cluster, 1);
    let store = &servers.stores[0];
    let queue = start(store);
    Runtime::new().unwrap().block_on(async {
        let study = create(store, &of_seeds()).await;
        let reports = (0..20).map(|number| numbered(&study, number)).collect();
        store.submit(&study, reports).await.unwrap();
        let held = servers
            .hold(
                "BEGIN; LOCK TABLE eigenveil.chunks;
                 SELECT hold_until('EXISTS (SELECT FROM eigenveil.estimates WHERE attempts > 1)'); COMMIT",
            )
            .await;
        queue.add(&study, EstimateRequest::default()).await.unwrap();
        let computing = "SELECT count(*) FROM eigenveil.estimates WHERE holder IS NOT NULL";
        servers.until(computing, "1").await;
        servers.sql(
            "UPDATE eigenveil.estimates SET holder = 7, lease = clock_timestamp() + interval '2 s'",
        );
        held.await.unwrap();
        eventually(async || {
            (store.estimate(&study, 1).unwrap().state != EstimateState::Running).then_some(())
        })
        .await;
    });
    queue.stop(Duration::from_secs(5));
}

/// An estimate keeps what it has added up; so does a server without a job while another one computes one.
#[test]
fn servers_add_up_for_estimates_of_their_own_and_of_others() {
    with_one_bucket(2, async |servers, studies| {
        let [first, second] = [&servers.stores[0], &servers.stores[1]];
        commit(first, &studies[0], 0..8, |number| number).await;
        first
            .add_job(&studies[0], EstimateRequest::default())
            .await
            .unwrap();
        let (_, job) = first.claim_job().unwrap().unwrap();
        let queue = start(second);
        servers.until(KEPT, "8 4096").await;
        first.put_back_job(job.id).unwrap();
        commit(first, &studies[0], 8..16, |number| number).await;
        let ended = async || {
            let state = first.estimate(&studies[0], 1).unwrap().state;
            (state != EstimateState::Running).then_some(state)
        };
        assert_eq!(eventually(ended).await, EstimateState::Done);
        queue
            .add(&studies[1], EstimateRequest::default())
            .await
            .unwrap();
        eventually(async || {
            let state = first.estimate(&studies[0], 2).unwrap().state;
            (state == EstimateState::Done).then_some(())
        })
        .await;
        assert_eq!(servers.sql(KEPT), "16 8192");
        queue.stop(Duration::from_secs(5));
    });
}
