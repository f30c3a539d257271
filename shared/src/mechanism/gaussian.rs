//! Gaussian noise on the packed upper triangle of `xxᵀ`.
//!
//! For both mechanisms:
//! * Neighbours: any two rows of the unit ball (replacement). Norm: L2 on the triangle, scaled or not.
//! * Sensitivity: exactly √2 ([`crate::privacy::gaussian::SENSITIVITY`]), from ‖x‖₂ ≤ 1, which
//!   [`BoundedRow`] proves.
//! * Guarantee: (ε, δ)-LDP where σ meets Theorem 8 of Balle & Wang 2018.
//! * Source: Wang & Xu, Algorithms 1 and 2 (symmetric); `docs/mechanisms.md` (isotropic).
//! * Rounding: noise and sum are computed in f64, and released on a grid of about a hundredth of σ. What the
//!   arithmetic can add to ε is bounded ([`MechanismSpec::arithmetic_slack`](super::MechanismSpec::arithmetic_slack)).

use std::f64::consts::FRAC_1_SQRT_2;

use rand::Rng;
use serde::{Deserialize, Serialize};

use super::{Calibration, NoiseModel, rounded_gaussian::RoundedGaussian, spec::LocalRandomizer};
use crate::{
    error::{Error, ErrorCode, Result},
    packed::packed_len,
    preprocess::BoundedRow,
    privacy::{Budget, gaussian},
};

/// Largest dimension of a mechanism whose payload is a whole matrix: 33.6 MB a report.
pub const MAX_DENSE_DIMENSION: usize = 4_096;

/// Largest σ: a report holds f32, whose range ends at 3.4e38.
const MAX_SIGMA: f64 = 1e30;

/// Noise scale of a Gaussian mechanism and how it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct GaussianNoise {
    calibration: Calibration,
    sigma: f64,
}

impl GaussianNoise {
    /// The σ this calibration gives for this budget, L2 sensitivity √2.
    ///
    /// # Errors
    /// `invalid-budget` for a pure budget, ε > 16, or one so small that its noise does not fit a report.
    pub fn derive(calibration: Calibration, budget: Budget) -> Result<Self> {
        budget.check_study_limit()?;
        let sigma = match calibration {
            Calibration::Analytic => gaussian::analytic_sigma(budget, gaussian::SENSITIVITY)?,
            Calibration::AsPublished => gaussian::as_published_sigma(budget)?,
        };
        if sigma.is_nan() || sigma > MAX_SIGMA {
            return Err(Error::new(
                ErrorCode::InvalidBudget,
                format!(
                    "({}, {}) needs noise of {sigma:e}, above {MAX_SIGMA:e}, which a report cannot hold; choose a larger epsilon or delta",
                    budget.epsilon(),
                    budget.delta()
                ),
            ));
        }
        Ok(Self { calibration, sigma })
    }

    /// Constants as they arrive; to be checked with [`check`](Self::check).
    pub(super) fn from_constants(calibration: Calibration, sigma: f64) -> Self {
        Self { calibration, sigma }
    }

    /// Refuses less noise than the budget needs, and more than 1 % too much.
    ///
    /// # Errors
    /// `invalid-dimension`, `invalid-budget`; `invalid-mechanism` for a σ that does not fit.
    pub fn check(&self, dimension: usize, budget: Budget) -> Result<()> {
        check_dense_dimension(dimension)?;
        let wanted = Self::derive(self.calibration, budget)?.sigma;
        let enough = match self.calibration {
            // Another implementation may end its search elsewhere: what counts is that the claim holds.
            Calibration::Analytic => {
                gaussian::true_delta(self.sigma, gaussian::SENSITIVITY, budget.epsilon())
                    <= budget.delta()
            }
            Calibration::AsPublished => self.sigma >= wanted * (1.0 - 1e-12),
        };
        if enough && self.sigma <= wanted * 1.01 {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::InvalidMechanism,
            format!(
                "the study's noise has standard deviation {} but ({}, {}) under calibration {} needs {wanted}; do not take part",
                self.sigma,
                budget.epsilon(),
                budget.delta(),
                self.calibration
            ),
        ))
    }

    /// How the noise was chosen.
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// Noise scale σ, in units of the entries of `xxᵀ`.
    pub fn sigma(&self) -> f64 {
        self.sigma
    }
}

