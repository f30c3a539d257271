//! Stores that are old: written by the first released program, or kept for longer than their identifiers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::http::StatusCode;
use eigenveil_estimation::Cancel;
use eigenveil_estimation::accumulate::SeedSum;
use eigenveil_server::{ServerConfig, StudyId, store::database_path};
use eigenveil_shared::{
    ErrorCode as E,
    api::{EstimateDocument, EstimateState, StudyDocument},
    codec,
    report::{Report, ReportId},
};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use crate::common::{Harness, SetClock, patience::until, report, shape};

/// A data directory as the first released program left it.
fn first_release() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let connection = Connection::open(database_path(directory.path())).unwrap();
    connection
        .execute_batch(include_str!("../first_schema.sql"))
        .unwrap();
    directory
}

fn old_id(end: &str) -> ReportId {
    let hex = format!("018bcfe568007000800000000000{end:0>4}");
    ReportId(
        eigenveil_shared::study::from_hex(&hex)
            .unwrap()
            .try_into()
            .unwrap(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_of_the_first_release_goes_on() {
    let server = Harness::over(first_release(), "token-of-the-first-release");
    let [integers, seeds] = [
        "000102030405060708090a0b0c0d0e0f",
        "101112131415161718191a1b1c1d1e1f",
    ]
    .map(|id| {
        let store = server.app.store();
        store.study(StudyId::parse(id).unwrap()).unwrap().document()
    });
    assert_eq!(
        (integers.name.as_str(), integers.reports_accepted),
        ("integers", 2)
    );
    assert_eq!((seeds.name.as_str(), seeds.reports_accepted), ("seeds", 3));
    // Nobody had asked for what participants are told.
    assert!(integers.about.is_empty() && seeds.about.is_empty());
    // The sums, exactly.
    assert_eq!(server.total(&integers), [101.0, -5.0, 33.0]);
    let mut expected = SeedSum::new(3).unwrap();
    let first = 1_u128.to_be_bytes();
    for seed in [first, [0x11; 16], [0x22; 16]] {
        expected.add(&seed);
    }
    let expected = expected.finish().unwrap();
    let total = {
        let store = server.app.store();
        let study = store.study(StudyId::parse(&seeds.id).unwrap()).unwrap();
        let mut total = vec![0.0; 6];
        for (_, sums) in store.moment(&study, Cancel::NEVER).unwrap().buckets {
            total
                .iter_mut()
                .zip(sums.sum().as_slice())
                .for_each(|(t, x)| *t += x);
        }
        total
    };
    for (got, wanted) in total.iter().zip(expected.sum().as_slice()) {
        // Products of directions are made in single precision.
        assert!((got - wanted).abs() < 1e-6, "{got} {wanted}");
    }
    // The identifiers: a retry is a duplicate, in the open study and in the closed one.
    let retry = |study: &StudyDocument, end: &str| {
        codec::encode_report(&Report {
            id: old_id(end),
            fingerprint: shape(study).fingerprint(),
            payload: vec![0; shape(study).payload_len()],
        })
    };
    for (study, end) in [(&integers, "a1"), (&integers, "a2"), (&seeds, "b3")] {
        let answer = server.post_report(study, retry(study, end)).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    }
    let new = server.post_report(&integers, retry(&integers, "c1")).await;
    assert_eq!(new.status, StatusCode::CREATED, "{new:?}");
    let late = server.post_report(&seeds, retry(&seeds, "c2")).await;
    late.is_problem(409, E::StudyNotOpen);
    // The job that waited is computed, the cancelled one stays so.
    let path = format!("/v1/studies/{}/estimates/1", integers.id);
    let job = server.wait_for_estimate(&path).await;
    assert_eq!(job.state, EstimateState::Done, "{:?}", job.problem);
    let path = format!("/v1/studies/{}/estimates/1", seeds.id);
    let job: EstimateDocument = server.operator("GET", &path, None).await.json();
    assert_eq!(job.state, EstimateState::Cancelled);
    // What is new works on what is old.
    for study in [&integers, &seeds] {
        let path = format!("/v1/studies/{}/export", study.id);
        assert_eq!(
            server.operator("GET", &path, None).await.status,
            StatusCode::OK
        );
    }
    let fresh = server.study_with(json!({})).await;
    let server = server.restart_over("token-of-the-first-release");
    assert_eq!(server.accepted(&integers).await, 3);
    assert_eq!(server.app.store().studies().len(), 3);
    assert_eq!(fresh.reports_accepted, 0);
    let version: i64 = Connection::open(database_path(&server.config.data_dir))
        .unwrap()
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert!(version >= 2);
}

/// A clock that is set.
const DAY_MS: u64 = 86_400_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identifiers_of_closed_studies_go_after_their_time() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        retain_ids_days: Some(30),
        ..ServerConfig::new(directory.path().join("data"))
    };
    let clock = Arc::new(SetClock(AtomicU64::new(1_700_000_000_000)));
    let start = |directory: TempDir| Harness::at(directory, config.clone(), &clock);
    let server = start(directory);
    let (open, closed) = (server.study(3).await, server.study(3).await);
    for study in [&open, &closed] {
        for end in ["1", "2", "3"] {
            let answer = server
                .post_report(study, report(study, old_id(end), 1.0))
                .await;
            assert_eq!(answer.status, StatusCode::CREATED);
        }
    }
    let path = format!("/v1/studies/{}/close", closed.id);
    server.operator("POST", &path, None).await;
    let identifiers = |study: &StudyDocument| -> u64 {
        let id = StudyId::parse(&study.id).unwrap();
        Connection::open(database_path(&config.data_dir))
            .unwrap()
            .query_row(
                "SELECT count(*) FROM report_ids JOIN studies USING (study) WHERE studies.id = ?",
                [id.0],
                |row| row.get(0),
            )
            .unwrap()
    };
    let stop = |server: Harness| server.stop().0;
    // A day before the time is up, and with a clock that went back, everything is there.
    let mut directory = stop(server);
    for now in [1_700_000_000_000 + 29 * DAY_MS, 0] {
        clock.0.store(now, Ordering::Relaxed);
        let server = start(directory);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((identifiers(&open), identifiers(&closed)), (3, 3));
        let retried = server
            .post_report(&closed, report(&closed, old_id("1"), 1.0))
            .await;
        assert_eq!(retried.status, StatusCode::OK);
        directory = stop(server);
    }
    clock
        .0
        .store(1_700_000_000_000 + 31 * DAY_MS, Ordering::Relaxed);
    let server = start(directory);
    until("the identifiers are gone", async || {
        identifiers(&closed) == 0
    })
    .await;
    assert_eq!(identifiers(&open), 3);
    // The sums stay; a late retry is refused and changes nothing; an export would forget what was counted.
    let late = server
        .post_report(&closed, report(&closed, old_id("1"), 1.0))
        .await;
    late.is_problem(409, E::StudyNotOpen);
    assert_eq!(server.accepted(&closed).await, 3);
    let export = format!("/v1/studies/{}/export", closed.id);
    let problem = server
        .operator("GET", &export, None)
        .await
        .is_problem(409, E::InvalidTransition);
    assert!(problem.detail.contains("backup"), "{}", problem.detail);
}
