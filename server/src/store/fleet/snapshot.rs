//! What is read: sums or seeds of one moment, arrivals, and sizes for the metrics.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
};

use eigenveil_estimation::{Cancel, accumulate::Accumulator, sparse_from_seeds::SeedSource};
use eigenveil_shared::{
    Result,
    api::StudyState,
    mechanism::double_cap::{SEED_LEN, Seed},
};

use super::{Fleet, Inner, connection::Session, estimates, lock, studies::require_study, unsigned};
use crate::{
    metrics::signed,
    store::{
        ArrivalCount,
        duplicates::DuplicateSeeds,
        failure::Failure,
        study::Study,
        sums::{BucketSums, StoredSeeds, decode_sum},
    },
};

/// Rows of chunks fetched at once, and seeds after which no further one is.
const FETCH: i64 = 64;
const FETCHED_SEEDS: i64 = 1 << 16;
/// Seeds in memory at once (1 MiB).
const CHUNK_SEEDS: usize = 1 << 16;

impl Fleet {
    /// The sums of a study whose payloads are numbers.
    pub(crate) fn sums(&self, study: &Study) -> Result<BucketSums> {
        self.wait(async {
            let (session, n) = self.inner.snapshot_of(study).await?;
            let mut buckets = Vec::new();
            // One at a time: a sum may have 128 MB.
            for bucket in 0..study.buckets() {
                let select = "SELECT n, body FROM sums WHERE study = $1 AND bucket = $2 AND n > 0";
                let row = session
                    .query_opt(select, &[&study.key.0, &(bucket as i32)])
                    .await?;
                if let Some(row) = row {
                    let body = row.try_get::<_, Option<&[u8]>>(1)?.unwrap_or_default();
                    let p = study.params().report_dimension();
                    buckets.push((bucket, decode_sum(p, unsigned(row.try_get(0)?), body)?));
                }
            }
            session.end().await?;
            BucketSums::of(n, buckets)
        })
    }

    /// The seeds of a study whose payloads are seeds: copied into an unnamed file, 16 bytes each, so that an estimate
    /// reads them as often as it likes while the database's snapshot lasts as long as the copying.
    pub(crate) fn seeds<'a>(
        &self,
        study: &'a Study,
        cancel: Cancel<'_>,
    ) -> Result<StoredSeeds<'a>> {
        let copy = self
            .copy_seeds(study, cancel)
            .map_err(|failure| self.inner.note(failure))?;
        let stored = copy.buckets.iter().sum();
        let read = |take: &mut dyn FnMut(&[Seed])| {
            copy.read(&mut |_, seeds| {
                take(seeds);
                Ok(cancel.check()?)
            })
        };
        let duplicates = DuplicateSeeds::find(stored, self.inner.config.sum_cache_bytes, &read);
        let duplicates = duplicates.map_err(Failure::into_error)?;
        Ok(StoredSeeds {
            source: Box::new(CopiedSeeds { copy, duplicates }),
            stored,
        })
    }

    fn copy_seeds(&self, study: &Study, cancel: Cancel<'_>) -> Result<Copy, Failure> {
        let mut file = BufWriter::new(self.inner.temporary_file()?);
        let (session, stored) = self.inner.wait(self.inner.snapshot_of(study))?;
        let mut buckets = Vec::new();
        for bucket in 0..study.buckets() {
            let mut seeds = 0;
            self.inner
                .read_chunks(&session, study, bucket, &mut |body| {
                    cancel.check()?;
                    seeds += (body.len() / SEED_LEN) as u64;
                    file.write_all(body).map_err(Failure::file)
                })?;
            buckets.push(seeds);
        }
        self.inner.wait(session.end())?;
        let copied: u64 = buckets.iter().sum();
        if copied != stored {
            return Err(Failure::damaged(format!(
                "{stored} reports were accepted but there are {copied} seeds"
            )));
        }
        let file = file
            .into_inner()
            .map_err(|error| Failure::file(error.into_error()))?;
        Ok(Copy { file, buckets })
    }

    pub(crate) fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>> {
        self.wait(async {
            let session = self.inner.pool.take().await?;
            let rows = session.query(ARRIVALS, &[&study.key.0]).await?;
            session.done();
            rows.iter()
                .map(|row| {
                    Ok(ArrivalCount {
                        seconds: unsigned(row.try_get(0)?),
                        start: unsigned(row.try_get(1)?),
                        n: unsigned(row.try_get(2)?),
                    })
                })
                .collect()
        })
    }

    pub(crate) fn measure(&self) -> Result<()> {
        let metrics = &self.inner.metrics;
        let studies = self.studies.list();
        for state in [StudyState::Draft, StudyState::Open, StudyState::Closed] {
            let of_it = studies.iter().filter(|study| study.state() == state);
            metrics.studies_are(state, of_it.count());
        }
        let (is_away, is_healthy) = {
            let health = lock(&self.inner.health);
            let is_away = health.unreachable.is_some();
            (
                is_away,
                !is_away && health.damage.is_none() && !health.commit_failed,
            )
        };
        metrics.store_healthy.set(i64::from(is_healthy));
        // That the database is away is what an alert waits for.
        if is_away {
            return Ok(());
        }
        let measured = self.wait(async {
            let session = self.inner.pool.take().await?;
            let waiting = estimates::waiting(&session).await?;
            let size = "SELECT pg_database_size(current_database())";
            let bytes: i64 = session.query_one(size, &[]).await?.try_get(0)?;
            session.done();
            Ok((waiting, bytes))
        });
        let Ok((waiting, bytes)) = measured else {
            metrics.store_healthy.set(0);
            return Ok(());
        };
        metrics.estimates_waiting.set(signed(waiting));
        metrics.store_bytes.set(bytes);
        Ok(())
    }
}

