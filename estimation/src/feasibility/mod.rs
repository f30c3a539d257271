//! Could real rows have produced these reports? Points out what no rows in the unit ball can produce, at a stated
//! false-alarm rate.
//!
//! The limits hold for every list of rows. By sample splitting, the directions come from one half of the reports (the
//! buckets of even number) and are tested on the other half: given the directions, its reports are independent draws of
//! the mechanism, so the search costs nothing. Two limits:
//!
//! * **Length** (every mechanism). Rows in the unit ball have `Σᵢ E(vᵢᵀx)² ≤ 1` over orthonormal directions. The
//!   contribution of noise is bounded by its distribution.
//! * **Seeds** (`double-cap`). A report's direction has a density between 1/Z and e^ε/Z, whatever the row: that is the
//!   privacy guarantee. So no set of directions is hit more than e^ε/Z times as often as by random seeds. Seeds chosen
//!   to lie close to a direction violate this.
//!
//! Reports that pass both limits can do no more than dishonest participants with invented *rows*: a share f of them
//! moves an eigenvalue by about f, not by f·c. For seeds chosen with knowledge of the limits see
//! `docs/derivations/double-cap.md`, "What an attacker can still do".

mod length;
mod seeds;

use eigenveil_shared::{
    Result,
    estimate::{Feasibility, FeasibilityCheck, SeedCheck, SquaredNormCheck},
    mechanism::Decoding,
    study::StudyParams,
};
use nalgebra::DMatrix;

pub use self::seeds::SeedCounts;
use crate::{
    accumulate::Accumulator,
    cancel::Cancel,
    linalg::{packed_to_dense, top_k},
    sparse_from_seeds::SeedSource,
};

/// Probability of `impossible` where a device made every report, at most.
pub const FALSE_ALARM_RATE: f64 = 1e-3;
/// The share of it that each of the two limits may use.
const SHARE: f64 = 0.5 * FALSE_ALARM_RATE;
const MAX_DIRECTIONS: usize = 8;
const MIN_REPORTS: u64 = 64;

/// The leading directions of one half of the reports, and the sum of the other half.
pub struct SampleSplit {
    /// `p × d`, orthonormal, leading first; p is the dimension of the reports.
    pub directions: DMatrix<f64>,
    /// The decoded sum of the other half.
    pub others: Accumulator,
}

/// Whether a bucket belongs to the half that provides the directions.
fn gives_directions(bucket: u32) -> bool {
    bucket.is_multiple_of(2)
}

impl SampleSplit {
    /// Splits the sums of a study's payloads by the parity of their bucket numbers; `None` if a half has fewer than 64
    /// reports.
    pub fn new(buckets: &[(u32, Accumulator)], params: &StudyParams) -> Result<Option<Self>> {
        let p = params.report_dimension();
        let mut split = [Accumulator::new(p)?, Accumulator::new(p)?];
        for (number, sum) in buckets {
            split[usize::from(!gives_directions(*number))].merge(sum)?;
        }
        if p < 2 || split.iter().any(|half| half.count() < MIN_REPORTS) {
            return Ok(None);
        }
        let [mut first, mut others] = split;
        first.decode(params.mechanism());
        others.decode(params.mechanism());
        let moment = packed_to_dense(first.sum());
        let directions = top_k(&moment, MAX_DIRECTIONS.min(p - 1))?.vectors;
        Ok(Some(Self { directions, others }))
    }
}

/// Checks whether real rows could have produced the sums of a study's payloads, and its seeds if it stores them.
/// `buckets` are those of [`ReportSum`](crate::accumulate::ReportSum), with their numbers; `seeds` are the same
/// reports, with bucket numbers of the same parity.
///
/// `None` with fewer than 64 reports in a half. `cancel` is checked for every chunk of seeds.
pub fn check_feasibility(
    buckets: &[(u32, Accumulator)],
    params: &StudyParams,
    seeds: Option<&dyn SeedSource>,
    cancel: Cancel<'_>,
) -> Result<Option<FeasibilityCheck>> {
    let Some(split) = SampleSplit::new(buckets, params)? else {
        return Ok(None);
    };
    let seeds = match (params.mechanism().decoding(), seeds) {
        (Decoding::Direction(parameters), Some(seeds)) => {
            let mut counts = SeedCounts::new(&split.directions, parameters);
            seeds.pass(&mut |bucket, seeds| {
                if gives_directions(bucket) {
                    return Ok(());
                }
                cancel.check()?;
                counts.add_seeds(seeds);
                Ok(())
            })?;
            counts.finish()
        }
        (Decoding::Direction(_), None) | (Decoding::Entries | Decoding::Grid { .. }, _) => None,
    };
    Ok(Some(judge(&split, params, seeds)))
}

/// The verdict on this split and the count of the other half's seeds.
pub fn judge(
    split: &SampleSplit,
    params: &StudyParams,
    seeds: Option<SeedCheck>,
) -> FeasibilityCheck {
    let length = length::check(split, params);
    let too_many = seeds
        .as_ref()
        .is_some_and(|seeds| seeds.found >= seeds.limit);
    FeasibilityCheck {
        reports: split.others.count(),
        false_alarm_rate: FALSE_ALARM_RATE,
        verdict: match length.found > length.limit || too_many {
            true => Feasibility::Infeasible,
            false => Feasibility::Feasible,
        },
        length,
        seeds,
    }
}

/// The warnings for reports that no rows can produce.
pub fn warnings(check: &FeasibilityCheck) -> Vec<String> {
    let mut warnings = Vec::new();
    let SquaredNormCheck {
        directions,
        found,
        limit,
    } = check.length;
    if found > limit {
        let which = match directions {
            1 => "an eigenvalue".to_owned(),
            many => format!("{many} eigenvalues that add up to"),
        };
        warnings.push(format!(
            "The reports have {which} {found:.3}, which no rows can have: the eigenvalues of rows in the unit ball add up to 1 at most, and with noise to {limit:.3} at most in all but one study of 2,000. Reports that no device made are in the sums: do not rely on the components."
        ));
    }
    if let Some(seeds) = check
        .seeds
        .as_ref()
        .filter(|seeds| seeds.found >= seeds.limit)
    {
        let place = match (seeds.is_subspace, seeds.direction) {
            (true, many) => format!("the space of the {many} leading directions"),
            (false, which) => format!("direction {which} of the reports"),
        };
        let excess = (seeds.found as f64 - seeds.expected) / check.reports as f64;
        warnings.push(format!(
            "{} of {} seeds lie closer to {place} than one in {:.0} random seeds; devices send at most {:.1} such seeds on average, whatever the rows, and {} or more in one study of 2,000. Seeds were chosen to turn the components, at least {:.2} % of them: do not rely on the components.",
            seeds.found,
            check.reports,
            seeds.null_probability.recip(),
            seeds.expected,
            seeds.limit,
            100.0 * excess
        ));
    }
    warnings
}