/// Refuses a dimension that the dense mechanisms cannot serve.
pub(super) fn check_dense_dimension(dimension: usize) -> Result<()> {
    if (2..=MAX_DENSE_DIMENSION).contains(&dimension) {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::InvalidDimension,
        format!(
            "the dimension of a report is {dimension}; this mechanism takes 2 to {MAX_DENSE_DIMENSION} (double-cap takes more)"
        ),
    ))
}

/// `symmetric-gaussian`: every upper-triangle entry, diagonal included, gets i.i.d. `N(0, σ²)`; the
/// lower triangle mirrors it (Algorithms 1 and 2 of Wang & Xu).
///
/// (ε, δ)-LDP with L2 sensitivity √2 on `tri(xxᵀ)`, reached only by a pair of coordinate axes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct SymmetricGaussian(pub(super) GaussianNoise);

/// `isotropic-gaussian`: `N(0, σ²I)` on `svec(xxᵀ)`, that is `N(0, σ²)` on the diagonal and
/// `N(0, σ²/2)` off it: the guarantee of [`SymmetricGaussian`] at half the off-diagonal variance.
///
/// (ε, δ)-LDP with L2 sensitivity √2 on `svec(xxᵀ)` (‖svec(M)‖₂ = ‖M‖_F), reached by every
/// orthogonal pair of unit rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct IsotropicGaussian(pub(super) GaussianNoise);

impl SymmetricGaussian {
    /// The noise.
    pub fn noise(&self) -> GaussianNoise {
        self.0
    }

    pub(super) fn rounded(&self) -> RoundedGaussian {
        RoundedGaussian::new(self.0.sigma, self.0.sigma)
    }
}

impl IsotropicGaussian {
    /// The noise.
    pub fn noise(&self) -> GaussianNoise {
        self.0
    }

    pub(super) fn rounded(&self) -> RoundedGaussian {
        RoundedGaussian::new(self.0.sigma, self.0.sigma * FRAC_1_SQRT_2)
    }
}

impl super::spec::Sealed for SymmetricGaussian {}
impl super::spec::Sealed for IsotropicGaussian {}

impl LocalRandomizer for SymmetricGaussian {
    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        perturb_triangle(row, self.rounded(), rng)
    }

    fn payload_len(&self, dimension: usize) -> usize {
        4 * packed_len(dimension)
    }

    fn noise_model(&self) -> NoiseModel {
        NoiseModel::Gaussian {
            off_diagonal_sd: self.0.sigma,
            diagonal_sd: self.0.sigma,
        }
    }
}

impl LocalRandomizer for IsotropicGaussian {
    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        perturb_triangle(row, self.rounded(), rng)
    }

    fn payload_len(&self, dimension: usize) -> usize {
        4 * packed_len(dimension)
    }

    fn noise_model(&self) -> NoiseModel {
        NoiseModel::Gaussian {
            off_diagonal_sd: self.0.sigma * FRAC_1_SQRT_2,
            diagonal_sd: self.0.sigma,
        }
    }
}

/// `tri(xxᵀ)` plus independent Gaussians on their grid, as little-endian f32. Products and sums stay in registers:
/// nothing of them is left in memory of ours.
fn perturb_triangle<R: Rng + ?Sized>(
    row: &BoundedRow,
    noise: RoundedGaussian,
    rng: &mut R,
) -> Vec<u8> {
    let mut payload = Vec::with_capacity(4 * packed_len(row.dimension()));
    let mut rest = row.as_slice();
    while let [xi, right @ ..] = rest {
        payload.extend_from_slice(&noise.on_diagonal(xi * xi, rng).to_le_bytes());
        for xj in right {
            payload.extend_from_slice(&noise.off_diagonal(xi * xj, rng).to_le_bytes());
        }
        rest = right;
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget whose noise no report can hold is refused when the study is made, not when a device takes part.
    #[test]
    fn noise_beyond_single_precision_is_refused() {
        for calibration in [Calibration::Analytic, Calibration::AsPublished] {
            let hopeless = Budget::approximate(1e-300, 1e-300).unwrap();
            let error = GaussianNoise::derive(calibration, hopeless).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidBudget);
            assert!(
                error.detail().contains("choose a larger epsilon"),
                "{error}"
            );
            let tiny = Budget::approximate(1e-9, 1e-9).unwrap();
            assert!(GaussianNoise::derive(calibration, tiny).is_ok());
        }
    }
}
