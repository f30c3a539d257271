//! Bucket sums: which bucket a commit goes to, how a sum is stored, and which sums are cached.

use std::collections::HashMap;

use eigenveil_estimation::accumulate::Accumulator;
use eigenveil_shared::{Result, packed::packed_len};
use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest as _, Sha256};

use super::checksum::{checksum, verify};
use crate::{
    contract::{
        failure::Failure,
        study::{Study, StudyKey},
        sums::decode_sum,
    },
    environment::Entropy,
};

/// Decides which bucket a commit goes to: a hash under a key of this process, so that buckets are exchangeable and
/// nobody who counts commits can predict, let alone choose, the next bucket. The key is not stored; the bucket is, with
/// the commit.
pub(crate) struct BucketKey([u8; 32]);

impl BucketKey {
    pub(crate) fn draw(entropy: &dyn Entropy) -> Result<Self> {
        let mut key = [0; 32];
        entropy.fill(&mut key)?;
        Ok(Self(key))
    }

    /// The bucket of the commit with this sequence number.
    fn bucket_of(&self, study_pk: StudyKey, commit_seq: u64, buckets: u32) -> u32 {
        let hash: [u8; 32] = Sha256::new()
            .chain_update(self.0)
            .chain_update(study_pk.0.to_le_bytes())
            .chain_update(commit_seq.to_le_bytes())
            .finalize()
            .into();
        let [a, b, c, d, ..] = hash;
        // 2³² values modulo at most 32 buckets: even to one part in 10⁸.
        u32::from_le_bytes([a, b, c, d]) % buckets.max(1)
    }
}

/// Sums cached in memory, so that a commit need not read what it adds to.
///
/// A sum is taken out while a transaction changes it and put back after the commit, so that the changes of a failed
/// transaction are discarded with it.
pub(crate) struct BucketCache {
    key: BucketKey,
    limit: u64,
    used: u64,
    turn: u64,
    sums: HashMap<(StudyKey, u32), (Accumulator, u64)>,
    bytes: Vec<u8>,
}

impl BucketCache {
    pub(crate) fn new(limit: u64, key: BucketKey) -> Self {
        Self {
            key,
            limit,
            used: 0,
            turn: 0,
            sums: HashMap::new(),
            bytes: Vec::new(),
        }
    }

    pub(crate) fn bucket_of(&self, study: &Study, commit_seq: u64) -> u32 {
        self.key.bucket_of(study.key, commit_seq, study.buckets())
    }

    pub(crate) fn take_sum(
        &mut self,
        connection: &Connection,
        study: &Study,
        bucket: u32,
    ) -> Result<Accumulator, Failure> {
        if let Some((sums, _)) = self.sums.remove(&(study.key, bucket)) {
            self.used -= size_of_sum(&sums);
            return Ok(sums);
        }
        read_sum(connection, study, bucket)
    }

    pub(crate) fn write(
        &mut self,
        connection: &Connection,
        study: &Study,
        bucket: u32,
        sums: &Accumulator,
    ) -> Result<(), Failure> {
        write_sum(connection, study, bucket, sums, &mut self.bytes)
    }

    /// Evicts a study whose stored sums were changed by an import, or deleted.
    pub(crate) fn evict(&mut self, study_pk: StudyKey) {
        self.sums.retain(|(row, _), _| *row != study_pk);
        self.used = self.sums.values().map(|(sums, _)| size_of_sum(sums)).sum();
    }

    /// Puts a committed sum back, evicting the least recently used ones.
    pub(crate) fn put(&mut self, study: &Study, bucket: u32, sums: Accumulator) {
        let size = size_of_sum(&sums);
        while self.used.saturating_add(size) > self.limit {
            let Some(oldest) = self
                .sums
                .iter()
                .min_by_key(|(_, (_, turn))| *turn)
                .map(|(key, _)| *key)
            else {
                return;
            };
            if let Some((evicted, _)) = self.sums.remove(&oldest) {
                self.used -= size_of_sum(&evicted);
            }
        }
        self.turn += 1;
        self.used += size;
        self.sums.insert((study.key, bucket), (sums, self.turn));
    }
}

fn size_of_sum(sums: &Accumulator) -> u64 {
    8 * packed_len(sums.dimension()) as u64
}

