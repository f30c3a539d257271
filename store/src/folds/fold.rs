//! Folds of buckets: read, moved on, kept.

use std::hash::{BuildHasher, RandomState};

use eigenveil_estimation::{Cancel, SeedSample, accumulate::Accumulator, sum_ranges};
use eigenveil_shared::{
    Result,
    mechanism::double_cap::{SEED_LEN, Seed},
    packed::packed_len,
};

use super::copies::fingerprint;
use crate::{
    config::StoreConfig,
    contract::{
        checksum::checksum,
        engine::{Engine, NewFold, SeedReader},
        failure::Failure,
        study::Study,
        sums::{decode_sum, encode_sum},
    },
};

/// Seeds after which a fold is kept: four megabytes.
const STEP: usize = 1 << 18;
/// Fingerprints in a run beyond which it is merged no further: eight megabytes.
const LONGEST_RUN: usize = 1 << 20;
const CHECKSUM: usize = 8;
/// Length of a body up to its sum: checksum, last row, key of the sample.
const HEAD: usize = CHECKSUM + 16;
/// Before all rows.
pub(super) const FIRST: i64 = -1;

/// The first seeds of a bucket, added up.
pub(super) struct Fold {
    /// The last row.
    pub(super) upto: i64,
    pub(super) sum: Accumulator,
    pub(super) sample: SeedSample,
}

impl Fold {
    /// The fold of no seeds.
    pub(super) fn new(study: &Study, bucket: u32) -> Result<Self> {
        Ok(Self {
            upto: FIRST,
            sum: Accumulator::new(study.params().sum_dimension())?,
            sample: SeedSample::new(bucket, study.buckets()),
        })
    }

    /// The fold that is kept of a bucket; `None` if there is none, or its bytes are damaged.
    pub(super) fn kept(
        reader: &dyn SeedReader,
        study: &Study,
        bucket: u32,
    ) -> Result<Option<Self>, Failure> {
        let (upto, n) = reader.folded(bucket)?;
        if n == 0 {
            return Ok(None);
        }
        let body = reader.fold(bucket)?;
        let fold = body.and_then(|body| Self::decode(study, bucket, (upto, n), &body));
        if fold.is_none() {
            tracing::warn!(study = %study.id(), bucket, "a kept sum of seeds is damaged; they are added up again");
        }
        Ok(fold)
    }

    fn decode(study: &Study, bucket: u32, (upto, n): (i64, u64), body: &[u8]) -> Option<Self> {
        let p = study.params().sum_dimension();
        let (stored, content) = body.split_at_checked(CHECKSUM)?;
        let sum_end = 16 + 8 * packed_len(p);
        let is_whole = checksum(study.key, bucket, n, content) == *stored
            && content.get(..8)? == upto.to_le_bytes();
        let key = u64::from_le_bytes(content.get(8..16)?.try_into().ok()?);
        let mut sample = SeedSample::with_key(bucket, study.buckets(), key);
        let (sampled, _) = content.get(sum_end..)?.as_chunks::<SEED_LEN>();
        sample.add(sampled);
        let sum = decode_sum(p, n, content.get(16..sum_end)?).ok()?;
        is_whole.then_some(Self { upto, sum, sample })
    }

    fn encode(&self, study: &Study, bucket: u32) -> Vec<u8> {
        let sum = encode_sum(&self.sum);
        let mut body =
            Vec::with_capacity(HEAD + sum.len() + SEED_LEN * self.sample.seeds().count());
        body.extend([0; CHECKSUM]);
        body.extend(self.upto.to_le_bytes());
        body.extend(self.sample.key().to_le_bytes());
        body.extend(sum);
        body.extend(self.sample.seeds().flatten());
        let checksum = checksum(study.key, bucket, self.sum.count(), &body[CHECKSUM..]);
        body[..CHECKSUM].copy_from_slice(&checksum);
        body
    }
}

/// Sorted fingerprints as they are kept, of the rows up to this one.
fn encode_run(study: &Study, bucket: u32, upto: i64, run: &[u64]) -> Vec<u8> {
    let content: Vec<u8> = run.iter().flat_map(|f| f.to_le_bytes()).collect();
    let checksum = checksum(study.key, bucket, upto as u64, &content);
    [&checksum[..], &content[..]].concat()
}

/// The fingerprints of a run; none if its bytes are damaged.
pub(super) fn decode_run(study: &Study, bucket: u32, upto: i64, body: &[u8]) -> Vec<u64> {
    let (stored, content) = body.split_at(CHECKSUM.min(body.len()));
    let (fingerprints, _) = content.as_chunks::<8>();
    match checksum(study.key, bucket, upto as u64, content) == *stored {
        true => fingerprints
            .iter()
            .map(|f| u64::from_le_bytes(*f))
            .collect(),
        false => Vec::new(),
    }
}

/// Takes the last row of a range and its seeds; says whether to go on.
pub(super) type TakeRange<'a> = dyn FnMut(i64, &[Seed]) -> Result<bool, Failure> + 'a;

/// Passes the seeds of a bucket after a row to `take` in ranges of whole rows, so many that they are `least` seeds or
/// more, each with its last row, and returns the rest. Where one range ends depends on the rows before it alone.
pub(super) fn read_ranges(
    reader: &dyn SeedReader,
    bucket: u32,
    after: i64,
    least: usize,
    take: &mut TakeRange<'_>,
) -> Result<Vec<Seed>, Failure> {
    let mut range: Vec<Seed> = Vec::new();
    reader.rows(bucket, after, &mut |row, bytes| {
        let (seeds, rest) = bytes.as_chunks::<SEED_LEN>();
        if !rest.is_empty() {
            return Err(Failure::damaged("a row of seeds has a part of one"));
        }
        range.extend_from_slice(seeds);
        if range.len() < least.max(1) {
            return Ok(true);
        }
        let goes_on = take(row, &range)?;
        range.clear();
        Ok(goes_on)
    })?;
    Ok(range)
}

