//! Duplicate seeds: all are stored, each is counted once.
//!
//! Two honest devices send the same seed with probability 2⁻¹²⁸. An attacker who sends a chosen seed under many
//! identifiers would move an estimate by c/n per report, as far as any report can. Duplicates are found when an
//! estimate reads the seeds, exactly and however they came (upload, import, merge, across a restart). No response to an
//! upload depends on the stored seeds, so nobody learns whether a seed was counted, and uploads cost no more.

use std::hash::{BuildHasher, RandomState};

use eigenveil_shared::mechanism::double_cap::{SEED_LEN, Seed};

use crate::contract::failure::Failure;

type SeedReader<'a> = dyn Fn(&mut dyn FnMut(&[Seed])) -> Result<(), Failure> + 'a;

#[derive(Debug, Default)]
pub(crate) struct DuplicateSeeds {
    /// The seeds that occur more than once, ascending, each listed once.
    seeds: Vec<Seed>,
    excluded: u64,
}

impl DuplicateSeeds {
    /// Finds the duplicates among the `n` seeds that `read` delivers, in as many passes as are needed to sort them, 16
    /// bytes each, within `sum_cache_bytes`.
    pub(crate) fn find(
        n: u64,
        sum_cache_bytes: u64,
        read: &SeedReader<'_>,
    ) -> Result<Self, Failure> {
        let parts = n
            .saturating_mul(SEED_LEN as u64)
            .div_ceil(sum_cache_bytes.max(1))
            .max(1);
        // A random key: an attacker who chooses seeds cannot choose their part.
        let key = RandomState::new();
        let mut duplicates = Self::default();
        for part in 0..parts {
            let mut seeds: Vec<Seed> = Vec::new();
            read(&mut |chunk| {
                if parts == 1 {
                    seeds.extend_from_slice(chunk);
                } else {
                    let of_part = |seed: &&Seed| key.hash_one(seed) % parts == part;
                    seeds.extend(chunk.iter().filter(of_part));
                }
            })?;
            seeds.sort_unstable();
            for equal in seeds
                .chunk_by(|a, b| a == b)
                .filter(|equal| equal.len() > 1)
            {
                duplicates.seeds.push(equal[0]);
                duplicates.excluded += equal.len() as u64 - 1;
            }
        }
        duplicates.seeds.sort_unstable();
        Ok(duplicates)
    }

    /// Reports excluded from the sums because another report has the same seed.
    pub(crate) fn excluded(&self) -> u64 {
        self.excluded
    }

    /// A filter for one pass over all seeds.
    pub(crate) fn dedup(&self) -> SeedDedup<'_> {
        SeedDedup {
            duplicates: &self.seeds,
            seen: vec![false; self.seeds.len()],
            new_seeds: Vec::new(),
        }
    }
}

/// Lets every seed through once.
pub(crate) struct SeedDedup<'a> {
    duplicates: &'a [Seed],
    seen: Vec<bool>,
    new_seeds: Vec<Seed>,
}

impl SeedDedup<'_> {
    /// The seeds among `seeds` that have not occurred before.
    pub(crate) fn retain_new<'s>(&'s mut self, seeds: &'s [Seed]) -> &'s [Seed] {
        if self.duplicates.is_empty() {
            return seeds;
        }
        let Self {
            duplicates,
            seen,
            new_seeds,
        } = self;
        new_seeds.clear();
        new_seeds.extend(seeds.iter().filter(|seed| {
            duplicates
                .binary_search(seed)
                .map_or(true, |at| !std::mem::replace(&mut seen[at], true))
        }));
        new_seeds
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::{RngExt, SeedableRng, rngs::ChaCha12Rng};

    use super::*;

    /// Every pass counts every seed once, with memory for all seeds and for a few.
    #[test]
    fn every_seed_is_counted_once() {
        let mut rng = ChaCha12Rng::seed_from_u64(4);
        let pool: Vec<Seed> = (0..300).map(|_| rng.random()).collect();
        let seeds: Vec<Seed> = (0..1_000)
            .map(|i| match i % 3 {
                0 => pool[rng.random_range(0..pool.len())],
                _ => rng.random(),
            })
            .collect();
        let different: HashSet<Seed> = seeds.iter().copied().collect();
        let read = |take: &mut dyn FnMut(&[Seed])| {
            seeds.chunks(7).for_each(take);
            Ok(())
        };
        for memory in [0, 700, 16_000, u64::MAX] {
            let n = if memory == 0 { 40 } else { 1_000 };
            let duplicates = DuplicateSeeds::find(n, memory, &read).unwrap();
            assert_eq!(
                duplicates.excluded() as usize,
                seeds.len() - different.len()
            );
            for _ in 0..2 {
                let mut dedup = duplicates.dedup();
                let mut counted = Vec::new();
                for chunk in seeds.chunks(64) {
                    counted.extend_from_slice(dedup.retain_new(chunk));
                }
                assert_eq!(counted.len(), different.len());
                assert_eq!(counted.into_iter().collect::<HashSet<_>>(), different);
            }
        }
    }
}
