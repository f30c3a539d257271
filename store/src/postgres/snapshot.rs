//! What is read: sums or seeds of one moment, arrivals, and sizes for the metrics.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    os::unix::fs::FileExt as _,
};

use eigenveil_estimation::{
    Cancel, SiteSum,
    accumulate::{Accumulator, SeedSum},
    sparse_from_seeds::SeedSource,
};
use eigenveil_shared::{
    Result,
    mechanism::double_cap::{SEED_LEN, Seed},
    packed::packed_len,
};

use super::{
    Inner, Postgres,
    connection::{Session, value},
    estimates,
    fold::folded,
    lock,
    studies::require_study,
    unsigned,
};
use crate::{
    contract::{
        arrivals::ArrivalCount,
        duplicates::DuplicateSeeds,
        engine::{Engine as _, Snapshot},
        failure::Failure,
        study::Study,
        sums::{BucketSums, StoredSeeds, decode_sum, encode_sum, require_all},
    },
    counters::signed,
};

/// Seeds in memory at once (1 MiB).
const CHUNK_SEEDS: usize = 1 << 16;

impl Snapshot for Postgres {
    /// The sums of a study whose payloads are numbers.
    fn sums(&self, study: &Study) -> Result<BucketSums> {
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
                    let p = study.params().sum_dimension();
                    buckets.push((bucket, decode_sum(p, unsigned(row.try_get(0)?), body)?));
                }
            }
            session.end().await?;
            BucketSums::of(n, buckets)
        })
    }

    fn site_sums(&self, study: &Study) -> Result<Vec<SiteSum>> {
        let params = study.params().sites()?;
        self.check_running()?;
        let read = || -> Result<Vec<SiteSum>, Failure> {
            let (session, n) = self.inner.wait(self.inner.snapshot_of(study))?;
            let sums = self.inner.read_site_sums(&session, study, params)?;
            self.inner.wait(session.end())?;
            require_all(n, &sums)?;
            Ok(sums)
        };
        read().map_err(|failure| self.inner.note(failure))
    }

    /// The seeds of a study whose payloads are seeds, and the sums kept of them: copied into an unnamed file, 16 bytes a
    /// seed, so that an estimate reads them as often as it likes while the database's snapshot lasts as long as the
    /// copying.
    fn seeds<'a>(&self, study: &'a Study, cancel: Cancel<'_>) -> Result<StoredSeeds<'a>> {
        let copy = self
            .copy_seeds(study, cancel)
            .map_err(|failure| self.inner.note(failure))?;
        let stored = copy.buckets.iter().map(|bucket| bucket.seeds).sum();
        let read = |take: &mut dyn FnMut(&[Seed])| {
            copy.buckets.iter().try_for_each(|bucket| {
                copy.read(bucket, &mut |_, seeds| {
                    take(seeds);
                    Ok(cancel.check()?)
                })
            })
        };
        let duplicates = DuplicateSeeds::find(stored, self.inner.config.sum_cache_bytes, &read);
        let duplicates = duplicates.map_err(Failure::into_error)?;
        Ok(StoredSeeds {
            source: Box::new(CopiedSeeds { copy, duplicates }),
            stored,
        })
    }

    fn fold(&self, study: &Study, cancel: Cancel<'_>) -> Result<()> {
        self.fold_seeds(study, cancel)
    }

    fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>> {
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

    fn measure(&self) -> Result<()> {
        let counters = &self.inner.counters;
        {
            let health = lock(&self.inner.health);
            let is_healthy = health.check().is_ok();
            counters.store_healthy.set(i64::from(is_healthy));
            // That the database is away or refuses is what an alert waits for.
            if health.unusable.is_some() {
                return Ok(());
            }
        }
        let measured = self.wait(async {
            let session = self.inner.pool.take().await?;
            let waiting = estimates::waiting(&session).await?;
            let size = "SELECT pg_database_size(current_database())";
            let bytes: i64 = value(&session, size, &[]).await?;
            session.done();
            Ok((waiting, bytes))
        });
        let Ok((waiting, bytes)) = measured else {
            counters.store_healthy.set(0);
            return Ok(());
        };
        counters.estimates_waiting.set(signed(waiting));
        counters.store_bytes.set(bytes);
        Ok(())
    }
}

impl Postgres {
    fn copy_seeds(&self, study: &Study, cancel: Cancel<'_>) -> Result<Copy, Failure> {
        let p = study.params().sum_dimension();
        let mut file = BufWriter::new(self.inner.temporary_file()?);
        let (session, stored) = self.inner.wait(self.inner.snapshot_of(study))?;
        let mut buckets = Vec::new();
        let (mut copied, mut at) = (0, 0);
        for bucket in 0..study.buckets() {
            cancel.check()?;
            let folded = self.inner.wait(folded(&session, study, bucket as i32))?.sum;
            let body = folded.as_ref().map_or_else(Vec::new, encode_sum);
            file.write_all(&body).map_err(Failure::file)?;
            let mut copied_bucket = CopiedBucket {
                sum_at: at,
                at: at + body.len() as u64,
                seeds: 0,
                folded: folded.map_or(0, |sum| sum.count()),
            };
            self.inner
                .read_chunks(&session, study, bucket, &mut |body| {
                    cancel.check()?;
                    copied_bucket.seeds += (body.len() / SEED_LEN) as u64;
                    file.write_all(body).map_err(Failure::file)
                })?;
            copied += copied_bucket.seeds;
            at = copied_bucket.at + SEED_LEN as u64 * copied_bucket.seeds;
            buckets.push(copied_bucket);
        }
        self.inner.wait(session.end())?;
        if copied != stored {
            return Err(Failure::damaged(format!(
                "{stored} reports were accepted but there are {copied} seeds"
            )));
        }
        let file = file
            .into_inner()
            .map_err(|error| Failure::file(error.into_error()))?;
        Ok(Copy { p, file, buckets })
    }
}