/// How seeds are folded.
pub(crate) struct Folding<'a> {
    pub(crate) config: &'a StoreConfig,
    pub(crate) cancel: Cancel<'a>,
    /// Called before each range: returns when it may be added up.
    pub(crate) pause: &'a dyn Fn(),
}

/// Moves the folds of a study on to where there are too few seeds for a range, in an order of buckets drawn at random:
/// servers that begin at once go different ways. Nothing is kept whose sums have more than `max_fold_bytes`, or which
/// cannot be made within `sum_cache_bytes`.
pub(crate) fn fold_study(engine: &dyn Engine, study: &Study, folding: &Folding<'_>) -> Result<()> {
    let sum_bytes = sum_bytes(study);
    let all_bytes = sum_bytes.saturating_mul(study.buckets().into());
    // A fold, and a range in the making.
    let is_too_large = all_bytes > folding.config.max_fold_bytes
        || sum_bytes.saturating_mul(3) > folding.config.sum_cache_bytes;
    if !study.has_seeds() || is_too_large {
        return Ok(());
    }
    let random = RandomState::new();
    let mut buckets: Vec<u32> = (0..study.buckets()).collect();
    buckets.sort_by_key(|bucket| random.hash_one(bucket));
    for bucket in buckets {
        while step(engine, study, bucket, folding)? {}
    }
    Ok(())
}

fn sum_bytes(study: &Study) -> u64 {
    8 * packed_len(study.params().sum_dimension()) as u64
}

/// Seeds to be folded.
struct Step {
    /// The last row of the fold that is kept, whatever its bytes are.
    from: i64,
    before: Fold,
    ranges: Vec<Vec<Seed>>,
    upto: i64,
    /// Fingerprints of earlier runs that are merged with the new ones, and the row after which they begin.
    run: Vec<u64>,
    run_after: i64,
}

/// Moves the fold of a bucket on; returns whether there may be more. If somebody else has moved it meanwhile, there is
/// nothing more to do: they go on.
fn step(engine: &dyn Engine, study: &Study, bucket: u32, folding: &Folding<'_>) -> Result<bool> {
    folding.cancel.check()?;
    let mut read = None;
    engine.read_seeds(study, &mut |reader| {
        read = Step::read(reader, study, bucket, folding.config.min_folded_seeds)?;
        Ok(())
    })?;
    let Some(step) = read else { return Ok(false) };
    let Step {
        before: mut fold,
        mut run,
        ..
    } = step;
    fold.upto = step.upto;
    sum_ranges::<()>(
        study.params().sum_dimension(),
        folding.config.sum_cache_bytes - sum_bytes(study),
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
        run.extend(range.iter().map(fingerprint));
    }
    run.sort();
    let moved_on = NewFold {
        upto: fold.upto,
        n: fold.sum.count(),
        body: fold.encode(study, bucket),
        run: encode_run(study, bucket, fold.upto, &run),
        run_after: step.run_after,
    };
    engine.keep_fold(study, bucket, step.from, moved_on)
}

impl Step {
    /// The next seeds of a bucket, if there are enough.
    fn read(
        reader: &dyn SeedReader,
        study: &Study,
        bucket: u32,
        least: usize,
    ) -> Result<Option<Self>, Failure> {
        let (from, n) = reader.folded(bucket)?;
        let mut next = Ranges::after(reader, bucket, from, least)?;
        if next.ranges.is_empty() {
            return Ok(None);
        }
        let before = Fold::kept(reader, study, bucket)?;
        if n > 0 && before.is_none() {
            next = Ranges::after(reader, bucket, FIRST, least)?;
        }
        let new: usize = next.ranges.iter().map(Vec::len).sum();
        let (mut run, mut run_after) = (Vec::new(), FIRST);
        if before.is_some() {
            reader.runs(bucket, &mut |upto, body| {
                let earlier = decode_run(study, bucket, upto, body);
                // Runs of falling lengths: a fingerprint is written anew as often as its run doubles.
                let merged = new + run.len();
                let is_merged = earlier.len() <= merged && earlier.len() + merged <= LONGEST_RUN;
                match is_merged {
                    true => run.extend(earlier),
                    false => run_after = upto,
                }
                Ok(is_merged)
            })?;
        }
        Ok(Some(Self {
            from,
            before: match before {
                Some(before) => before,
                None => Fold::new(study, bucket)?,
            },
            ranges: next.ranges,
            upto: next.upto,
            run,
            run_after,
        }))
    }
}

struct Ranges {
    ranges: Vec<Vec<Seed>>,
    /// The last row.
    upto: i64,
}

impl Ranges {
    fn after(
        reader: &dyn SeedReader,
        bucket: u32,
        after: i64,
        least: usize,
    ) -> Result<Self, Failure> {
        let (mut ranges, mut upto, mut n) = (Vec::new(), after, 0);
        read_ranges(reader, bucket, after, least, &mut |row, seeds| {
            ranges.push(seeds.to_vec());
            upto = row;
            n += seeds.len();
            Ok(n < STEP)
        })?;
        Ok(Self { ranges, upto })
    }
}
