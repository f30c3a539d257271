//! From participants to bucket sums, by the exact distribution of the sum or report by report.

use eigenveil_shared::{
    Error, Result,
    codec::{self, ReportFormat},
    error,
    mechanism::{Decoding, NoiseModel},
    names,
    packed::PackedSymmetric,
    report::{Report, ReportId},
    study::StudyParams,
};
use rand::{Rng, RngExt};
use rand_distr::{Distribution, StandardNormal};
use serde::Serialize;

use super::{double_cap_direction::DirectionDistribution, participants::SimulatedParticipants};
use crate::{
    input::{
        accumulate::{Accumulator, ReportSum, SeedSum},
        centring::move_rows,
        moment::NoisyMoment,
    },
    linalg::GramSum,
};

/// Number of buckets of a simulated study, the same as the server's.
const BUCKETS: u64 = 32;

/// How the noise of the sum is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoisePath {
    /// Drawn from the exact distribution of the sum, once per bucket.
    #[default]
    FromSum,
    /// Every report perturbed, encoded, decoded and added.
    PerReport,
}

names! {
    pub NoisePath { FromSum = "from-sum", PerReport = "per-report" } else |text, names| Error::invalid_request(format!(
        "there is no noise path {text:?}; use {}",
        names.join(" or ")
    ));
}

/// The sum of n participants' reports: the noisy moment, and the one without noise, which only a simulation knows (with
/// private centring both are covariances around their own mean).
///
/// `tick` receives the number of participants processed since the last call; its error ends the simulation.
///
/// # Errors
/// `invalid-request` for n = 0; those of preparing rows; `invalid-mechanism` where the mechanism has no
/// distribution here.
pub fn noisy_sum<R: Rng + ?Sized>(
    params: &StudyParams,
    participants: &SimulatedParticipants<'_>,
    n: u64,
    noise_path: NoisePath,
    rng: &mut R,
    tick: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<(NoisyMoment, NoisyMoment)> {
    if n == 0 {
        return Err(Error::invalid_request(
            "n is 0; at least one participant is needed",
        ));
    }
    let p = params.report_dimension();
    let mut clean = PackedSymmetric::zeros(p);
    let centre = participants.centre(params);
    let mut difference = vec![0.0; p];
    let mut add = |gram: &mut GramSum<f64>, row: &[f64], times: u64| match &centre {
        None => gram.add(row, times as f64),
        Some((_, centre)) => {
            for ((entry, x), centre) in difference.iter_mut().zip(row).zip(centre) {
                *entry = x - centre;
            }
            gram.add(&difference, times as f64);
        }
    };
    let mut buckets = Vec::new();
    for bucket in 0..BUCKETS.min(n) {
        let count = n / BUCKETS.min(n) + u64::from(bucket < n % BUCKETS.min(n));
        let mut gram = GramSum::<f64>::new(p);
        let accumulator = match noise_path {
            NoisePath::FromSum => {
                let mut distribution = ExactSum::new(params)?;
                let mut pending = 0;
                participants.visit(count, rng, |row, times, rng| {
                    add(&mut gram, row.as_slice(), times);
                    distribution.add(row.as_slice(), times, rng);
                    pending += times;
                    if pending >= 1_024 {
                        tick(std::mem::take(&mut pending))?;
                    }
                    Ok(())
                })?;
                tick(pending)?;
                let mut exact = gram.finish();
                clean.add(&exact);
                if let Some((a, centre)) = &centre {
                    move_rows(&mut exact, centre, *a);
                }
                distribution.finish(exact, count, rng)?
            }
            NoisePath::PerReport => {
                let format = ReportFormat::new(params);
                let mut received = ReportSum::new(params.mechanism(), p)?;
                participants.visit(count, rng, |row, times, rng| {
                    add(&mut gram, row.as_slice(), times);
                    for _ in 0..times {
                        let report = Report {
                            id: ReportId::from_parts(0, rng.random()),
                            fingerprint: format.fingerprint(),
                            payload: params.mechanism().perturb_with(row, rng),
                        };
                        let bytes = codec::encode_report(&report);
                        received.add(&codec::decode_report(&bytes, &format)?.payload())?;
                    }
                    tick(times)
                })?;
                clean.add(&gram.finish());
                received.finish()?
            }
        };
        buckets.push(accumulator);
    }
    let mut clean = NoisyMoment::without_noise(params.preprocessing(), clean, n)?;
    if let Some((a, centre)) = &centre {
        clean = clean.moved(centre, *a);
    }
    Ok((NoisyMoment::decode(buckets, params)?, clean))
}

/// A sum of payloads drawn from its distribution.
#[expect(
    clippy::large_enum_variant,
    reason = "a simulation has one, and keeps it"
)]
enum ExactSum {
    /// The noise of all reports is drawn at once: independent Gaussians add up to one, and discrete ones
    /// on their grid to a rounded one, up to the rounding of each row's own entries.
    Gaussian {
        diagonal_sd: f64,
        off_diagonal_sd: f64,
        /// Value of one unit of the payload's integers, on the diagonal and off it.
        grid: Option<[f64; 2]>,
    },
    /// Each report's direction is drawn given its row.
    DoubleCap {
        distribution: DirectionDistribution,
        sum: SeedSum,
        direction: Vec<f64>,
    },
}

