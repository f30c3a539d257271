//! Sums of seeds: one per bucket, or as many as memory holds.

use eigenveil_shared::{Error, Result, packed::packed_len};

use crate::{
    cancel::Cancel,
    input::accumulate::{Accumulator, SeedSum},
    sparse::from_seeds::SeedSource,
};

/// Seeds added between two checks for cancellation: one block of [`SeedSum`].
const BLOCK: usize = 256;

/// Maximum memory for adding up, in bytes: the sums of all buckets, one of them still stored as a full square.
fn bytes_needed(p: usize, buckets: u32) -> u64 {
    let square = 8 * (p as u64) * (p as u64);
    square.saturating_add(u64::from(buckets).saturating_mul(8 * packed_len(p) as u64))
}

/// Number of sums if `fit` of them fit into memory: one per bucket, or fewer, with bucket b in sum b mod their number.
/// It is then even, so that even and odd buckets stay separate, as the feasibility check requires.
fn groups(fit: u32, buckets: u32) -> u32 {
    match fit.min(buckets) {
        all if all == buckets => all,
        one @ (0 | 1) => one,
        some => some - some % 2,
    }
}

/// How many sums fit, one of them still a full square: at least one, whose memory is checked when it is made.
fn sums_within(sum_cache_bytes: u64, p: usize) -> u32 {
    let one = 8 * packed_len(p).max(1) as u64;
    let fit = sum_cache_bytes.saturating_sub(bytes_needed(p, 0)) / one;
    u32::try_from(fit).unwrap_or(u32::MAX).max(1)
}

pub(crate) fn check_memory(what: &str, needed: u64, limit: u64) -> Result<()> {
    if needed <= limit {
        return Ok(());
    }
    Err(Error::estimate_failed(format!(
        "{what} needs {needed} bytes and sum_cache_bytes is {limit}; the reports are safe: restart the server with sum_cache_bytes of {needed} or more and request the estimate again"
    )))
}

/// The sums of these seeds in dimension p: one per bucket, or as many sums of several buckets as fit into
/// `sum_cache_bytes`, each with the number of its first bucket. What the source has added up is not added up again. Works
/// on this thread; `cancel` is checked once every 256 seeds.
///
/// # Errors
/// Those of the source; `estimate-failed` when a single sum needs more than `sum_cache_bytes`, or when it was cancelled.
pub fn sums_of_seeds(
    source: &dyn SeedSource,
    p: usize,
    sum_cache_bytes: u64,
    cancel: Cancel<'_>,
) -> Result<Vec<(u32, Accumulator)>> {
    let buckets = source.buckets();
    let groups = groups(sums_within(sum_cache_bytes, p), buckets).max(1);
    let mut sums = Vec::new();
    // Buckets come one after another: if each has its own sum, a single pass computes all sums.
    let passes = if groups == buckets { 1 } else { groups };
    for pass in 0..passes {
        let mut sum: Option<(u32, SeedSum)> = None;
        source.pass_unfolded(&mut |bucket, seeds| {
            let group = bucket % groups;
            if group % passes != pass || seeds.is_empty() {
                return Ok(());
            }
            if let Some((whole, done)) = sum.take_if(|(begun, _)| *begun != group) {
                sums.push((whole, done.finish()?));
            }
            let (_, sum) = match &mut sum {
                Some(sum) => sum,
                none => {
                    let work = format!("adding up reports of dimension {p}");
                    check_memory(&work, bytes_needed(p, 1), sum_cache_bytes)?;
                    none.insert((group, SeedSum::new(p)?))
                }
            };
            for block in seeds.chunks(BLOCK) {
                cancel.check()?;
                for seed in block {
                    sum.add(seed);
                }
            }
            Ok(())
        })?;
        if let Some((group, sum)) = sum {
            sums.push((group, sum.finish()?));
        }
    }
    // Now that no full square is in memory.
    source.folded(cancel, &mut |bucket, kept| {
        let group = bucket % groups;
        match sums.iter_mut().find(|(begun, _)| *begun == group) {
            Some((_, sum)) => sum.merge(&kept),
            None => {
                sums.push((group, kept));
                Ok(())
            }
        }
    })?;
    // All of a bucket may be repeated in others.
    sums.retain(|(_, sum)| sum.count() > 0);
    sums.sort_unstable_by_key(|(group, _)| *group);
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    #[test]
    fn too_little_memory_is_an_error_with_a_way_out() {
        assert_eq!(bytes_needed(3, 2), 8 * (9 + 2 * 6));
        check_memory("adding up", 168, 168).unwrap();
        let needed = bytes_needed(65_536, 1);
        let error = check_memory("dimension 65536", needed, 1 << 30).unwrap_err();
        assert_eq!(error.code(), ErrorCode::EstimateFailed);
        for word in ["51539869696", "1073741824", "sum_cache_bytes", "65536"] {
            assert!(error.detail().contains(word), "{error}");
        }
        assert_eq!((sums_within(167, 3), sums_within(168, 3)), (1, 2));
        assert_eq!(sums_within(0, 3), 1);
        let divided = [(1, 32), (2, 32), (5, 32), (31, 32), (40, 32), (40, 5)];
        let into = divided.map(|(fit, buckets)| groups(fit, buckets));
        assert_eq!(into, [1, 2, 4, 30, 32, 5]);
    }
}
