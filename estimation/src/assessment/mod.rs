//! Judgement of an estimate: which components are real, which are noise, how wrong they are, and how many more
//! participants would show the others (`docs/derivations/floor.md`).
//!
//! An estimator has [`Measured`] components; [`assess`] counts, judges and groups them. `closed_form` has the formulas,
//! `noise_floor` the floor under a measured spectrum, `component_count` where the components end.

pub mod agreement;
mod assess;
mod closed_form;
mod component_count;
pub mod error_bars;
mod expected_error;
pub mod feasibility;
mod groups;
mod measured;
mod noise_floor;
mod observed_spectrum;
mod probable_mean;
mod selection;
mod table_bars;
mod warnings;

pub use assess::{FloorReport, assess};
pub use closed_form::{
    PredictedComponent, Prediction, Resolution, SpectralNoise, Spectrum, Spike,
    participants_for_error, participants_for_visibility, predict, resolution,
};
pub(crate) use closed_form::{check_reports, checked_deviation, require_gap_after};
pub(crate) use component_count::{ChosenCount, checked_rank, count_components};
pub use component_count::{SURE_GAP, gap_after, gap_between};
pub use expected_error::{ExpectedError, Participants, SpectrumRange};
pub use measured::{Measured, Refitted, Support};
pub use noise_floor::{EigenvalueVerdict, Eigenvalues, Floor};
pub use probable_mean::probable_mean_warning;
pub(crate) use table_bars::{TableBars, table_bars};

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
        rows_of_tables: None,
        excess_noise: None,
        excess: &[],
        support: None,
        k_is_open: false,
        error_bars: None,
        setting: "ε = 1",
    }
}

/// A spectrum estimate with noise variance V = 1e-6 at n = 1, so that a gap of 2e-3 equals 2√V.
#[cfg(test)]
fn spectrum_estimate(
    above: &[f64],
    bulk: (usize, f64),
) -> eigenveil_shared::estimate::SpectrumEstimate {
    eigenveil_shared::estimate::SpectrumEstimate {
        standing: above.to_vec(),
        doubtful: Vec::new(),
        excess_along_mean: Vec::new(),
        rest_count: bulk.0,
        rest_mean: bulk.1,
        rest_half_width: 0.0,
        unseen: bulk.1,
        unseen_limit: bulk.1 + 0.002,
        noise: eigenveil_shared::mechanism::NoiseModel::gaussian(1e-3),
        selection: None,
    }
}
