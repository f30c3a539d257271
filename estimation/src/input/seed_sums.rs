//! Sums of seeds, range by range on all threads: one per bucket, or as many as memory holds.

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use eigenveil_shared::{Error, Result, mechanism::double_cap::Seed, packed::packed_len};

use crate::{
    cancel::Cancel,
    input::accumulate::{Accumulator, SeedSum},
    linalg::Threads,
    sparse::from_seeds::SeedSource,
};

/// Seeds that a thread adds between two looks whether its sum is still wanted.
const BLOCK: usize = 256;
/// Longest time between two checks for cancellation.
const PAUSE: Duration = Duration::from_millis(5);

/// Maximum memory for adding up, in bytes: the sums of all buckets, and one in the making, which is a full square.
fn bytes_needed(p: usize, buckets: u32) -> u64 {
    square_bytes(p).saturating_add(u64::from(buckets).saturating_mul(8 * packed_len(p) as u64))
}

fn square_bytes(p: usize) -> u64 {
    8 * (p as u64) * (p as u64)
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

/// How many sums fit beside one in the making: at least one, whose memory is checked when it is made.
fn sums_within(sum_cache_bytes: u64, p: usize) -> u32 {
    let one = 8 * packed_len(p).max(1) as u64;
    let fit = sum_cache_bytes.saturating_sub(square_bytes(p)) / one;
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
/// `sum_cache_bytes`, each with the number of its first bucket. What the source has added up is not added up again.
/// Works on [`Threads::current`] threads as far as memory allows; one sum per bucket has the same bits on any number of
/// them.
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
    let mut sums: Vec<(u32, Accumulator)> = Vec::new();
    source.folded(cancel, &mut |bucket, kept| {
        merge_into(&mut sums, bucket % groups, kept)
    })?;
    let spare = sum_cache_bytes.saturating_sub(bytes_needed(p, groups));
    sum_ranges::<u32>(
        p,
        spare.saturating_add(square_bytes(p)),
        cancel,
        |add| {
            source.pass(&mut |bucket, seeds| {
                if seeds.is_empty() {
                    return Ok(());
                }
                let work = format!("adding up reports of dimension {p}");
                check_memory(&work, bytes_needed(p, 1), sum_cache_bytes)?;
                add(bucket % groups, seeds)
            })
        },
        |group, sum| merge_into(&mut sums, group, sum),
    )?;
    // All of a bucket may be repeated in others.
    sums.retain(|(_, sum)| sum.count() > 0);
    sums.sort_unstable_by_key(|(group, _)| *group);
    Ok(sums)
}

fn merge_into(sums: &mut Vec<(u32, Accumulator)>, group: u32, more: Accumulator) -> Result<()> {
    match sums.iter_mut().find(|(begun, _)| *begun == group) {
        Some((_, sum)) => sum.merge(&more),
        None => {
            sums.push((group, more));
            Ok(())
        }
    }
}

/// Adds up each range of seeds that `produce` hands over with a name for it, and hands the sums to `take` in the same
/// order. The ranges are shared out among [`Threads::current`] threads, or as many as 8p² bytes for each of two ranges
/// fit into `memory_bytes`: a sum depends on its range alone.
///
/// # Errors
/// Those of `produce` and `take`; `estimate-failed` when it was cancelled.
pub fn sum_ranges<K>(
    p: usize,
    memory_bytes: u64,
    cancel: Cancel<'_>,
    produce: impl FnOnce(&mut dyn FnMut(K, &[Seed]) -> Result<()>) -> Result<()>,
    take: impl FnMut(K, Accumulator) -> Result<()>,
) -> Result<()> {
    let threads = Threads::current().count();
    let fit = memory_bytes / square_bytes(p).max(1);
    let slots = usize::try_from(fit)
        .unwrap_or(usize::MAX)
        .clamp(1, 2 * threads);
    let is_over = AtomicBool::new(false);
    let (ranges, waiting) = channel();
    let (done, sums) = channel();
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(slots) {
            let (done, waiting, is_over) = (done.clone(), &waiting, &is_over);
            scope.spawn(move || work(p, waiting, &done, is_over));
        }
        drop(done);
        let mut line = Line {
            ranges,
            sums,
            cancel,
            slots,
            keys: VecDeque::new(),
            next: 0,
            early: BTreeMap::new(),
            take,
        };
        let produced = produce(&mut |key, seeds| line.put(key, seeds));
        let ended = produced.and_then(|()| line.end());
        is_over.store(true, Ordering::Relaxed);
        ended
    })
}

/// A sum, or the panic of its thread.
type Summed = std::result::Result<Result<Accumulator>, Box<dyn Any + Send>>;

