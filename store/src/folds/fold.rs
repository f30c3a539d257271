//! Folds of buckets: read, moved on, kept.

use std::hash::{BuildHasher, RandomState};

use eigenveil_estimation::{Cancel, SeedSample, accumulate::Accumulator, sum_ranges};
use eigenveil_shared::{
    Result,
    api::StudyState,
    mechanism::double_cap::{SEED_LEN, Seed},
    packed::packed_len,
};

use super::copies::fingerprint;
use crate::{
    config::StoreConfig,
    contract::{
        checksum::checksum,
        engine::{Engine, Kept, NewFold, SeedReader},
        failure::Failure,
        study::Study,
        sums::{decode_sum, encode_sum},
    },
};

/// Seeds after which a fold is kept, if so many are enough: a kill loses no more. Four megabytes.
const STEP: u64 = 1 << 18;
const CHECKSUM: usize = 8;
/// Bytes of a fold before its fingerprints.
const HEAD: u64 = (CHECKSUM + size_of::<i64>()) as u64;
/// Bytes of the samples of a study's folds, at most.
const SAMPLES: u64 = (SeedSample::SEEDS * SEED_LEN) as u64;
pub(super) const FINGERPRINT: usize = 8;
/// Before all rows.
pub(super) const FIRST: i64 = -1;

/// The first seeds of a bucket, added up.
pub(super) struct Fold {
    /// The last row.
    pub(super) upto: i64,
    pub(super) sum: Accumulator,
    pub(super) sample: SeedSample,
    /// Ascending.
    pub(super) fingerprints: Vec<u64>,
}

impl Fold {
    /// The fold of no seeds.
    pub(super) fn new(study: &Study, bucket: u32) -> Result<Self> {
        Ok(Self {
            upto: FIRST,
            sum: Accumulator::new(study.params().sum_dimension())?,
            sample: SeedSample::new(bucket, study.buckets()),
            fingerprints: Vec::new(),
        })
    }

    /// The fold that is kept of a bucket, or that of no seeds; `None` if its bytes are damaged.
    pub(super) fn kept(
        reader: &dyn SeedReader,
        study: &Study,
        bucket: u32,
        kept: Kept,
    ) -> Result<Option<Self>, Failure> {
        if kept.n == 0 {
            return Ok(Some(Self::new(study, bucket)?));
        }
        let body = reader.fold(bucket)?;
        Ok(body.and_then(|body| Self::decode(study, bucket, kept, &body)))
    }

    fn decode(study: &Study, bucket: u32, kept: Kept, body: &[u8]) -> Option<Self> {
        let p = study.params().sum_dimension();
        let (stored, content) = body.split_at_checked(CHECKSUM)?;
        if checksum(study.key, bucket, kept.n, content) != *stored {
            return None;
        }
        let (upto, content) = content.split_at_checked(size_of::<i64>())?;
        let fingerprints = usize::try_from(kept.n).ok()?.checked_mul(FINGERPRINT)?;
        let (fingerprints, content) = content.split_at_checked(fingerprints)?;
        let (sum, sampled) = content.split_at_checked(8 * packed_len(p))?;
        let (sampled, _) = sampled.as_chunks::<SEED_LEN>();
        let fold = Self {
            upto: kept.upto,
            sum: decode_sum(p, kept.n, sum).ok()?,
            sample: SeedSample::restored(bucket, study.buckets(), kept.n, sampled)?,
            fingerprints: fingerprints_of(fingerprints),
        };
        (upto == kept.upto.to_le_bytes()).then_some(fold)
    }

    /// Checksum, last row, fingerprints, sum, sample. Nothing in it says which of its seeds came earlier.
    fn encode(&self, study: &Study, bucket: u32) -> Vec<u8> {
        let mut sampled = self.sample.seeds().to_vec();
        sampled.sort_unstable();
        let content = [
            self.upto.to_le_bytes().to_vec(),
            bytes_of(&self.fingerprints),
            encode_sum(&self.sum),
            sampled.concat(),
        ]
        .concat();
        let checksum = checksum(study.key, bucket, self.sum.count(), &content);
        [&checksum[..], &content[..]].concat()
    }
}

/// Fingerprints as they are stored.
pub(super) fn bytes_of(fingerprints: &[u64]) -> Vec<u8> {
    fingerprints
        .iter()
        .flat_map(|fingerprint| fingerprint.to_le_bytes())
        .collect()
}

