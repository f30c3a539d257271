//! Input of the verdict.

use eigenveil_shared::mechanism::NoiseModel;
use nalgebra::DMatrix;

use super::Eigenvalues;
use crate::{centring::EstimatedMean, jackknife::ErrorBars};

/// Components as an estimator found them, with what is needed to judge them.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// `p × k` orthonormal loadings, leading first; k may be 0.
    pub vectors: &'a DMatrix<f64>,
    /// `vᵀS̃v` of each (its eigenvalue for plain PCA).
    pub values: &'a [f64],
    /// The eigenvalues of S̃.
    pub spectrum: Eigenvalues<'a>,
    /// Noise of one report.
    pub noise: &'a NoiseModel,
    /// Reports averaged.
    pub n: u64,
    /// The mean that private centring removed; `None` without it.
    pub mean: Option<&'a EstimatedMean>,
    /// Rows a sparse estimator selected; `None` for plain PCA.
    pub support: Option<&'a [usize]>,
    /// Standard errors, where there are enough buckets.
    pub error_bars: Option<&'a ErrorBars>,
    /// The privacy setting in words, for the warnings: "ε = 1".
    pub setting: &'a str,
}
