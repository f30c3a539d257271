//! Payloads that are seeds: stored as received, added up for an estimate.
//!
//! A commit appends its seeds as one row: no sum is read, changed or rewritten, so the cost of a report does not depend
//! on the dimension. Rows do not change while somebody reads any, so that all commits below a number are a snapshot,
//! however long it takes to read. Duplicate seeds are [counted once](crate::contract::duplicates).

use std::{
    cell::RefCell,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use eigenveil_estimation::{Cancel, sparse_from_seeds::SeedSource};
use eigenveil_shared::{
    Result,
    mechanism::double_cap::{SEED_LEN, Seed},
};
use rusqlite::{Connection, Transaction, params};

use super::checksum::{checksum, verify};
use crate::{
    contract::{
        duplicates::DuplicateSeeds,
        failure::Failure,
        study::{Study, StudyKey},
    },
    sqlite::health::Health,
};

type BucketSeedsSink<'a> = dyn FnMut(u32, &[Seed]) -> Result<(), Failure> + 'a;

/// Seeds in memory at once (1 MiB), or those of one larger commit.
const CHUNK_SEEDS: usize = 1 << 16;

/// Appends the seeds of a commit to its bucket.
///
/// Sorted, so that within a commit nothing shows which seed came with which report.
pub(crate) fn append(
    transaction: &Transaction<'_>,
    study: &Study,
    bucket: u32,
    commit_seq: u64,
    seeds: &mut [Seed],
) -> Result<(), Failure> {
    seeds.sort_unstable();
    insert(
        transaction,
        study.key,
        bucket,
        commit_seq,
        seeds.as_flattened(),
    )
}

/// Appends the seeds of an import as several commits; returns their number.
pub(crate) fn append_chunks(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
    first_commit: u64,
    seeds: &[u8],
) -> Result<u64, Failure> {
    let mut commits = 0;
    for chunk in seeds.chunks(CHUNK_SEEDS * SEED_LEN) {
        insert(transaction, study_pk, bucket, first_commit + commits, chunk)?;
        commits += 1;
    }
    Ok(commits)
}

/// Replaces the rows of these commits by the same seeds in another order, in as few rows, numbered from `first` on.
/// Returns the next number.
pub(crate) fn replace(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
    commits: Range<u64>,
    first: u64,
    seeds: &[Seed],
) -> Result<u64, Failure> {
    let removed = transaction.execute(
        "DELETE FROM seeds WHERE study_pk = ? AND bucket = ? AND commit_seq >= ? AND commit_seq < ?",
        params![study_pk, bucket, commits.start, commits.end],
    )?;
    // No more rows than there were: their numbers end before those of later commits.
    let rows = seeds.len().div_ceil(CHUNK_SEEDS).min(removed).max(1);
    let mut next = first;
    for row in seeds.chunks(seeds.len().div_ceil(rows).max(1)) {
        insert(transaction, study_pk, bucket, next, row.as_flattened())?;
        next += 1;
    }
    Ok(next)
}

fn insert(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
    commit_seq: u64,
    seeds: &[u8],
) -> Result<(), Failure> {
    let n = (seeds.len() / SEED_LEN) as u64;
    transaction
        .prepare_cached(
            "INSERT INTO seeds (study_pk, bucket, commit_seq, n, seeds, checksum) VALUES (?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            study_pk,
            bucket,
            commit_seq,
            n,
            seeds,
            checksum(study_pk, bucket, commit_seq, seeds)
        ])?;
    Ok(())
}

