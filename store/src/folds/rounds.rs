//! Which bucket is looked at next, where folds are made without an estimate that waits.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
};

use eigenveil_shared::api::StudyState;

use super::fold::{enough_seeds, most_seeds};
use crate::{
    config::StoreConfig,
    contract::study::{Study, StudyKey},
};

/// Rounds through the buckets of studies: one when a server begins, and others as reports come.
pub(crate) struct Rounds {
    /// Added to bucket numbers: servers that begin at once go different ways.
    first: u32,
    of_studies: HashMap<StudyKey, Round>,
}

struct Round {
    /// State of the study when it began.
    state: StudyState,
    /// Its reports then.
    reports: u64,
    /// Buckets looked at.
    done: u32,
    /// Whether a fold was moved on, and may be again.
    has_more: bool,
}

impl Rounds {
    pub(crate) fn new() -> Self {
        Self {
            first: (RandomState::new().hash_one(0) % 32) as u32,
            of_studies: HashMap::new(),
        }
    }

    /// The bucket whose turn it is; `None` where a round is over and nothing worth another one has changed. Closing a
    /// study changes something: its seeds are sorted.
    pub(crate) fn next(&mut self, study: &Study, config: &StoreConfig) -> Option<u32> {
        let (state, reports) = (study.state(), study.reports_accepted());
        let (buckets, p) = (study.buckets(), study.params().sum_dimension());
        let enough = |of_bucket| enough_seeds(config.min_folded_seeds, p, of_bucket);
        // Nothing is read in vain: whoever reads keeps a database's log from being cut, which a small disk feels.
        if most_seeds(config, study) == 0 || reports < u64::from(buckets) * enough(0) {
            return None;
        }
        let new = || Round {
            state,
            reports,
            done: 0,
            has_more: false,
        };
        let round = self.of_studies.entry(study.key).or_insert_with(new);
        if round.done >= buckets {
            let enough = enough(round.reports / u64::from(buckets));
            let is_due = round.has_more
                || round.state != state
                || reports >= round.reports + u64::from(buckets) * enough;
            if !is_due {
                return None;
            }
            *round = new();
        }
        Some((round.done + self.first) % buckets)
    }

    /// Notes that the bucket was looked at, and whether there may be more to fold.
    pub(crate) fn done(&mut self, study: &Study, has_more: bool) {
        if let Some(round) = self.of_studies.get_mut(&study.key) {
            round.done += 1;
            round.has_more |= has_more;
        }
    }
}
