//! Gaussian noise on the packed upper triangle of `xxᵀ`.
//!
//! For both mechanisms:
//! * Neighbours: any two rows of the unit ball (replacement). Norm: L2 on the triangle, scaled or not.
//! * Sensitivity: exactly √2 ([`crate::privacy::gaussian::SENSITIVITY`]), from ‖x‖₂ ≤ 1, which
//!   [`BoundedRow`](crate::preprocess::BoundedRow) proves.
//! * Guarantee: (ε, δ)-LDP where σ meets Theorem 8 of Balle & Wang 2018.
//! * Source: Wang & Xu, Algorithms 1 and 2 (symmetric); `docs/mechanisms.md` (isotropic).
//! * Rounding: noise and sum are computed in f64, and released on a grid of about a hundredth of σ. What the
//!   arithmetic can add to ε is bounded ([`Mechanism::arithmetic_slack`](super::Mechanism::arithmetic_slack)).

mod isotropic;
mod noise;
mod rounded;
mod symmetric;
mod triangle;

pub use isotropic::IsotropicGaussian;
pub use noise::GaussianNoise;
pub(super) use rounded::RoundedGaussian;
pub use symmetric::SymmetricGaussian;
