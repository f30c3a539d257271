//! Payloads that are seeds: stored as received, added up for an estimate.
//!
//! A commit appends its seeds as one row: no sum is read, changed or rewritten, so the cost of a report does not depend
//! on the dimension. Sums of them are kept [beside them](super::folds).

use std::ops::Range;

use eigenveil_shared::{
    Result,
    mechanism::double_cap::{SEED_LEN, Seed},
};
use rusqlite::{Connection, Transaction, params};

use super::checksum::{checksum, verify};
use crate::contract::{
    engine::RowSink,
    failure::Failure,
    study::{Study, StudyKey},
};

/// Seeds of a row of an import, or one that is written anew (1 MiB).
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

/// Passes the rows of a bucket after this commit to `take`, in order, until it says no.
pub(crate) fn read_rows(
    connection: &Connection,
    study_pk: StudyKey,
    bucket: u32,
    after: i64,
    take: &mut RowSink<'_>,
) -> Result<(), Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT commit_seq, n, seeds, checksum FROM seeds
         WHERE study_pk = ? AND bucket = ? AND commit_seq > ? ORDER BY commit_seq",
    )?;
    let mut rows = statement.query(params![study_pk, bucket, after])?;
    while let Some(row) = rows.next()? {
        let (commit_seq, n): (i64, u64) = (row.get(0)?, row.get(1)?);
        let bytes = row.get_ref(2)?.as_blob().map_err(Failure::damaged)?;
        if bytes.len() as u64 != SEED_LEN as u64 * n {
            return Err(Failure::damaged(format!(
                "a commit has {} bytes of seeds but {n} reports",
                bytes.len()
            )));
        }
        verify(study_pk, bucket, commit_seq as u64, bytes, row.get(3)?)?;
        if !take(commit_seq, bytes)? {
            break;
        }
    }
    Ok(())
}

/// Reads the seeds of whole commits, of no further one after so many seeds, and returns where to continue; `None` at
/// the end.
pub(crate) fn read_chunk(
    connection: &Connection,
    study_pk: StudyKey,
    bucket: u32,
    commits: Range<u64>,
    most: usize,
    seeds: &mut Vec<Seed>,
) -> Result<Option<u64>, Failure> {
    seeds.clear();
    let mut next = None;
    let after = commits.start as i64 - 1;
    read_rows(connection, study_pk, bucket, after, &mut |row, bytes| {
        let commit = row as u64;
        if commit >= commits.end || seeds.len() >= most {
            return Ok(false);
        }
        seeds.extend_from_slice(bytes.as_chunks::<SEED_LEN>().0);
        next = Some(commit + 1);
        Ok(true)
    })?;
    Ok(next)
}