/// Reads the seeds of a bucket's commits before `end`, chunk by chunk.
fn read_bucket(
    connection: &Connection,
    study: &Study,
    bucket: u32,
    end: u64,
    take: &mut dyn FnMut(&[Seed]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (pk, most) = (study.key, CHUNK_SEEDS);
    let mut seeds = Vec::new();
    let mut from = 0;
    while let Some(next) = read_chunk(connection, pk, bucket, from..end, most, &mut seeds)? {
        take(&seeds)?;
        from = next;
    }
    Ok(())
}

/// How many read seeds: commit after commit, in no transaction, so that meanwhile no row may change.
#[derive(Clone, Default)]
pub(crate) struct Readers(Arc<Mutex<u32>>);

impl Readers {
    pub(crate) fn begin(&self) -> Reading {
        *self.lock() += 1;
        Reading(self.clone())
    }

    /// Lets nobody begin until it is dropped; `None` while somebody reads.
    pub(crate) fn none(&self) -> Option<MutexGuard<'_, u32>> {
        let readers = self.lock();
        (*readers == 0).then_some(readers)
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of them, until it is dropped.
pub(crate) struct Reading(Readers);

impl Drop for Reading {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}

/// The seeds of a study's commits before one, duplicate seeds included once.
pub(crate) struct Seeds<'a> {
    /// A separate connection: reading must not block others.
    connection: RefCell<Connection>,
    study: &'a Study,
    end: u64,
    stored: u64,
    duplicates: DuplicateSeeds,
    health: Arc<Health>,
    _reading: Reading,
}

impl<'a> Seeds<'a> {
    /// The seeds of every commit before `end`, `stored` in all. Uses up to `sum_cache_bytes` to find duplicates.
    pub(in crate::sqlite) fn new(
        (connection, reading): (Connection, Reading),
        study: &'a Study,
        (stored, end): (u64, u64),
        sum_cache_bytes: u64,
        health: Arc<Health>,
        cancel: Cancel<'_>,
    ) -> Result<Self, Failure> {
        let read = |take: &mut dyn FnMut(&[Seed])| {
            for bucket in 0..study.buckets() {
                read_bucket(&connection, study, bucket, end, &mut |seeds| {
                    take(seeds);
                    Ok(cancel.check()?)
                })?;
            }
            Ok(())
        };
        let duplicates = DuplicateSeeds::find(stored, sum_cache_bytes, &read)?;
        Ok(Self {
            connection: RefCell::new(connection),
            study,
            end,
            stored,
            duplicates,
            health,
            _reading: reading,
        })
    }

    /// Number of seeds without duplicates.
    fn count(&self) -> u64 {
        self.stored.saturating_sub(self.duplicates.excluded())
    }

    /// Reads all counted seeds, bucket by bucket.
    fn read(&self, take: &mut BucketSeedsSink<'_>) -> Result<(), Failure> {
        let connection = self.connection.borrow();
        let mut dedup = self.duplicates.dedup();
        let mut read = 0;
        for bucket in 0..self.study.buckets() {
            read_bucket(&connection, self.study, bucket, self.end, &mut |seeds| {
                let seeds = dedup.retain_new(seeds);
                read += seeds.len() as u64;
                match seeds {
                    [] => Ok(()),
                    seeds => take(bucket, seeds),
                }
            })?;
        }
        if read != self.count() {
            return Err(Failure::damaged(format!(
                "{} reports were accepted but there are {read} seeds",
                self.count()
            )));
        }
        Ok(())
    }
}

impl SeedSource for Seeds<'_> {
    fn buckets(&self) -> u32 {
        self.study.buckets()
    }

    fn repeated(&self) -> u64 {
        self.duplicates.excluded()
    }

    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
        self.read(&mut |bucket, seeds| Ok(take(bucket, seeds)?))
            .map_err(|failure| {
                self.health.record_damage(&failure);
                failure.into_error()
            })
    }
}

/// Reads the seeds of whole commits, of no further one after so many seeds, and returns where to continue; `None` at
/// the end.
///
/// The statement ends with the chunk: a transaction as long as an estimate would make the write-ahead log grow all the
/// time.
pub(crate) fn read_chunk(
    connection: &Connection,
    study_pk: StudyKey,
    bucket: u32,
    commits: Range<u64>,
    most: usize,
    seeds: &mut Vec<Seed>,
) -> Result<Option<u64>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT commit_seq, n, seeds, checksum FROM seeds
         WHERE study_pk = ? AND bucket = ? AND commit_seq >= ? AND commit_seq < ? ORDER BY commit_seq",
    )?;
    let mut rows = statement.query(params![study_pk, bucket, commits.start, commits.end])?;
    seeds.clear();
    let mut next = None;
    while seeds.len() < most
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
        verify(study_pk, bucket, commit_seq, bytes, row.get(3)?)?;
        seeds.extend_from_slice(whole);
        next = Some(commit_seq + 1);
    }
    Ok(next)
}
