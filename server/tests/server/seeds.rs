//! Studies whose reports are seeds: stored as received, added up for an estimate.

use std::cell::Cell;

use eigenveil_estimation::{Cancel, Request, Source, estimate};
use eigenveil_shared::{
    ErrorCode as E,
    api::{EstimateState, StudyDocument},
    estimate::ComponentCount,
    mechanism::double_cap::Seed,
};
use eigenveil_store::StudyId;
use serde_json::json;

use crate::common::{Harness, batch_with, new_id, params, waiting::until};

fn new_seed() -> Seed {
    // Any 16 bytes are a seed, even an identifier.
    new_id().0
}

async fn send(server: &Harness, study: &StudyDocument, count: usize) -> Vec<Seed> {
    let reports: Vec<_> = (0..count).map(|_| (new_id(), new_seed())).collect();
    for some in reports.chunks(study.max_batch_reports) {
        let receipt = server.receipt(study, batch_with(study, some)).await;
        assert_eq!(receipt.accepted, some.len() as u64);
    }
    reports.into_iter().map(|(_, seed)| seed).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_from_stored_seeds_equals_one_made_in_process() {
    let server = Harness::new();
    let study = server
        .seed_study(json!({"epsilon": 4.0, "dimension": 12}))
        .await;
    let seeds = send(&server, &study, 3_000).await;
    let done = server.estimated(&study, json!({"k": 2})).await;
    let request = Request {
        name: "test",
        k: ComponentCount::Fixed(2),
        sparse: None,
        memory_bytes: u64::MAX,
        moment: false,
        stream_from: usize::MAX,
    };
    let seeds = vec![seeds];
    let source = Source::Seeds(&seeds);
    let expected = estimate(source, params(&study), &request, Cancel::NEVER);
    let (stored, expected) = match (done.estimate, expected) {
        (Some(stored), Ok(expected)) => (stored, expected),
        // What one process cannot estimate, the server cannot either, for the same reason.
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
    // One that is missing is damage.
    let count_another = "UPDATE studies SET reports_accepted = reports_accepted + 1";
    server.database().execute(count_another, []).unwrap();
    let store = server.app.store();
    let moment = store.bucket_sums(&server.stored(&study), Cancel::NEVER);
    let error = moment.unwrap_err();
    assert!(error.detail().contains("backup"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_study_collects_seeds_in_little_memory() {
    let server = Harness::new();
    let before = resident_bytes();
    let study = server
        .seed_study(json!({"epsilon": 4.0, "dimension": 65_536}))
        .await;
    let id = StudyId::parse(&study.id).unwrap();
    assert_eq!(server.app.store().study(id).unwrap().buckets(), 32);
    send(&server, &study, 1_000).await;
    let grown = resident_bytes().saturating_sub(before);
    // Other tests run in this process; one sum would take 17 GB.
    assert!(grown < 4 << 30, "{grown} bytes more than before");
    let failed = server.estimated(&study, json!({"k": 2})).await;
    let problem = failed.problem.unwrap();
    assert_eq!((problem.code, problem.status), (E::EstimateFailed, 422));
    for word in [
        "65536",
        "51539869696 bytes",
        "1073741824",
        "sum_cache_bytes",
    ] {
        assert!(problem.detail.contains(word), "{}", problem.detail);
    }
    // Nothing was lost, and more reports are accepted.
    send(&server, &study, 10).await;
    let stored = server.app.store().study(id).unwrap();
    assert_eq!(stored.reports_accepted(), 1_010);
}

fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4_096 * pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

/// Adding up for minutes must not block the next job, or the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adding_up_seeds_can_be_cancelled() {
    // The server would wait for its estimates for ever: it stops soon only because they are cancelled.
    let server = Harness::with(|config| config.shutdown_timeout_ms = 24 * 3_600_000);
    // Twenty seconds of adding up, and no more than one chunk of seeds in a bucket.
    let study = server
        .seed_study(json!({"epsilon": 4.0, "dimension": 2_000}))
        .await;
    let small = server
        .seed_study(json!({"epsilon": 4.0, "dimension": 3}))
        .await;
    send(&server, &study, 260_000).await;
    send(&server, &small, 100).await;
    let stored = server.stored(&study);
    let asked = Cell::new(0);
    let cancel = || {
        asked.set(asked.get() + 1);
        asked.get() == 5
    };
    let moment = server
        .app
        .store()
        .bucket_sums(&stored, Cancel::when(&cancel));
    let error = moment.unwrap_err();
    assert_eq!((error.code(), asked.get()), (E::EstimateFailed, 5));

    let first = server.ask_estimate(&study, json!({"k": 2})).await;
    let job = || -> (String, u32) {
        server
            .database()
            .query_row("SELECT state, attempts FROM estimates", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap()
    };
    until("it has begun", async || job().1 == 1).await;
    server.app.close();
    // Not finished: the interrupted job starts over.
    assert_eq!(job(), ("running".to_owned(), 0));
    let server = server.restart();
    // It runs again, and cancelling it lets the next one start.
    server.remove(&first).await;
    server.estimated(&small, json!({"k": 2})).await;
    assert_eq!(server.state_of(&first).await, EstimateState::Cancelled);
}