pub(super) fn fingerprints_of(bytes: &[u8]) -> Vec<u64> {
    let (fingerprints, _) = bytes.as_chunks::<FINGERPRINT>();
    let numbers = fingerprints.iter().map(|bytes| u64::from_le_bytes(*bytes));
    numbers.collect()
}

/// Takes the last row of a range and its seeds; says whether to go on.
pub(super) type TakeRange<'a> = dyn FnMut(i64, &[Seed]) -> Result<bool, Failure> + 'a;

/// Passes the seeds of a bucket after one row, up to another one, to `take` in ranges of whole rows, so many that they are
/// `least` seeds or more, each with its last row, and returns the rest. Where one range ends depends on the rows before it
/// alone.
pub(super) fn read_ranges(
    reader: &dyn SeedReader,
    bucket: u32,
    (after, upto): (i64, i64),
    least: usize,
    take: &mut TakeRange<'_>,
) -> Result<Vec<Seed>, Failure> {
    let mut range: Vec<Seed> = Vec::new();
    reader.rows(bucket, after, &mut |row, bytes| {
        if row > upto {
            return Ok(false);
        }
        let (seeds, rest) = bytes.as_chunks::<SEED_LEN>();
        if !rest.is_empty() {
            return Err(Failure::damaged("a row of seeds has a part of one"));
        }
        range.extend_from_slice(seeds);
        if range.len() < least {
            return Ok(true);
        }
        let goes_on = take(row, &range)?;
        range.clear();
        Ok(goes_on)
    })?;
    Ok(range)
}

/// Seeds of a range, at least: a quarter of those for which a fold is made, so that the rest is a small one.
pub(super) fn range_seeds(config: &StoreConfig) -> usize {
    (config.min_folded_seeds / 4).max(1)
}

pub(super) fn sum_bytes(study: &Study) -> u64 {
    8 * packed_len(study.params().sum_dimension()) as u64
}

/// Seeds that a fold of a bucket may have, by what is kept of each; none where a sum and two more in the making do not
/// fit into memory.
pub(super) fn most_seeds(config: &StoreConfig, study: &Study) -> u64 {
    let sum = sum_bytes(study);
    if !study.has_seeds() || sum.saturating_mul(3) > config.sum_cache_bytes {
        return 0;
    }
    let limit = config.max_fold_bytes.saturating_sub(SAMPLES) / u64::from(study.buckets());
    limit.saturating_sub(HEAD + sum) / FINGERPRINT as u64
}

/// New seeds for which a fold of so many, in dimension p, is written anew: the larger it is, the more. Fewer are expanded
/// by each estimate, and their sum is not kept.
pub(super) fn enough_seeds(min_folded_seeds: usize, p: usize, folded: u64) -> u64 {
    let by_dimension = (p as u64) * (p as u64) / 256;
    by_dimension.max(min_folded_seeds as u64).max(folded / 8)
}

/// How seeds are folded.
pub(crate) struct Folding<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) cancel: Cancel<'a>,
    /// Called before each range is added up, and before a fold is kept: returns when that may be done.
    pub(crate) pause: &'a dyn Fn(),
}

/// Moves the folds of a study on as far as its seeds go now and are [enough](enough_seeds), in an order of buckets drawn
/// at random: servers that begin at once go different ways.
pub(crate) fn fold_study(engine: &dyn Engine, study: &Study, folding: &Folding<'_>) -> Result<()> {
    if most_seeds(folding.config, study) == 0 {
        return Ok(());
    }
    let random = RandomState::new();
    let mut buckets: Vec<u32> = (0..study.buckets()).collect();
    buckets.sort_by_key(|bucket| random.hash_one(bucket));
    for bucket in buckets {
        let mut upto = None;
        while move_on(engine, study, bucket, &mut upto, folding)? {}
    }
    Ok(())
}

/// Seeds to be folded.
struct Step {
    kept: Kept,
    /// `None`: its bytes are damaged.
    before: Option<Fold>,
    ranges: Vec<Vec<Seed>>,
    upto: i64,
}

