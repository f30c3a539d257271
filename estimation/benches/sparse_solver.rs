//! The sparse solver where noise is all there is. `cargo bench -p eigenveil-estimation --bench sparse_solver` (minutes).

use eigenveil_estimation::Cancel;
use eigenveil_estimation::fantope::{AdmmSettings, negligible_gap, solve};
use eigenveil_shared::mechanism::NoiseModel;
use nalgebra::DMatrix;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

mod clock;
use clock::{median, timed};

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
    drowned(400, 3, 0.25);
    drowned(400, 10, 0.35);
}
