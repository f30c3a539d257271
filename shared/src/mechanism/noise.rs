//! What the noise of one decoded report looks like, for everything after the sum.

use serde::{Deserialize, Serialize};

/// Noise of one decoded report `D = xxᵀ + E`, entry by entry of the symmetric matrix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "family")]
#[non_exhaustive]
pub enum NoiseModel {
    /// Independent centred Gaussians on the upper triangle, mirrored.
    Gaussian {
        /// Standard deviation of an off-diagonal entry, `s`.
        off_diagonal_sd: f64,
        /// Standard deviation of a diagonal entry.
        diagonal_sd: f64,
    },
}

impl NoiseModel {
    /// Standard deviation `s` of an off-diagonal entry of one report, outside the signal.
    pub fn off_diagonal_sd(&self) -> f64 {
        match *self {
            NoiseModel::Gaussian {
                off_diagonal_sd, ..
            } => off_diagonal_sd,
        }
    }
}
