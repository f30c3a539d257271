//! `isotropic-gaussian`.

use std::f64::consts::FRAC_1_SQRT_2;

use serde::{Deserialize, Serialize};

use super::{GaussianNoise, rounded::RoundedGaussian, triangle::PackedGaussian};
use crate::mechanism::NormBound;

/// `isotropic-gaussian`: `N(0, σ²I)` on `svec(xxᵀ)`, that is `N(0, σ²)` on the diagonal and
/// `N(0, σ²/2)` off it: the guarantee of [`SymmetricGaussian`](super::SymmetricGaussian) at half the off-diagonal
/// variance.
///
/// (ε, δ)-LDP with L2 sensitivity √2 on `svec(xxᵀ)` (‖svec(M)‖₂ = ‖M‖_F), reached by every
/// orthogonal pair of unit rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct IsotropicGaussian(GaussianNoise);

impl PackedGaussian for IsotropicGaussian {
    const NAME: &'static str = "isotropic-gaussian";
    const SUMMARY: &'static str = "(ε, δ), half the variance off the diagonal";
    const NUMBER: u8 = 2;

    fn new(noise: GaussianNoise) -> Self {
        Self(noise)
    }

    fn noise(&self) -> GaussianNoise {
        self.0
    }

    fn rounded(&self) -> RoundedGaussian {
        RoundedGaussian::new(self.0.sigma(), self.0.sigma() * FRAC_1_SQRT_2)
    }

    /// On the wire the off-diagonal entries are those of the matrix: 1/√2 of svec's, p² weights in all.
    fn norm_bound(&self, dimension: usize) -> NormBound {
        let rounding = 0.5 * self.rounded().grid() * dimension as f64;
        NormBound::from_noise(dimension, 2.0, 1.0 + rounding, self.0.sigma())
    }

    /// The length is the Frobenius norm.
    fn spectral_norm(&self, length: f64, _dimension: usize) -> f64 {
        length
    }
}
