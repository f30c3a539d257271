//! A poisoned batch through the whole server: the estimate says that the buckets disagree.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use axum::http::StatusCode;
use common::{Harness, new_id, shape};
use eigenveil_shared::{
    api::{BatchReceipt, StudyDocument},
    codec,
    estimate::{BucketVerdict, Estimate},
    preprocess::Row,
};
use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};
use serde_json::{Value, json};

const P: usize = 8;
const BATCHES: usize = 60;
const REPORTS: usize = 100;

async fn send(server: &Harness, study: &StudyDocument, payloads: &[Vec<u8>]) {
    let reports = payloads
        .iter()
        .map(|payload| (new_id(), payload.as_slice()));
    let body = codec::encode_batch(&shape(study), reports).unwrap();
    let answer = server.post_batch(study, body).await;
    assert_eq!(answer.status, StatusCode::OK);
    let receipt: BatchReceipt = answer.json();
    assert_eq!(receipt.accepted, payloads.len() as u64, "{receipt:?}");
}

/// The payload of a poisoned report: one seed again and again, or the largest matrix of equal entries that passes the
/// norm test.
fn poison_for(study: &StudyDocument) -> Vec<u8> {
    match shape(study).norm_bound {
        None => vec![7; 16],
        Some(bound) => {
            // Every entry counts at most twice in the squared norm.
            let entries = P * (P + 1) / 2;
            let entry = 0.99 * bound.limit() / (2.0 * entries as f64).sqrt();
            (entry as f32).to_le_bytes().repeat(entries)
        }
    }
}

/// Batches of honest devices; with `poisoned` every 20th repeats one payload.
async fn estimate_of(changes: Value, poisoned: bool) -> Estimate {
    let server = Harness::new();
    let study = server.study_with(changes).await;
    let poison = poison_for(&study);
    let mut rng = ChaCha20Rng::seed_from_u64(21);
    for batch in 0..BATCHES {
        let payloads: Vec<Vec<u8>> = match poisoned && batch % 20 == 7 {
            true => vec![poison.clone(); REPORTS],
            false => (0..REPORTS)
                .map(|_| {
                    let mut row: Vec<f64> = (0..P).map(|_| rng.random_range(-1.0..1.0)).collect();
                    row[0] *= 4.0;
                    let row = study.params.preprocessor().prepare(&Row::new(row)).unwrap();
                    study.params.mechanism().perturb_with(&row, &mut rng)
                })
                .collect(),
        };
        send(&server, &study, &payloads).await;
    }
    let location = server.ask_estimate(&study, json!({"k": 2})).await;
    server.wait_for_estimate(&location).await.estimate.unwrap()
}

fn said(estimate: &Estimate) -> bool {
    let warning = "a poisoned or broken batch may be in the sums";
    estimate.warnings.iter().any(|said| said.contains(warning))
}

/// Honest studies agree, also with private centring; three batches of one payload do not. The honest
/// ones have a fixed seed and a false-alarm rate of 1e-3 each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_batch_is_said() {
    let cap = json!({"dimension": P, "mechanism": "double-cap", "epsilon": 4.0, "delta": 0.0});
    let mut centred = cap.clone();
    centred["centring"] = json!(0.7);
    let gaussian = json!({"dimension": P, "epsilon": 8.0});
    for changes in [cap, centred, gaussian] {
        let honest = estimate_of(changes.clone(), false).await;
        let agreement = honest.bucket_agreement.as_ref().unwrap();
        assert_eq!(agreement.verdict, BucketVerdict::Agree, "{agreement:?}");
        assert_eq!(
            (agreement.false_alarm_rate, agreement.suspicious_buckets),
            (1e-3, 0)
        );
        assert!(!said(&honest), "{:?}", honest.warnings);

        let poisoned = estimate_of(changes, true).await;
        let agreement = poisoned.bucket_agreement.as_ref().unwrap();
        assert_eq!(agreement.verdict, BucketVerdict::Disagree, "{agreement:?}");
        assert!(agreement.statistic > agreement.threshold);
        // Three batches of sixty, in three buckets at most.
        assert!(
            (1..=3).contains(&agreement.suspicious_buckets),
            "{agreement:?}"
        );
        assert!(
            agreement.shift > 0.0 && said(&poisoned),
            "{:?}",
            poisoned.warnings
        );
    }
}
