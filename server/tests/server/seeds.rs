//! Studies whose reports are seeds: stored as they came, added up when an estimate asks.

use std::{cell::Cell, time::Duration};

use axum::http::{StatusCode, header};
use eigenveil_estimation::{
    Cancel, Request, Source,
    accumulate::{Accumulator, SeedSum},
    estimate,
};
use eigenveil_server::{ServerConfig, StudyId, store::database_path};
use eigenveil_shared::{
    ErrorCode as E,
    api::{BatchReceipt, EstimateDocument, EstimateState, StudyDocument},
    codec,
    estimate::Rank,
    mechanism::double_cap::Seed,
    report::{Report, ReportId},
};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::common::{Harness, new_id, shape};

async fn seed_study(server: &Harness, changes: Value) -> StudyDocument {
    let mut design = json!({"mechanism": "double-cap", "delta": null, "epsilon": 4.0});
    for (key, value) in changes.as_object().unwrap() {
        design[key] = value.clone();
    }
    server.study_with(design).await
}

/// Seeds nobody has had before.
fn new_seed() -> Seed {
    // Any 16 bytes are a seed; an identifier's are as good.
    new_id().0
}

fn report(study: &StudyDocument, id: ReportId, seed: &Seed) -> Vec<u8> {
    codec::encode_report(&Report {
        id,
        fingerprint: shape(study).fingerprint(),
        payload: seed.to_vec(),
    })
}

fn batch(study: &StudyDocument, reports: &[(ReportId, Seed)]) -> Vec<u8> {
    let pairs = reports.iter().map(|(id, seed)| (*id, seed.as_slice()));
    codec::encode_batch(&shape(study), pairs).unwrap()
}

/// Sends so many fresh seeds and gives them back.
async fn send(server: &Harness, study: &StudyDocument, count: usize) -> Vec<Seed> {
    let reports: Vec<_> = (0..count).map(|_| (new_id(), new_seed())).collect();
    for some in reports.chunks(study.max_batch) {
        let answer = server.post_batch(study, batch(study, some)).await;
        assert_eq!(answer.json::<BatchReceipt>().accepted, some.len() as u64);
    }
    reports.into_iter().map(|(_, seed)| seed).collect()
}

fn sum_of(p: usize, seeds: &[Seed]) -> Accumulator {
    let mut sum = SeedSum::new(p).unwrap();
    seeds.iter().for_each(|seed| sum.add(seed));
    sum.finish().unwrap()
}

/// What is stored is exactly these seeds, in whatever order.
#[track_caller]
fn assert_stored(server: &Harness, study: &StudyDocument, seeds: &[Seed]) {
    let store = server.app.store();
    let stored = store.study(StudyId::parse(&study.id).unwrap()).unwrap();
    let moment = store.moment(&stored, Cancel::NEVER).unwrap();
    let n = seeds.len() as u64;
    assert_eq!((moment.n, stored.reports_accepted()), (n, n));
    let p = study.params.report_dimension();
    let mut total = Accumulator::new(p).unwrap();
    for (_, sums) in &moment.buckets {
        total.merge(sums).unwrap();
    }
    assert_eq!(total.count(), n);
    let expected = sum_of(p, seeds);
    for (a, b) in total.sum().as_slice().iter().zip(expected.sum().as_slice()) {
        // Products of directions are made in single precision, here in other blocks.
        assert!((a - b).abs() <= 1e-6 * n as f64, "{a} {b}");
    }
    let connection = Connection::open(database_path(&server.config.data_dir)).unwrap();
    let mut statement = connection.prepare("SELECT seeds FROM seeds").unwrap();
    let blobs: Vec<Vec<u8>> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let mut on_disk: Vec<[u8; 16]> = blobs.concat().as_chunks().0.to_vec();
    let mut wanted = seeds.to_vec();
    on_disk.sort_unstable();
    wanted.sort_unstable();
    assert!(on_disk == wanted, "other seeds are stored than were sent");
}

async fn ask(server: &Harness, study: &StudyDocument) -> String {
    let path = format!("/v1/studies/{}/estimates", study.id);
    let answer = server.operator("POST", &path, Some(json!({"k": 2}))).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    answer.headers[header::LOCATION]
        .to_str()
        .unwrap()
        .to_owned()
}

