//! What is measured when it is read: sizes and states for the metrics, arrivals for a page.

use eigenveil_shared::{Result, api::StudyState};

use super::{
    Store,
    arrivals::{self, ArrivalCount},
    estimates,
    failure::Failure,
    study::Study,
};
use crate::metrics::signed;

impl Store {
    /// When the study's reports were uploaded, oldest first; imported reports are not included. Blocks while reading.
    pub(crate) fn arrivals(&self, study: &Study) -> Result<Vec<ArrivalCount>> {
        arrivals::read(&self.reader(), study.pk).map_err(Failure::into_error)
    }

    /// Measures what is not counted continuously. Blocks while reading.
    pub(crate) fn measure(&self) -> Result<()> {
        let (shared, metrics) = (&self.shared, self.metrics());
        let studies = self.studies();
        for state in [StudyState::Draft, StudyState::Open, StudyState::Closed] {
            let of_it = studies.iter().filter(|study| study.state() == state);
            metrics.studies_are(state, of_it.count());
        }
        let waiting = estimates::waiting(&self.reader()).map_err(Failure::into_error)?;
        let database = shared.directory.database();
        let mut log = database.clone().into_os_string();
        log.push("-wal");
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let disk = rustix::fs::statvfs(shared.directory.path());
        let free = disk.map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        for (gauge, value) in [
            (&metrics.estimates_waiting, waiting.into()),
            (&metrics.store_bytes, size(&database) + size(log.as_ref())),
            (&metrics.disk_free_bytes, free),
            (&metrics.ingest_bytes, shared.ingest.used() as u64),
            (&metrics.store_healthy, shared.health.is_good().into()),
        ] {
            gauge.set(signed(value));
        }
        Ok(())
    }
}
