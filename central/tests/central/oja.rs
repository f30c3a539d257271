//! Oja's algorithms: noise against budget, batches, and a known eigengap.

use eigenveil_central::{
    CentralCalibration::{self, Accounted, AsPublished},
    Neighbours, Options, Request,
    parameter::{BATCH, EIGENGAP, GRADIENT_CLIP, STEP_SIZE},
};
use eigenveil_estimation::{
    metrics::{captured_variance, projector_distance},
    models::{Model, uniform_frame},
};
use eigenveil_shared::privacy::{Budget, gaussian};

use crate::tables::{
    accounted, built, clipped, default, drawn, exact, fitted, private, seeded, table_of_zeros,
};

/// One step on zero rows moves the known start by noise alone. The step is so small that the iterate keeps length 1, so
/// its part orthogonal to the start is the noise; its scale is compared with the analytic Gaussian formula. 8 × 399
/// entries: relative standard error 1.3 %, so a deviation of 8 % is a false alarm below 1e-8, and halved noise would
/// fail.
#[test]
fn noise_matches_the_budget() {
    let (d, batch, step, epsilon, delta) = (400, 10_usize, 1e-7, 0.7, 1e-5);
    let zeros = table_of_zeros(d, batch);
    let multiplier =
        gaussian::analytic_sigma(Budget::approximate(epsilon, delta).unwrap(), 1.0).unwrap();
    for (clip, neighbours, sensitivity) in [
        (1.0, Neighbours::ZeroOut, 1.0),
        (1.0, Neighbours::Replace, 1.0),
        (0.25, Neighbours::ZeroOut, 0.25),
        (0.25, Neighbours::Replace, 0.5),
    ] {
        for calibration in CentralCalibration::ALL {
            let options = Options::default().with(GRADIENT_CLIP, clip);
            let options = options.with(BATCH, batch).with(STEP_SIZE, step);
            let method = built("minibatch-oja", &options);
            let request = Request::new(1, private(epsilon, delta, neighbours, calibration));
            let mut square = 0.0;
            for seed in 0..8 {
                let start = uniform_frame(&mut seeded(seed), d, 1).unwrap();
                let (mut stream, mut rng) = (zeros.stream(), seeded(seed));
                let fit = method.fit_stream(&mut stream, d, batch as u64, &request, &mut rng);
                let fit = fit.unwrap();
                let along = start.dot(&fit.subspace);
                let across = fit.subspace / along - &start;
                // offset c²·v ≪ 1, so η₁ is c; the step is divided by the batch.
                let noise = across * (batch as f64 / step);
                square += noise.norm_squared() / (8 * (d - 1)) as f64;
            }
            let expected = match calibration {
                Accounted => multiplier * sensitivity,
                AsPublished => {
                    let each = epsilon / (2.0 * (2.0 * (2.0 / delta).ln()).sqrt());
                    let part = delta / 2.0;
                    2.0 * clip * (2.0 * (1.25 / part).ln()).sqrt() / each
                }
            };
            let ratio = square.sqrt() / expected;
            println!("{clip} {neighbours} {calibration}: {ratio}");
            assert!((ratio - 1.0).abs() < 0.08);
        }
    }
}

/// A batch shares its noise: the error is smaller than with one row per step at the same budget, and the trace follows
/// it.
#[test]
fn a_batch_shares_its_noise() {
    let (raw, _) = drawn(Model::spiked(20, 2, 8.0), 20_000, &mut seeded(21));
    let rows = clipped(&raw, 8.0);
    let reference = exact(&rows, 2);
    let moment = rows.sum_of_outer_products();
    let request = Request {
        truth: Some(&reference),
        ..Request::new(2, accounted(2.0))
    };
    let lost = |name| -> f64 {
        let total: f64 = (0..8)
            .map(|seed| {
                let fit = fitted(&default(name), &rows, &request, seed);
                let last = fit.trace.last().unwrap();
                let error = projector_distance(&fit.subspace, &reference).unwrap();
                assert!((last.error - error).abs() < 1e-9);
                assert!(last.objective.unwrap() > 0.0 && fit.trace.len() <= 100);
                captured_variance(&reference, &moment).unwrap()
                    - captured_variance(&fit.subspace, &moment).unwrap()
            })
            .sum();
        total / 8.0
    };
    let (one_row, batch) = (lost("private-oja"), lost("minibatch-oja"));
    assert!(batch < 0.5 * one_row && batch < 0.1, "{one_row} {batch}");
}

#[test]
fn eigengap_sets_the_step_size() {
    let three = [[0.9, 0.1, 0.0], [0.8, -0.2, 0.1], [0.1, 0.5, 0.2]];
    let raw: Vec<Vec<f64>> = (0..150).map(|i| three[i % 3].to_vec()).collect();
    let rows = clipped(&raw, 1.0);
    let run = |options| {
        let method = built("oja", &options);
        fitted(&method, &rows, &Request::nonprivate(1), 3).subspace
    };
    let gap = run(Options::default().with(EIGENGAP, 0.25));
    assert_eq!(gap, run(Options::default().with(STEP_SIZE, 4.0)));
    assert_ne!(gap, run(Options::default()));
}
