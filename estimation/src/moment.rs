//! The noisy second-moment matrix: all that the server knows about the rows.

use eigenveil_shared::{
    Error, ErrorCode, Result, mechanism::NoiseModel, packed::PackedSymmetric, study::StudyParams,
};
use nalgebra::DMatrix;

use crate::{accumulate::Accumulator, centring::EstimatedMean, linalg::packed_to_dense};

/// `S̃ = (1/n) Σ decoded reports`, with the noise model of one report and the bucket sums it came from; with
/// private centring, the covariance around the estimated mean.
#[derive(Clone, Debug, PartialEq)]
pub struct NoisyMoment {
    buckets: Vec<Accumulator>,
    n: u64,
    mean: PackedSymmetric,
    noise: NoiseModel,
    centring: Option<Centring>,
}

/// What private centring leaves beside the covariance.
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
        let moment = Self::from_buckets(buckets, params.noise_model())?;
        let preprocessing = params.preprocessing();
        match preprocessing.centring {
            Some(a) => moment.centred(a, preprocessing.norm),
            None => Ok(moment),
        }
    }

    /// The mean of all decoded reports in `buckets` (empty buckets are fine), each with noise of distribution `noise`.
    ///
    /// # Errors
    /// `estimate-failed` when there is no report at all (or no bucket), `wrong-dimension` when buckets differ in
    /// dimension, `invalid-mechanism` when the noise model holds a negative or non-finite standard deviation.
    pub fn from_buckets(buckets: Vec<Accumulator>, noise: NoiseModel) -> Result<Self> {
        let sd = noise.off_diagonal_sd();
        if !(sd.is_finite() && sd >= 0.0) {
            return Err(Error::new(
                ErrorCode::InvalidMechanism,
                format!("the noise's standard deviation is {sd}; it must be a finite number ≥ 0"),
            ));
        }
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
            n,
            mean,
            noise,
            centring: None,
        })
    }

    /// Marks a moment as the covariance around this mean, with this noise, from reports with this mean.
    pub(crate) fn set_centred(
        &mut self,
        noise: NoiseModel,
        mean: EstimatedMean,
        report: PackedSymmetric,
    ) {
        self.noise = noise;
        self.centring = Some(Centring { mean, report });
    }

    /// The dimension p.
    pub fn dimension(&self) -> usize {
        self.mean.dimension()
    }

    /// Reports summed.
    pub fn n(&self) -> u64 {
        self.n
    }

    /// Noise of one decoded report.
    pub fn noise(&self) -> &NoiseModel {
        &self.noise
    }

    /// The mean of the rows, where private centring estimated it.
    pub fn estimated_mean(&self) -> Option<&EstimatedMean> {
        Some(&self.centring.as_ref()?.mean)
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
mod tests {
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
