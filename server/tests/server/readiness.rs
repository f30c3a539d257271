//! `/readyz` reports what keeps reports from being stored, and when it is over. (Damage: `faults.rs`.)

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::http::StatusCode;
use eigenveil_shared::ErrorCode as E;

use crate::common::{Harness, new_id, refused, report, waiting::until};

async fn ready_again(server: &Harness) {
    until("ready again", async || {
        server.get("/readyz").await.status == StatusCode::OK
    })
    .await;
}

/// A server that cannot write to its store reports it, and reports when it is over.
#[tokio::test]
async fn readiness_follows_the_store() {
    let server = Harness::new();
    let study = server.study(3).await;
    let outside = server.database();
    outside
        .execute_batch(
            "CREATE TRIGGER broken BEFORE INSERT ON report_ids BEGIN SELECT RAISE(ABORT, 'injected'); END;
             CREATE TRIGGER broken_too BEFORE INSERT ON settings BEGIN SELECT RAISE(ABORT, 'injected'); END;",
        )
        .unwrap();
    let sent = server.post_report(&study, report(&study, new_id(), 1.0));
    refused(sent, 503, E::StoreUnavailable).await;
    refused(server.get("/readyz"), 503, E::StoreUnavailable).await;
    outside
        .execute_batch("DROP TRIGGER broken; DROP TRIGGER broken_too")
        .unwrap();
    ready_again(&server).await;
    server.count_one(&study).await;
}

/// Another connection locks the database, so that the writer is stuck and its queue fills up. Every five seconds the
/// writer gives one request up, so devices keep sending until the full queue has been seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stuck_queue_is_not_ready() {
    let server = Harness::with(|config| config.tuning.max_queued_requests = 2);
    let study = server.study(3).await;
    let outside = server.database();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (server, seen) = (Arc::new(server), Arc::new(AtomicBool::new(false)));
    let refused = Arc::new(AtomicBool::new(false));
    let devices: Vec<_> = (0..8)
        .map(|_| {
            let (server, seen, study) = (Arc::clone(&server), Arc::clone(&seen), study.clone());
            let refused = Arc::clone(&refused);
            tokio::spawn(async move {
                let mut statuses = Vec::new();
                while !seen.load(Ordering::Relaxed) {
                    let body = report(&study, new_id(), 1.0);
                    let status = server.post_report(&study, body).await.status;
                    refused.fetch_or(status == StatusCode::TOO_MANY_REQUESTS, Ordering::Relaxed);
                    statuses.push(status);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                statuses
            })
        })
        .collect();
    until(
        "the queue is said to be full, and somebody is refused",
        async || {
            let response = server.get("/readyz").await;
            response.status != StatusCode::OK
                && refused.load(Ordering::Relaxed)
                && response
                    .is_problem(503, E::StoreUnavailable)
                    .detail
                    .contains("write queue is full")
        },
    )
    .await;
    seen.store(true, Ordering::Relaxed);
    outside.execute_batch("COMMIT").unwrap();
    ready_again(&server).await;
    let mut statuses = Vec::new();
    for device in devices {
        statuses.extend(device.await.unwrap());
    }
    let answered = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert!(answered(StatusCode::TOO_MANY_REQUESTS) > 0);
    let accepted = answered(StatusCode::CREATED);
    assert_eq!(server.accepted(&study).await, accepted as u64);
    // Reports are accepted again.
    let body = report(&study, new_id(), 1.0);
    server.counts(&study, body).await;
}
