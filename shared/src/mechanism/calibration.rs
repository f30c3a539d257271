//! How the noise of a continuous Gaussian mechanism is chosen.

use serde::{Deserialize, Serialize};

use crate::error::error;

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

names! {
    pub Calibration { Analytic = "analytic", AsPublished = "as-published" } else |text, names| error!(
        InvalidMechanism,
        "there is no calibration {text:?}; use {}",
        names.join(" or ")
    );
}
