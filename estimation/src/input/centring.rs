//! Private centring: the mean, and the covariance around it, from reports of `y = (x, a)/√(1+a²)`.
//!
//! With `f = 1 + a²`, `P = p + 1` and D̄ the mean decoded report, whose last row belongs to the constant:
//!
//! ```text
//! m̂ = (f/a)·D̄₁₂        Ĉ = f·D̄₁₁ − m̂m̂ᵀ + (a multiple of I for `double-cap`)
//! ```
//!
//! Derived, with the noise, in `docs/derivations/centring.md`; "Noise" there has the small part along the mean that is
//! left out here.

use eigenveil_shared::{
    Error, Result, error,
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    preprocess::{Norm, Preprocessing, Weights},
    site_study::SiteStudyParams,
    study::StudyParams,
};
use nalgebra::DVectorView;

use super::{accumulate::Accumulator, missing::ObservedShares};

/// The mean that private centring estimated and removed, in units of the prepared rows.
#[derive(Clone, Debug, PartialEq)]
pub struct EstimatedMean {
    values: Vec<f64>,
    standard_error: f64,
    constant: f64,
}

impl EstimatedMean {
    /// m̂ from the last column of the mean decoded report, with the constant `a`; `variance` is that of each entry of
    /// the column.
    pub(super) fn from_column(column: impl Iterator<Item = f64>, a: f64, variance: f64) -> Self {
        let scale = (1.0 + a * a) / a;
        Self {
            values: column.map(|entry| scale * entry).collect(),
            standard_error: scale * variance.sqrt(),
            constant: a,
        }
    }

    /// m̂, p entries.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The noise's standard deviation of an entry of m̂ (for `double-cap`, whose noise depends on the rows, its root
    /// mean square over the entries). It does not include the sampling of the participants.
    pub fn standard_error(&self) -> f64 {
        self.standard_error
    }

    /// 1 + a², by which the report's moment is multiplied.
    pub(crate) fn lift(&self) -> f64 {
        1.0 + self.constant * self.constant
    }

    /// ‖E x‖² without the noise's part, which is p·(standard error)²; at least 0.
    pub fn squared_length(&self) -> f64 {
        let noise = self.values.len() as f64 * self.standard_error * self.standard_error;
        (squared(&self.values) - noise).max(0.0)
    }

    /// ‖E x‖/a: above 1 the noise has an eigenvalue of its own along m̂.
    pub fn mean_over_constant(&self) -> f64 {
        self.squared_length().sqrt() / self.constant
    }

    /// `m_v²/a²` of the unit vector `v`, less the noise's part: the relative excess of the noise along `v`.
    pub fn excess_along(&self, v: DVectorView<'_, f64>) -> f64 {
        let along = v.dot(&DVectorView::from_slice(&self.values, self.values.len()));
        let squared = along * along - self.standard_error * self.standard_error;
        squared.max(0.0) / (self.constant * self.constant)
    }

    /// Multiplies the noise of the entries by √`factor` on average.
    pub(crate) fn with_noise_variance_times(self, factor: f64) -> Self {
        Self {
            standard_error: self.standard_error * factor.sqrt(),
            ..self
        }
    }

    pub(crate) fn on_rows(&self, rows: &[usize]) -> Self {
        Self {
            values: rows.iter().map(|&row| self.values[row]).collect(),
            ..*self
        }
    }

    /// The mean of the rows y + `by`, whose constant stays the same.
    pub(crate) fn moved(mut self, by: &[f64]) -> Self {
        let length = (1.0 + self.constant * self.constant).sqrt();
        for (value, by) in self.values.iter_mut().zip(by) {
            *value += length * by;
        }
        self
    }
}

/// The noise of a report of dimension P, as far as centring depends on it.
#[derive(Default)]
pub(super) struct ReportNoise {
    /// b: the multiple of I by which the mean decoded report falls short of E[yyᵀ].
    pub(super) identity: f64,
    /// Variance of one report's b, if b is estimated from the corner.
    pub(super) identity_variance: f64,
    /// Variance between two directions: constant + linear·(λ+λ') + bilinear·λλ'.
    constant: f64,
    linear: f64,
    bilinear: f64,
    /// n·χ.
    shift: f64,
    /// Variance of an entry of the last column, averaged over the column.
    pub(super) column_variance: f64,
}

