//! How far the mean of n reports may be off, for any statistic that is a smooth function of it.

use eigenveil_shared::mechanism::NoiseModel;
use nalgebra::{Matrix3, Vector3};

/// Noise and sampling of the mean decoded report D̄ of n participants.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportLaw {
    /// Noise of one report, not [`NoiseModel::Transformed`].
    pub(super) noise: NoiseModel,
    /// n, or what tables amount to.
    pub(super) n: f64,
    /// Dimension P of a report.
    pub(super) dimension: f64,
    /// Where the reports are of tables.
    pub(super) tables: Option<Tables>,
}

/// Tables of sites: their rows are not their draws of noise, and their number is noisy too.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables {
    /// Rows of the same weight with as much sampling.
    pub(super) rows: f64,
    /// Variance of the count of one.
    pub(super) count: f64,
}

/// Three vectors V of a report's space, in which gradients G = V S Vᵀ of statistics lie.
pub(super) struct Frame {
    /// Rows of V that are not zero.
    pub(super) rows: Vec<Vector3<f64>>,
    /// VᵀV.
    pub(super) gram: Matrix3<f64>,
}

impl Frame {
    pub(super) fn new(rows: Vec<Vector3<f64>>) -> Self {
        let gram = rows.iter().map(|row| row * row.transpose()).sum();
        Self { rows, gram }
    }
}

impl ReportLaw {
    /// Covariance of the statistics with the gradients V S Vᵀ and V T Vᵀ; `moment` is VᵀMV with the rows' second
    /// moment M = E yyᵀ, and `rho` is tr M. Sampling is included.
    pub(super) fn covariance(
        &self,
        frame: &Frame,
        moment: &Matrix3<f64>,
        rho: f64,
        s: &Matrix3<f64>,
        t: &Matrix3<f64>,
    ) -> f64 {
        let p = self.dimension;
        let [in_space, in_rows] = [&frame.gram, moment].map(|form| [s * form, t * form]);
        let [trace_s, trace_t] = in_space.map(|product| product.trace());
        let [mean_s, mean_t] = in_rows.map(|product| product.trace());
        let squares = (in_space[0] * in_space[1]).trace();
        // E[(yᵀGy)²/‖y‖²] is not known beyond the second moment: as for rows of elliptical shape.
        let k = if rho > 0.0 {
            p / ((p + 2.0) * rho)
        } else {
            0.0
        };
        let fourth = k * (mean_s * mean_t + 2.0 * (in_rows[0] * in_rows[1]).trace());
        let of_one = match self.noise {
            NoiseModel::DoubleCap {
                scale, a0, a1, a2, ..
            } => {
                let outside = rho * a0 + (1.0 - rho) / (p * (p + 2.0));
                let mixed = (in_space[0] * in_rows[1]).trace();
                let square = outside * (trace_s * trace_t + 2.0 * squares)
                    + a1 * (trace_s * mean_t + trace_t * mean_s + 4.0 * mixed)
                    + a2 * fourth;
                let mean = |own: f64, trace: f64| own + (scale - rho) / p * trace;
                scale * scale * square - mean(mean_s, trace_s) * mean(mean_t, trace_t)
            }
            NoiseModel::Gaussian {
                off_diagonal_sd,
                diagonal_sd,
            } => {
                let off = 2.0 * off_diagonal_sd * off_diagonal_sd;
                let diagonal: f64 = frame
                    .rows
                    .iter()
                    .map(|row| row.dot(&(s * row)) * row.dot(&(t * row)))
                    .sum();
                let noise = off * squares + (diagonal_sd * diagonal_sd - off) * diagonal;
                if let Some(tables) = self.tables {
                    let counted = tables.count * mean_s * mean_t;
                    let sampling = fourth - mean_s * mean_t;
                    return (noise + counted) / self.n + sampling / tables.rows;
                }
                noise + fourth - mean_s * mean_t
            }
            // Centring is part of the gradients.
            NoiseModel::Transformed { .. } => f64::NAN,
        };
        of_one / self.n
    }
}
