//! Gaussian noise on the packed upper triangle of `xxᵀ`.
//!
//! For both mechanisms:
//! * Neighbours: any two rows of the unit ball (replacement). Norm: L2 on the triangle, scaled or not.
//! * Sensitivity: exactly √2 ([`crate::privacy::gaussian::SENSITIVITY`]), from ‖x‖₂ ≤ 1, which
//!   [`BoundedRow`] proves.
//! * Guarantee: (ε, δ)-LDP where σ meets Theorem 8 of Balle & Wang 2018.
//! * Source: Wang & Xu, Algorithms 1 and 2 (symmetric); `docs/mechanisms.md` (isotropic).
//! * Rounding: noise and sum are computed in f64 and rounded to f32, which is post-processing. The
//!   floating-point Gaussian itself is not covered by the proof (Mironov 2012; `docs/limitations.md`).

use rand::Rng;
use rand_distr::{Distribution, StandardNormal};

use super::{NoiseModel, spec::LocalRandomizer};
use crate::{packed::packed_len, preprocess::BoundedRow};

/// Largest dimension of a mechanism whose payload is a whole matrix: 33.6 MB a report.
pub const MAX_DENSE_DIMENSION: usize = 4_096;

/// `symmetric-gaussian`: every upper-triangle entry, diagonal included, gets i.i.d. `N(0, σ²)`; the
/// lower triangle mirrors it (Algorithms 1 and 2 of Wang & Xu).
///
/// (ε, δ)-LDP with L2 sensitivity √2 on `tri(xxᵀ)`, reached only by a pair of coordinate axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SymmetricGaussian {
    sigma: f64,
}

/// `isotropic-gaussian`: `N(0, σ²I)` on `svec(xxᵀ)`, that is `N(0, σ²)` on the diagonal and
/// `N(0, σ²/2)` off it: the guarantee of [`SymmetricGaussian`] at half the off-diagonal variance.
///
/// (ε, δ)-LDP with L2 sensitivity √2 on `svec(xxᵀ)` (‖svec(M)‖₂ = ‖M‖_F), reached by every
/// orthogonal pair of unit rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IsotropicGaussian {
    sigma: f64,
}

impl SymmetricGaussian {
    pub(super) fn new(sigma: f64) -> Self {
        Self { sigma }
    }
}

impl IsotropicGaussian {
    pub(super) fn new(sigma: f64) -> Self {
        Self { sigma }
    }
}

impl super::spec::Sealed for SymmetricGaussian {}
impl super::spec::Sealed for IsotropicGaussian {}

impl LocalRandomizer for SymmetricGaussian {
    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        perturb_triangle(row, self.sigma, self.sigma, rng)
    }

    fn payload_len(&self, dimension: usize) -> usize {
        4 * packed_len(dimension)
    }

    fn noise_model(&self) -> NoiseModel {
        NoiseModel::Gaussian {
            off_diagonal_sd: self.sigma,
            diagonal_sd: self.sigma,
        }
    }
}

impl LocalRandomizer for IsotropicGaussian {
    fn perturb<R: Rng + ?Sized>(&self, row: &BoundedRow, rng: &mut R) -> Vec<u8> {
        perturb_triangle(
            row,
            self.sigma,
            self.sigma * std::f64::consts::FRAC_1_SQRT_2,
            rng,
        )
    }

    fn payload_len(&self, dimension: usize) -> usize {
        4 * packed_len(dimension)
    }

    fn noise_model(&self) -> NoiseModel {
        NoiseModel::Gaussian {
            off_diagonal_sd: self.sigma * std::f64::consts::FRAC_1_SQRT_2,
            diagonal_sd: self.sigma,
        }
    }
}

/// `tri(xxᵀ)` plus independent Gaussians, as little-endian f32.
fn perturb_triangle<R: Rng + ?Sized>(
    row: &BoundedRow,
    diagonal_sd: f64,
    off_diagonal_sd: f64,
    rng: &mut R,
) -> Vec<u8> {
    let x = row.as_slice();
    let mut payload = Vec::with_capacity(4 * packed_len(x.len()));
    for (i, &xi) in x.iter().enumerate() {
        let mut sd = diagonal_sd;
        for &xj in &x[i..] {
            let z: f64 = StandardNormal.sample(rng);
            #[allow(clippy::cast_possible_truncation)]
            let entry = (xi * xj + sd * z) as f32;
            payload.extend_from_slice(&entry.to_le_bytes());
            sd = off_diagonal_sd;
        }
    }
    payload
}
