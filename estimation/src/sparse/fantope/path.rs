//! The solutions over a grid of λ: which features enter as the penalty falls.

use std::collections::BTreeSet;

use eigenveil_shared::{
    Result,
    api::SparseSettings,
    estimate::{LambdaPath, PathPoint},
};
use nalgebra::DMatrix;

use super::{
    admm::{AdmmSettings, solve_from},
    lambda::{automatic_lambda, max_useful_lambda},
    refit::refit,
};
use crate::{
    cancel::Cancel,
    dense::pca::rayleigh_quotients,
    input::moment::NoisyMoment,
    linalg::{submatrix, symmetric_eigenvalues, top_k},
};

pub(super) const STEPS: usize = 16;
/// Relative duality gap on a path: neighbours differ by far more.
const TOLERANCE: f64 = 1e-3;
/// Maximum number of iterations for one λ on a path; after them the current iterate is used.
const ITERATIONS: usize = 300;
/// Maximum dimension for which the row norms of every solution are reported.
pub const MAX_ROW_NORMS: usize = 100;
/// Relative precision of [`diagonal_lambda`].
const PRECISION: f64 = 1e-3;

/// How the solver runs on a path.
pub(super) fn coarse(settings: &SparseSettings) -> AdmmSettings {
    AdmmSettings {
        tolerance: settings.tolerance.max(TOLERANCE),
        max_iterations: settings.max_iterations.min(ITERATIONS),
        ..AdmmSettings::from(settings)
    }
}

/// A geometric grid of 16 values from `largest` down to half of `automatic`: at least to an eighth of the largest and
/// at most to a thousandth. A single value if the largest is 0.
pub(super) fn grid(largest: f64, automatic: f64) -> impl Iterator<Item = f64> {
    // Where the signal is far above the noise the grid continues down to the noise, within a limit.
    let smallest = (largest / 8.0).min(automatic / 2.0).max(largest / 1_000.0);
    let (steps, step) = if largest > 0.0 {
        let step = (smallest / largest).powf(1.0 / (STEPS - 1) as f64);
        (STEPS, step)
    } else {
        (1, 1.0)
    };
    (0..steps).map(move |i| largest * step.powi(i as i32))
}

/// Solves the Fantope problem over a grid of 16 values of λ from [`diagonal_lambda`] down to below `auto`, each
/// warm-started from the previous solution, and chooses the value nearest to `auto` (in its logarithm).
///
/// # Errors
/// Those of [`solve`](super::solve) and [`refit`](super::refit()); `estimate-failed` when it was cancelled.
pub fn lambda_path(
    moment: &NoisyMoment,
    k: usize,
    settings: &SparseSettings,
    cancel: Cancel<'_>,
) -> Result<LambdaPath> {
    let dense = moment.dense();
    let p = moment.dimension();
    let admm = coarse(settings);
    let automatic = automatic_lambda(moment.noise(), p, moment.n_eff(), settings.refit)?;
    let lambda_max = diagonal_lambda(&dense, k)?;
    let mut points: Vec<PathPoint> = Vec::with_capacity(STEPS);
    let mut before = BTreeSet::new();
    let mut start = None;
    for lambda in grid(lambda_max, automatic) {
        let solution = solve_from(&dense, k, lambda, &admm, start.as_ref(), cancel)?;
        let vectors = match settings.refit {
            true => refit(&dense, &solution.support, k)?,
            false => solution.vectors.clone(),
        };
        let support: BTreeSet<usize> = solution.support.iter().copied().collect();
        points.push(PathPoint {
            lambda,
            support_size: support.len(),
            captured_variance: rayleigh_quotients(&dense, &vectors).sum(),
            relative_gap: solution.relative_gap,
            converged: solution.converged(),
            entering: support.difference(&before).copied().collect(),
            leaving: before.difference(&support).copied().collect(),
            row_norms: (p <= MAX_ROW_NORMS)
                .then(|| vectors.row_iter().map(|row| row.norm()).collect()),
        });
        before = support;
        start = Some(solution.into_start());
    }
    let distance = |point: &PathPoint| (point.lambda.max(f64::MIN_POSITIVE) / automatic).ln().abs();
    let chosen = points
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .map_or(lambda_max, |point| point.lambda);
    Ok(LambdaPath {
        lambda_max,
        lambda_auto: automatic,
        lambda_chosen: chosen,
        max_captured_variance: top_k(&dense, k)?.values.sum(),
        points,
    })
}

