//! The noisy second-moment matrix: all that the server knows about the rows.

use eigenveil_shared::{
    Error, Result, error,
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    preprocess::{Norm, Preprocessing},
    study::StudyParams,
};
use nalgebra::{DMatrix, DVectorView};

use super::{
    accumulate::Accumulator,
    centring::{EstimatedMean, ReportNoise, centred_sum, identity_from_corner, move_rows},
    counts::Counts,
    missing::ObservedShares,
};
use crate::{assessment::checked_deviation, linalg::packed_to_dense};

/// `S̃ = (1/n) Σ decoded reports`, with the noise model of one report and the bucket sums it came from; with
/// private centring, the covariance around the estimated mean.
#[derive(Clone, Debug, PartialEq)]
pub struct NoisyMoment {
    buckets: Vec<Accumulator>,
    counts: Counts,
    mean: PackedSymmetric,
    noise: NoiseModel,
    centring: Option<Centring>,
    /// By how much the noise along each feature exceeds the average, where cells may be missing.
    noise_excess: Option<Vec<f64>>,
}

/// Largest standard deviation of a measured mean weight, in units of the weight: all variances are divided by it.
const MAX_WEIGHT_DEVIATION: f64 = 0.02;

/// Standard deviation of the total variance above which it is not reported: rows lie in the unit ball.
const MAX_DEVIATION_OF_TOTAL: f64 = 0.1;

/// The noise between directions v and w is the average one times `1 + e_v + e_w`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExcessNoise {
    /// The mean that private centring removed.
    mean: Option<EstimatedMean>,
    /// Noise of each feature, where cells may be missing.
    by_feature: Option<Vec<f64>>,
}

impl ExcessNoise {
    /// e_v of the unit vector `v`: what a removed mean adds along it, and what seldom observed cells add or the others
    /// take off.
    pub fn along(&self, v: DVectorView<'_, f64>) -> f64 {
        let features = self.by_feature.iter().flatten();
        let missing: f64 = v
            .iter()
            .zip(features)
            .map(|(x, excess)| x * x * excess)
            .sum();
        self.along_mean(v) + missing
    }

    /// The part along the mean, `m_v²/a²`.
    pub fn along_mean(&self, v: DVectorView<'_, f64>) -> f64 {
        self.mean.as_ref().map_or(0.0, |mean| mean.excess_along(v))
    }

    pub(crate) fn on_rows(&self, rows: &[usize]) -> Self {
        let features = self.by_feature.as_ref();
        Self {
            mean: self.mean.as_ref().map(|mean| mean.on_rows(rows)),
            by_feature: features.map(|all| rows.iter().map(|&row| all[row]).collect()),
        }
    }
}

/// The rest of private centring beside the covariance.
#[derive(Clone, Debug, PartialEq)]
struct Centring {
    mean: EstimatedMean,
    /// The mean decoded report, of the dimension p + 1.
    report: PackedSymmetric,
}

impl NoisyMoment {
    /// The moment of the reports of a study, from the sums of their payloads: for `double-cap` `D = c(ggᵀ − I/p)`
    /// (whose trace is zero: it shows `E[xxᵀ]` up to a multiple of I). The noise model uses what the study fixes about
    /// the rows' length. With private centring it is [`centred`](Self::centred).
    pub fn decode(mut buckets: Vec<Accumulator>, params: &StudyParams) -> Result<Self> {
        for bucket in &mut buckets {
            bucket.decode(params.mechanism());
        }
        Self::from_decoded(buckets, params.noise_model(), params.preprocessing())
    }

    /// The moment behind the sum of the outer products of `n` prepared rows: centred if the study is.
    pub(crate) fn without_noise(
        preprocessing: &Preprocessing,
        sum: PackedSymmetric,
        n: u64,
    ) -> Result<Self> {
        let sum = Accumulator::from_parts(sum, n)?;
        Self::from_decoded(vec![sum], NoiseModel::gaussian(0.0), preprocessing)
    }

    /// The moment behind a mean of tables with these counts, each report having noise of this distribution; with private
    /// centring the covariance. Sampling is no part of its noise.
    pub(crate) fn of_tables(
        mean: PackedSymmetric,
        counts: Counts,
        noise: NoiseModel,
        preprocessing: &Preprocessing,
    ) -> Result<Self> {
        // The mean is one sum of weight 1: tables stay apart elsewhere.
        let mean = vec![Accumulator::from_parts(mean, 1)?];
        let moment = Self {
            counts,
            ..Self::from_buckets(mean, noise)?
        };
        match preprocessing.centring {
            Some(a) => moment.centred(a, preprocessing.norm),
            None => Ok(moment),
        }
    }

