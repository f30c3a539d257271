//! What the noise of one decoded report looks like, for everything after the sum.

use serde::{Deserialize, Serialize};

/// Noise of one decoded report `D`, entry by entry of the symmetric matrix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case", tag = "family")]
pub enum NoiseModel {
    /// `D = xxᵀ + E` with independent centred Gaussians on the upper triangle, mirrored (what the grids of the
    /// mechanisms add is below 1.1e-5 of a standard deviation).
    Gaussian {
        /// Standard deviation of an off-diagonal entry, `s`.
        off_diagonal_sd: f64,
        /// Standard deviation of a diagonal entry.
        diagonal_sd: f64,
    },
    /// `D = c(ggᵀ − I/p)` with g leaning towards the row: `E D = xxᵀ − (r²/p)I`, and a variance that
    /// depends on the row (`docs/derivations/double-cap.md`, "Variance").
    DoubleCap {
        /// Dimension p of the reports.
        dimension: usize,
        /// Scale c.
        scale: f64,
        /// a₀: variance outside the signal of a unit row, in units of c².
        a0: f64,
        /// a₁: what the signal in one direction adds.
        a1: f64,
        /// a₂: what the signal in both directions adds.
        a2: f64,
        /// `E‖x‖²` of the prepared rows where the study fixes it: the reports themselves do not show
        /// it. [`StudyParams::noise_model`](crate::study::StudyParams::noise_model) fills it in.
        mean_squared_norm: Option<f64>,
    },
    /// Noise after private centring, after the division by the shares of observed cells, or with the sampling of rows: the
    /// noise of one report in the covariance around the estimated mean m̂ (or in the divided moment), between orthonormal
    /// directions v, w that have variances λ, λ' and lie across m̂: `constant + linear·(λ + λ') + bilinear·λλ'`; along m̂
    /// the constant grows by `m_v²/a² + m_w²/a²` (`docs/derivations/centring.md`, "Noise",
    /// `missing-cells-and-weights.md` and `sites.md`, "Sampling").
    Transformed {
        /// Dimension p of the covariance, with private centring one less than that of the reports.
        dimension: usize,
        /// Variance outside the signal.
        constant: f64,
        /// Addition per variance in one direction.
        linear: f64,
        /// Addition per product of the variances in both directions.
        bilinear: f64,
        /// n·χ, the shift of the bulk; 0 for Gaussian noise.
        shift: f64,
        /// Estimate of `E‖x − E x‖²`, or of `E‖x‖²` without centring; `None` where the noise hides it.
        total_variance: Option<f64>,
        /// ‖E x‖/a, an estimate: above 1, noise along m̂ leaves the bulk; 0 without centring.
        mean_ratio: f64,
        /// By how much observed shares that differ widen the spectrum of pure noise; 1 if they are equal.
        edge_widening: f64,
    },
}

impl NoiseModel {
    /// Gaussian of one standard deviation on every entry.
    pub const fn gaussian(sd: f64) -> Self {
        Self::Gaussian {
            off_diagonal_sd: sd,
            diagonal_sd: sd,
        }
    }

    /// Writes the noise as [`Transformed`](Self::Transformed), of rows with this dimension and `E‖x‖²`.
    #[must_use]
    pub fn transformed(&self, dimension: usize, squared_norm: f64) -> Self {
        let (constant, linear, bilinear, shift) = match *self {
            NoiseModel::Transformed { .. } => return *self,
            NoiseModel::Gaussian {
                off_diagonal_sd, ..
            } => (off_diagonal_sd * off_diagonal_sd, 0.0, 0.0, 0.0),
            NoiseModel::DoubleCap {
                scale, a0, a1, a2, ..
            } => {
                let (p, unit) = (dimension as f64, scale * scale);
                let norm = squared_norm.clamp(f64::MIN_POSITIVE, 1.0);
                let outside = norm * a0 + (1.0 - norm) / (p * (p + 2.0));
                let bilinear = unit * a2 * p / ((p + 2.0) * norm);
                (unit * outside, unit * a1, bilinear, scale)
            }
        };
        NoiseModel::Transformed {
            dimension,
            constant,
            linear,
            bilinear,
            shift,
            total_variance: Some(squared_norm),
            mean_ratio: 0.0,
            edge_widening: 1.0,
        }
    }

    /// Adds the sampling of rows, for each of which there are `n_eff_per_row` reports with as much noise, written as
    /// [`Transformed`](Self::Transformed): between directions of variances λ, λ' a row adds Kλλ', K = p/(p + 2) times the
    /// ratio `fourth` = E‖x‖⁴/(E‖x‖²)², and it shifts the bulk by E‖x‖² at most (`docs/derivations/sites.md`,
    /// "Sampling").
    #[must_use]
    pub fn with_sampling(
        &self,
        (dimension, squared_norm): (usize, f64),
        fourth: f64,
        n_eff_per_row: f64,
    ) -> Self {
        let mut noise = self.transformed(dimension, squared_norm);
        if let NoiseModel::Transformed {
            bilinear, shift, ..
        } = &mut noise
        {
            let p = dimension as f64;
            *bilinear += p / (p + 2.0) * fourth * n_eff_per_row;
            *shift += squared_norm * n_eff_per_row;
        }
        noise
    }

    /// Noise of reports that show w·xxᵀ, after dividing by the mean w̄ of the weights, where `E‖x‖²` (by weight) is 1.
    #[must_use]
    pub fn divided_by_mean_weight(&self, mean: f64) -> Self {
        let mut divided = *self;
        match &mut divided {
            NoiseModel::Gaussian {
                off_diagonal_sd,
                diagonal_sd,
            } => {
                *off_diagonal_sd /= mean;
                *diagonal_sd /= mean;
            }
            NoiseModel::DoubleCap {
                dimension,
                scale,
                a0,
                a1,
                a2,
                mean_squared_norm,
            } => {
                let p = *dimension as f64;
                *scale /= mean;
                *a0 = mean * *a0 + (1.0 - mean) / (p * (p + 2.0));
                *a1 *= mean;
                *a2 *= mean;
                *mean_squared_norm = mean_squared_norm.map(|_| 1.0);
            }
            NoiseModel::Transformed { .. } => {}
        }
        divided
    }

    /// Standard deviation `s` of an off-diagonal entry of one report, outside the signal.
    pub fn off_diagonal_sd(&self) -> f64 {
        match *self {
            NoiseModel::Gaussian {
                off_diagonal_sd, ..
            } => off_diagonal_sd,
            NoiseModel::DoubleCap { scale, a0, .. } => scale * a0.sqrt(),
            NoiseModel::Transformed { constant, .. } => constant.sqrt(),
        }
    }

    /// Fills in `E‖x‖²` of the rows, where the reports do not show it.
    #[must_use]
    pub fn with_mean_squared_norm(mut self, known: Option<f64>) -> Self {
        if let NoiseModel::DoubleCap {
            mean_squared_norm, ..
        } = &mut self
        {
            *mean_squared_norm = known;
        }
        self
    }

    /// `E‖x‖²` of the prepared rows when the mean decoded report has this trace: the trace itself, except
    /// for `double-cap`, whose reports have none; `None` where nobody knows.
    pub fn mean_squared_norm(&self, trace: f64) -> Option<f64> {
        match *self {
            NoiseModel::Gaussian { .. } => Some(trace),
            NoiseModel::Transformed { total_variance, .. } => total_variance,
            NoiseModel::DoubleCap {
                mean_squared_norm, ..
            } => mean_squared_norm,
        }
    }
}
