//! Payloads that are seeds: stored as they came, added up when an estimate asks.
//!
//! A commit appends its seeds as one row: no sum is read, changed or rewritten, so taking reports costs
//! the same at every dimension. Rows are never changed, so that everything below a commit's number is
//! one moment however long it takes to read. A seed that came more than once is [counted once](super::duplicates).

use std::{cell::RefCell, sync::Arc};

use eigenveil_estimation::{Cancel, sparse_from_seeds::SeedSource};
use eigenveil_shared::{
    Result,
    mechanism::double_cap::{SEED_LEN, Seed},
};
use rusqlite::{Connection, Transaction, params};

use super::{duplicates::DuplicateSeeds, failure::Failure, health::Health, study::Study};

/// Takes seeds of the bucket with this number.
type BucketSeedsSink<'a> = dyn FnMut(u32, &[Seed]) -> Result<(), Failure> + 'a;

/// Seeds held in memory at once (1 MiB), or those of one commit where it has more.
const CHUNK_SEEDS: usize = 1 << 16;

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
        study.pk,
        bucket,
        commit_seq,
        seeds.as_flattened(),
    )
}

/// Appends seeds of an import as they come, some to a commit; how many commits they make.
pub(super) fn append_chunks(
    transaction: &Transaction<'_>,
    study_pk: i64,
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

fn insert(
    transaction: &Transaction<'_>,
    study_pk: i64,
    bucket: u32,
    commit_seq: u64,
    seeds: &[u8],
) -> Result<(), Failure> {
    let n = (seeds.len() / SEED_LEN) as u64;
    transaction
        .prepare_cached(
            "INSERT INTO seeds (study_pk, bucket, commit_seq, n, seeds) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![study_pk, bucket, commit_seq, n, seeds])?;
    Ok(())
}

/// Hands over the seeds of a bucket's commits before `end` in chunks.
fn read_bucket(
    connection: &Connection,
    study: &Study,
    bucket: u32,
    end: u64,
    take: &mut dyn FnMut(&[Seed]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut seeds = Vec::new();
    let mut from = 0;
    while let Some(next) = read_chunk(connection, study, bucket, from..end, &mut seeds)? {
        take(&seeds)?;
        from = next;
    }
    Ok(())
}

/// The seeds a study had at one moment, to be read as often as needed; each once, however often it came.
pub struct StoredSeeds<'a> {
    /// Of its own: reading must not hold up everybody else.
    connection: RefCell<Connection>,
    study: &'a Study,
    end: u64,
    stored: u64,
    duplicates: DuplicateSeeds,
    /// To be told of damage.
    health: Arc<Health>,
}

impl<'a> StoredSeeds<'a> {
    /// Those of every commit before `end`, `stored` in all. Takes up to `sum_cache_bytes` to
    /// find those that came more than once.
    pub(super) fn new(
        connection: Connection,
        study: &'a Study,
        end: u64,
        stored: u64,
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
        })
    }

    /// How many there are, each counted once.
    pub fn count(&self) -> u64 {
        self.stored.saturating_sub(self.duplicates.excluded())
    }

    /// Reports stored.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Hands over all seeds that are counted, bucket after bucket.
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
                "{} reports were accepted but the seeds of {read} are there",
                self.count()
            )));
        }
        Ok(())
    }
}

impl SeedSource for StoredSeeds<'_> {
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

/// Reads seeds of whole commits, and says where to go on; `None` when there are no more.
///
/// The statement ends with the chunk: a transaction as long as an estimate would let the write-ahead
/// log grow all the while.
fn read_chunk(
    connection: &Connection,
    study: &Study,
    bucket: u32,
    commits: std::ops::Range<u64>,
    seeds: &mut Vec<Seed>,
) -> Result<Option<u64>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT commit_seq, n, seeds FROM seeds
         WHERE study_pk = ? AND bucket = ? AND commit_seq >= ? AND commit_seq < ? ORDER BY commit_seq",
    )?;
    let mut rows = statement.query(params![study.pk, bucket, commits.start, commits.end])?;
    seeds.clear();
    let mut next = None;
    while seeds.len() < CHUNK_SEEDS
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
