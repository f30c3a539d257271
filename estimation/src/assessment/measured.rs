//! Input of the verdict.

use eigenveil_shared::mechanism::NoiseModel;
use nalgebra::DMatrix;

use super::Eigenvalues;
use crate::{assessment::error_bars::ErrorBars, input::moment::ExcessNoise};

/// Components as an estimator found them, with what is needed to judge them.
#[derive(Clone, Copy)]
pub struct Measured<'a> {
    /// `p × k` orthonormal loadings, leading first; k may be 0.
    pub vectors: &'a DMatrix<f64>,
    /// `vᵀS̃v` of each (its eigenvalue for plain PCA).
    pub values: &'a [f64],
    /// The eigenvalues of S̃.
    pub spectrum: Eigenvalues<'a>,
    /// Noise of one report.
    pub noise: &'a NoiseModel,
    /// Reports that have as much noise: the draws of noise behind the mean.
    pub n_eff: f64,
    /// Rows of the tables of a study of sites; `None` where each report is of one row.
    pub rows_of_tables: Option<u64>,
    /// Where the noise differs between directions; `None` where it does not.
    pub excess_noise: Option<&'a ExcessNoise>,
    /// Its excess along the leading eigenvectors of S̃ (of a sparse estimate, of its part on the selected rows), requested
    /// or not; as many as lie outside the noise, or empty where the noise does not differ.
    pub excess: &'a [f64],
    /// The support that a sparse estimator selected; `None` for plain PCA.
    pub support: Option<Support<'a>>,
    /// Whether it is open where the components end.
    pub k_is_open: bool,
    /// Standard errors, where there are enough buckets.
    pub error_bars: Option<&'a ErrorBars>,
    /// The privacy setting in words, for the warnings: "ε = 1".
    pub setting: &'a str,
}

impl Measured<'_> {
    /// Whether anything is known of the error of the components.
    pub(super) fn has_known_error(&self) -> bool {
        self.support.is_none_or(|on| on.refitted.is_some())
    }

    /// Excess noise along component `j`; 0 where the noise does not differ between directions.
    pub(super) fn excess_along(&self, j: usize) -> f64 {
        let vector = self.vectors.column(j);
        self.excess_noise.map_or(0.0, |noise| noise.along(vector))
    }

    /// Its part along an estimated mean, `m_v²/a²`.
    pub(super) fn excess_along_mean(&self, j: usize) -> f64 {
        let vector = self.vectors.column(j);
        let along = |noise: &ExcessNoise| noise.along_mean(vector);
        self.excess_noise.map_or(0.0, along)
    }
}

/// The rows that a sparse estimator selected.
#[derive(Clone, Copy)]
pub struct Support<'a> {
    /// Their numbers, ascending.
    pub rows: &'a [usize],
    /// Where the components are PCA on those rows; nothing is known of the error of shrunk ones.
    pub refitted: Option<Refitted<'a>>,
}

/// Measurements that tell the error of components that are PCA on the selected rows.
#[derive(Clone, Copy)]
pub struct Refitted<'a> {
    /// Eigenvalues of S̃ on those rows, descending.
    pub eigenvalues: &'a [f64],
    /// `S̃v̂` of each component, `p × k`: what the other rows show of it.
    pub images: &'a DMatrix<f64>,
    /// S̃ on given rows and their columns.
    pub moment: &'a dyn Fn(&[usize]) -> DMatrix<f64>,
}
