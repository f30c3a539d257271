//! Whether reports can be stored now.

use std::time::{Duration, Instant};

use eigenveil_shared::Result;
use rusqlite::Transaction;

use super::{Sqlite, health::Probe};
use crate::contract::{
    engine::Engine as _,
    failure::{Failure, unavailable},
};

/// Size of a probe write: several pages, like a commit of reports. A small one might fit into a full store.
const PROBE_WRITE_BYTES: usize = 65_536;

/// Minimum time between probes, which take time of the writer and, after a failure, of the disk.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

impl Sqlite {
    /// Whether reports can be stored now: the writer responds, no damage was found, and after a failed commit a probe
    /// write succeeds. Probes at most once a second; in between the last result is returned, unless a commit has failed
    /// or succeeded again since.
    pub(super) async fn check_by_probe(&self) -> Result<()> {
        let health = &self.health;
        self.check_running()?;
        if let Some(damage) = health.damage() {
            return Err(unavailable(damage.clone()));
        }
        // Concurrent callers wait for the same probe.
        let mut last = health.last_probe.lock().await;
        let failed = health.has_failed();
        if let Some(probe) = &*last
            && probe.failed == failed
            && probe.at.elapsed() < PROBE_INTERVAL
        {
            return probe.result.clone();
        }
        let result = self.probe().await;
        *last = Some(Probe {
            at: Instant::now(),
            failed: health.has_failed(),
            result: result.clone(),
        });
        result
    }

    async fn probe(&self) -> Result<()> {
        let (health, reserve) = (&self.health, self.reserve.clone());
        if !health.has_failed() {
            let check = move |transaction: &Transaction<'_>| reserve.check_room(transaction);
            return self.write(check, |(), _| ()).await;
        }
        // Two commits: pages freed in the commit that filled them would never be written.
        let write = move |transaction: &Transaction<'_>| {
            reserve.check_room(transaction)?;
            write_probe(transaction)
        };
        self.write(write, |(), _| ()).await?;
        self.write(remove_probe, |(), _| ()).await?;
        health.succeeded();
        Ok(())
    }
}

fn write_probe(transaction: &Transaction<'_>) -> Result<(), Failure> {
    transaction.execute(
        "INSERT INTO settings (key, value) VALUES ('probe', zeroblob(?))
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [PROBE_WRITE_BYTES],
    )?;
    Ok(())
}

fn remove_probe(transaction: &Transaction<'_>) -> Result<(), Failure> {
    transaction.execute("DELETE FROM settings WHERE key = 'probe'", [])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{Store, config::StoreConfig, environment::Environment};

    /// However many callers there are, the writer is probed once.
    #[tokio::test]
    async fn the_writer_is_probed_once_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::system();
        let faults = environment.faults.clone();
        let config = StoreConfig::new(directory.path().join("data"));
        let store = Store::open(&config, environment).unwrap();
        faults.hold();
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let store = store.clone();
            callers.spawn(async move { store.check_writable().await });
        }
        // Each has begun to wait.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let waiting = store.counters().queue_depth.get();
        faults.release();
        while let Some(result) = callers.join_next().await {
            result.unwrap().unwrap();
        }
        assert!(waiting <= 1, "{waiting} commands for one probe");
    }
}
