//! The scale of continuous Gaussian noise.

use serde::{Deserialize, Serialize};

use crate::{
    error::{Result, error},
    mechanism::{Calibration, payload::check_dense_dimension},
    privacy::{Budget, gaussian},
};

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
    /// Noise of the scale that this calibration gives for this budget at L2 sensitivity √2.
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
            return Err(error!(
                InvalidBudget,
                "({}, {}) needs noise of {sigma:e}, above {MAX_SIGMA:e}, which a report cannot hold; choose a larger epsilon or delta",
                budget.epsilon(),
                budget.delta()
            ));
        }
        Ok(Self { calibration, sigma })
    }

    /// Noise with the constants of a received document; check it with [`check`](Self::check).
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
                let epsilon = budget.epsilon();
                gaussian::true_delta(self.sigma, gaussian::SENSITIVITY, epsilon) <= budget.delta()
            }
            Calibration::AsPublished => self.sigma >= wanted * (1.0 - 1e-12),
        };
        if enough && self.sigma <= wanted * 1.01 {
            return Ok(());
        }
        Err(error!(
            InvalidMechanism,
            "the study's noise has standard deviation {} but ({}, {}) under calibration {} needs {wanted}; do not take part",
            self.sigma,
            budget.epsilon(),
            budget.delta(),
            self.calibration
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    /// A budget whose noise no report can hold is refused when the study is made, not when a device takes part.
    #[test]
    fn noise_beyond_single_precision_is_refused() {
        for calibration in [Calibration::Analytic, Calibration::AsPublished] {
            let hopeless = Budget::approximate(1e-300, 1e-300).unwrap();
            let error = GaussianNoise::derive(calibration, hopeless).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidBudget);
            let says = "choose a larger epsilon";
            assert!(error.detail().contains(says), "{error}");
            let tiny = Budget::approximate(1e-9, 1e-9).unwrap();
            assert!(GaussianNoise::derive(calibration, tiny).is_ok());
        }
    }
}
