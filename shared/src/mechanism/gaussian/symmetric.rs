//! The mechanism `symmetric-gaussian`: i.i.d. Gaussian noise on the packed triangle.

use serde::{Deserialize, Serialize};

use super::{GaussianNoise, rounded::RoundedGaussian, triangle::PackedGaussian};
use crate::{mechanism::NormBound, packed::packed_len};

/// `symmetric-gaussian`: every upper-triangle entry, diagonal included, gets i.i.d. `N(0, σ²)`; the
/// lower triangle mirrors it (Algorithms 1 and 2 of Wang & Xu).
///
/// (ε, δ)-LDP with L2 sensitivity √2 on `tri(xxᵀ)`, reached only by a pair of coordinate axes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct SymmetricGaussian(GaussianNoise);

impl PackedGaussian for SymmetricGaussian {
    const NAME: &'static str = "symmetric-gaussian";
    const SUMMARY: &'static str = "(ε, δ), Algorithms 1 and 2 of Wang & Xu";
    const NUMBER: u8 = 1;

    fn new(noise: GaussianNoise) -> Self {
        Self(noise)
    }

    fn noise(&self) -> GaussianNoise {
        self.0
    }

    fn rounded(&self) -> RoundedGaussian {
        RoundedGaussian::new(self.0.sigma(), self.0.sigma())
    }

    fn norm_bound(&self, dimension: usize) -> NormBound {
        let entries = packed_len(dimension) as f64;
        let rounding = 0.5 * self.rounded().grid() * entries.sqrt();
        NormBound::from_noise(dimension, 1.0, 1.0 + rounding, self.0.sigma())
    }

    /// A triangle of length B has spectral norm at most `B√(2 − 1/p)`, since
    /// `Σ_i v_i⁴ + 4Σ_{i<j} v_i²v_j² = 2 − Σv_i⁴` for a unit vector v.
    fn spectral_norm(&self, length: f64, dimension: usize) -> f64 {
        length * (2.0 - 1.0 / dimension as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        mechanism::{Calibration, Mechanism, MechanismKind},
        packed::packed_len,
    };

    /// The packed triangle with the largest spectral norm reaches the influence bound.
    #[test]
    fn influence_bounds_the_spectral_norm() {
        let kind = MechanismKind::SymmetricGaussian;
        for p in [2, 3, 10] {
            let budget = kind.budget(1.0, None).unwrap();
            let mechanism = Mechanism::derive(kind, Calibration::Analytic, p, budget).unwrap();
            let limit = mechanism.norm_bound(p).unwrap().limit();
            // M with entries v_i², 2v_iv_j for v = 1/√p, scaled to length one, has vᵀMv = √(2 − 1/p).
            let v2 = 1.0 / p as f64;
            let off_diagonal_count = packed_len(p) - p;
            let length = (p as f64 * v2 * v2 + off_diagonal_count as f64 * 4.0 * v2 * v2).sqrt();
            let quadratic =
                (p as f64 * v2 * v2 + off_diagonal_count as f64 * 4.0 * v2 * v2) / length;
            let per_report = mechanism.report_influence(p) / 2.0;
            assert!((quadratic * limit - per_report).abs() < 1e-9 * per_report);
        }
    }
}
