//! A bounded part of the seeds, so that the check of a large study costs no more than that of a small one.

use std::hash::{BuildHasher, RandomState};

use eigenveil_shared::mechanism::double_cap::Seed;

/// Whether a bucket belongs to the half of the reports that gives the directions along which the other half is checked.
pub(crate) fn gives_directions(bucket: u32) -> bool {
    bucket.is_multiple_of(2)
}

/// Seeds of a bucket drawn at random, all while they are few; none of an even bucket, whose seeds give the directions of
/// the check. Chance decides only when a seed is looked at: nobody who sends one can know whether it will be taken, not
/// even from all that is stored. So the share of chosen ones is the same in the sample as in the bucket, up to chance.
#[derive(Clone, Debug)]
pub struct SeedSample {
    most: usize,
    /// Seeds looked at, if any are taken.
    seen: u64,
    seeds: Vec<Seed>,
    chance: RandomState,
}

impl SeedSample {
    /// Seeds of all samples of a study together, at most.
    pub const SEEDS: usize = 1 << 16;

    /// An empty sample, for one of so many buckets.
    pub fn new(bucket: u32, buckets: u32) -> Self {
        let odd = (buckets / 2).max(1) as usize;
        Self {
            most: match gives_directions(bucket) {
                true => 0,
                false => Self::SEEDS / odd,
            },
            seen: 0,
            seeds: Vec::new(),
            chance: RandomState::new(),
        }
    }

    /// The sample that was made of `seen` seeds; `None` if it had another number of them.
    pub fn restored(bucket: u32, buckets: u32, seen: u64, seeds: &[Seed]) -> Option<Self> {
        let empty = Self::new(bucket, buckets);
        let is_one = seeds.len() as u64 == seen.min(empty.most as u64);
        is_one.then(|| Self {
            seen,
            seeds: seeds.to_vec(),
            ..empty
        })
    }

    /// Looks at further seeds of the bucket: each of all that were looked at has the same chance to be in the sample.
    pub fn add(&mut self, seeds: &[Seed]) {
        if self.most == 0 {
            return;
        }
        for seed in seeds {
            self.seen += 1;
            if self.seeds.len() < self.most {
                self.seeds.push(*seed);
                continue;
            }
            // An index among all of them: the new one takes it if the sample has it (Vitter's algorithm R).
            let drawn = u128::from(self.chance.hash_one(self.seen)) * u128::from(self.seen);
            let index = usize::try_from(drawn >> 64).unwrap_or(usize::MAX);
            if let Some(taken) = self.seeds.get_mut(index) {
                *taken = *seed;
            }
        }
    }

    /// The seeds taken.
    pub fn seeds(&self) -> &[Seed] {
        &self.seeds
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Each seed has the same chance, whether it came early or late, before or after the sample was stored; all are taken
    /// while there is room; another sample has others.
    #[test]
    fn every_seed_has_the_same_chance() {
        let seeds: Vec<Seed> = (0..20_000_u32)
            .map(|number| {
                let mut seed = [0; 16];
                seed[..4].copy_from_slice(&number.to_le_bytes());
                seed
            })
            .collect();
        let sample = |restored_at: usize| -> HashSet<Seed> {
            let mut sample = SeedSample::new(3, 32);
            sample.add(&seeds[..restored_at]);
            let mut sample =
                SeedSample::restored(3, 32, restored_at as u64, sample.seeds()).unwrap();
            sample.add(&seeds[restored_at..]);
            sample.seeds().iter().copied().collect()
        };
        let one = sample(9_000);
        assert_eq!(one.len(), SeedSample::SEEDS / 16);
        for quarter in seeds.chunks(5_000) {
            // 1,024 with a standard deviation of 25.
            let taken = quarter.iter().filter(|seed| one.contains(*seed)).count();
            assert!((870..1_180).contains(&taken), "{taken}");
        }
        // By chance a fifth of it.
        let shared = one.intersection(&sample(100)).count();
        assert!((600..1_100).contains(&shared), "{shared}");

        let mut few = SeedSample::new(3, 32);
        few.add(&seeds[..4_096]);
        assert_eq!(few.seeds(), &seeds[..4_096]);
        assert!(SeedSample::restored(3, 32, 4_097, &seeds[..4_095]).is_none());
        let mut even = SeedSample::new(2, 32);
        even.add(&seeds);
        assert!(even.seeds().is_empty());
    }
}
