//! A bounded part of the seeds, so that the check of a large study costs no more than that of a small one.

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, DefaultHasher, Hasher, RandomState},
};

use eigenveil_shared::mechanism::double_cap::Seed;

/// Seeds of all samples of a study together.
const SEEDS: usize = 1 << 16;

/// Whether a bucket belongs to the half of the reports that gives the directions along which the other half is checked.
pub(crate) fn gives_directions(bucket: u32) -> bool {
    bucket.is_multiple_of(2)
}

/// The seeds of a bucket whose hashes under a secret key are smallest, each once; none of an even bucket, whose seeds
/// give the directions of the check. Whoever sends seeds cannot foresee which are taken: the share of chosen ones is the same in the
/// sample as in the bucket, up to chance. The key stays with the sample, so that two estimates look at the same seeds.
#[derive(Clone, Debug)]
pub struct SeedSample {
    key: u64,
    most: usize,
    seeds: BTreeSet<(u64, Seed)>,
}

impl SeedSample {
    /// An empty sample under a new key, for one of so many buckets.
    pub fn new(bucket: u32, buckets: u32) -> Self {
        Self::with_key(bucket, buckets, RandomState::new().hash_one(bucket))
    }

    /// An empty sample under this key.
    pub fn with_key(bucket: u32, buckets: u32, key: u64) -> Self {
        let odd = (buckets / 2).max(1) as usize;
        Self {
            key,
            most: match gives_directions(bucket) {
                true => 0,
                false => SEEDS / odd,
            },
            seeds: BTreeSet::new(),
        }
    }

    /// The key. Whoever knows it can choose seeds that are not taken.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Looks at further seeds of the bucket.
    pub fn add(&mut self, seeds: &[Seed]) {
        if self.most == 0 {
            return;
        }
        for seed in seeds {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.key);
            hasher.write(seed);
            let hash = hasher.finish();
            let is_full = self.seeds.len() == self.most;
            if is_full && self.seeds.last().is_some_and(|(last, _)| hash > *last) {
                continue;
            }
            self.seeds.insert((hash, *seed));
            if self.seeds.len() > self.most {
                self.seeds.pop_last();
            }
        }
    }

    /// The seeds taken, in no order that says anything.
    pub fn seeds(&self) -> impl Iterator<Item = &Seed> {
        self.seeds.iter().map(|(_, seed)| seed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// However the seeds come, the sample is the same; all of them while there is room; other ones under another key.
    #[test]
    fn a_sample_depends_on_its_key_and_the_set_of_seeds() {
        let seeds: Vec<Seed> = (0..20_000_u32)
            .map(|number| {
                let mut seed = [0; 16];
                seed[..4].copy_from_slice(&number.to_le_bytes());
                seed
            })
            .collect();
        let sample = |key, order: &[&[Seed]]| -> HashSet<Seed> {
            let mut sample = SeedSample::with_key(3, 32, key);
            order.iter().for_each(|some| sample.add(some));
            sample.seeds().copied().collect()
        };
        let one = sample(5, &[&seeds]);
        assert_eq!(one.len(), SEEDS / 16);
        let other = sample(5, &[&seeds[9_000..], &seeds[..12_000], &seeds[..100]]);
        assert_eq!(one, other);
        // By chance a fifth of it.
        let shared = one.intersection(&sample(6, &[&seeds])).count();
        assert!((600..1_100).contains(&shared), "{shared}");
        assert_eq!(sample(7, &[&seeds[..4_096]]).len(), 4_096);
        let mut even = SeedSample::new(2, 32);
        even.add(&seeds);
        assert_eq!(even.seeds().count(), 0);
        assert_ne!(even.key(), SeedSample::new(2, 32).key());
    }
}