/// Moves the fold of a bucket on by up to [`STEP`] seeds; returns whether there may be more. If somebody else has moved it
/// meanwhile, there is nothing more to do: they go on. `upto` is the last row that counts, by default the last one of the
/// first call: reports that come meanwhile are left for later.
pub(crate) fn move_on(
    engine: &dyn Engine,
    study: &Study,
    bucket: u32,
    upto: &mut Option<i64>,
    folding: &Folding<'_>,
) -> Result<bool> {
    folding.cancel.check()?;
    let mut step = None;
    engine.read_seeds(study, &mut |reader| {
        step = Step::read(reader, study, bucket, upto, folding.config)?;
        Ok(())
    })?;
    let Some(step) = step else { return Ok(false) };
    let Some(mut fold) = step.before else {
        drop_damaged(engine, study, bucket, step.kept)?;
        return Ok(true);
    };
    let new: usize = step.ranges.iter().map(Vec::len).sum();
    let fingerprints = FINGERPRINT * (fold.fingerprints.len() + new);
    // Asked before the work is done.
    if !engine.has_room(sum_bytes(study) + fingerprints as u64) {
        return Ok(false);
    }
    sum_ranges::<()>(
        study.params().sum_dimension(),
        folding
            .config
            .sum_cache_bytes
            .saturating_sub(sum_bytes(study)),
        folding.cancel,
        |add| {
            step.ranges.iter().try_for_each(|range| {
                (folding.pause)();
                add((), range)
            })
        },
        |(), sum| fold.sum.merge(&sum),
    )?;
    for range in &step.ranges {
        fold.sample.add(range);
        fold.fingerprints.extend(range.iter().map(fingerprint));
    }
    // Stable: it finds that those before are sorted.
    fold.fingerprints.sort();
    fold.upto = step.upto;
    let moved_on = NewFold {
        upto: fold.upto,
        n: fold.sum.count(),
        body: fold.encode(study, bucket),
    };
    (folding.pause)();
    engine.keep_fold(study, bucket, step.kept.generation, moved_on)
}

/// A fold is a cache: it is made anew, and nothing else is damaged.
pub(super) fn drop_damaged(
    engine: &dyn Engine,
    study: &Study,
    bucket: u32,
    kept: Kept,
) -> Result<()> {
    tracing::warn!(study = %study.id(), bucket, "a kept sum of seeds is damaged; it is dropped and made anew");
    engine.drop_fold(study, bucket, kept.generation)
}

impl Step {
    /// The next seeds of a bucket, if there are enough.
    fn read(
        reader: &dyn SeedReader,
        study: &Study,
        bucket: u32,
        upto: &mut Option<i64>,
        config: &StoreConfig,
    ) -> Result<Option<Self>, Failure> {
        let last = match *upto {
            Some(last) => last,
            None => *upto.insert(reader.last(bucket)?),
        };
        let kept = reader.kept(bucket)?;
        let p = study.params().sum_dimension();
        // What is closed does not grow: its last seeds are worth one more time.
        let growing = match study.state() {
            StudyState::Closed => 0,
            _ => kept.n,
        };
        let enough = enough_seeds(config.min_folded_seeds, p, growing);
        let room = most_seeds(config, study).saturating_sub(kept.n);
        if room < enough {
            return Ok(None);
        }
        let (mut ranges, mut upto, mut n) = (Vec::new(), kept.upto, 0);
        let between = (kept.upto, last);
        read_ranges(
            reader,
            bucket,
            between,
            range_seeds(config),
            &mut |row, seeds| {
                let with_these = n + seeds.len() as u64;
                if with_these > room {
                    return Ok(false);
                }
                ranges.push(seeds.to_vec());
                (upto, n) = (row, with_these);
                Ok(n < STEP.max(enough))
            },
        )?;
        if n < enough {
            return Ok(None);
        }
        Ok(Some(Self {
            kept,
            before: Fold::kept(reader, study, bucket, kept)?,
            ranges,
            upto,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each fold is written for 10⁷ reports, and the megabytes of all 32 together: a sum, and 8 bytes a seed.
    /// After every 4,096 seeds it would be 76 times, and 39 GB at p = 2,000.
    #[test]
    fn a_fold_is_seldom_written_anew() {
        let written = |p: usize| -> (u64, u64) {
            let (mut folded, mut times, mut bytes) = (0, 0, 0);
            while folded + enough_seeds(4_096, p, folded) <= 10_000_000 / 32 {
                folded += enough_seeds(4_096, p, folded);
                times += 1;
                bytes += 8 * (packed_len(p) as u64 + folded);
            }
            (times, 32 * bytes / 1_000_000)
        };
        let counted = [40, 400, 2_000].map(written);
        assert_eq!(counted, [(27, 675), (27, 1_224), (15, 8_196)]);
    }
}
