//! Payloads that are seeds: stored as they came, added up when an estimate asks.
//!
//! A commit appends its seeds as one row: no sum is read, changed or rewritten, so taking reports costs
//! the same at every dimension. Rows are never changed, so that everything below a commit's number is
//! one moment however long it takes to read. A seed that came more than once is [counted once](super::repeated).

use std::{cell::RefCell, ops::ControlFlow};

use eigenveil_estimation::{
    accumulate::{Accumulator, SeedSum},
    large::SeedSource,
};
use eigenveil_shared::{
    Error, ErrorCode, Result,
    mechanism::double_cap::{SEED_LEN, Seed},
    packed::packed_len,
};
use rusqlite::{Connection, Transaction, params};

use super::{
    failure::Failure,
    repeated::{Once, Repeated},
    study::Study,
};

/// Seeds added between two questions whether anybody still wants the sum: one block of [`SeedSum`].
const BLOCK: usize = 256;
/// Seeds held in memory at once (1 MiB), or those of one commit where it has more.
const PIECE: usize = 1 << 16;

/// Bytes that adding up takes at most: the sums of all buckets, one of them still a full square.
pub(super) fn bytes_needed(p: usize, buckets: u32) -> u64 {
    let square = 8 * (p as u64) * (p as u64);
    square.saturating_add(u64::from(buckets).saturating_mul(8 * packed_len(p) as u64))
}

/// Appends the seeds of a commit to its bucket.
///
/// They are sorted, so that within a commit nothing says which report each came with.
pub(super) fn append(
    transaction: &Transaction<'_>,
    study: &Study,
    bucket: u32,
    commit_seq: u64,
    seeds: &mut [Seed],
) -> Result<(), Failure> {
    seeds.sort_unstable();
    insert(
        transaction,
        study.row,
        bucket,
        commit_seq,
        seeds.as_flattened(),
    )
}

/// Appends seeds of an import as they come, some to a commit; how many commits they make.
pub(super) fn append_run(
    transaction: &Transaction<'_>,
    study_row: i64,
    bucket: u32,
    first_commit: u64,
    seeds: &[u8],
) -> Result<u64, Failure> {
    let mut commits = 0;
    for piece in seeds.chunks(PIECE * SEED_LEN) {
        insert(
            transaction,
            study_row,
            bucket,
            first_commit + commits,
            piece,
        )?;
        commits += 1;
    }
    Ok(commits)
}

fn insert(
    transaction: &Transaction<'_>,
    study_row: i64,
    bucket: u32,
    commit_seq: u64,
    seeds: &[u8],
) -> Result<(), Failure> {
    let n = (seeds.len() / SEED_LEN) as u64;
    transaction
        .prepare_cached(
            "INSERT INTO seeds (study, bucket, commit_seq, n, seeds) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![study_row, bucket, commit_seq, n, seeds])?;
    Ok(())
}

/// Sums that the buckets are divided among, where `fit` of them fit: one each, or bucket b in that of b mod so many. Even then, so
/// that buckets of even and of odd number stay apart, as the check of the rows needs them.
fn groups(fit: u32, buckets: u32) -> u32 {
    match fit.min(buckets) {
        all if all == buckets => all,
        one @ (0 | 1) => one,
        some => some - some % 2,
    }
}

/// How many sums fit, one of them still a full square: at least one, whose memory is checked when it is made.
fn sums_within(memory_bytes: u64, p: usize) -> u32 {
    let one = 8 * packed_len(p).max(1) as u64;
    let fit = memory_bytes.saturating_sub(bytes_needed(p, 0)) / one;
    u32::try_from(fit).unwrap_or(u32::MAX).max(1)
}

/// Hands over the seeds of a bucket's commits before `end` in pieces; false when `take` had enough.
fn read_bucket(
    connection: &Connection,
    study: &Study,
    bucket: u32,
    end: u64,
    take: &mut dyn FnMut(&[Seed]) -> Result<bool, Failure>,
) -> Result<bool, Failure> {
    let mut seeds = Vec::new();
    let mut from = 0;
    while let Some(next) = read_piece(connection, study, bucket, from..end, &mut seeds)? {
        if !take(&seeds)? {
            return Ok(false);
        }
        from = next;
    }
    Ok(true)
}

/// The seeds a study had at one moment, to be read as often as needed; each once, however often it came.
pub struct StoredSeeds<'a> {
    /// Of its own: reading must not hold up everybody else.
    connection: RefCell<Connection>,
    study: &'a Study,
    end: u64,
    stored: u64,
    repeated: Repeated,
}

