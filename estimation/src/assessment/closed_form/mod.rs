//! Closed forms of the noise: from a known spectrum to what shows of it.

mod eigengap;
mod predict;
mod resolution;
mod spectrum;
mod spiked_model;

pub(crate) use eigengap::{EQUAL_EIGENVALUES_GAP, range_of_gap};
pub use predict::{
    PredictedComponent, Prediction, participants_for_error, participants_for_visibility, predict,
};
pub(crate) use resolution::require_gap_after;
pub use resolution::{Resolution, resolution};
pub use spectrum::Spectrum;
pub(crate) use spiked_model::{NoiseProfile, check_reports, checked_deviation, unit_of_loss};
pub use spiked_model::{SpectralNoise, Spike};

/// The noise of `double-cap` on rows of length one, for tests.
#[cfg(test)]
pub(crate) fn double_cap(p: usize, epsilon: f64) -> eigenveil_shared::mechanism::NoiseModel {
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