/// Adds up ranges until there are no more.
fn work(
    p: usize,
    waiting: &Mutex<Receiver<(u64, Vec<Seed>)>>,
    done: &Sender<(u64, Summed)>,
    is_over: &AtomicBool,
) {
    loop {
        let next = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok((number, seeds)) = next else { return };
        let sum = catch_unwind(AssertUnwindSafe(|| sum_of(p, &seeds, is_over)));
        if done.send((number, sum)).is_err() {
            return;
        }
    }
}

fn sum_of(p: usize, seeds: &[Seed], is_over: &AtomicBool) -> Result<Accumulator> {
    let mut sum = SeedSum::new(p)?;
    for block in seeds.chunks(BLOCK) {
        if is_over.load(Ordering::Relaxed) {
            return Err(Error::estimate_failed("nobody waits for this sum"));
        }
        block.iter().for_each(|seed| sum.add(seed));
    }
    sum.finish()
}

/// Ranges on their way to the threads, and their sums on the way back into order.
struct Line<'a, K, T> {
    ranges: Sender<(u64, Vec<Seed>)>,
    sums: Receiver<(u64, Summed)>,
    cancel: Cancel<'a>,
    /// Ranges under way at most.
    slots: usize,
    /// Names of those under way.
    keys: VecDeque<K>,
    /// Number of the first of them.
    next: u64,
    /// Sums that wait for earlier ones.
    early: BTreeMap<u64, Accumulator>,
    take: T,
}

impl<K, T: FnMut(K, Accumulator) -> Result<()>> Line<'_, K, T> {
    fn put(&mut self, key: K, seeds: &[Seed]) -> Result<()> {
        self.cancel.check()?;
        while self.keys.len() >= self.slots {
            self.receive()?;
        }
        let number = self.next + self.keys.len() as u64;
        self.keys.push_back(key);
        let sent = self.ranges.send((number, seeds.to_vec()));
        sent.map_err(|_| Error::estimate_failed("the threads have ended"))
    }

    fn end(&mut self) -> Result<()> {
        while !self.keys.is_empty() {
            self.receive()?;
        }
        Ok(())
    }

    /// Waits for a sum, and hands on those whose turn it is.
    fn receive(&mut self) -> Result<()> {
        let (number, sum) = loop {
            match self.sums.recv_timeout(PAUSE) {
                Ok(sum) => break sum,
                Err(RecvTimeoutError::Timeout) => self.cancel.check()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::estimate_failed("the threads have ended"));
                }
            }
        };
        let sum = sum.unwrap_or_else(|panic| resume_unwind(panic))?;
        self.early.insert(number, sum);
        while let Some(sum) = self.early.remove(&self.next)
            && let Some(key) = self.keys.pop_front()
        {
            self.next += 1;
            (self.take)(key, sum)?;
        }
        Ok(())
    }
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

    /// A bucket's sum is that of its ranges, one after the other, in the same bits on any number of threads and in any
    /// memory that holds it.
    #[test]
    fn sums_have_the_same_bits_on_any_number_of_threads() {
        struct Ranges(Vec<(u32, Vec<Seed>)>);
        impl SeedSource for Ranges {
            fn buckets(&self) -> u32 {
                3
            }

            fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
                self.0
                    .iter()
                    .try_for_each(|(bucket, seeds)| take(*bucket, seeds))
            }
        }
        let p = 12;
        let range = |number: u32| -> Vec<Seed> {
            let seed = |i: u32| [number.to_le_bytes(), i.to_le_bytes(), [7; 4], [9; 4]].concat();
            let seeds = (0..700 + 100 * (number % 5)).map(seed);
            seeds.map(|seed| seed.try_into().unwrap()).collect()
        };
        let source = Ranges((0..30).map(|i| (i / 10, range(i))).collect());
        let mut wanted: Vec<(u32, Accumulator)> = Vec::new();
        for (bucket, seeds) in &source.0 {
            let mut sum = SeedSum::new(p).unwrap();
            seeds.iter().for_each(|seed| sum.add(seed));
            merge_into(&mut wanted, *bucket, sum.finish().unwrap()).unwrap();
        }
        for threads in [1, 2, 7] {
            for memory in [bytes_needed(p, 3), u64::MAX] {
                let sums = Threads::new(threads)
                    .unwrap()
                    .run(|| sums_of_seeds(&source, p, memory, Cancel::NEVER).unwrap());
                assert_eq!(sums, wanted, "{threads} threads");
            }
        }
        let cancelled = sums_of_seeds(&source, p, u64::MAX, Cancel::when(&|| true));
        assert_eq!(cancelled.unwrap_err().code(), ErrorCode::EstimateFailed);
    }
}
