//! Whether real rows could have produced these reports (`docs/estimation.md`, "Could real rows have produced these
//! reports?"): what no rows in the unit ball can produce, at a stated false-alarm rate, whatever the rows.
//!
//! Directions come from the even buckets and are tested on the odd ones ([`SampleSplit`]): along orthonormal directions
//! rows have `Σᵢ E(vᵢᵀx)² ≤ 1` (`length`), and no set of directions is hit more than e^ε/Z times as often as by random
//! seeds (`seeds`).

mod length;
mod seeds;
mod split;

use eigenveil_shared::{
    Result,
    estimate::{Feasibility, FeasibilityCheck, SeedCheck},
    mechanism::Decoding,
    study::StudyParams,
};

pub use self::{
    seeds::SeedCounts,
    split::{FALSE_ALARM_RATE, SampleSplit},
};
use crate::{
    cancel::Cancel, input::accumulate::Accumulator, report::warning::Warning,
    sparse::from_seeds::SeedSource,
};

/// Checks whether real rows could have produced the sums of a study's payloads, and its seeds if it stores them.
/// `buckets` are those of [`ReportSum`](crate::accumulate::ReportSum), with their numbers; `seeds` are the same
/// reports, with bucket numbers of the same parity.
///
/// `None` with fewer than 64 reports in a half. `cancel` is checked for every 4,096 seeds.
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
            for some in seeds.sample(cancel)?.chunks(1 << 12) {
                cancel.check()?;
                counts.add_seeds(some);
            }
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
    let reports = split.others.count();
    let seeds = seeds.map(|check| SeedCheck {
        sampled: check.sampled.filter(|sampled| *sampled < reports),
        ..check
    });
    let too_many = seeds
        .as_ref()
        .is_some_and(|seeds| seeds.found >= seeds.limit);
    FeasibilityCheck {
        reports,
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
    let chosen = chosen.map(|seeds| Warning::ChosenSeeds {
        reports: seeds.sampled.unwrap_or(check.reports),
        check: seeds,
    });
    too_long.into_iter().chain(chosen).collect()
}
