//! The error that an estimate tells, or why it tells none: one answer for pages, the command line, documents and plans.

use std::fmt;

use eigenveil_shared::estimate::{Estimate, SpectrumEstimate};

use crate::metrics::{max_error, random_error};

/// Why an estimate tells no error, as a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownError {
    /// It has no component.
    NoComponent,
    /// Its loadings are shrunk.
    NotRefitted,
    /// A sparse estimate does not show how features that it left out mix with its components.
    NoOtherFeature,
    /// No direction is left beside the components.
    AllDirections,
    /// The component with this number, from 1, is noise.
    Hidden(usize),
    /// The reports do not show E‖x‖².
    UnknownLengths,
    /// A document of an older program.
    NoSpectrum,
    /// Tables of sites: it depends on how further rows are divided among them.
    Tables,
}

impl UnknownError {
    /// The way out for a plan from such a pilot; fields of the request are in backticks.
    pub(super) fn way_out(self) -> String {
        match self {
            Self::NotRefitted => "estimate it again with `refit`, or give `spectrum`".to_owned(),
            Self::NoOtherFeature => {
                "run it with a smaller lambda or without selecting features, or give `spectrum`"
                    .to_owned()
            }
            Self::AllDirections => "plan for fewer components (`k`)".to_owned(),
            Self::NoComponent | Self::Hidden(0 | 1) => {
                "run a larger pilot or give `spectrum`".to_owned()
            }
            Self::Hidden(component) => format!(
                "plan for k = {} or fewer, run a larger pilot or give `spectrum`",
                component - 1
            ),
            Self::UnknownLengths => "give it (`mean_squared_length`)".to_owned(),
            Self::NoSpectrum => "estimate it again".to_owned(),
            Self::Tables => "plan with `sites` and `rows`".to_owned(),
        }
    }
}

impl fmt::Display for UnknownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoComponent => "no component stands above the noise",
            Self::NotRefitted => "the components are not refitted on the selected features",
            Self::NoOtherFeature => "no more features were selected than there are components",
            Self::AllDirections => "there are as many components as features",
            Self::Hidden(component) => {
                return write!(f, "component {component} does not stand above the noise");
            }
            Self::UnknownLengths => {
                "the reports do not show the mean squared length of the rows, which a plan takes"
            }
            Self::NoSpectrum => "the document lacks its spectrum",
            Self::Tables => {
                "it depends on how the rows are divided among sites, which a plan takes"
            }
        })
    }
}

/// The expected error of the estimate's components.
///
/// # Errors
/// Why it is not known.
pub fn known_error(estimate: &Estimate) -> Result<f64, UnknownError> {
    match estimate.k {
        0 => Err(UnknownError::NoComponent),
        _ => estimate.expected_error.ok_or(UnknownError::NotRefitted),
    }
}

/// The expected error with its range, as a clause: "0.24 of at most 2.45, range 0.18 to 0.37". The range comes first where
/// k is a guess; where nothing is found there is none.
///
/// # Errors
/// Why it is not known.
pub fn error_in_words(
    estimate: &Estimate,
    number: impl Fn(f64) -> String,
) -> Result<String, UnknownError> {
    let error = known_error(estimate)?;
    let most = number(max_error(estimate.p, estimate.k));
    let error_text = number(error);
    if is_guess(error, estimate.p, estimate.k) {
        return Ok(format!("{error_text} of at most {most}, {RANDOM}"));
    }
    let Some((low, high)) = estimate.expected_error_range else {
        return Ok(format!("{error_text} of at most {most}"));
    };
    let range = format!("{} to {}", number(low), number(high));
    Ok(match estimate.k_is_open {
        true => format!("{range} of at most {most} (expected {error_text})"),
        false => format!("{error_text} of at most {most}, range {range}"),
    })
}

/// Describes the error of a guess.
pub const RANDOM: &str = "that of a subspace drawn at random";

/// Whether this is the error of a subspace drawn at random: nothing is found.
pub fn is_guess(error: f64, p: usize, k: usize) -> bool {
    let guess = random_error(p, k);
    (error - guess).abs() < 1e-9 * guess
}

/// The spectrum that tells the error of the estimate's components with other numbers of participants.
///
/// # Errors
/// Why that is not known.
pub fn known_spectrum(estimate: &Estimate) -> Result<&SpectrumEstimate, UnknownError> {
    if estimate.sites.is_some() {
        return Err(UnknownError::Tables);
    }
    shown_spectrum(estimate, estimate.k, None)
}

/// The spectrum that tells the error of the first `k` components; `total` is E‖x‖², if it is known from elsewhere.
pub(super) fn shown_spectrum(
    estimate: &Estimate,
    k: usize,
    total: Option<f64>,
) -> Result<&SpectrumEstimate, UnknownError> {
    if k == 0 {
        return Err(UnknownError::NoComponent);
    }
    let Some(spectrum) = &estimate.spectrum else {
        return Err(match &estimate.sparse {
            Some(sparse) if !sparse.refit => UnknownError::NotRefitted,
            Some(_) => UnknownError::NoOtherFeature,
            None => UnknownError::NoSpectrum,
        });
    };
    if k >= estimate.p {
        return Err(UnknownError::AllDirections);
    }
    let standing = spectrum.standing.len();
    if k > standing {
        return Err(UnknownError::Hidden(standing + 1));
    }
    match estimate.total_variance.or(total) {
        None => Err(UnknownError::UnknownLengths),
        Some(_) => Ok(spectrum),
    }
}
