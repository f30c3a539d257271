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

use self::split::gives_directions;
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
