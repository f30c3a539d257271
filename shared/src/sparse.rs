//! What a row-sparse estimate is asked for.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The penalty of the Fantope problem.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Lambda {
    /// Calibrated from the known noise of the mechanism.
    #[default]
    Auto,
    /// Cross-validated over the buckets.
    CrossValidated,
    /// The value nearest to `Auto` on a path of solutions, all of which are reported.
    Path,
    /// This number, in units of the moment's entries.
    Fixed(f64),
}

impl Lambda {
    /// # Errors
    /// `invalid-request` for a number that is not finite or below 0.
    pub fn check(self) -> Result<Self> {
        match self {
            Lambda::Fixed(value) if !(value.is_finite() && value >= 0.0) => Err(wrong(value)),
            _ => Ok(self),
        }
    }
}

fn wrong(value: impl std::fmt::Display) -> Error {
    Error::invalid_request(format!(
        "lambda is {value}; it must be a number ≥ 0, auto, cv or path"
    ))
    .with_field("lambda")
}

impl Serialize for Lambda {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Lambda::Auto => serializer.serialize_str("auto"),
            Lambda::CrossValidated => serializer.serialize_str("cv"),
            Lambda::Path => serializer.serialize_str("path"),
            Lambda::Fixed(value) => serializer.serialize_f64(*value),
        }
    }
}

impl<'de> Deserialize<'de> for Lambda {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "lambda must be a number, \"auto\", \"cv\" or \"path\""
        )]
        enum Either {
            Number(f64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(value) => Ok(Lambda::Fixed(value)),
            Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

impl std::str::FromStr for Lambda {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Lambda::Auto),
            "cv" => Ok(Lambda::CrossValidated),
            "path" => Ok(Lambda::Path),
            _ => match text.parse() {
                Ok(value) => Lambda::Fixed(value).check(),
                Err(_) => Err(wrong(format_args!("{text:?}"))),
            },
        }
    }
}

/// Settings of the Fantope ADMM (Algorithm 2 of Wang & Xu; Vu, Cho, Lei & Rohe 2013).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SparseSettings {
    /// Penalty λ.
    pub lambda: Lambda,
    /// Initial ADMM step ρ (> 0), adapted while running; `null` chooses it from the spectrum.
    pub rho: Option<f64>,
    /// Keep the selected rows and run PCA on them, which removes the shrinkage. Without, the error is not known.
    pub refit: bool,
    /// Maximum number of iterations; if it is reached, the result has `converged: false`.
    pub max_iterations: usize,
    /// Relative duality gap at which to stop.
    pub tolerance: f64,
}

impl Default for SparseSettings {
    fn default() -> Self {
        Self {
            lambda: Lambda::Auto,
            rho: None,
            refit: true,
            max_iterations: 2_000,
            tolerance: 1e-6,
        }
    }
}
