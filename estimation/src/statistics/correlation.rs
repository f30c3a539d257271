//! Correlations with intervals by inversion (Fieller 1954).

use nalgebra::DMatrix;
use serde::Serialize;

use super::{MIN_VARIANCE_IN_STANDARD_ERRORS, MomentEstimate, Refusal, Z_95, estimate::BETWEEN};

/// A correlation of two features.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Correlation {
    /// The estimate, −1 to 1.
    pub value: f64,
    /// Its standard error, to first order.
    pub standard_error: f64,
    /// Lower end of the 95 % interval, at least −1.
    pub low: f64,
    /// Upper end, at most 1.
    pub high: f64,
}

impl MomentEstimate {
    /// The correlation of two different features: from the projected moment, with the unprojected one's standard
    /// errors, which makes the interval cautious.
    ///
    /// # Errors
    /// A [`Refusal`] other than [`Refusal::Dependent`].
    pub fn correlation(&self, i: usize, j: usize) -> Result<Correlation, Refusal> {
        let projected = self.projected().ok_or(Refusal::NoVariances)?;
        self.correlation_in(projected, i, j)
    }

    /// The [`correlation`](Self::correlation) by the unprojected moment: its value may lie outside −1 to 1.
    pub fn raw_correlation(&self, i: usize, j: usize) -> Result<Correlation, Refusal> {
        self.correlation_in(self.raw(), i, j)
    }

    /// The [correlations](Self::correlation) of all features i < j, or why there is none; without pairs of categories
    /// of one variable.
    pub fn correlations(
        &self,
    ) -> impl Iterator<Item = (usize, usize, Result<Correlation, Refusal>)> + '_ {
        let p = self.dimension();
        let pairs = (0..p).flat_map(move |i| (i + 1..p).map(move |j| (i, j)));
        let pairs = pairs.filter(|&(i, j)| !self.are_of_one_variable(i, j));
        pairs.map(|(i, j)| (i, j, self.correlation(i, j)))
    }

    fn correlation_in(
        &self,
        moment: &DMatrix<f64>,
        i: usize,
        j: usize,
    ) -> Result<Correlation, Refusal> {
        if self.projected().is_none() {
            return Err(Refusal::NoVariances);
        }
        for feature in [i, j] {
            let variance = self.raw()[(feature, feature)];
            let standard_error = self.standard_error(feature, feature);
            let least = MIN_VARIANCE_IN_STANDARD_ERRORS * standard_error;
            if variance < least || moment[(feature, feature)] <= 0.0 {
                return Err(Refusal::SmallVariance {
                    feature,
                    variance,
                    standard_error,
                });
            }
        }
        let [own, other] = [i, j].map(|feature| moment[(feature, feature)]);
        let (covariance, root) = (moment[(i, j)], (own * other).sqrt());
        let plane = self.plane(&[(i, 1.0)], &[(j, 1.0)]);
        // The gradient of √(C_ii C_jj).
        let ratio = (other / own).sqrt();
        let of_root = [0.5 * ratio, 0.0, 0.5 / ratio];
        let errors = [
            plane.covariance(BETWEEN, BETWEEN),
            plane.covariance(BETWEEN, of_root),
            plane.covariance(of_root, of_root),
        ];
        let value = covariance / root;
        let [a, b, c] = errors;
        let squared = a - 2.0 * value * b + value * value * c;
        let (low, high) = inverted(covariance, root, errors).ok_or(Refusal::OpenInterval)?;
        Ok(Correlation {
            value,
            standard_error: squared.max(0.0).sqrt() / root,
            low,
            high,
        })
    }
}

/// All ρ in [−1, 1] with |`covariance` − ρ·`root`| ≤ 1.96·√(A − 2ρB + ρ²C), A, B, C the variances and covariance of
/// both: an interval; `None` if it is all of [−1, 1], or if nothing (or two pieces) is left.
fn inverted(covariance: f64, root: f64, [a, b, c]: [f64; 3]) -> Option<(f64, f64)> {
    let z2 = Z_95 * Z_95;
    // square·ρ² − 2·linear·ρ + constant ≤ 0.
    let square = root * root - z2 * c;
    let linear = covariance * root - z2 * b;
    let constant = covariance * covariance - z2 * a;
    let discriminant = linear * linear - square * constant;
    if square <= 0.0 && discriminant < 0.0 {
        return None;
    }
    // Without cancellation; a root at infinity is beyond [−1, 1].
    let sum = linear + discriminant.max(0.0).sqrt().copysign(linear);
    let (one, other) = if sum == 0.0 {
        (0.0, 0.0)
    } else {
        (sum / square, constant / sum)
    };
    let (first, second) = (one.min(other), one.max(other));
    let (low, high) = if square > 0.0 {
        (first.max(-1.0), second.min(1.0))
    } else {
        // Outside of the roots.
        match (first >= -1.0, second <= 1.0) {
            (true, false) => (-1.0, first.min(1.0)),
            (false, true) => (second.max(-1.0), 1.0),
            _ => return None,
        }
    };
    (low <= high && (low > -1.0 || high < 1.0)).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a fine grid the inequality holds inside the interval and nowhere else.
    #[test]
    fn the_interval_is_the_set_of_correlations_that_are_not_rejected() {
        let mut intervals = 0;
        for covariance in [-0.5, -0.1, 0.0, 0.2, 0.49] {
            for a in [1e-6, 0.001, 0.01, 0.1] {
                for c in [1e-6, 0.002, 0.03, 0.1] {
                    for share in [-0.9, 0.0, 0.6] {
                        let (root, b) = (0.5, share * f64::sqrt(a * c));
                        let accepted = |rho: f64| {
                            let squared = a - 2.0 * rho * b + rho * rho * c;
                            (covariance - rho * root).abs() <= Z_95 * squared.sqrt()
                        };
                        let grid: Vec<f64> = (-5_000..=5_000).map(|i| f64::from(i) / 5e3).collect();
                        let inside_interval: Vec<f64> =
                            grid.iter().copied().filter(|r| accepted(*r)).collect();
                        match inverted(covariance, root, [a, b, c]) {
                            Some((low, high)) => {
                                intervals += 1;
                                let inside = |r: &&f64| **r >= low && **r <= high;
                                assert_eq!(
                                    inside_interval.len(),
                                    grid.iter().filter(inside).count()
                                );
                                assert!(inside_interval.iter().all(|r| *r >= low && *r <= high));
                            }
                            // All of it, or both ends.
                            None => assert!(accepted(-1.0) && accepted(1.0)),
                        }
                    }
                }
            }
        }
        assert!(intervals > 100, "{intervals}");
    }

    #[test]
    fn without_noise_the_interval_is_a_point() {
        for covariance in [-0.3, 0.0, 0.25] {
            let (low, high) = inverted(covariance, 0.5, [0.0; 3]).unwrap();
            let value = covariance / 0.5;
            assert!((low - value).abs() < 1e-12 && (high - value).abs() < 1e-12);
        }
    }
}
