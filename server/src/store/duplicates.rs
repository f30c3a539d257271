//! Seeds that came more than dedup: all are stored, each is counted dedup.
//!
//! Two honest devices send one seed with probability 2⁻¹²⁸. Whoever sends a chosen seed under many identifiers would
//! move an estimate by c/n a report, as far as one report can. It is found when an estimate reads the seeds, exactly and
//! whatever way they came (upload, import, merge, a restart between): no answer to an upload depends on which
//! seeds are stored, so that nobody learns from one whether a seed he saw was counted, and taking reports costs what it did.

use std::hash::{BuildHasher, RandomState};

use eigenveil_shared::mechanism::double_cap::{SEED_LEN, Seed};

use super::failure::Failure;

/// Hands over all seeds, chunk by chunk.
type SeedReader<'a> = dyn Fn(&mut dyn FnMut(&[Seed])) -> Result<(), Failure> + 'a;

/// The seeds of a study that came more than dedup.
#[derive(Debug, Default)]
pub(super) struct DuplicateSeeds {
    /// Ascending, each dedup.
    seeds: Vec<Seed>,
    excluded: u64,
}

impl DuplicateSeeds {
    /// Sorts the `n` seeds that `read` hands over, in as many parts, each with a reading of its own, as 16 bytes a seed
    /// need to stay within `sum_cache_bytes`.
    pub(super) fn find(
        n: u64,
        sum_cache_bytes: u64,
        read: &SeedReader<'_>,
    ) -> Result<Self, Failure> {
        let parts = n
            .saturating_mul(SEED_LEN as u64)
            .div_ceil(sum_cache_bytes.max(1))
            .max(1);
        // A key nobody knows: whoever chooses seeds cannot choose their part.
        let key = RandomState::new();
        let mut found = Self::default();
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
                found.seeds.push(equal[0]);
                found.excluded += equal.len() as u64 - 1;
            }
        }
        found.seeds.sort_unstable();
        Ok(found)
    }

    /// Reports that are not counted, since another one with their seed is.
    pub(super) fn excluded(&self) -> u64 {
        self.excluded
    }

    /// For one reading of all seeds in their order.
    pub(super) fn dedup(&self) -> SeedDedup<'_> {
        SeedDedup {
            repeated: &self.seeds,
            seen: vec![false; self.seeds.len()],
            kept: Vec::new(),
        }
    }
}

/// Lets every seed through dedup.
pub(super) struct SeedDedup<'a> {
    repeated: &'a [Seed],
    seen: Vec<bool>,
    kept: Vec<Seed>,
}

impl SeedDedup<'_> {
    /// Those of the next seeds that were not there before.
    pub(super) fn retain_new<'s>(&'s mut self, seeds: &'s [Seed]) -> &'s [Seed] {
        if self.repeated.is_empty() {
            return seeds;
        }
        let Self {
            repeated,
            seen,
            kept,
        } = self;
        kept.clear();
        kept.extend(seeds.iter().filter(|seed| {
            repeated
                .binary_search(seed)
                .map_or(true, |at| !std::mem::replace(&mut seen[at], true))
        }));
        kept
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::{RngExt, SeedableRng, rngs::ChaCha12Rng};

    use super::*;

    /// With memory for all seeds and for a few: every seed is let through dedup, in every pass.
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
            let found = DuplicateSeeds::find(n, memory, &read).unwrap();
            assert_eq!(found.excluded() as usize, seeds.len() - different.len());
            for _ in 0..2 {
                let mut dedup = found.dedup();
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