async fn show(server: &Harness, location: &str) -> EstimateDocument {
    server.operator("GET", location, None).await.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_seeds_are_stored_once_and_survive_a_restart() {
    let server = Harness::new();
    let study = seed_study(&server, json!({"dimension": 5, "centring": 0.7})).await;
    assert_eq!(study.params.report_dimension(), 6);
    assert_stored(&server, &study, &[]);
    let mut seeds = Vec::new();
    for _ in 0..40 {
        let (id, seed) = (new_id(), new_seed());
        let body = report(&study, id, &seed);
        let first = server.post_report(&study, body.clone()).await;
        assert_eq!(first.status, StatusCode::CREATED);
        // Again, also with another seed: the first one counts.
        for body in [body, report(&study, id, &new_seed())] {
            assert_eq!(
                server.post_report(&study, body).await.status,
                StatusCode::OK
            );
        }
        seeds.push(seed);
    }
    let (a, b, c) = (new_id(), new_id(), new_id());
    let reports = [
        (a, new_seed()),
        (b, new_seed()),
        (a, new_seed()),
        (ReportId([0; 16]), new_seed()),
        (c, new_seed()),
    ];
    let receipt: BatchReceipt = server
        .post_batch(&study, batch(&study, &reports))
        .await
        .json();
    assert_eq!((receipt.accepted, receipt.duplicates), (3, 1));
    assert_eq!(receipt.refused.len(), 1);
    seeds.extend([reports[0].1, reports[1].1, reports[4].1]);
    seeds.extend(send(&server, &study, 5_000).await);
    assert_stored(&server, &study, &seeds);

    let server = server.restart();
    assert_stored(&server, &study, &seeds);
    let again: BatchReceipt = server
        .post_batch(&study, batch(&study, &reports[..2]))
        .await
        .json();
    assert_eq!((again.accepted, again.duplicates), (0, 2));
    // A commit of copies only stores nothing, not even its number.
    assert_stored(&server, &study, &seeds);
    seeds.extend(send(&server, &study, 10).await);
    assert_stored(&server, &study, &seeds);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_commit_stores_no_seed() {
    let server = Harness::new();
    let study = seed_study(&server, json!({"dimension": 3})).await;
    let mut seeds = send(&server, &study, 3).await;
    let outside = Connection::open(database_path(&server.config.data_dir)).unwrap();
    for statement in [
        "BEFORE INSERT ON report_ids",
        "BEFORE INSERT ON seeds",
        "BEFORE UPDATE ON studies",
    ] {
        outside
            .execute_batch(&format!(
                "CREATE TRIGGER broken {statement} BEGIN SELECT RAISE(ABORT, 'injected'); END"
            ))
            .unwrap();
        let reports = [(new_id(), new_seed()), (new_id(), new_seed())];
        let answer = server.post_batch(&study, batch(&study, &reports)).await;
        answer.is_problem(503, E::StoreUnavailable);
        assert_stored(&server, &study, &seeds);
        outside.execute_batch("DROP TRIGGER broken").unwrap();
        let answer = server.post_batch(&study, batch(&study, &reports)).await;
        assert_eq!(answer.json::<BatchReceipt>().accepted, 2);
        seeds.extend(reports.map(|(_, seed)| seed));
        assert_stored(&server, &study, &seeds);
    }
    // Seeds that are gone are missed.
    outside
        .execute_batch("DELETE FROM seeds WHERE commit_seq = 0")
        .unwrap();
    let store = server.app.store();
    let stored = store.study(StudyId::parse(&study.id).unwrap()).unwrap();
    let error = store.moment(&stored, Cancel::NEVER).unwrap_err();
    assert_eq!(error.code(), E::StoreUnavailable);
    assert!(error.detail().contains("9 reports"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_over_stored_seeds_is_that_of_one_process() {
    let server = Harness::new();
    let study = seed_study(&server, json!({"dimension": 12})).await;
    let seeds = send(&server, &study, 3_000).await;
    let location = ask(&server, &study).await;
    let done = server.wait_for_estimate(&location).await;
    let request = Request {
        name: "test",
        k: Rank::Fixed(2),
        sparse: None,
        memory_bytes: u64::MAX,
        stream_from: usize::MAX,
    };
    let seeds = vec![seeds];
    let source = Source::Seeds(&seeds);
    let expected = estimate(source, &study.params, &request, Cancel::NEVER);
    let (stored, expected) = match (done.estimate, expected) {
        (Some(stored), Ok(expected)) => (stored, expected),
        // What one process cannot estimate the server cannot either, for the same reason.
        (None, Err(error)) => return assert_eq!(done.problem.unwrap().code, error.code()),
        (stored, expected) => panic!("{stored:?} {expected:?}"),
    };
    assert_eq!((stored.n, stored.p, stored.k), (3_000, 12, 2));
    for (a, b) in stored.eigenvalues.iter().zip(&expected.eigenvalues) {
        assert!((a - b).abs() < 1e-9);
    }
    for (a, b) in stored.components.iter().zip(&expected.components) {
        let inner: f64 = a.loadings.iter().zip(&b.loadings).map(|(x, y)| x * y).sum();
        assert!((inner.abs() - 1.0).abs() < 1e-9);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_study_collects_in_little_memory() {
    let server = Harness::new();
    let before = resident_bytes();
    let study = seed_study(&server, json!({"dimension": 65_536})).await;
    let id = StudyId::parse(&study.id).unwrap();
    assert_eq!(server.app.store().study(id).unwrap().buckets(), 32);
    send(&server, &study, 1_000).await;
    let grown = resident_bytes().saturating_sub(before);
    // Other tests run in this process; one sum would be 17 GB.
    assert!(grown < 1 << 30, "{grown} bytes more than before");
    let location = ask(&server, &study).await;
    let failed = server.wait_for_estimate(&location).await;
    let problem = failed.problem.unwrap();
    assert_eq!((problem.code, problem.status), (E::EstimateFailed, 422));
    for word in ["65536", "51539869696 bytes", "1073741824", "memory_bytes"] {
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
    // Nothing was lost, and more is taken.
    send(&server, &study, 10).await;
    let stored = server.app.store().study(id).unwrap();
    assert_eq!(stored.reports_accepted(), 1_010);
}

/// The memory a study was made for may be gone after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn less_memory_than_before_is_said() {
    let server = Harness::with(|config| ServerConfig {
        memory_bytes: 8 * (100 + 55),
        ..config
    });
    let study = seed_study(&server, json!({"dimension": 10})).await;
    let id = StudyId::parse(&study.id).unwrap();
    let seeds = send(&server, &study, 50).await;
    assert_stored(&server, &study, &seeds);
    let mut server = server;
    server.config.memory_bytes -= 1;
    let server = server.restart();
    let store = server.app.store();
    let error = store
        .moment(&store.study(id).unwrap(), Cancel::NEVER)
        .unwrap_err();
    assert_eq!(error.code(), E::EstimateFailed);
    assert!(error.detail().contains("1240"), "{error}");
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4_096 * pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

/// Adding up for minutes must not keep anybody waiting: the next job, or the end of the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adding_up_can_be_called_off() {
    // The server waits for its estimates as long as it takes: it ends early only because they are called off.
    let server = Harness::with(|config| ServerConfig {
        shutdown_timeout_ms: 24 * 3_600_000,
        ..config
    });
    let study = seed_study(&server, json!({"dimension": 400})).await;
    let small = seed_study(&server, json!({"dimension": 3})).await;
    send(&server, &study, 260_000).await;
    send(&server, &small, 100).await;
    let store = server.app.store();
    let stored = store.study(StudyId::parse(&study.id).unwrap()).unwrap();
    let asked = Cell::new(0);
    let cancel = || {
        asked.set(asked.get() + 1);
        asked.get() == 5
    };
    let error = store.moment(&stored, Cancel::when(&cancel)).unwrap_err();
    assert_eq!((error.code(), asked.get()), (E::EstimateFailed, 5));

    let first = ask(&server, &study).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(show(&server, &first).await.state, EstimateState::Running);
    server.app.close();
    // Not done: what it had begun was given up.
    let state: String = Connection::open(database_path(&server.config.data_dir))
        .unwrap()
        .query_row("SELECT state FROM estimates", [], |row| row.get(0))
        .unwrap();
    assert_eq!(state, "running");
    let server = server.restart();
    // It runs again, and cancelled it lets the next one through.
    server.operator("DELETE", &first, None).await;
    let next = ask(&server, &small).await;
    server.wait_for_estimate(&next).await;
    assert_eq!(show(&server, &first).await.state, EstimateState::Cancelled);
}