/// The stored sum of a bucket; zero for a bucket without reports.
pub(crate) fn read_sum(
    connection: &Connection,
    study: &Study,
    bucket: u32,
) -> Result<Accumulator, Failure> {
    let p = study.params().sum_dimension();
    let stored: Option<(u64, Vec<u8>, [u8; 8])> = connection
        .prepare_cached("SELECT n, sum, checksum FROM buckets WHERE study_pk = ? AND bucket = ?")?
        .query_row(params![study.key, bucket], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((n, sum, stored)) = stored else {
        return Ok(Accumulator::new(p)?);
    };
    verify(study.key, bucket, n, &sum, stored)?;
    decode_sum(p, n, &sum)
}

/// Stores the sum of a bucket; `bytes` is a scratch buffer.
pub(crate) fn write_sum(
    connection: &Connection,
    study: &Study,
    bucket: u32,
    sums: &Accumulator,
    bytes: &mut Vec<u8>,
) -> Result<(), Failure> {
    bytes.clear();
    let entries = sums.sum().as_slice().iter();
    bytes.extend(entries.flat_map(|entry| entry.to_le_bytes()));
    connection
        .prepare_cached(
            "INSERT INTO buckets (study_pk, bucket, n, sum, checksum) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (study_pk, bucket)
             DO UPDATE SET n = excluded.n, sum = excluded.sum, checksum = excluded.checksum",
        )?
        .execute(params![
            study.key,
            bucket,
            sums.count(),
            *bytes,
            checksum(study.key, bucket, sums.count(), bytes)
        ])?;
    Ok(())
}

pub(crate) fn read_sums(
    connection: &Connection,
    study: &Study,
) -> Result<Vec<(u32, Accumulator)>, Failure> {
    let p = study.params().sum_dimension();
    let mut statement = connection.prepare(
        "SELECT bucket, n, sum, checksum FROM buckets WHERE study_pk = ? ORDER BY bucket",
    )?;
    let mut rows = statement.query([study.key])?;
    let mut sums = Vec::new();
    while let Some(row) = rows.next()? {
        let sum = row.get_ref(2)?.as_blob().map_err(Failure::damaged)?;
        let (bucket, n) = (row.get(0)?, row.get(1)?);
        verify(study.key, bucket, n, sum, row.get(3)?)?;
        sums.push((bucket, decode_sum(p, n, sum)?));
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::Cancel;
    use serde_json::json;

    use super::*;
    use crate::{
        Store,
        config::StoreConfig,
        environment::Environment,
        testing::fixtures::{create, report},
    };

    #[test]
    fn commits_spread_evenly_and_depend_on_key_and_study() {
        let key = BucketKey([7; 32]);
        let mut counts = [0_u32; 32];
        for commit in 0..32_000 {
            counts[key.bucket_of(StudyKey(1), commit, 32) as usize] += 1;
        }
        // Expected 1,000 each; six standard deviations are 187.
        assert!(
            counts.iter().all(|&c| (813..1_187).contains(&c)),
            "{counts:?}"
        );
        assert!((0..100).all(|commit| key.bucket_of(StudyKey(1), commit, 1) == 0));
        let same = |other: &BucketKey, row| {
            let pairs = (0..32_000).map(|n| {
                (
                    key.bucket_of(StudyKey(1), n, 32),
                    other.bucket_of(StudyKey(row), n, 32),
                )
            });
            pairs.filter(|(a, b)| a == b).count()
        };
        // As many as expected by chance.
        assert!((813..1_187).contains(&same(&BucketKey([8; 32]), 1)));
        assert!((813..1_187).contains(&same(&key, 2)));
    }

    /// Counting a study's commits reveals nothing about its buckets.
    #[tokio::test]
    async fn two_servers_put_the_same_commits_into_different_buckets() {
        let mut filled = Vec::new();
        for _ in 0..2 {
            let directory = tempfile::tempdir().unwrap();
            let config = StoreConfig::new(directory.path().join("data"));
            let store = Store::open(&config, Environment::system()).unwrap();
            let study = create(&store, &json!({})).await;
            for number in 0..64 {
                let report = report(&study, number);
                store.submit(&study, vec![report]).await.unwrap();
            }
            let counts = |(bucket, sums): &(u32, Accumulator)| (*bucket, sums.count());
            let sums = store.bucket_sums(&study, Cancel::NEVER).unwrap();
            filled.push(sums.buckets.iter().map(counts).collect::<Vec<_>>());
        }
        // By chance less than once in 10¹⁰ runs.
        assert_ne!(filled[0], filled[1]);
    }
}