impl<'a> StoredSeeds<'a> {
    /// Those of every commit before `end`, `stored` in all; `None` when `cancel` says so. Takes up to `memory_bytes` to
    /// find those that came more than once.
    pub(super) fn new(
        connection: Connection,
        study: &'a Study,
        end: u64,
        stored: u64,
        memory_bytes: u64,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Option<Self>, Failure> {
        let read = |take: &mut dyn FnMut(&[Seed])| {
            for bucket in 0..study.buckets() {
                let whole = read_bucket(&connection, study, bucket, end, &mut |seeds| {
                    take(seeds);
                    Ok(!cancel())
                })?;
                if !whole {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        let Some(repeated) = Repeated::find(stored, memory_bytes, &read)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            connection: RefCell::new(connection),
            study,
            end,
            stored,
            repeated,
        }))
    }

    /// How many there are, each counted once.
    pub fn count(&self) -> u64 {
        self.stored.saturating_sub(self.repeated())
    }

    /// Reports that are stored but not counted, since another one with their seed is.
    pub fn repeated(&self) -> u64 {
        self.repeated.left_out()
    }

    /// Reports stored.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Adds them up; `None` when `cancel` says so. A sum a bucket, or as many sums of several buckets as `memory_bytes`
    /// holds, with the number of the first of them.
    pub(super) fn sums(
        &self,
        memory_bytes: u64,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<(u32, Accumulator)>>, Failure> {
        let p = self.study.params().report_dimension();
        let groups = groups(sums_within(memory_bytes, p), self.study.buckets());
        let mut once = self.repeated.filter();
        let mut sums = Vec::new();
        for group in 0..groups {
            let mut sum: Option<SeedSum> = None;
            let mut take = |seeds: &[Seed]| -> Result<bool, Failure> {
                let sum = match &mut sum {
                    Some(sum) => sum,
                    none => {
                        check_memory(
                            &format!("adding up reports of dimension {p}"),
                            bytes_needed(p, 1),
                            memory_bytes,
                        )?;
                        none.insert(SeedSum::new(p)?)
                    }
                };
                for block in seeds.chunks(BLOCK) {
                    if cancel() {
                        return Ok(false);
                    }
                    for seed in block {
                        sum.add(seed);
                    }
                }
                Ok(true)
            };
            for bucket in (group..self.study.buckets()).step_by(groups as usize) {
                if !self.read(bucket, &mut once, &mut take)? {
                    return Ok(None);
                }
            }
            if let Some(sum) = sum {
                sums.push((group, sum.finish()?));
            }
        }
        Ok(Some(sums))
    }

    /// Hands over the seeds of a bucket that `once` lets through, where there are any; false when `take` had enough.
    fn read(
        &self,
        bucket: u32,
        once: &mut Once<'_>,
        take: &mut dyn FnMut(&[Seed]) -> Result<bool, Failure>,
    ) -> Result<bool, Failure> {
        let connection = self.connection.borrow();
        read_bucket(
            &connection,
            self.study,
            bucket,
            self.end,
            &mut |seeds| match once.keep(seeds) {
                [] => Ok(true),
                seeds => take(seeds),
            },
        )
    }
}

impl SeedSource for StoredSeeds<'_> {
    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> ControlFlow<()>) -> Result<()> {
        let mut once = self.repeated.filter();
        let mut read = 0;
        for bucket in 0..self.study.buckets() {
            let mut piece = |seeds: &[Seed]| {
                read += seeds.len() as u64;
                Ok(take(bucket, seeds).is_continue())
            };
            let on = self
                .read(bucket, &mut once, &mut piece)
                .map_err(Failure::into_error)?;
            if !on {
                return Ok(());
            }
        }
        if read != self.count() {
            return Err(Failure::damaged(format!(
                "{} different seeds were found and then {read} read",
                self.count()
            ))
            .into_error());
        }
        Ok(())
    }
}

/// Reads seeds of whole commits, and says where to go on; `None` when there are no more.
///
/// The statement ends with the piece: a transaction as long as an estimate would let the write-ahead
/// log grow all the while.
fn read_piece(
    connection: &Connection,
    study: &Study,
    bucket: u32,
    commits: std::ops::Range<u64>,
    seeds: &mut Vec<Seed>,
) -> Result<Option<u64>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT commit_seq, n, seeds FROM seeds
         WHERE study = ? AND bucket = ? AND commit_seq >= ? AND commit_seq < ? ORDER BY commit_seq",
    )?;
    let mut rows = statement.query(params![study.row, bucket, commits.start, commits.end])?;
    seeds.clear();
    let mut next = None;
    while seeds.len() < PIECE
        && let Some(row) = rows.next()?
    {
        let (commit_seq, n): (u64, u64) = (row.get(0)?, row.get(1)?);
        let bytes = row.get_ref(2)?.as_blob().map_err(Failure::damaged)?;
        let (whole, rest) = bytes.as_chunks::<SEED_LEN>();
        if whole.len() as u64 != n || !rest.is_empty() {
            return Err(Failure::damaged(format!(
                "a commit has {} bytes of seeds but {n} reports",
                bytes.len()
            )));
        }
        seeds.extend_from_slice(whole);
        next = Some(commit_seq + 1);
    }
    Ok(next)
}

/// Whether `memory_bytes` allows `what`.
pub(super) fn check_memory(what: &str, needed: u64, limit: u64) -> Result<()> {
    if needed <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::EstimateFailed,
        format!(
            "{what} needs {needed} bytes and memory_bytes is {limit}; the reports are safe: restart the server with memory_bytes of {needed} or more and ask again"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_is_said_with_a_way_out() {
        assert_eq!(bytes_needed(3, 2), 8 * (9 + 2 * 6));
        check_memory("adding up", 168, 168).unwrap();
        let needed = bytes_needed(65_536, 1);
        let error = check_memory("dimension 65536", needed, 1 << 30).unwrap_err();
        assert_eq!(error.code(), ErrorCode::EstimateFailed);
        for word in ["51539869696", "1073741824", "memory_bytes", "65536"] {
            assert!(error.detail().contains(word), "{error}");
        }
        assert_eq!((sums_within(167, 3), sums_within(168, 3)), (1, 2));
        assert_eq!(sums_within(0, 3), 1);
        let divided = [(1, 32), (2, 32), (5, 32), (31, 32), (40, 32), (40, 5)];
        let into = divided.map(|(fit, buckets)| groups(fit, buckets));
        assert_eq!(into, [1, 2, 4, 30, 32, 5]);
    }
}
