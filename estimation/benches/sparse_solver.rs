//! The sparse solver on the measured instances: screening and partial projections against neither, CPU
//! milliseconds of the same run. `cargo bench -p eigenveil-estimation --bench sparse_solver`; with `-- drowned`
//! instead noise without a signal (minutes).

use eigenveil_estimation::Cancel;
use eigenveil_estimation::fantope::{
    AdmmSettings, negligible_gap, solve, solve_by_full_projections,
};
use eigenveil_shared::mechanism::NoiseModel;
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

mod clock;
use clock::{median, timed};

/// k spikes from 1 to 2 on ten rows of their own each, in GOE noise whose bulk ends at 0.6.
fn instance(p: usize, k: usize) -> DMatrix<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut matrix = DMatrix::zeros(p, p);
    let sd = 0.3 / (p as f64).sqrt();
    for i in 0..p {
        for j in 0..=i {
            let z: f64 = StandardNormal.sample(&mut rng);
            matrix[(i, j)] = sd * z;
            matrix[(j, i)] = matrix[(i, j)];
        }
        let z: f64 = StandardNormal.sample(&mut rng);
        matrix[(i, i)] += sd * z * 0.4;
    }
    for spike in 0..k {
        let size = 1.0 + spike as f64 / (k - 1) as f64;
        let signs: Vec<f64> = (0..10)
            .map(|_| if rng.random::<bool>() { 1.0 } else { -1.0 })
            .collect();
        for a in 0..10 {
            for b in 0..10 {
                matrix[(10 * spike + a, 10 * spike + b)] += size * signs[a] * signs[b] / 10.0;
            }
        }
    }
    matrix
}

/// Noise of unit standard deviation alone: what p = 400, n = 2,000, ε = 1 is, at the automatic λ.
fn drowned(p: usize, k: usize, kappa: f64) {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut matrix = DMatrix::zeros(p, p);
    for i in 0..p {
        for j in 0..=i {
            matrix[(i, j)] = StandardNormal.sample(&mut rng);
            matrix[(j, i)] = matrix[(i, j)];
        }
    }
    let noise = NoiseModel::gaussian(1.0);
    let lambda = kappa * (2.0 * ((p * (p - 1) / 2) as f64).ln()).sqrt();
    for noise_gap in [Some(negligible_gap(&noise, k, 1.0)), None] {
        let settings = AdmmSettings {
            noise_gap,
            ..AdmmSettings::default()
        };
        let on = Cancel::NEVER;
        let (time, solution) = timed(1, || solve(&matrix, k, lambda, &settings, on));
        let Ok(solution) = solution else {
            unreachable!("the problem is valid")
        };
        println!(
            "drowned, p = {p}, k = {k}, kappa = {kappa}, noise_gap {noise_gap:?}: {:.1} s, {} iterations, gap {:.1e}, {:?}, {} rows",
            1e-3 * median(&time),
            solution.iterations,
            solution.relative_gap,
            solution.stop,
            solution.support.len()
        );
    }
}

fn main() {
    if std::env::args().any(|word| word == "drowned") {
        drowned(400, 3, 0.25);
        drowned(400, 10, 0.35);
        return;
    }
    let on = Cancel::NEVER;
    for (p, lambda, repeats) in [(400, 0.05, 20), (1000, 0.035, 10)] {
        let matrix = instance(p, 10);
        for tolerance in [1e-4, 1e-6] {
            let settings = AdmmSettings {
                tolerance,
                ..AdmmSettings::default()
            };
            let (partial, new) = timed(repeats, || solve(&matrix, 10, lambda, &settings, on));
            let (full, old) = timed(1 + repeats / 10, || {
                solve_by_full_projections(&matrix, 10, lambda, &settings, on)
            });
            let (partial, full) = (median(&partial), median(&full));
            let (Ok(new), Ok(old)) = (new, old) else {
                unreachable!("the problem is valid")
            };
            println!(
                "p = {p}, tolerance {tolerance:.0e}: partial {:.1} ms ({} iterations, gap {:.1e}, {:?}), full {:.1} ms ({} iterations, gap {:.1e}), ratio {:.1}; |X - X'| {:.1e}, objectives {:.1e} apart, rows {} and {}",
                partial,
                new.iterations,
                new.relative_gap,
                new.stop,
                full,
                old.iterations,
                old.relative_gap,
                full / partial,
                (&new.x - &old.x).norm(),
                (new.objective - old.objective).abs(),
                new.support.len(),
                old.support.len()
            );
        }
    }
}
