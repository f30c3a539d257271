//! How the noise of a continuous Gaussian mechanism is chosen.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, error};

/// How the noise of a Gaussian mechanism is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Calibration {
    /// The smallest σ that is (ε, δ)-LDP (Balle & Wang 2018, sensitivity √2).
    #[default]
    Analytic,
    /// The σ that Wang & Xu print, so that their figures can be rerun; always shown with the (ε, δ)
    /// that really holds.
    AsPublished,
}

impl Calibration {
    /// The name as written on the wire and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Calibration::Analytic => "analytic",
            Calibration::AsPublished => "as-published",
        }
    }
}

impl std::fmt::Display for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Calibration {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "analytic" => Ok(Calibration::Analytic),
            "as-published" => Ok(Calibration::AsPublished),
            _ => Err(error!(
                InvalidMechanism,
                "there is no calibration {text:?}; use analytic or as-published"
            )),
        }
    }
}
