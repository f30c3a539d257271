//! What is read: sums of one moment, arrivals, and sizes for the metrics.

use eigenveil_estimation::SiteSum;
use eigenveil_shared::Result;

use super::{
    Inner, Postgres,
    connection::{Session, value},
    estimates, lock,
    studies::require_study,
    unsigned,
};
use crate::{
    contract::{
        arrivals::ArrivalCount,
        engine::{Engine as _, Snapshot},
        failure::Failure,
        study::Study,
        sums::{BucketSums, decode_sum, require_all},
    },
    counters::signed,
};

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

impl Inner {
    /// A snapshot, and the number of reports that the study has accepted in it.
    pub(super) async fn snapshot_of(&self, study: &Study) -> Result<(Session, u64), Failure> {
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
