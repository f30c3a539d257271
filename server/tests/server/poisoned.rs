//! Poisoned reports through the whole server: a batch that disagrees, a seed sent repeatedly, evenly spread poison.

use std::sync::{Arc, Mutex};

use eigenveil_server::{Entropy, Environment};
use eigenveil_shared::{
    api::{ImportResponse, StudyDocument},
    estimate::{BucketVerdict, Estimate, Feasibility},
    mechanism::double_cap::{Seed, expand},
    preprocess::Row,
};
use rand::{Rng, RngExt, SeedableRng, rngs::ChaCha20Rng};
use serde_json::{Value, json};

use crate::common::{Harness, batch_with, data, environment, format_of, new_id};

const P: usize = 8;
const BATCHES: usize = 60;
const REPORTS: usize = 100;
const BATCH: &str = "buckets-disagree";

/// A server whose buckets are drawn from a seed: their test has a false-alarm rate.
struct Seeded(Mutex<ChaCha20Rng>);

impl Entropy for Seeded {
    fn fill(&self, buffer: &mut [u8]) -> eigenveil_shared::Result<()> {
        self.0.lock().unwrap().fill_bytes(buffer);
        Ok(())
    }
}

async fn send(server: &Harness, study: &StudyDocument, payloads: &[Vec<u8>]) {
    let with_id = |payload| (new_id(), payload);
    let reports: Vec<_> = payloads.iter().map(with_id).collect();
    let receipt = server.receipt(study, batch_with(study, &reports)).await;
    assert_eq!(receipt.accepted, payloads.len() as u64, "{receipt:?}");
}

/// A poisoned report: the first random seed close enough to an axis, or the largest matrix of equal entries that passes
/// the norm check.
fn poison(study: &StudyDocument, share: f64, rng: &mut ChaCha20Rng) -> Vec<u8> {
    match format_of(study).norm_bound() {
        None => seed_beyond(study, share, rng),
        Some(bound) => {
            // Every entry counts at most twice in the squared norm.
            let entries = P * (P + 1) / 2;
            let entry = 0.99 * bound.limit() / (2.0 * entries as f64).sqrt();
            (entry as f32).to_le_bytes().repeat(entries)
        }
    }
}

fn seed_beyond(study: &StudyDocument, share: f64, rng: &mut ChaCha20Rng) -> Vec<u8> {
    let mut z = vec![0.0; study.params.report_dimension()];
    loop {
        let seed: Seed = rng.random();
        let squared_length = expand(&seed, &mut z);
        if z[5] * z[5] > share * squared_length {
            return seed.to_vec();
        }
    }
}

fn honest(study: &StudyDocument, rng: &mut ChaCha20Rng) -> Vec<u8> {
    let mut row: Vec<f64> = (0..P).map(|_| rng.random_range(-1.0..1.0)).collect();
    row[0] *= 4.0;
    let row = study.params.preprocessor().prepare(&Row::new(row)).unwrap();
    study.params.mechanism().perturb_with(&row, rng)
}

async fn estimate(server: &Harness, study: &StudyDocument) -> Estimate {
    let done = server.estimated(study, json!({"k": 2})).await;
    done.estimate.unwrap()
}

