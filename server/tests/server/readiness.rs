//! `/readyz` says what keeps reports from being stored, and when it is over.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::http::StatusCode;
use eigenveil_estimation::Cancel;
use eigenveil_server::{ServerConfig, store::database_path};
use eigenveil_shared::{ErrorCode as E, api::StudyDocument, codec};
use rusqlite::Connection;
use serde_json::json;

use crate::common::{Harness, batch, new_id, patience::until, report, shape};

/// Until `/readyz` answers 200.
async fn ready_again(server: &Harness) {
    until("ready again", async || {
        server.get("/readyz").await.status == StatusCode::OK
    })
    .await;
}

fn batch_of_500(study: &StudyDocument) -> Vec<u8> {
    let reports: Vec<_> = (0..500).map(|_| (new_id(), 1.0)).collect();
    batch(study, &reports)
}

/// A server whose store refuses to be written says so, and says when it is over.
#[tokio::test]
async fn readiness_follows_the_store() {
    let server = Harness::new();
    let study = server.study(3).await;
    let outside = rusqlite::Connection::open(database_path(&server.config.data_dir)).unwrap();
    outside
        .execute_batch(
            "CREATE TRIGGER broken BEFORE INSERT ON report_ids BEGIN SELECT RAISE(ABORT, 'injected'); END;
             CREATE TRIGGER broken_too BEFORE INSERT ON settings BEGIN SELECT RAISE(ABORT, 'injected'); END;",
        )
        .unwrap();
    let refused = server
        .post_report(&study, report(&study, new_id(), 1.0))
        .await;
    refused.is_problem(503, E::StoreUnavailable);
    server
        .get("/readyz")
        .await
        .is_problem(503, E::StoreUnavailable);
    outside
        .execute_batch("DROP TRIGGER broken; DROP TRIGGER broken_too")
        .unwrap();
    ready_again(&server).await;
    let accepted = server
        .post_report(&study, report(&study, new_id(), 1.0))
        .await;
    assert_eq!(accepted.status, StatusCode::CREATED);
}

/// A store that has its `store_bytes` is not ready, although an entry that is there already could still be changed.
#[tokio::test]
async fn a_full_store_is_not_ready_until_there_is_room() {
    let server = Harness::with(|config| ServerConfig {
        store_bytes: Some(1 << 20),
        ..config
    });
    let [ballast, study] = [server.study(3).await, server.study(3).await];
    for _ in 0..16 {
        let answer = server.post_batch(&ballast, batch_of_500(&ballast)).await;
        assert_eq!(answer.status, StatusCode::OK);
    }
    // Of 30,000 identifiers some megabyte is full.
    let mut batches = 0;
    loop {
        let answer = server.post_batch(&study, batch_of_500(&study)).await;
        if answer.status != StatusCode::OK {
            answer.is_problem(507, E::StoreFull);
            break;
        }
        batches += 1;
        assert!(batches < 1_000, "a megabyte holds more than it should");
    }
    for _ in 0..3 {
        let answer = server.get("/readyz").await;
        let problem = answer.is_problem(503, E::StoreUnavailable);
        assert!(problem.detail.contains("no room"), "{}", problem.detail);
        assert_eq!(answer.headers["retry-after"], "5");
    }
    let path = format!("/v1/studies/{}", ballast.id);
    server
        .operator("POST", &format!("{path}/close"), None)
        .await;
    let deleted = server.operator("DELETE", &path, None).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    ready_again(&server).await;
    let answer = server.post_batch(&study, batch_of_500(&study)).await;
    assert_eq!(answer.status, StatusCode::OK);
}

/// Damage stays said, although what is written elsewhere in the file goes through.
#[tokio::test]
async fn a_damaged_store_is_not_ready_any_more() {
    let server = Harness::new();
    let study = server
        .study_with(json!({"mechanism": "double-cap", "delta": null}))
        .await;
    let accepted = server.post_report(&study, seed_report(&study)).await;
    assert_eq!(accepted.status, StatusCode::CREATED);
    assert_eq!(server.get("/readyz").await.status, StatusCode::OK);
    let outside = Connection::open(database_path(&server.config.data_dir)).unwrap();
    outside
        .execute(
            "UPDATE studies SET reports_accepted = reports_accepted + 1",
            [],
        )
        .unwrap();
    // Reading for an estimate meets it.
    let stored = server.app.store().studies()[0].clone();
    let error = server
        .app
        .store()
        .moment(&stored, Cancel::NEVER)
        .unwrap_err();
    assert!(error.detail().contains("backup"), "{error}");
    let accepted = server.post_report(&study, seed_report(&study)).await;
    assert_eq!(accepted.status, StatusCode::CREATED);
    for _ in 0..2 {
        let problem = server
            .get("/readyz")
            .await
            .is_problem(503, E::StoreUnavailable);
        assert!(problem.detail.contains("damaged"), "{}", problem.detail);
        assert!(problem.detail.contains("backup"), "{}", problem.detail);
    }
}

fn seed_report(study: &StudyDocument) -> Vec<u8> {
    codec::encode_report(&eigenveil_shared::report::Report {
        id: new_id(),
        fingerprint: shape(study).fingerprint(),
        payload: vec![7; 16],
    })
}

/// Somebody else holds the database, so that the writer is stuck, and the queue behind it fills up. Every five seconds the
/// writer gives one request up, so that devices go on sending until the queue has been seen full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_does_not_move_is_not_ready() {
    let server = Harness::with(|config| ServerConfig {
        queue_requests: 2,
        ..config
    });
    let study = server.study(3).await;
    let outside = Connection::open(database_path(&server.config.data_dir)).unwrap();
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
            let answer = server.get("/readyz").await;
            answer.status != StatusCode::OK
                && refused.load(Ordering::Relaxed)
                && answer
                    .is_problem(503, E::StoreUnavailable)
                    .detail
                    .contains("queue of writes is full")
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
    // Reports go through again.
    let body = report(&study, new_id(), 1.0);
    assert_eq!(
        server.post_report(&study, body).await.status,
        StatusCode::CREATED
    );
}
