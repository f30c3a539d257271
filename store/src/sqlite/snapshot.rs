//! What is read: sums or seeds of one moment, arrivals, and sizes for the metrics.

use std::sync::Arc;

use eigenveil_estimation::{Cancel, SiteSum};
use eigenveil_shared::Result;
use rusqlite::Connection;

use super::{
    Sqlite, arrivals, buckets::read_sums, estimates, rows, schema, seeds::Seeds, site_reports,
};
use crate::{
    contract::{
        arrivals::ArrivalCount,
        engine::Snapshot,
        failure::Failure,
        study::Study,
        sums::{BucketSums, StoredSeeds, require_all},
    },
    counters::signed,
};

impl Snapshot for Sqlite {
    /// The sums of a study whose payloads are numbers.
    fn sums(&self, study: &Study) -> Result<BucketSums> {
        // A separate connection: reading a gigabyte must not block other readers.
        let read = || -> Result<BucketSums, Failure> {
            let mut connection = schema::open_for_reading(&self.directory.database())?;
            let transaction = connection.transaction()?;
            let (n, _) = accepted(&transaction, study)?;
            let buckets = read_sums(&transaction, study)?;
            BucketSums::of(n, buckets)
        };
        self.note_damage(read())
    }

    fn site_sums(&self, study: &Study) -> Result<Vec<SiteSum>> {
        let params = study.params().sites()?;
        let read = || -> Result<Vec<SiteSum>, Failure> {
            let mut connection = schema::open_for_reading(&self.directory.database())?;
            let transaction = connection.transaction()?;
            let (n, _) = accepted(&transaction, study)?;
            let sums = site_reports::read_sums(&transaction, study.key, params)?;
            require_all(n, &sums)?;
            Ok(sums)
        };
        self.note_damage(read())
    }

    /// The seeds of a study whose payloads are seeds.
    fn seeds<'a>(&self, study: &'a Study, cancel: Cancel<'_>) -> Result<StoredSeeds<'a>> {
        let read = || -> Result<StoredSeeds<'a>, Failure> {
            // Earlier commits do not change meanwhile, so no transaction is needed.
            let reading = self.readers.begin();
            let connection = schema::open_for_reading(&self.directory.database())?;
            let (stored, end) = accepted(&connection, study)?;
            let memory = self.config.sum_cache_bytes;
            let health = Arc::clone(&self.health);
            let source = (connection, reading);
            let seeds = Seeds::new(source, study, (stored, end), memory, health, cancel)?;
            Ok(StoredSeeds {
                source: Box::new(seeds),
                stored,
            })
        };
        self.note_damage(read())
    }

    /// Keeps no sums of seeds.
    fn fold(&self, _: &Study, _: Cancel<'_>) -> Result<()> {
        Ok(())
    }

    fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>> {
        arrivals::read(&self.reader(), study.key).map_err(Failure::into_error)
    }

    fn measure(&self) -> Result<()> {
        let counters = &self.counters;
        let waiting = estimates::waiting(&self.reader()).map_err(Failure::into_error)?;
        let (database, log) = (self.directory.database(), self.directory.wal_path());
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let disk = rustix::fs::statvfs(self.directory.path());
        let free = disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        for (gauge, value) in [
            (&counters.estimates_waiting, waiting.into()),
            (&counters.store_bytes, size(&database) + size(&log)),
            (&counters.disk_free_bytes, free),
            (&counters.store_healthy, self.health.is_good().into()),
        ] {
            gauge.set(signed(value));
        }
        Ok(())
    }
}

/// The number of accepted reports and of the next commit; fails if the study was deleted.
fn accepted(connection: &Connection, study: &Study) -> Result<(u64, u64), Failure> {
    rows::require(connection, study.key, study.id())?;
    Ok(connection.query_row(
        "SELECT reports_accepted, commit_seq FROM studies WHERE study_pk = ?",
        [study.key],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?)
}
