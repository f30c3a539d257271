//! Seeds that came more than once: all are stored, each is counted once.
//!
//! Two honest devices send the same seed with probability 2⁻¹²⁸. An attacker who sends a chosen seed under many
//! identifiers would move an estimate by c/n per report, as far as any report can. Copies are found when an estimate is
//! made, exactly and however they came (upload, import, merge, across a restart). No response to an upload depends on
//! the stored seeds, so nobody learns whether a seed was counted, and uploads cost no more.
//!
//! Of equal seeds the one in the lowest bucket counts, in the bucket's fold if one is there: what a seed's number of
//! commit is does not matter. Equal fingerprints, which folds keep sorted, are a suspicion; then the seeds are read.

use std::{
    hash::{BuildHasher, RandomState},
    iter::repeat_n,
    panic::resume_unwind,
};

use eigenveil_estimation::linalg::Threads;
use eigenveil_shared::mechanism::double_cap::Seed;

use crate::contract::failure::Failure;

/// Parts of the fingerprints, by their first bits, that are sorted by themselves.
const SLICES: usize = 64;
/// Bytes that sorting takes per fingerprint.
const SORTING: u64 = 16;

/// The first half of a seed: random for honest seeds, and the order of fingerprints is that of seeds.
pub(super) fn fingerprint(seed: &Seed) -> u64 {
    (u128::from_be_bytes(*seed) >> 64) as u64
}

type FingerprintReader<'a> = dyn Fn(&mut dyn FnMut(&[u64])) -> Result<(), Failure> + 'a;

/// The fingerprints that occur more than once among the `n` that `read` delivers, ascending: in as many passes as are
/// needed to sort them within `memory_bytes`, on [`Threads::current`] threads.
pub(super) fn repeated(
    n: u64,
    memory_bytes: u64,
    read: &FingerprintReader<'_>,
) -> Result<Vec<u64>, Failure> {
    let parts = n
        .saturating_mul(SORTING)
        .div_ceil(memory_bytes.max(1))
        .max(1);
    // A random key: an attacker who chooses seeds cannot choose their part.
    let key = RandomState::new();
    let mut equal_ones = Vec::new();
    for part in 0..parts {
        let mut slices = vec![Vec::new(); SLICES];
        read(&mut |fingerprints| {
            for &fingerprint in fingerprints {
                if parts == 1 || key.hash_one(fingerprint) % parts == part {
                    slices[(fingerprint >> 58) as usize].push(fingerprint);
                }
            }
        })?;
        let share = SLICES.div_ceil(Threads::current().count());
        std::thread::scope(|scope| {
            let threads: Vec<_> = slices
                .chunks_mut(share)
                .map(|some| scope.spawn(move || repeated_in(some)))
                .collect();
            for thread in threads {
                equal_ones.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
        });
    }
    equal_ones.sort_unstable();
    Ok(equal_ones)
}

fn repeated_in(slices: &mut [Vec<u64>]) -> Vec<u64> {
    let mut equal_ones = Vec::new();
    for slice in slices {
        // The stable sort merges the runs that it finds sorted.
        slice.sort();
        let equal = slice.chunk_by(|a, b| a == b);
        equal_ones.extend(equal.filter(|equal| equal.len() > 1).map(|equal| equal[0]));
    }
    equal_ones
}

/// Where a seed is. The first of several places is where it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) bucket: u32,
    pub(super) is_after_fold: bool,
}

#[derive(Debug, Default)]
pub(super) struct Copies {
    /// The seeds that came more than once, ascending, and where each counts.
    counted: Vec<(Seed, Place)>,
    /// Seeds that should not be in the fold of their bucket, each as often as it should not.
    in_folds: Vec<(u32, Seed)>,
    excluded: u64,
}

impl Copies {
    /// From where suspected seeds are: each as often as it is there.
    pub(super) fn of(mut places: Vec<(Seed, Place)>) -> Self {
        places.sort_unstable();
        let mut copies = Self::default();
        for same in places.chunk_by(|(a, _), (b, _)| a == b) {
            let (seed, first) = same[0];
            if same.len() == 1 {
                continue;
            }
            copies.counted.push((seed, first));
            copies.excluded += same.len() as u64 - 1;
            for together in same.chunk_by(|(_, a), (_, b)| a == b) {
                let (_, place) = together[0];
                if !place.is_after_fold {
                    let extra = together.len() - usize::from(place == first);
                    copies
                        .in_folds
                        .extend(repeat_n((place.bucket, seed), extra));
                }
            }
        }
        copies
    }

    /// Reports that are not counted because another report has the same seed.
    pub(super) fn excluded(&self) -> u64 {
        self.excluded
    }