    /// Adds the sampling of the rows to the noise, `fourth` being E‖x‖⁴/(E‖x‖²)² around the mean.
    pub(crate) fn with_sampling(self, fourth: f64) -> Self {
        let rows = (self.dimension(), self.mean.trace().max(0.0));
        let Counts {
            n_eff, rows: many, ..
        } = self.counts;
        Self {
            noise: self.noise.with_sampling(rows, fourth, n_eff / many),
            ..self
        }
    }

    /// Makes a moment from sums of decoded reports with noise of this distribution: what preprocessing did to the rows
    /// is taken back, missing cells first, then the constant of private centring.
    pub(crate) fn from_decoded(
        buckets: Vec<Accumulator>,
        noise: NoiseModel,
        preprocessing: &Preprocessing,
    ) -> Result<Self> {
        let moment = Self::from_buckets(buckets, noise)?.divided_by_mean_weight(preprocessing)?;
        let noise = moment.noise;
        let norm = preprocessing.norm;
        let Some(shares) = ObservedShares::new(preprocessing) else {
            return match preprocessing.centring {
                Some(a) => moment.centred(a, norm),
                None => Ok(moment),
            };
        };
        // Centring adds it itself; without, the trace stays restored.
        let lacking = moment.missing_identity(preprocessing);
        let remaining = preprocessing.centring.map_or(0.0, |_| lacking);
        let buckets = shares.divide(&moment.buckets, lacking, remaining)?;
        let mut divided = Self::from_buckets(buckets, noise)?;
        if let Some(a) = preprocessing.centring {
            divided = divided.centred(a, norm)?;
        }
        divided.noise_excess = Some(shares.noise_excess());
        divided.noise = shares.noise(&divided.noise, divided.mean.trace().max(0.0));
        divided.centring = divided.centring.map(|centring| Centring {
            mean: centring
                .mean
                .with_noise_variance_times(shares.mean_variance_factor()),
            ..centring
        });
        Ok(divided)
    }

    /// The moment of E[w·xxᵀ]/w̄, if w̄ is public or the constant of private centring measures it; else unchanged.
    ///
    /// # Errors
    /// `estimate-failed` where the noise hides a mean weight that centring needs.
    fn divided_by_mean_weight(self, preprocessing: &Preprocessing) -> Result<Self> {
        let Some(weights) = preprocessing.weights else {
            return Ok(self);
        };
        let dimension = self.dimension();
        let mean = match (weights.mean, preprocessing.centring) {
            (Some(mean), _) => mean,
            (None, None) => return Ok(self),
            (None, Some(a)) => {
                // Of rows of weight 1.
                let corner = a * a / (1.0 + a * a) - self.missing_identity(preprocessing);
                let weight = self.mean.get(dimension - 1, dimension - 1) / corner;
                let deviation = self.corner_deviation(a) / corner;
                // Also false for NaN.
                let measured = deviation <= MAX_WEIGHT_DEVIATION * weight;
                if !measured {
                    return Err(Error::estimate_failed(format!(
                        "the mean weight, which private centring divides by, is measured as {weight:.3} ± {deviation:.3}; that must be within {} % of it: more participants, or a study with the public mean weight",
                        100.0 * MAX_WEIGHT_DEVIATION
                    )));
                }
                weight.min(1.0)
            }
        };
        let divide = |bucket: &Accumulator| {
            let mut sum = bucket.sum().clone();
            sum.scale(mean.recip());
            Accumulator::from_parts(sum, bucket.count())
        };
        let buckets = self.buckets.iter().map(divide).collect::<Result<_>>()?;
        Self::from_buckets(buckets, self.noise.divided_by_mean_weight(mean))
    }

    /// The noise's standard deviation of the corner of the mean report, where the constant `a` stands; at most.
    fn corner_deviation(&self, a: f64) -> f64 {
        let constant = a * a / (1.0 + a * a);
        let of_one = match self.noise {
            NoiseModel::Gaussian { diagonal_sd, .. } => diagonal_sd,
            NoiseModel::DoubleCap {
                scale, a0, a1, a2, ..
            } => scale * (3.0 * a0 + 6.0 * a1 * constant + a2 * constant * constant).sqrt(),
            NoiseModel::Transformed { .. } => f64::INFINITY,
        };
        of_one / self.n_eff().sqrt()
    }