impl ExactSum {
    fn new(params: &StudyParams) -> Result<Self> {
        let unknown = || {
            error!(
                InvalidMechanism,
                "the distribution of this mechanism's sum is not implemented; use `noise` per-report"
            )
        };
        let grid = match params.mechanism().decoding() {
            Decoding::Direction(parameters) => {
                return Ok(ExactSum::DoubleCap {
                    distribution: DirectionDistribution::new(&parameters).ok_or_else(unknown)?,
                    sum: SeedSum::new(parameters.dimension)?,
                    direction: vec![0.0; parameters.dimension],
                });
            }
            Decoding::Entries => None,
            Decoding::Grid {
                diagonal_step,
                off_diagonal_step,
            } => Some([diagonal_step, off_diagonal_step]),
        };
        match params.mechanism().noise_model() {
            NoiseModel::Gaussian {
                diagonal_sd,
                off_diagonal_sd,
            } => Ok(ExactSum::Gaussian {
                diagonal_sd,
                off_diagonal_sd,
                grid,
            }),
            NoiseModel::DoubleCap { .. } | NoiseModel::Transformed { .. } => Err(unknown()),
        }
    }

    fn add<R: Rng + ?Sized>(&mut self, row: &[f64], times: u64, rng: &mut R) {
        if let ExactSum::DoubleCap {
            distribution,
            sum,
            direction,
        } = self
        {
            for _ in 0..times {
                distribution.sample(row, rng, direction);
                sum.add_direction(direction);
            }
        }
    }

    /// The sum of `count` payloads, `exact` being that of the rows' outer products.
    fn finish<R: Rng + ?Sized>(
        self,
        mut exact: PackedSymmetric,
        count: u64,
        rng: &mut R,
    ) -> Result<Accumulator> {
        match self {
            ExactSum::DoubleCap { sum, .. } => sum.finish(),
            ExactSum::Gaussian {
                diagonal_sd,
                off_diagonal_sd,
                grid,
            } => {
                let root = (count as f64).sqrt();
                let p = exact.dimension();
                let mut entries = exact.as_mut_slice().iter_mut();
                for i in 0..p {
                    for j in i..p {
                        let sd = if i == j { diagonal_sd } else { off_diagonal_sd };
                        if let Some(entry) = entries.next() {
                            let z: f64 = StandardNormal.sample(rng);
                            *entry += root * sd * z;
                            if let Some(steps) = grid {
                                *entry = (*entry / steps[usize::from(i != j)]).round();
                            }
                        }
                    }
                }
                Accumulator::from_parts(exact, count)
            }
        }
    }
}
