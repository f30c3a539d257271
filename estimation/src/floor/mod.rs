//! The noise floor: which components are real, which are noise, and how many participants more would need.
//!
//! The noise in `S̃` is, up to a shift, a random symmetric matrix whose eigenvalues fill an interval
//! `b + χ ± 2 r_b`. A component of size θ above the bulk shows as an eigenvalue outside it only if it is
//! strong enough, and even then at the wrong place and along a tilted direction. All of it has a closed
//! form (`docs/derivations/floor.md`, "A flat bulk"; checked on 51 settings, predicted / measured error 0.88–1.11):
//!
//! ```text
//! Hⱼ = ½[(θⱼ−χ) + √((θⱼ−χ)² + 4(Rⱼ²−r_b²))]      visible iff Hⱼ > r_b
//! λ̂ⱼ = b + χ + Hⱼ + r_b²/Hⱼ                     cos² = (Hⱼ²−r_b²)/(Hⱼ²−r_b²+Rⱼ²)
//! ```
//!
//! and from data `Hⱼ = ½[(λ̂−b−χ) + √((λ̂−b−χ)²−4r_b²)]`, `θ̂ⱼ = λ̂ − b − Rⱼ²/Hⱼ`. For Gaussian
//! mechanisms χ = 0 and `r_b = Rⱼ = s√((p−k)/n)`, `s` the off-diagonal standard deviation of one report.
//! For `double-cap` χ = c/n, and with `V(λ,λ')` the noise between directions of mean squares λ and λ'
//! (`spiked_model.rs`) `r_b² = (p−k)V(λ_w,λ_w)`, `Rⱼ² = (p−k)V(θⱼ+λ_w,λ_w)`.

mod centring;
mod components;
mod eigengap;
mod estimated;
mod from_data;
mod groups;
mod mean;
mod measured;
mod predict;
mod resolution;
mod selection;
mod shrinkage;
mod spectrum;
mod spiked_model;
mod warnings;

pub use components::{FloorReport, assess};
pub use estimated::{
    ChosenCount, ExpectedError, Participants, SURE_GAP, SpectrumRange, choose_count,
    count_components, gap_after, gap_between,
};
pub use from_data::{EigenvalueVerdict, Eigenvalues, Floor};
pub use mean::probably_the_mean;
pub use measured::{Measured, Support};
pub use predict::{
    PredictedComponent, Prediction, participants_for_error, participants_for_visibility, predict,
};
pub(crate) use resolution::require_gap_after;
pub use resolution::{Resolution, resolution};
pub use shrinkage::Shrunk;
pub use spectrum::Spectrum;
pub use spiked_model::{SpectralNoise, Spike};
pub(crate) use spiked_model::{check_reports, checked_deviation};

/// An estimate without mean, support or error bars, for the tests of this folder.
#[cfg(test)]
fn measured<'a>(
    vectors: &'a nalgebra::DMatrix<f64>,
    values: &'a [f64],
    spectrum: &'a [f64],
    noise: &'a eigenveil_shared::mechanism::NoiseModel,
    n_eff: f64,
) -> Measured<'a> {
    Measured {
        vectors,
        values,
        spectrum: Eigenvalues::all(spectrum),
        noise,
        n_eff,
        excess_noise: None,
        excess: &[],
        support: None,
        k_is_open: false,
        error_bars: None,
        setting: "ε = 1",
    }
}

/// The noise of `double-cap` on rows of length one, for the tests of this folder.
#[cfg(test)]
fn double_cap(p: usize, epsilon: f64) -> eigenveil_shared::mechanism::NoiseModel {
    use eigenveil_shared::{
        mechanism::{Calibration, Mechanism, MechanismKind},
        privacy::Budget,
    };
    let budget = Budget::pure(epsilon).unwrap();
    Mechanism::derive(MechanismKind::DoubleCap, Calibration::Analytic, p, budget)
        .unwrap()
        .noise_model()
        .with_mean_squared_norm(Some(1.0))
}