    /// By which multiple of I the mean decoded report falls short of E yyᵀ: reports of `double-cap` have no trace.
    fn missing_identity(&self, preprocessing: &Preprocessing) -> f64 {
        let p = self.dimension();
        match (self.noise, preprocessing.norm, preprocessing.centring) {
            (NoiseModel::DoubleCap { .. }, Norm::Normalize, _) => 1.0 / p as f64,
            (NoiseModel::DoubleCap { .. }, _, Some(a)) => {
                identity_from_corner(a, self.mean.get(p - 1, p - 1), p as f64)
            }
            _ => 0.0,
        }
    }

    /// The mean of all decoded reports in `buckets` (empty buckets are fine), each with noise of distribution `noise`.
    pub fn from_buckets(buckets: Vec<Accumulator>, noise: NoiseModel) -> Result<Self> {
        checked_deviation(&noise)?;
        let Some((first, rest)) = buckets.split_first() else {
            return Err(no_reports());
        };
        let mut total = first.clone();
        for bucket in rest {
            total.merge(bucket)?;
        }
        let n = total.count();
        if n == 0 {
            return Err(no_reports());
        }
        let mut mean = total.sum().clone();
        mean.scale(1.0 / n as f64);
        Ok(Self {
            buckets,
            counts: Counts::of_rows(n),
            mean,
            noise,
            centring: None,
            noise_excess: None,
        })
    }

    /// Ĉ, of dimension p = P − 1, from the mean decoded report of rows with the constant `a` appended.
    ///
    /// `double-cap` does not show a multiple of I: under `normalize` ‖y‖ = 1 and it is f/P; otherwise the corner gives
    /// it, `f·b` with `b = a²/f − D̄₂₂`, clamped to the range that rows in the unit ball allow.
    ///
    /// Every bucket is mapped by the *total's* U, not by its own mean: that is linear in its reports, so the buckets
    /// still add up to the whole and any of them can be merged or left out, and the effect of a bucket's own mean is
    /// included to first order. Using its own mean would leave a bias of (its noise)², 32 times the whole's.
    ///
    /// # Errors
    /// `invalid-mechanism` for a noise family that cannot be centred (or is already);
    /// `invalid-dimension` below P = 2; `invalid-preprocessing` unless `a > 0`.
    pub fn centred(self, a: f64, norm: Norm) -> Result<Self> {
        let report_dimension = self.dimension();
        if report_dimension < 2 {
            return Err(error!(
                InvalidDimension,
                "the reports have one dimension, that of the constant; centring needs a feature too"
            ));
        }
        if !(a > 0.0 && a.is_finite()) {
            return Err(error!(
                InvalidPreprocessing,
                "the constant of private centring is {a}; it must be a positive number"
            ));
        }
        let p = report_dimension - 1;
        let factor = 1.0 + a * a;
        let report = ReportNoise::new(&self.noise, a, norm, self.mean.get(p, p))?;
        let column = (0..p).map(|i| self.mean.get(i, p));
        let mean = EstimatedMean::from_column(column, a, report.column_variance / self.n_eff());
        let identity = factor * report.identity;
        let centred = |bucket: &Accumulator| centred_sum(bucket, mean.values(), a, identity);
        let buckets: Vec<Accumulator> = self.buckets.iter().map(centred).collect::<Result<_>>()?;
        let noise = |total_variance: Option<f64>| {
            report.centred(a, p, total_variance, mean.mean_over_constant())
        };
        let mut centred = Self {
            counts: self.counts,
            ..Self::from_buckets(buckets, noise(None))?
        };
        // The corner's noise comes in once for every dimension of the report.
        let deviation =
            factor * report_dimension as f64 * (report.identity_variance / self.n_eff()).sqrt();
        let total_variance = centred.mean.trace().max(0.0);
        let known = deviation <= MAX_DEVIATION_OF_TOTAL;
        centred.noise = noise(known.then_some(total_variance));
        let report = self.into_mean_report();
        centred.centring = Some(Centring { mean, report });
        Ok(centred)
    }

    /// Moves the rows y to y + `by`, with their constant `a` kept.
    pub(crate) fn moved(mut self, by: &[f64], a: f64) -> Self {
        self.centring = self.centring.map(|mut centring| {
            move_rows(&mut centring.report, by, a);
            Centring {
                mean: centring.mean.moved(by),
                ..centring
            }
        });
        self
    }

    /// The dimension p.
    pub fn dimension(&self) -> usize {
        self.mean.dimension()
    }

    /// Reports summed.
    pub fn n(&self) -> u64 {
        self.counts.draws
    }

