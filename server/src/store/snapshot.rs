//! What metrics say of the store at the moment they are asked for.

use eigenveil_shared::{Result, api::StudyState};

use super::{Store, estimates, failure::Failure};
use crate::metrics::{Snapshot, resident_memory, signed};

impl Store {
    /// Blocks while reading.
    pub(crate) fn snapshot(&self) -> Result<Snapshot> {
        let shared = &self.shared;
        let studies = self.studies();
        let count = |state| {
            studies
                .iter()
                .filter(|study| study.state() == state)
                .count()
        };
        let estimates_waiting =
            i64::from(estimates::waiting(&self.reader()).map_err(Failure::into_error)?);
        let database = shared.directory.database();
        let mut log = database.clone().into_os_string();
        log.push("-wal");
        let size = |path: &std::path::Path| std::fs::metadata(path).map_or(0, |file| file.len());
        let disk = rustix::fs::statvfs(shared.directory.path());
        Ok(Snapshot {
            studies: [StudyState::Draft, StudyState::Open, StudyState::Closed]
                .map(|state| (state, signed(count(state) as u64)))
                .into(),
            estimates_waiting,
            store_bytes: signed(size(&database) + size(log.as_ref())),
            disk_free_bytes: disk.map_or(0, |disk| {
                signed(disk.f_bavail.saturating_mul(disk.f_frsize))
            }),
            ingest_bytes: signed(shared.ingest.used() as u64),
            healthy: shared.health.is_good(),
            memory_bytes: resident_memory(),
        })
    }
}
