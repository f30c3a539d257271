//! Bucket sums: which bucket a commit goes to, how a sum is stored, and which sums are in memory.

use std::collections::HashMap;

use eigenveil_estimation::accumulate::Accumulator;
use eigenveil_shared::packed::{PackedSymmetric, packed_len};
use rusqlite::{Connection, OptionalExtension, params};

use super::{Failure, study::Study};

/// The bucket of a study's commit with this sequence number: a hash (splitmix64), so that buckets are
/// exchangeable and no client can choose one.
pub(super) fn bucket_of(commit_seq: u64, buckets: u32) -> u32 {
    let mut z = commit_seq.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    u32::try_from(z % u64::from(buckets.max(1))).unwrap_or(0)
}

/// Sums kept in memory, so that a commit need not read what it adds to.
///
/// A sum is taken out while a transaction changes it and put back after the commit: whatever a failed
/// transaction did is gone with it.
pub(super) struct BucketCache {
    limit: u64,
    used: u64,
    turn: u64,
    sums: HashMap<(i64, u32), (Accumulator, u64)>,
    bytes: Vec<u8>,
}

impl BucketCache {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: 0,
            turn: 0,
            sums: HashMap::new(),
            bytes: Vec::new(),
        }
    }

    /// Takes a bucket's sum out of the cache, or reads it.
    pub(super) fn take(
        &mut self,
        connection: &Connection,
        study: &Study,
        bucket: u32,
    ) -> Result<Accumulator, Failure> {
        if let Some((sums, _)) = self.sums.remove(&(study.row, bucket)) {
            self.used -= size_of_sum(&sums);
            return Ok(sums);
        }
        read_sum(connection, study, bucket)
    }

    /// Writes a bucket's sum within a transaction.
    pub(super) fn write(
        &mut self,
        connection: &Connection,
        study: &Study,
        bucket: u32,
        sums: &Accumulator,
    ) -> Result<(), Failure> {
        write_sum(connection, study, bucket, sums, &mut self.bytes)
    }

    /// Forgets a study: its sums were changed by somebody else, or are gone.
    pub(super) fn evict(&mut self, study_row: i64) {
        self.sums.retain(|(row, _), _| *row != study_row);
        self.used = self.sums.values().map(|(sums, _)| size_of_sum(sums)).sum();
    }

    /// Puts a committed sum back; the least recently used ones make room.
    pub(super) fn put(&mut self, study: &Study, bucket: u32, sums: Accumulator) {
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
        self.sums.insert((study.row, bucket), (sums, self.turn));
    }
}

fn size_of_sum(sums: &Accumulator) -> u64 {
    8 * packed_len(sums.dimension()) as u64
}

/// A bucket's sum as it is stored; an empty one where the bucket has no reports.
pub(super) fn read_sum(
    connection: &Connection,
    study: &Study,
    bucket: u32,
) -> Result<Accumulator, Failure> {
    let p = study.params().report_dimension();
    let stored: Option<(u64, Vec<u8>)> = connection
        .prepare_cached("SELECT n, sum FROM buckets WHERE study = ? AND bucket = ?")?
        .query_row(params![study.row, bucket], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    match stored {
        Some((n, sum)) => decode_sum(p, n, &sum),
        None => Ok(Accumulator::new(p)?),
    }
}

/// Stores a bucket's sum; `bytes` is room to write it in.
pub(super) fn write_sum(
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
            "INSERT INTO buckets (study, bucket, n, sum) VALUES (?, ?, ?, ?)
             ON CONFLICT (study, bucket) DO UPDATE SET n = excluded.n, sum = excluded.sum",
        )?
        .execute(params![study.row, bucket, sums.count(), *bytes])?;
    Ok(())
}

/// The sums of a study's buckets, by bucket number.
pub(super) fn read_sums(
    connection: &Connection,
    study: &Study,
) -> Result<Vec<(u32, Accumulator)>, Failure> {
    let p = study.params().report_dimension();
    let mut statement =
        connection.prepare("SELECT bucket, n, sum FROM buckets WHERE study = ? ORDER BY bucket")?;
    let mut rows = statement.query([study.row])?;
    let mut sums = Vec::new();
    while let Some(row) = rows.next()? {
        let sum = row.get_ref(2)?.as_blob().map_err(Failure::damaged)?;
        sums.push((row.get(0)?, decode_sum(p, row.get(1)?, sum)?));
    }
    Ok(sums)
}

/// The sum of `n` reports from its stored bytes.
pub(super) fn decode_sum(p: usize, n: u64, bytes: &[u8]) -> Result<Accumulator, Failure> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let entries: Vec<f64> = numbers.iter().map(|b| f64::from_le_bytes(*b)).collect();
    match PackedSymmetric::from_entries(p, entries) {
        Some(sum) if rest.is_empty() => {
            Accumulator::from_parts(sum, n).map_err(|error| Failure::damaged(error.detail()))
        }
        _ => Err(Failure::damaged(format!(
            "a stored sum has {} bytes but dimension {p} needs {}",
            bytes.len(),
            8 * packed_len(p)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_spread_evenly() {
        let mut counts = [0_u32; 32];
        for commit in 0..32_000 {
            counts[bucket_of(commit, 32) as usize] += 1;
        }
        // Expected 1,000 each; six standard deviations are 187.
        assert!(
            counts.iter().all(|&c| (813..1_187).contains(&c)),
            "{counts:?}"
        );
        assert!((0..100).all(|commit| bucket_of(commit, 1) == 0));
        // The reference generator's first output for seed 0 (Vigna, splitmix64.c).
        assert_eq!(
            bucket_of(0, u32::MAX),
            (0xe220_a839_7b1d_cdaf_u64 % u64::from(u32::MAX)) as u32
        );
    }

    #[test]
    fn sums_survive_their_bytes() {
        let entries = vec![1.5, -0.0, f64::MIN_POSITIVE / 4.0, 3.0, f64::MAX, -7.25];
        let bytes: Vec<u8> = entries.iter().flat_map(|x| x.to_le_bytes()).collect();
        let sums = decode_sum(3, 9, &bytes).unwrap();
        assert_eq!(sums.count(), 9);
        for (a, b) in sums.sum().as_slice().iter().zip(&entries) {
            assert_eq!(a.to_bits(), b.to_bits());
        }
        assert!(decode_sum(3, 9, &bytes[1..]).is_err());
        assert!(decode_sum(2, 9, &bytes).is_err());
    }
}
