//! The two private estimates of a step: the spread of the gradients, and their mean.

use eigenveil_estimation::linalg::{cross_product, symmetric_eigenvalues};
use eigenveil_shared::Result;
use nalgebra::{DMatrix, DVector};

use super::budget::{BINS_PER_DOUBLING, StepBudget};
use crate::{Generator, parts::noise::EntryNoise};

/// Smaller eigenvalues are replaced by this: gradients without any spread have eigenvalue 0, which has no logarithm.
const MIN_EIGENVALUE: f64 = 1e-24;

/// Top eigenvalue of the gradients' covariance (columns of `gradients`), to a factor of about √2; `None` if no bin of
/// the histogram is full enough. Pairs are subtracted, which removes the mean, and grouped; the groups' top eigenvalues
/// fall into bins of ratio 2^{1/4}, and the lower edge of the fullest bin is the result.
pub(super) fn top_eigenvalue(
    gradients: &DMatrix<f64>,
    budget: &StepBudget,
    rng: &mut Generator,
) -> Result<Option<f64>> {
    let pairs = gradients.ncols() / 2 / budget.groups;
    let mut bins = Vec::with_capacity(budget.groups);
    for group in 0..budget.groups {
        let differences = DMatrix::from_fn(gradients.nrows(), pairs, |i, j| {
            let first = 2 * (group * pairs + j);
            gradients[(i, first)] - gradients[(i, first + 1)]
        });
        // ΔᵀΔ is small and has the eigenvalues of ΔΔᵀ; a difference has twice the covariance.
        let top = symmetric_eigenvalues(&cross_product(&differences, &differences))?[0];
        let value = (top / (2 * pairs) as f64).max(MIN_EIGENVALUE);
        bins.push((BINS_PER_DOUBLING * value.log2()).floor() as i64);
    }
    let fullest = budget.eigenvalue.fullest(bins.into_iter(), rng);
    Ok(fullest.map(|bin| (bin as f64 / BINS_PER_DOUBLING).exp2()))
}

/// The mean of the gradients (columns), truncated to a box, with Gaussian noise scaled to the box; `None` if no bin of
/// a coordinate is full enough. `eigenvalue` is approximately the largest of their covariance.
pub(super) fn mean(
    gradients: &DMatrix<f64>,
    eigenvalue: f64,
    budget: &StepBudget,
    rng: &mut Generator,
) -> Option<DVector<f64>> {
    let (d, rows) = gradients.shape();
    let constants = &budget.constants;
    let spread = constants.tail_scale * eigenvalue.sqrt();
    let tail = |count: f64| count.ln().powf(constants.tail_power);
    let width = 2.0 * 2.0_f64.powf(0.25) * spread * tail(25.0);
    let margin = 3.0 * spread * tail((rows * d) as f64 / constants.zeta);
    let mut mean = DVector::zeros(d);
    for (i, row) in gradients.row_iter().enumerate() {
        let bins = row.iter().map(|x| (x / width).floor() as i64);
        let bin = budget.coordinate.fullest(bins, rng)? as f64;
        let (low, high) = (bin * width - margin, (bin + 1.0) * width + margin);
        mean[i] = row.iter().map(|x| x.clamp(low, high)).sum::<f64>() / rows as f64;
    }
    // One row moves every coordinate by at most the width of the box, also if it becomes the zero row.
    let diagonal = (width + 2.0 * margin) * (d as f64).sqrt();
    let sensitivity = diagonal.min(budget.cap) / rows as f64;
    let noise = EntryNoise::Gaussian {
        sd: budget.multiplier * sensitivity,
    };
    mean.iter_mut().for_each(|x| *x += noise.draw(rng));
    Some(mean)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::privacy::{Budget, gaussian};

    use super::*;
    use crate::{CentralCalibration, dp_pca::constants::Constants, generator};

    fn budget(epsilon: f64, d: usize) -> StepBudget {
        let budget = Budget::approximate(epsilon, 1e-6).unwrap();
        let accounted = CentralCalibration::Accounted;
        StepBudget::new(budget, accounted, d, 1e9, Constants::DEFAULT).unwrap()
    }

    fn normal(d: usize, n: usize, sd: f64, center: f64) -> DMatrix<f64> {
        let mut matrix = DMatrix::from_element(d, n, center);
        EntryNoise::Gaussian { sd }.add_to(&mut matrix, &mut generator(Some(8)).unwrap());
        matrix
    }

    /// The spread does not depend on the mean; a group of ten pairs overstates the top eigenvalue (1 in ten dimensions:
    /// about 3.6), but not by an order of magnitude. Equal gradients give `MIN_EIGENVALUE`.
    #[test]
    fn the_spread_is_found() {
        let budget = budget(2.0, 10);
        let rows = budget.eigenvalue_rows();
        let mut rng = generator(Some(1)).unwrap();
        for sd in [1e-6, 1e-2, 3.0] {
            let gradients = normal(10, rows, sd, 0.7);
            let estimate = top_eigenvalue(&gradients, &budget, &mut rng)
                .unwrap()
                .unwrap();
            let ratio = estimate / (sd * sd);
            assert!((1.0..6.0).contains(&ratio), "{ratio}");
        }
        let still = DMatrix::from_element(10, rows, 0.3);
        let released = top_eigenvalue(&still, &budget, &mut rng).unwrap().unwrap();
        assert!(released < 2.0 * MIN_EIGENVALUE);
    }

    /// For equal gradients the mean is exact and the noise follows from the box, computed here from the analytic
    /// formula. 40 × 25 numbers: relative standard error 2.2 %, so a deviation of 12 % is a false alarm below 1e-7;
    /// halved noise would fail.
    #[test]
    fn the_mean_has_the_noise_of_its_box() {
        let (d, epsilon) = (25, 1.5);
        let budget = budget(epsilon, d);
        let rows = 2 * budget.min_rows();
        let gradients = DMatrix::from_element(d, rows, 0.4);
        let eigenvalue: f64 = 1e-4;
        let mut rng = generator(Some(2)).unwrap();
        let half = Budget::approximate(0.5 * epsilon, 0.5e-6).unwrap();
        let z = gaussian::analytic_sigma(half, 1.0).unwrap();
        let log = ((rows * d) as f64 / 0.01).ln();
        let side = 0.01 * (2.0 * 2.0_f64.powf(0.25) * 25.0_f64.ln() + 6.0 * log);
        let expected = z * side * (d as f64).sqrt() / rows as f64;
        // A cap of a tenth of the box: a tenth of the noise.
        let capped = StepBudget {
            cap: 0.1 * side * (d as f64).sqrt(),
            ..budget
        };
        for (budget, expected) in [(budget, expected), (capped, 0.1 * expected)] {
            let mut square = 0.0;
            for _ in 0..40 {
                let mean = mean(&gradients, eigenvalue, &budget, &mut rng).unwrap();
                square += mean.add_scalar(-0.4).norm_squared() / (40 * d) as f64;
            }
            let ratio = square.sqrt() / expected;
            assert!((ratio - 1.0).abs() < 0.12, "{ratio}");
        }
        // Too few rows for any bin.
        assert!(mean(&DMatrix::zeros(d, 20), eigenvalue, &budget, &mut rng).is_none());
    }
}
