//! Whether writing works, from what the last writes met.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use eigenveil_shared::Result;
use rusqlite::Transaction;

use super::{
    Store,
    failure::{Failure, unavailable},
};

/// Bytes of a trial write: several pages that must find room, as those of a commit of reports must. An entry of the settings
/// that is there already would fit into a full store.
const PROBE_WRITE_BYTES: usize = 65_536;

/// A look takes the writer's time, and after a failure the disk's.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// What the last writes met.
#[derive(Debug, Default)]
pub(super) struct Health {
    failed: AtomicBool,
    /// Damage does not mend itself: said until the server is started on a store that is whole.
    damage: OnceLock<String>,
    /// The last look, with whether a commit had failed by then.
    last_probe: tokio::sync::Mutex<Option<Probe>>,
}

/// What a look at the writer came to.
#[derive(Debug)]
struct Probe {
    at: Instant,
    failed: bool,
    result: Result<()>,
}

impl Health {
    /// A commit went through.
    pub(super) fn succeeded(&self) {
        self.failed.store(false, Ordering::Release);
    }

    /// A commit of reports did not.
    pub(super) fn commit_failed(&self, failure: &Failure) {
        self.failed.store(true, Ordering::Release);
        self.record_damage(failure);
    }

    /// Something else that reads or writes failed: what an operator asked for may be at fault, damage is not.
    pub(super) fn record_damage(&self, failure: &Failure) {
        if let Some(damage) = failure.damage() {
            // The first one is kept.
            let _ = self.damage.set(damage);
        }
    }

    /// Whether damage was met.
    pub(super) fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// Whether the last commit went through and no damage was met.
    pub(super) fn is_good(&self) -> bool {
        !self.failed.load(Ordering::Acquire) && self.damage.get().is_none()
    }
}

impl Store {
    /// Whether reports can be stored now: the writer answers, no damage was met, and after a failed commit a trial write
    /// goes through. It is tried once a second at most: whoever asks more often is told what was result then, unless a
    /// commit has failed, or gone through again, since.
    ///
    /// # Errors
    /// `store-unavailable`, `store-full`, `shutting-down`, `too-many-requests`.
    pub async fn check_writable(&self) -> Result<()> {
        let health = &self.shared.health;
        self.check_writer()?;
        if let Some(damage) = health.damage.get() {
            return Err(unavailable(damage.clone()));
        }
        // Those who come meanwhile wait for the same look.
        let mut last = health.last_probe.lock().await;
        let failed = health.failed.load(Ordering::Acquire);
        if let Some(probe) = &*last
            && probe.failed == failed
            && probe.at.elapsed() < PROBE_INTERVAL
        {
            return probe.result.clone();
        }
        let result = self.probe().await;
        *last = Some(Probe {
            at: Instant::now(),
            failed: health.failed.load(Ordering::Acquire),
            result: result.clone(),
        });
        result
    }

    async fn probe(&self) -> Result<()> {
        let health = &self.shared.health;
        if !health.failed.load(Ordering::Acquire) {
            return self.write(|_| Ok(()), |(), _| ()).await;
        }
        // Two commits: pages freed in the one that filled them would not be written at all.
        self.write(write_probe, |(), _| ()).await?;
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
    use super::*;
    use crate::{config::ServerConfig, environment::Environment};

    /// However many ask, the writer is asked once.
    #[tokio::test]
    async fn the_writer_is_asked_once_a_second() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::system();
        let faults = environment.faults.clone();
        let config = ServerConfig::new(directory.path().join("data"));
        let store = Store::open(&config, environment).unwrap();
        faults.hold();
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let store = store.clone();
            asked.spawn(async move { store.check_writable().await });
        }
        // Each has begun to wait.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let waiting = store.metrics().queue_depth.get();
        faults.release();
        while let Some(answer) = asked.join_next().await {
            answer.unwrap().unwrap();
        }
        assert!(waiting <= 1, "{waiting} commands for one question");
    }
}
