//! What is read: sums of one moment, arrivals, and sizes for the metrics.

use eigenveil_estimation::SiteSum;
use eigenveil_shared::Result;
use rusqlite::Connection;

use super::{Sqlite, arrivals, buckets::read_sums, estimates, rows, schema, site_reports};
use crate::{
    contract::{
        arrivals::ArrivalCount,
        engine::Snapshot,
        failure::Failure,
        study::Study,
        sums::{BucketSums, require_all},
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
            let n = accepted(&transaction, study)?;
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
            let n = accepted(&transaction, study)?;
            let sums = site_reports::read_sums(&transaction, study.key, params)?;
            require_all(n, &sums)?;
            Ok(sums)
        };
        self.note_damage(read())
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

/// The number of accepted reports; fails if the study was deleted.
pub(super) fn accepted(connection: &Connection, study: &Study) -> Result<u64, Failure> {
    rows::require(connection, study.key, study.id())?;
    Ok(connection.query_row(
        "SELECT reports_accepted FROM studies WHERE study_pk = ?",
        [study.key],
        |row| row.get(0),
    )?)
}