/// Batches of honest devices, except for the reports that `poisoned` specifies by batch and position.
async fn estimate_of(
    study: Value,
    (seed, share): (u64, f64),
    poisoned: impl Fn(usize, usize) -> bool,
) -> Estimate {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let environment = Environment {
        entropy: Arc::new(Seeded(Mutex::new(ChaCha20Rng::seed_from_u64(seed)))),
        ..environment()
    };
    let (directory, config) = data();
    let server = Harness::open(directory, config, environment);
    let study = server.study_with(study).await;
    for batch in 0..BATCHES {
        let payloads: Vec<Vec<u8>> = (0..REPORTS)
            .map(|place| match poisoned(batch, place) {
                true => poison(&study, share, &mut rng),
                false => honest(&study, &mut rng),
            })
            .collect();
        send(&server, &study, &payloads).await;
    }
    estimate(&server, &study).await
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
    let poison = poison(&repeated, 0.9, &mut rng);
    for batch in 0..20 {
        let mut payloads: Vec<Vec<u8>> = (0..50).map(|_| honest(&repeated, &mut rng)).collect();
        if batch == 0 {
            payloads.push(poison.clone());
        }
        send(&server, &once, &payloads).await;
        payloads.extend(vec![poison.clone(); 5]);
        send(&server, &repeated, &payloads).await;
    }
    let compare = async |server: &Harness, n: u64, left_out: u64| {
        let found = estimate(server, &repeated).await;
        let wanted = estimate(server, &once).await;
        assert_eq!((found.n, wanted.n), (n, 1_001));
        assert_eq!(
            (found.duplicate_seeds, wanted.duplicate_seeds),
            (left_out, 0)
        );
        assert!(has(&found, "repeated-seeds"), "{:?}", found.warnings);
        assert!(!has(&wanted, "repeated-seeds"), "{:?}", wanted.warnings);
        for (found, wanted) in found.eigenvalues.iter().zip(&wanted.eigenvalues) {
            // Sums of directions are single precision, in another order.
            assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
        }
    };
    compare(&server, 1_001, 100).await;
    let server = server.restart();
    compare(&server, 1_001, 100).await;
    // A study that shares a seed with it is merged into it.
    let other = server.study_with(cap()).await;
    send(&server, &other, &[poison.clone(), poison]).await;
    let file = server.export(&other).await;
    let merged: ImportResponse = server.import(Some(&repeated.id), file).await.json();
    assert_eq!(merged.reports, 2);
    assert_eq!(server.accepted(&repeated).await, 1_103);
    compare(&server, 1_001, 102).await;
}

/// Poison in every batch, so that the buckets agree: chosen seeds, and long rows. Honest studies get no such warning (a
/// false-alarm rate of 1e-3 each, fixed seeds).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evenly_spread_poison_is_reported() {
    let gaussian = json!({"dimension": P, "epsilon": 8.0});
    for (study, poisoned, warning) in [(cap(), 6, "chosen-seeds"), (gaussian, 15, "rows-too-long")]
    {
        let clean = estimate_of(study.clone(), (22, 0.9), |_, _| false).await;
        let check = clean.feasibility.as_ref().unwrap();
        assert_eq!(check.verdict, Feasibility::Feasible, "{check:?}");
        assert!(!has(&clean, warning), "{:?}", clean.warnings);
        // One random seed in 10,000 is this close.
        let found = estimate_of(study, (22, 0.9), |_, place| place < poisoned).await;
        let agreement = found.bucket_agreement.as_ref().unwrap();
        assert_eq!(agreement.verdict, BucketVerdict::Agree, "{agreement:?}");
        let check = found.feasibility.as_ref().unwrap();
        assert_eq!(check.verdict, Feasibility::Infeasible, "{check:?}");
        assert!(has(&found, warning), "{:?}", found.warnings);
        assert!(check.false_alarm_rate <= 1e-3 && check.reports > 1_000);
    }
}

/// Honest studies agree, also with private centring; three poisoned batches do not. The honest
/// ones have a fixed seed and a false-alarm rate of 1e-3 each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisoned_batch_is_reported() {
    let cap = cap();
    let mut centred = cap.clone();
    centred["centring"] = json!(0.7);
    let gaussian = json!({"dimension": P, "epsilon": 8.0});
    for changes in [cap, centred, gaussian] {
        let honest = estimate_of(changes.clone(), (21, 0.8), |_, _| false).await;
        let agreement = honest.bucket_agreement.as_ref().unwrap();
        assert_eq!(agreement.verdict, BucketVerdict::Agree, "{agreement:?}");
        assert_eq!(
            (agreement.false_alarm_rate, agreement.suspicious_buckets),
            (1e-3, 0)
        );
        assert!(!has(&honest, BATCH), "{:?}", honest.warnings);

        let poisoned = estimate_of(changes, (21, 0.8), |batch, _| batch % 20 == 7).await;
        let agreement = poisoned.bucket_agreement.as_ref().unwrap();
        assert_eq!(agreement.verdict, BucketVerdict::Disagree, "{agreement:?}");
        assert!(agreement.statistic > agreement.threshold);
        // Three of sixty batches, in at most three buckets.
        assert!(
            (1..=3).contains(&agreement.suspicious_buckets),
            "{agreement:?}"
        );
        assert!(
            agreement.shift > 0.0 && has(&poisoned, BATCH),
            "{:?}",
            poisoned.warnings
        );
    }
}
