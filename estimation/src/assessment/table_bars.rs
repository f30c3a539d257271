//! Standard errors of the eigenvalues of a mean of tables, by formulas (`docs/derivations/sites.md`, "Error bars"): sites
//! are few, and may differ, so that a jackknife over them tells of something else.

use eigenveil_shared::mechanism::NoiseModel;
use nalgebra::{DMatrix, DVectorView};

use crate::input::{centring::EstimatedMean, moment::NoisyMoment};

/// Standard errors of k eigenvalues, leading first, in units of the moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TableBars {
    /// Around those of these very rows: noise, that of the count included.
    pub(crate) of_rows: Vec<f64>,
    /// Around those of the populations that the rows are from, with the sampling that the noise model has: what
    /// components are told apart by.
    pub(crate) expected: Vec<f64>,
    /// Around those of the populations, with the most that sampling can add.
    pub(crate) of_populations: Vec<f64>,
}

/// The standard errors of `vᵀS̃v` = `values` for the columns v of `vectors` (`p × k`).
pub(crate) fn table_bars(
    moment: &NoisyMoment,
    vectors: &DMatrix<f64>,
    values: &[f64],
) -> TableBars {
    let counts = moment.counts();
    let unit = moment.noise().off_diagonal_sd().powi(2) / counts.n_eff;
    let (excess, mean) = (moment.excess_noise(), moment.estimated_mean());
    let of_squares = match *moment.noise() {
        NoiseModel::Transformed { bilinear, .. } => 2.0 * bilinear / counts.n_eff,
        NoiseModel::Gaussian { .. } | NoiseModel::DoubleCap { .. } => 0.0,
    };
    let mut bars = TableBars {
        of_rows: Vec::new(),
        expected: Vec::new(),
        of_populations: Vec::new(),
    };
    for (v, value) in vectors.column_iter().zip(values) {
        let along = mean.map_or(0.0, |mean| {
            let mean = DVectorView::from_slice(mean.values(), v.len());
            v.dot(&mean)
        });
        let excess = excess.as_ref().map_or(0.0, |noise| noise.along(v));
        // A count that is off by one part in m moves the whole moment by that part, and the mean's square by twice it.
        let counted = value - along * along;
        let lift = mean.map_or(1.0, EstimatedMean::lift);
        let noise = 2.0 * unit * (1.0 + 2.0 * excess + (counted / lift).powi(2));
        // |vᵀ(x − m)| ≤ 1 + |vᵀm|, and a square in [0, b] with mean λ has a variance of at most λ(b − λ).
        let most = (1.0 + along.abs()).powi(2);
        let variance = value.clamp(0.0, most);
        let sampling = variance * (most - variance) / counts.rows;
        bars.of_rows.push(noise.sqrt());
        let expected = noise + of_squares * variance * variance;
        bars.expected.push(expected.sqrt());
        bars.of_populations.push((noise + sampling).sqrt());
    }
    bars
}