    /// The seeds that are to be taken out of the fold of a bucket, each as often as it is there too much.
    pub(super) fn in_fold(&self, bucket: u32) -> Vec<Seed> {
        let of_bucket = self.in_folds.iter().filter(|(of, _)| *of == bucket);
        of_bucket.map(|(_, seed)| *seed).collect()
    }

    /// Whether a seed of this bucket counts there.
    pub(super) fn counts_in(&self, seed: &Seed, bucket: u32) -> bool {
        self.find(seed)
            .is_none_or(|at| self.counted[at].1.bucket == bucket)
    }

    fn find(&self, seed: &Seed) -> Option<usize> {
        let position = self.counted.binary_search_by(|(other, _)| other.cmp(seed));
        position.ok()
    }

    /// A filter for one pass over the seeds after the folds.
    pub(super) fn filter(&self) -> Filter<'_> {
        Filter {
            copies: self,
            seen: vec![false; self.counted.len()],
            kept: Vec::new(),
        }
    }
}

/// Lets every seed that counts through once.
pub(super) struct Filter<'a> {
    copies: &'a Copies,
    seen: Vec<bool>,
    kept: Vec<Seed>,
}

impl Filter<'_> {
    /// The seeds of a bucket that count, and have not come before.
    pub(super) fn retain<'s>(&'s mut self, bucket: u32, seeds: &'s [Seed]) -> &'s [Seed] {
        let Self { copies, seen, kept } = self;
        if copies.counted.is_empty() {
            return seeds;
        }
        let position = Place {
            bucket,
            is_after_fold: true,
        };
        kept.clear();
        kept.extend(seeds.iter().filter(|seed| {
            copies.find(seed).is_none_or(|at| {
                copies.counted[at].1 == position && !std::mem::replace(&mut seen[at], true)
            })
        }));
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use rand::{RngExt, SeedableRng, rngs::ChaCha12Rng};

    use super::*;

    /// With memory for all fingerprints and for a few.
    #[test]
    fn repeated_fingerprints_are_found() {
        let mut rng = ChaCha12Rng::seed_from_u64(4);
        let fingerprints: Vec<u64> = (0..1_000)
            .map(|i| match i % 3 {
                0 => rng.random_range(0..300_u64) << 40,
                _ => rng.random(),
            })
            .collect();
        let mut times: HashMap<u64, usize> = HashMap::new();
        for fingerprint in &fingerprints {
            *times.entry(*fingerprint).or_default() += 1;
        }
        let read = |take: &mut dyn FnMut(&[u64])| {
            fingerprints.chunks(7).for_each(take);
            Ok(())
        };
        for memory in [0, 700, 16_000, u64::MAX] {
            let n = if memory == 0 { 40 } else { 1_000 };
            let equal = repeated(n, memory, &read).unwrap();
            let wanted = times.iter().filter(|(_, times)| **times > 1);
            let mut wanted: Vec<u64> = wanted.map(|(fingerprint, _)| *fingerprint).collect();
            wanted.sort_unstable();
            assert!(!wanted.is_empty());
            assert_eq!(equal, wanted);
        }
    }

    /// Each seed counts once, wherever its copies are, and what the folds have too much is what is missing then.
    #[test]
    fn every_seed_is_counted_once() {
        let mut rng = ChaCha12Rng::seed_from_u64(5);
        let pool: Vec<Seed> = (0..40).map(|_| rng.random()).collect();
        // Of four buckets the seeds in the fold and after it.
        let buckets: Vec<[Vec<Seed>; 2]> = (0..4)
            .map(|_| [(); 2].map(|()| (0..30).map(|_| pool[rng.random_range(0..40)]).collect()))
            .collect();
        let mut places = Vec::new();
        for (bucket, parts) in (0..).zip(&buckets) {
            for (is_after_fold, seeds) in [false, true].into_iter().zip(parts) {
                for seed in seeds {
                    let position = Place {
                        bucket,
                        is_after_fold,
                    };
                    places.push((*seed, position));
                }
            }
        }
        let different: HashSet<Seed> = buckets.iter().flatten().flatten().copied().collect();
        let copies = Copies::of(places);
        assert_eq!(copies.excluded() as usize, 240 - different.len());
        for _ in 0..2 {
            let mut filter = copies.filter();
            let mut counted: Vec<Seed> = Vec::new();
            for (bucket, [folded, after]) in (0..).zip(&buckets) {
                let mut folded = folded.clone();
                for seed in copies.in_fold(bucket) {
                    let at = folded.iter().position(|other| *other == seed).unwrap();
                    folded.swap_remove(at);
                }
                assert!(folded.iter().all(|seed| copies.counts_in(seed, bucket)));
                counted.extend(folded);
                for chunk in after.chunks(7) {
                    counted.extend_from_slice(filter.retain(bucket, chunk));
                }
            }
            assert_eq!(counted.len(), different.len());
            assert_eq!(counted.into_iter().collect::<HashSet<_>>(), different);
        }
    }
}