impl Inner {
    /// A snapshot, and the number of reports that the study has accepted in it.
    async fn snapshot_of(&self, study: &Study) -> Result<(Session, u64), Failure> {
        let session = self.pool.snapshot().await?;
        require_study(&session, study).await?;
        let count = "SELECT coalesce(sum(n), 0)::bigint FROM buckets WHERE study = $1";
        let row = session.query_one(count, &[&study.key.0]).await?;
        Ok((session, unsigned(row.try_get(0)?)))
    }

    /// The chunks of a bucket in a snapshot, in order. Blocks.
    pub(super) fn read_chunks(
        &self,
        session: &Session,
        study: &Study,
        bucket: u32,
        take: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let select = "SELECT last, body FROM (
                SELECT last, body, sum(n) OVER (ORDER BY last ROWS UNBOUNDED PRECEDING) - n AS before FROM (
                    SELECT last, n, body FROM chunks WHERE study = $1 AND bucket = $2 AND last > $3
                    ORDER BY last LIMIT $4) c) c
            WHERE before < $5 ORDER BY last";
        let (key, bucket, mut last) = (study.key.0, bucket as i32, 0_i64);
        loop {
            let rows =
                self.wait(session.query(select, &[&key, &bucket, &last, &FETCH, &FETCHED_SEEDS]))?;
            let Some(end) = rows.last() else {
                return Ok(());
            };
            last = end.try_get(0)?;
            for row in &rows {
                take(row.try_get(1)?)?;
            }
        }
    }
}

/// As coarse as their age allows, whether or not they have been rolled up.
const ARRIVALS: &str = "SELECT s, start / s * s AS begins, sum(n)::bigint FROM (
        SELECT start, n, CASE
            WHEN seconds = 86400 OR start < (moment_ms() / 1000 - 1209600) / 86400 * 86400 THEN 86400
            WHEN seconds = 3600 OR start < (moment_ms() / 1000 - 7200) / 3600 * 3600 THEN 3600
            ELSE 60 END::bigint AS s
        FROM arrivals WHERE study = $1) a
    GROUP BY s, begins ORDER BY begins";

/// A sum as it is stored.
pub(super) fn sum_bytes(sum: &Accumulator) -> Vec<u8> {
    sum.sum()
        .as_slice()
        .iter()
        .flat_map(|entry| entry.to_le_bytes())
        .collect()
}

/// Takes some seeds of a bucket.
type TakeSeeds<'a> = dyn FnMut(u32, &[Seed]) -> Result<(), Failure> + 'a;

/// Seeds in a file, by bucket.
struct Copy {
    file: File,
    /// Seeds of each.
    buckets: Vec<u64>,
}

impl Copy {
    fn read(&self, take: &mut TakeSeeds<'_>) -> Result<(), Failure> {
        let mut file = BufReader::with_capacity(1 << 20, &self.file);
        file.seek(SeekFrom::Start(0)).map_err(Failure::file)?;
        let mut seeds = vec![[0; SEED_LEN]; CHUNK_SEEDS];
        for (bucket, of_bucket) in (0..).zip(&self.buckets) {
            let mut left = *of_bucket;
            while left > 0 {
                let now = left.min(CHUNK_SEEDS as u64) as usize;
                file.read_exact(seeds[..now].as_flattened_mut())
                    .map_err(Failure::file)?;
                take(bucket, &seeds[..now])?;
                left -= now as u64;
            }
        }
        Ok(())
    }
}

struct CopiedSeeds {
    copy: Copy,
    duplicates: DuplicateSeeds,
}

impl SeedSource for CopiedSeeds {
    fn buckets(&self) -> u32 {
        self.copy.buckets.len() as u32
    }

    fn repeated(&self) -> u64 {
        self.duplicates.excluded()
    }

    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
        let mut dedup = self.duplicates.dedup();
        let read = self
            .copy
            .read(&mut |bucket, seeds| match dedup.retain_new(seeds) {
                [] => Ok(()),
                seeds => Ok(take(bucket, seeds)?),
            });
        read.map_err(Failure::into_error)
    }
}
