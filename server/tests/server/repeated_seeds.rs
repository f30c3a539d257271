//! A seed that is sent repeatedly, through the whole server. (What else made-up reports do to an estimate:
//! `estimation/tests/estimation/`.)

use eigenveil_shared::{
    api::{ImportResponse, StudyDocument},
    estimate::Estimate,
    preprocess::Row,
};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use serde_json::{Value, json};

use crate::common::{Harness, batch_with, new_id, params};

const P: usize = 8;

async fn send(server: &Harness, study: &StudyDocument, payloads: &[Vec<u8>]) {
    let with_id = |payload| (new_id(), payload);
    let reports: Vec<_> = payloads.iter().map(with_id).collect();
    let receipt = server.receipt(study, batch_with(study, &reports)).await;
    assert_eq!(receipt.accepted, payloads.len() as u64, "{receipt:?}");
}

fn honest(study: &StudyDocument, rng: &mut ChaCha20Rng) -> Vec<u8> {
    let mut row: Vec<f64> = (0..P).map(|_| rng.random_range(-1.0..1.0)).collect();
    row[0] *= 4.0;
    let row = params(study)
        .preprocessor()
        .prepare(&Row::new(row))
        .unwrap();
    params(study).mechanism().perturb_with(&row, rng)
}

async fn estimate(server: &Harness, study: &StudyDocument) -> Estimate {
    let done = server.estimated(study, json!({"k": 2})).await;
    done.estimate.unwrap()
}

fn has(estimate: &Estimate, warning: &str) -> bool {
    assert_eq!(estimate.warnings.len(), estimate.warning_codes.len());
    estimate.warning_codes.iter().any(|code| code == warning)
}

fn cap() -> Value {
    json!({"dimension": P, "mechanism": "double-cap", "epsilon": 4.0, "delta": 0.0})
}

/// One seed in every batch under new identifiers: acknowledged like any other, counted once; also after a restart, an
/// export, and a merge with a study that has it too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_seed_is_counted_once() {
    let server = Harness::new();
    let repeated = server.study_with(cap()).await;
    let once = server.study_with(cap()).await;
    let mut rng = ChaCha20Rng::seed_from_u64(23);
    let again = vec![7; 16];
    for batch in 0..20 {
        let mut payloads: Vec<Vec<u8>> = (0..50).map(|_| honest(&repeated, &mut rng)).collect();
        if batch == 0 {
            payloads.push(again.clone());
        }
        send(&server, &once, &payloads).await;
        payloads.extend(vec![again.clone(); 5]);
        send(&server, &repeated, &payloads).await;
    }
    let compare = async |server: &Harness, n: u64, left_out: u64| {
        let estimated = estimate(server, &repeated).await;
        let wanted = estimate(server, &once).await;
        assert_eq!((estimated.n, wanted.n), (n, 1_001));
        assert_eq!(
            (estimated.duplicate_seeds, wanted.duplicate_seeds),
            (left_out, 0)
        );
        assert!(
            has(&estimated, "repeated-seeds"),
            "{:?}",
            estimated.warnings
        );
        assert!(!has(&wanted, "repeated-seeds"), "{:?}", wanted.warnings);
        for (estimated, wanted) in estimated.eigenvalues.iter().zip(&wanted.eigenvalues) {
            // Sums of directions are single precision, in another order.
            assert!((estimated - wanted).abs() < 1e-6, "{estimated} {wanted}");
        }
    };
    compare(&server, 1_001, 100).await;
    let server = server.restart();
    compare(&server, 1_001, 100).await;
    // A study that shares a seed with it is merged into it.
    let other = server.study_with(cap()).await;
    send(&server, &other, &[again.clone(), again]).await;
    let file = server.export(&other).await;
    let merged: ImportResponse = server.import(Some(&repeated.id), file).await.json();
    assert_eq!(merged.reports, 2);
    assert_eq!(server.accepted(&repeated).await, 1_103);
    compare(&server, 1_001, 102).await;
}