    /// Reports of one row each with as much noise in their mean.
    pub fn n_eff(&self) -> f64 {
        self.counts.n_eff
    }

    /// Draws, rows and sites in the mean.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Noise of one decoded report.
    pub fn noise(&self) -> &NoiseModel {
        &self.noise
    }

    /// The mean of the rows, where private centring estimated it.
    pub fn estimated_mean(&self) -> Option<&EstimatedMean> {
        Some(&self.centring.as_ref()?.mean)
    }

    /// Where the noise differs between directions; `None` where it does not.
    pub fn excess_noise(&self) -> Option<ExcessNoise> {
        let mean = self.estimated_mean().cloned();
        let by_feature = self.noise_excess.clone();
        (mean.is_some() || by_feature.is_some()).then_some(ExcessNoise { mean, by_feature })
    }

    /// The mean decoded report: `S̃`, or with private centring what it was computed from, of the dimension p + 1.
    pub fn mean_report(&self) -> &PackedSymmetric {
        let centring = self.centring.as_ref();
        centring.map_or(&self.mean, |centring| &centring.report)
    }

    /// [`mean_report`](Self::mean_report), without the rest.
    pub(crate) fn into_mean_report(self) -> PackedSymmetric {
        match self.centring {
            Some(centring) => centring.report,
            None => self.mean,
        }
    }

    /// `S̃` as a packed upper triangle.
    pub fn mean(&self) -> &PackedSymmetric {
        &self.mean
    }

    /// `S̃` as a full `p × p` matrix.
    pub fn dense(&self) -> DMatrix<f64> {
        packed_to_dense(&self.mean)
    }

    /// The bucket sums: exchangeable folds for error bars and cross-validation.
    pub fn buckets(&self) -> &[Accumulator] {
        &self.buckets
    }
}

fn no_reports() -> Error {
    Error::estimate_failed("there is no report to estimate from (n = 0)")
}

#[cfg(test)]
impl NoisyMoment {
    /// Buckets of these sizes with noise of one report `sd`, and a spike of this size in each along the first axis.
    pub(crate) fn drawn(
        seed: u64,
        p: usize,
        sizes: &[u64],
        sd: f64,
        spike: impl Fn(usize) -> f64,
    ) -> Self {
        use rand::{SeedableRng, rngs::ChaCha8Rng};
        use rand_distr::{Distribution, StandardNormal};
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let buckets = sizes.iter().enumerate().map(|(j, &size)| {
            let mut sum = PackedSymmetric::zeros(p);
            for entry in sum.as_mut_slice() {
                let z: f64 = StandardNormal.sample(&mut rng);
                *entry = z * sd * (size as f64).sqrt();
            }
            sum.as_mut_slice()[0] += spike(j) * size as f64;
            Accumulator::from_parts(sum, size).unwrap()
        });
        Self::from_buckets(buckets.collect(), NoiseModel::gaussian(sd)).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    fn noise(sd: f64) -> NoiseModel {
        NoiseModel::gaussian(sd)
    }

    fn bucket(rows: &[[f64; 2]]) -> Accumulator {
        let mut sum = PackedSymmetric::zeros(2);
        for row in rows {
            sum.add_outer(row, 1.0);
        }
        Accumulator::from_parts(sum, rows.len() as u64).unwrap()
    }

    #[test]
    fn mean_runs_over_all_buckets() {
        let buckets = vec![
            bucket(&[[1.0, 0.0], [0.0, 2.0]]),
            bucket(&[]),
            bucket(&[[1.0, 1.0], [0.0, 0.0]]),
        ];
        let moment = NoisyMoment::from_buckets(buckets, noise(1.0)).unwrap();
        assert_eq!(moment.n(), 4);
        assert_eq!(moment.mean().as_slice(), &[0.5, 0.25, 1.25]);
        assert_eq!(moment.dense()[(1, 0)], 0.25);
        assert_eq!(moment.buckets().len(), 3);
    }

    #[test]
    fn nothing_to_average_is_an_error() {
        for buckets in [vec![], vec![bucket(&[]), bucket(&[])]] {
            let error = NoisyMoment::from_buckets(buckets, noise(1.0)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::EstimateFailed);
        }
        let mixed = vec![bucket(&[[1.0, 0.0]]), Accumulator::new(3).unwrap()];
        let error = NoisyMoment::from_buckets(mixed, noise(1.0)).unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongDimension);
        for sd in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(NoisyMoment::from_buckets(vec![bucket(&[[1.0, 0.0]])], noise(sd)).is_err());
        }
    }
}
