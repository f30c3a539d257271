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
    estimate::{Feasibility, FeasibilityCheck, SeedCheck},
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
    warning::Warning,
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
pub fn warnings(check: &FeasibilityCheck) -> Vec<Warning> {
    let length = &check.length;
    let too_long = (length.found > length.limit).then(|| Warning::TooLong(length.clone()));
    let seeds = check.seeds.clone();
    let chosen = seeds.filter(|seeds| seeds.found >= seeds.limit);
    let reports = check.reports;
    let chosen = chosen.map(|check| Warning::ChosenSeeds { check, reports });
    too_long.into_iter().chain(chosen).collect()
}
