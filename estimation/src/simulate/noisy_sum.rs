//! From participants to bucket sums, by the exact law of the sum or report by report.

use std::str::FromStr;

use eigenveil_shared::{
    Error, ErrorCode, Result,
    codec::{self, StudyShape},
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    report::{Report, ReportId},
    study::StudyParams,
};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};

use super::Participants;
use crate::{accumulate::Accumulator, linalg::GramSum, moment::NoisyMoment};

/// Buckets of a simulated study, as many as the server keeps.
const BUCKETS: u64 = 32;

/// How the noise reaches the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Path {
    /// Drawn from the exact law of the sum, once per bucket.
    #[default]
    Law,
    /// Every report perturbed, encoded, decoded and added.
    Device,
}

impl Path {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Path::Law => "law",
            Path::Device => "device",
        }
    }
}

impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "law" => Ok(Path::Law),
            "device" => Ok(Path::Device),
            _ => Err(Error::new(
                ErrorCode::InvalidRequest,
                format!("there is no path {text:?}; it is law or device"),
            )),
        }
    }
}

/// What n participants send, summed: the noisy moment, and the moment without noise, which only a
/// simulation knows.
///
/// `tick` is told how many participants have been dealt with since the last call.
///
/// # Errors
/// `invalid-request` for n = 0; those of preparing rows; `invalid-mechanism` where the mechanism has no
/// law here.
pub fn noisy_sum<R: Rng + ?Sized>(
    params: &StudyParams,
    participants: &Participants<'_>,
    n: u64,
    path: Path,
    rng: &mut R,
    tick: &mut dyn FnMut(u64),
) -> Result<(NoisyMoment, PackedSymmetric)> {
    if n == 0 {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            "n is 0; at least one participant is needed",
        ));
    }
    let p = params.dimension();
    let mut clean = PackedSymmetric::zeros(p);
    let mut buckets = Vec::new();
    for bucket in 0..BUCKETS.min(n) {
        let count = n / BUCKETS.min(n) + u64::from(bucket < n % BUCKETS.min(n));
        let mut gram = GramSum::new(p);
        let accumulator = match path {
            Path::Law => {
                let mut pending = 0;
                participants.visit(count, rng, |row, times, _| {
                    gram.add(row.as_slice(), times as f64);
                    pending += times;
                    if pending >= 1_024 {
                        tick(std::mem::take(&mut pending));
                    }
                    Ok(())
                })?;
                tick(pending);
                let exact = gram.finish();
                clean.add(&exact);
                let mut sum = exact;
                add_noise(&mut sum, params.mechanism().noise_model(), count, rng)?;
                Accumulator::from_parts(sum, count)?
            }
            Path::Device => {
                let shape = StudyShape::of(params);
                let mut received = Accumulator::new(p)?;
                participants.visit(count, rng, |row, times, rng| {
                    gram.add(row.as_slice(), times as f64);
                    for _ in 0..times {
                        let report = Report {
                            id: ReportId::from_parts(0, rng.random()),
                            fingerprint: shape.fingerprint,
                            payload: params.mechanism().perturb_with(row, rng),
                        };
                        let bytes = codec::encode_report(&report);
                        received.add_payload(codec::decode_report(&bytes, &shape)?.payload())?;
                    }
                    tick(times);
                    Ok(())
                })?;
                clean.add(&gram.finish());
                received
            }
        };
        buckets.push(accumulator);
    }
    clean.scale(1.0 / n as f64);
    Ok((
        NoisyMoment::from_buckets(buckets, params.mechanism().noise_model())?,
        clean,
    ))
}

/// Adds the noise of `count` reports: independent Gaussians add up to one with `count` times the variance.
fn add_noise<R: Rng + ?Sized>(
    sum: &mut PackedSymmetric,
    noise: NoiseModel,
    count: u64,
    rng: &mut R,
) -> Result<()> {
    let NoiseModel::Gaussian {
        off_diagonal_sd,
        diagonal_sd,
    } = noise
    else {
        return Err(Error::new(
            ErrorCode::InvalidMechanism,
            "the law of this mechanism's sum is not known here; use --path device",
        ));
    };
    let root = (count as f64).sqrt();
    let p = sum.dimension();
    let mut entries = sum.as_mut_slice().iter_mut();
    for i in 0..p {
        for j in i..p {
            let sd = if i == j { diagonal_sd } else { off_diagonal_sd };
            if let Some(entry) = entries.next() {
                let z: f64 = StandardNormal.sample(rng);
                *entry += root * sd * z;
            }
        }
    }
    Ok(())
}