/// The smallest λ at which the solution has no off-diagonal entry: each component is one row, those of the k largest
/// diagonal entries J.
///
/// The dual point Z = clip(S̃, ±λ) proves that solution optimal if soft(S̃, λ) joins no row of J with another one
/// (which is necessary) and its eigenvalues on J are not below those on the others. Bisection finds the smallest such λ
/// to 0.1 %; if the second condition decides, another Z might allow a slightly smaller λ.
pub fn diagonal_lambda(moment: &DMatrix<f64>, k: usize) -> Result<f64> {
    let p = moment.nrows();
    if k >= p {
        return Ok(0.0);
    }
    let mut order: Vec<usize> = (0..p).collect();
    order.sort_by(|&a, &b| moment[(b, b)].total_cmp(&moment[(a, a)]));
    let (chosen, others) = order.split_at(k);
    let mut low = 0.0_f64;
    for &i in chosen {
        for &j in others {
            low = low.max(moment[(i, j)].abs());
        }
    }
    if proves_diagonal(moment, chosen, others, low)? {
        return Ok(low);
    }
    let mut high = max_useful_lambda(moment);
    while high - low > PRECISION * high {
        let middle = 0.5 * (low + high);
        if proves_diagonal(moment, chosen, others, middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

fn proves_diagonal(
    moment: &DMatrix<f64>,
    chosen: &[usize],
    others: &[usize],
    lambda: f64,
) -> Result<bool> {
    let soft = |rows: &[usize]| {
        let mut block = submatrix(moment, rows);
        let size = block.nrows();
        for j in 0..size {
            for i in (0..size).filter(|&i| i != j) {
                let entry = block[(i, j)];
                block[(i, j)] = entry - entry.clamp(-lambda, lambda);
            }
        }
        block
    };
    let least = symmetric_eigenvalues(&soft(chosen))?.min();
    let block = soft(others);
    // Rows that stand alone have their diagonal entry as eigenvalue; the rest is small for a large λ.
    let (alone, joined): (Vec<usize>, Vec<usize>) =
        (0..others.len()).partition(|&j| (0..others.len()).all(|i| i == j || block[(i, j)] == 0.0));
    let mut most = alone
        .iter()
        .map(|&j| block[(j, j)])
        .fold(f64::NEG_INFINITY, f64::max);
    if !joined.is_empty() {
        most = most.max(top_k(&submatrix(&block, &joined), 1)?.values[0]);
    }
    Ok(least >= most)
}

#[cfg(test)]
mod tests {
    use super::{super::solve, *};

    #[test]
    fn the_grid_reaches_below_auto_within_bounds() {
        for (largest, automatic, last) in [
            (1.0, 0.1, 0.05),
            (1.0, 3.0, 0.125),
            (1.0, 1e-6, 1e-3),
            (1.0, 0.0, 1e-3),
        ] {
            let values: Vec<f64> = grid(largest, automatic).collect();
            assert_eq!((values.len(), values[0]), (STEPS, largest));
            assert!((values[STEPS - 1] / last - 1.0).abs() < 1e-12, "{values:?}");
            let ratio = values[1] / values[0];
            let mut ratios = values.windows(2).map(|pair| pair[1] / pair[0]);
            assert!(ratios.all(|found| (found / ratio - 1.0).abs() < 1e-12));
        }
        assert_eq!(grid(0.0, 1.0).collect::<Vec<_>>(), [0.0]);
    }

    /// Just above it the solver finds k single rows, a little below it does not.
    #[test]
    fn diagonal_lambda_is_the_smallest_without_off_diagonal_entries() {
        let settings = AdmmSettings::default();
        let diagonal = |moment: &DMatrix<f64>, k: usize, lambda: f64| {
            let solution = solve(moment, k, lambda, &settings, Cancel::NEVER).unwrap();
            assert!(solution.converged());
            let p = moment.nrows();
            (0..p).all(|i| (0..p).all(|j| i == j || solution.y[(i, j)].abs() < 1e-6))
        };
        let cases = [
            // The rows of J decide, a larger entry elsewhere does not.
            (
                nalgebra::dmatrix![5.0, 0.2, 0.1, 0.0; 0.2, 1.0, 0.6, 0.0; 0.1, 0.6, 1.0, 0.1; 0.0, 0.0, 0.1, 0.5],
                1,
                0.2,
            ),
            // A pair outside J would be better than the row with the largest diagonal entry.
            (
                nalgebra::dmatrix![1.1, 0.0, 0.0; 0.0, 1.0, 0.8; 0.0, 0.8, 1.0],
                1,
                0.7,
            ),
            (
                nalgebra::dmatrix![2.0, 0.5, 0.3, -0.1; 0.5, 1.9, 0.1, 0.2; 0.3, 0.1, 1.0, 0.4; -0.1, 0.2, 0.4, 0.9],
                2,
                0.3,
            ),
        ];
        for (moment, k, exact) in cases {
            let found = diagonal_lambda(&moment, k).unwrap();
            assert!((found / exact - 1.0).abs() < 2e-3, "{found} {exact}");
            assert!(diagonal(&moment, k, 1.005 * found));
            assert!(!diagonal(&moment, k, 0.97 * found));
            assert!(found <= max_useful_lambda(&moment));
        }
        let identity = DMatrix::identity(3, 3);
        assert_eq!(diagonal_lambda(&identity, 3).unwrap(), 0.0);
        assert_eq!(diagonal_lambda(&identity, 1).unwrap(), 0.0);
    }
}
