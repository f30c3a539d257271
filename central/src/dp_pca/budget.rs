//! The budget of a step, divided among its parts, and the rows that the parts need.

use eigenveil_estimation::search::bisect;
use eigenveil_shared::{Result, privacy::Budget};

use super::{constants::Constants, histogram::StableHistogram};
use crate::{CentralCalibration, accountant::full_batch};

pub(super) const BINS_PER_DOUBLING: f64 = 4.0;
/// Rows for the mean, as a multiple of its histograms' threshold; the values of a coordinate lie in one or two bins.
const ROWS_PER_THRESHOLD: f64 = 3.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct StepBudget {
    /// The eigenvalue's histogram, over the first part of the rows.
    pub(super) eigenvalue: StableHistogram,
    /// Each coordinate's histogram, over the second part.
    pub(super) coordinate: StableHistogram,
    /// Multiplier of the Gaussian on the truncated mean, over the second part.
    pub(super) multiplier: f64,
    pub(super) epsilon: f64,
    /// Sensitivity of the sum of the gradients before truncation, which is non-expansive: noise for a larger
    /// sensitivity is not needed. Infinite for the paper's noise.
    pub(super) cap: f64,
    pub(super) groups: usize,
    pub(super) constants: Constants,
}

impl StepBudget {
    /// The budget of a step with gradients of `coordinates` numbers, whose sum changes by at most `sensitivity` with
    /// one row. The two parts of the rows are disjoint, so each part may spend the whole budget (`accounted`); the
    /// paper gives half of it to each. The mean spends half of its share on the ranges and half on the Gaussian noise.
    pub(super) fn new(
        budget: Budget,
        calibration: CentralCalibration,
        coordinates: usize,
        sensitivity: f64,
        constants: Constants,
    ) -> Result<Self> {
        let (share, cap) = match calibration {
            CentralCalibration::Accounted => (1.0, sensitivity),
            CentralCalibration::AsPublished => (0.5, f64::INFINITY),
        };
        let (epsilon, delta) = (share * budget.epsilon(), share * budget.delta());
        let d = coordinates as f64;
        let coordinate_delta = delta / (4.0 * d);
        let coordinate_epsilon = match calibration {
            CentralCalibration::Accounted => max_part_epsilon(0.5 * epsilon, coordinates, delta),
            CentralCalibration::AsPublished => {
                epsilon / (4.0 * (2.0 * d * (4.0 / delta).ln()).sqrt())
            }
        };
        let half = Budget::approximate(0.5 * epsilon, 0.5 * delta)?;
        let eigenvalue = StableHistogram { epsilon, delta };
        let mean = composed_epsilon(coordinate_epsilon, coordinates, delta) + 0.5 * epsilon;
        Ok(Self {
            eigenvalue,
            coordinate: StableHistogram {
                epsilon: coordinate_epsilon,
                delta: coordinate_delta,
            },
            multiplier: full_batch::noise_multiplier(half, 1)?,
            epsilon: mean.max(epsilon),
            cap,
            groups: (constants.group_factor * eigenvalue.threshold()).ceil() as usize,
            constants,
        })
    }

    pub(super) fn eigenvalue_rows(&self) -> usize {
        self.constants.group_rows * self.groups
    }

    pub(super) fn min_rows(&self) -> usize {
        let mean = (ROWS_PER_THRESHOLD * self.coordinate.threshold()).ceil() as usize;
        self.eigenvalue_rows() + mean
    }
}

/// ε of `parts` releases together, each with (ε₀, δ/(4·parts)), at δ/2: `√(2·parts·ln(4/δ))·ε₀ + parts·ε₀(e^ε₀ − 1)`
/// (advanced composition, Dwork & Roth 2014, Theorem 3.20, with its slack δ/4).
fn composed_epsilon(each: f64, parts: usize, delta: f64) -> f64 {
    let parts = parts as f64;
    (2.0 * parts * (4.0 / delta).ln()).sqrt() * each + parts * each * each.exp_m1()
}

/// The largest ε₀ for which [`composed_epsilon`] is at most `epsilon`.
fn max_part_epsilon(epsilon: f64, parts: usize, delta: f64) -> f64 {
    let below = |each| composed_epsilon(each, parts, delta) <= epsilon * (1.0 - 1e-12);
    bisect(0.0, epsilon, 100, below).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_the_published_split_holds() {
        for (epsilon, delta, d) in [(1.0, 1e-6, 123), (0.3, 1e-5, 10), (4.0, 1e-8, 784)] {
            let budget = Budget::approximate(epsilon, delta).unwrap();
            let new =
                |calibration| StepBudget::new(budget, calibration, d, 1.0, Constants::DEFAULT);
            let accounted = new(CentralCalibration::Accounted).unwrap();
            assert!(accounted.epsilon <= epsilon && accounted.epsilon > 0.999 * epsilon);
            let spent = composed_epsilon(accounted.coordinate.epsilon, d, delta);
            assert!(spent <= 0.5 * epsilon && spent > 0.499 * epsilon, "{spent}");
            let coordinates = 4.0 * d as f64 * accounted.coordinate.delta;
            assert!((coordinates - delta).abs() < 1e-12 * delta);
            let published = new(CentralCalibration::AsPublished).unwrap();
            assert!(
                (published.epsilon - 0.5 * epsilon).abs() < 1e-9,
                "{}",
                published.epsilon
            );
            assert!(published.min_rows() > accounted.min_rows());
        }
    }
}