impl Inner {
    /// A snapshot, and the number of reports that the study has accepted in it.
    async fn snapshot_of(&self, study: &Study) -> Result<(Session, u64), Failure> {
        let session = self.pool.snapshot().await?;
        require_study(&session, study).await?;
        let count = "SELECT coalesce(sum(n), 0)::bigint FROM buckets WHERE study = $1";
        let n = value(&session, count, &[&study.key.0]).await?;
        Ok((session, unsigned(n)))
    }
}

/// Arrivals, as coarse as their age allows, whether or not they have been rolled up.
const ARRIVALS: &str = "SELECT s, start / s * s AS begins, sum(n)::bigint FROM (
        SELECT start, n, CASE
            WHEN seconds = 86400 OR start < (moment_ms() / 1000 - 1209600) / 86400 * 86400 THEN 86400
            WHEN seconds = 3600 OR start < (moment_ms() / 1000 - 7200) / 3600 * 3600 THEN 3600
            ELSE 60 END::bigint AS s
        FROM arrivals WHERE study = $1) a
    GROUP BY s, begins ORDER BY begins";

/// Takes some seeds of a bucket, and whether they are in the sum kept of it.
type TakeSeeds<'a> = dyn FnMut(bool, &[Seed]) -> Result<(), Failure> + 'a;

/// Sums and seeds in a file, by bucket.
struct Copy {
    p: usize,
    file: File,
    buckets: Vec<CopiedBucket>,
}

struct CopiedBucket {
    /// First byte of the sum kept of it.
    sum_at: u64,
    /// First byte of its seeds.
    at: u64,
    seeds: u64,
    /// The first ones, which are in the sum.
    folded: u64,
}

impl Copy {
    fn read(&self, bucket: &CopiedBucket, take: &mut TakeSeeds<'_>) -> Result<(), Failure> {
        let mut seeds = vec![[0; SEED_LEN]; CHUNK_SEEDS];
        let mut read = 0;
        while read < bucket.seeds {
            let is_folded = read < bucket.folded;
            let end = match is_folded {
                true => bucket.folded,
                false => bucket.seeds,
            };
            let now = (end - read).min(CHUNK_SEEDS as u64) as usize;
            self.file
                .read_exact_at(
                    seeds[..now].as_flattened_mut(),
                    bucket.at + SEED_LEN as u64 * read,
                )
                .map_err(Failure::file)?;
            take(is_folded, &seeds[..now])?;
            read += now as u64;
        }
        Ok(())
    }

    /// The sum kept of a bucket, copies included.
    fn sum(&self, bucket: &CopiedBucket) -> Result<Accumulator, Failure> {
        let mut body = vec![0; 8 * packed_len(self.p)];
        self.file
            .read_exact_at(&mut body, bucket.sum_at)
            .map_err(Failure::file)?;
        decode_sum(self.p, bucket.folded, &body)
    }
}

struct CopiedSeeds {
    copy: Copy,
    duplicates: DuplicateSeeds,
}

impl CopiedSeeds {
    /// All seeds, or those in no sum; each once, the first of equal ones.
    fn pass_some(
        &self,
        unfolded: bool,
        take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>,
    ) -> Result<(), Failure> {
        let mut dedup = self.duplicates.dedup();
        (0..)
            .zip(&self.copy.buckets)
            .try_for_each(|(number, bucket)| {
                self.copy.read(
                    bucket,
                    &mut |is_folded, seeds| match dedup.retain_new(seeds) {
                        [] => Ok(()),
                        _ if is_folded && unfolded => Ok(()),
                        seeds => Ok(take(number, seeds)?),
                    },
                )
            })
    }

    /// Copies that [`pass_some`](Self::pass_some) leaves out are taken out of the sums that have them.
    fn pass_sums(
        &self,
        cancel: Cancel<'_>,
        take: &mut dyn FnMut(u32, Accumulator) -> Result<()>,
    ) -> Result<(), Failure> {
        let mut dedup = self.duplicates.dedup();
        for (number, bucket) in (0..).zip(&self.copy.buckets) {
            let mut left_out: Option<SeedSum> = None;
            if self.repeated() > 0 {
                self.copy.read(bucket, &mut |is_folded, seeds| {
                    cancel.check()?;
                    for seed in seeds {
                        let is_new = !dedup.retain_new(std::slice::from_ref(seed)).is_empty();
                        if is_folded && !is_new {
                            let sum = match &mut left_out {
                                Some(sum) => sum,
                                empty => empty.insert(SeedSum::new(self.copy.p)?),
                            };
                            sum.add(seed);
                        }
                    }
                    Ok(())
                })?;
            }
            if bucket.folded == 0 {
                continue;
            }
            let mut sum = self.copy.sum(bucket)?;
            if let Some(left_out) = left_out {
                sum.subtract(left_out.finish()?)?;
            }
            take(number, sum)?;
        }
        Ok(())
    }
}

impl SeedSource for CopiedSeeds {
    fn buckets(&self) -> u32 {
        self.copy.buckets.len() as u32
    }

    fn repeated(&self) -> u64 {
        self.duplicates.excluded()
    }

    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
        self.pass_some(false, take).map_err(Failure::into_error)
    }

    fn folded(
        &self,
        cancel: Cancel<'_>,
        take: &mut dyn FnMut(u32, Accumulator) -> Result<()>,
    ) -> Result<()> {
        self.pass_sums(cancel, take).map_err(Failure::into_error)
    }

    fn pass_unfolded(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
        self.pass_some(true, take).map_err(Failure::into_error)
    }
}