/// b = a²/f − D̄₂₂, by which the mean decoded report of `double-cap`, of this dimension P, falls short of E yyᵀ:
/// E‖y‖² = P·b lies between the constant's part and 1.
pub(crate) fn identity_from_corner(a: f64, corner: f64, dimension: f64) -> f64 {
    let last = a * a / (1.0 + a * a);
    (last - corner).clamp(last / dimension, 1.0 / dimension)
}

impl ReportNoise {
    pub(super) fn new(noise: &NoiseModel, a: f64, norm: Norm, corner: f64) -> Result<Self> {
        match *noise {
            NoiseModel::Gaussian {
                off_diagonal_sd, ..
            } => {
                let variance = off_diagonal_sd * off_diagonal_sd;
                Ok(Self {
                    constant: variance,
                    column_variance: variance,
                    ..Self::default()
                })
            }
            NoiseModel::DoubleCap {
                dimension,
                scale,
                a0,
                a1,
                a2,
                ..
            } => {
                let dimension = dimension as f64;
                let last = a * a / (1.0 + a * a);
                let identity = match norm {
                    Norm::Normalize => 1.0 / dimension,
                    Norm::Clip { .. } | Norm::Require { .. } => {
                        identity_from_corner(a, corner, dimension)
                    }
                };
                let length = (dimension * identity).min(1.0);
                let uniform = 1.0 / (dimension * (dimension + 2.0));
                let outside = length * a0 + (1.0 - length) * uniform;
                // ‖D e_P‖² without the corner is c²·g_P²(1 − g_P²): the variance of one report involves both moments.
                // The rows' own contribution is not noise.
                let second = 1.0 / dimension + (last - identity) / scale;
                let fourth = 3.0 * outside + 6.0 * a1 * last + a2 * last * last / length;
                let squared = scale * scale * (second - fourth) - last * (length - last);
                let unit = scale * scale;
                let identity_variance = match norm {
                    Norm::Normalize => 0.0,
                    Norm::Clip { .. } | Norm::Require { .. } => unit * (fourth - second * second),
                };
                Ok(Self {
                    identity,
                    identity_variance: identity_variance.max(0.0),
                    constant: unit * outside,
                    linear: unit * a1,
                    bilinear: unit * a2 / length,
                    shift: scale,
                    column_variance: squared.max(0.0) / (dimension - 1.0),
                })
            }
            NoiseModel::Transformed { .. } => Err(error!(
                InvalidMechanism,
                "this noise family cannot be centred by this version"
            )),
        }
    }

    /// The noise of one report in Ĉ, of dimension `p`, around a mean of length `mean_ratio`·a.
    pub(super) fn centred(
        &self,
        a: f64,
        p: usize,
        total_variance: Option<f64>,
        mean_ratio: f64,
    ) -> NoiseModel {
        let factor = 1.0 + a * a;
        NoiseModel::Transformed {
            dimension: p,
            constant: factor * factor * self.constant,
            linear: factor * self.linear,
            bilinear: self.bilinear,
            shift: factor * self.shift * p as f64 / (p + 1) as f64,
            total_variance,
            mean_ratio,
            edge_widening: 1.0,
        }
    }
}

/// The noise of one report of a planned study: that of its mechanism, or with private centring the noise in the
/// covariance of rows with this total variance `E‖x − E x‖²` and this length ‖E x‖ of their mean, as
/// [`NoisyMoment::centred`](super::moment::NoisyMoment::centred) will find it.
///
/// # Errors
/// `invalid-request` unless total variance and mean length are ≥ 0 and possible for rows in the unit ball, and for
/// weights whose mean is not public; `invalid-mechanism` for a noise family that cannot be centred.
pub fn planned_noise(
    params: &StudyParams,
    total_variance: f64,
    mean_length: f64,
) -> Result<NoiseModel> {
    let preprocessing = params.preprocessing();
    let noise = match preprocessing.weights {
        Some(Weights { mean: Some(mean) }) => params.noise_model().divided_by_mean_weight(mean),
        Some(_) if preprocessing.centring.is_some() => {
            return Err(Error::invalid_request(
                "the study has weights whose mean is not public, so its noise at another privacy setting is not known: plan with the mechanism and ε of the pilot",
            ));
        }
        _ => params.noise_model(),
    };
    let shares = ObservedShares::new(preprocessing);
    let after_division = |noise: NoiseModel, norm: f64| match &shares {
        Some(shares) => shares.noise(&noise, norm),
        None => noise,
    };
    match preprocessing.centring {
        None => Ok(after_division(noise, total_variance.clamp(0.0, 1.0))),
        Some(a) => {
            let rows = (total_variance, mean_length);
            let noise = planned_covariance(&noise, preprocessing, a, rows)?;
            Ok(after_division(noise, total_variance))
        }
    }
}

/// The noise of one report of a planned study of sites, like [`planned_noise`]; sampling is no part of it.
///
/// # Errors
/// `invalid-request` as there.
pub(crate) fn planned_noise_of_tables(
    params: &SiteStudyParams,
    total_variance: f64,
    mean_length: f64,
) -> Result<NoiseModel> {
    let (noise, preprocessing) = (params.mechanism().noise_model(), params.preprocessing());
    match preprocessing.centring {
        None => Ok(noise),
        Some(a) => planned_covariance(&noise, preprocessing, a, (total_variance, mean_length)),
    }
}

/// Noise of one report in the covariance that private centring with the constant `a` will find.
fn planned_covariance(
    noise: &NoiseModel,
    preprocessing: &Preprocessing,
    a: f64,
    (total_variance, mean_length): (f64, f64),
) -> Result<NoiseModel> {
    let squared_length = total_variance + mean_length * mean_length;
    // Written so that NaN fails; eigenvalues are often given with few digits.
    if !(total_variance >= 0.0 && mean_length >= 0.0 && squared_length <= 1.0 + 1e-6) {
        return Err(Error::invalid_request(format!(
            "rows with a mean of length {mean_length} and a total variance of {total_variance} have a mean squared length of {squared_length}; prepared rows have at most 1"
        )));
    }
    let factor = 1.0 + a * a;
    // The corner expected with `double-cap`, which does not show E‖y‖²/P.
    let length = (squared_length.min(1.0) + a * a) / factor;
    let corner = a * a / factor - length / preprocessing.report_dimension() as f64;
    let report = ReportNoise::new(noise, a, preprocessing.norm, corner)?;
    let dimension = preprocessing.dimension;
    Ok(report.centred(a, dimension, Some(total_variance), mean_length / a))
}

/// The sum `Σ f·UᵀDU` of a bucket, computed with the known value of the corner, plus `identity` per report.
pub(super) fn centred_sum(
    bucket: &Accumulator,
    mean: &[f64],
    a: f64,
    identity: f64,
) -> Result<Accumulator> {
    let (sum, count) = (bucket.sum(), bucket.count());
    let p = mean.len();
    let factor = 1.0 + a * a;
    let bucket_mean: Vec<f64> = (0..p).map(|i| factor / a * sum.get(i, p)).collect();
    let reports = count as f64;
    let mut centred = PackedSymmetric::zeros(p);
    let mut lines = sum.as_slice();
    let mut entries = centred.as_mut_slice().iter_mut();
    for i in 0..p {
        let (line, rest) = lines.split_at(p + 1 - i);
        lines = rest;
        for (j, value) in (i..p).zip(line) {
            if let Some(entry) = entries.next() {
                *entry = factor * value - mean[i] * bucket_mean[j] - bucket_mean[i] * mean[j]
                    + reports * mean[i] * mean[j];
                if i == j {
                    *entry += reports * identity;
                }
            }
        }
    }
    Accumulator::from_parts(centred, count)
}

/// Turns Σyyᵀ into Σ(y + by)(y + by)ᵀ, for rows with the constant `a`; the last entry of `by` is 0, so that the
/// constant stays the same.
pub(crate) fn move_rows(sum: &mut PackedSymmetric, by: &[f64], a: f64) {
    let last = sum.dimension() - 1;
    let constant = a / (1.0 + a * a).sqrt();
    let rows: Vec<f64> = (0..=last).map(|i| sum.get(i, last) / constant).collect();
    let count = rows[last] / constant;
    let mut entries = sum.as_mut_slice().iter_mut();
    for i in 0..=last {
        for j in i..=last {
            if let Some(entry) = entries.next() {
                *entry += by[i] * rows[j] + rows[i] * by[j] + count * by[i] * by[j];
            }
        }
    }
}

fn squared(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum()
}
