//! Whether writing works, from what the last writes met.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use eigenveil_shared::Result;
use rusqlite::Transaction;

use super::{Failure, Store, failure::unavailable};

/// Bytes of a trial write: several pages that must find room, as those of a commit of reports must. An entry of the settings
/// that is there already would fit into a full store.
const TRIAL_BYTES: usize = 65_536;

/// What the last writes met.
#[derive(Debug, Default)]
pub(super) struct Health {
    failed: AtomicBool,
    /// Damage does not mend itself: said until the server is started on a store that is whole.
    damage: OnceLock<String>,
}

impl Health {
    /// A commit went through.
    pub(super) fn succeeded(&self) {
        self.failed.store(false, Ordering::Release);
    }

    /// A commit of reports did not.
    pub(super) fn commit_failed(&self, failure: &Failure) {
        self.failed.store(true, Ordering::Release);
        self.look_for_damage(failure);
    }

    /// Something else that reads or writes failed: what an operator asked for may be at fault, damage is not.
    pub(super) fn look_for_damage(&self, failure: &Failure) {
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
    /// goes through.
    ///
    /// # Errors
    /// `store-unavailable`, `store-full`, `shutting-down`, `too-many-requests`.
    pub async fn check_writable(&self) -> Result<()> {
        let health = &self.shared.health;
        if let Some(damage) = health.damage.get() {
            return Err(unavailable(damage.clone()));
        }
        if !health.failed.load(Ordering::Acquire) {
            return self.write(|_| Ok(()), |(), _| ()).await;
        }
        // Two commits: pages freed in the one that filled them would not be written at all.
        self.write(put_trial, |(), _| ()).await?;
        self.write(remove_trial, |(), _| ()).await?;
        health.succeeded();
        Ok(())
    }
}

fn put_trial(transaction: &Transaction<'_>) -> Result<(), Failure> {
    transaction.execute(
        "INSERT INTO settings (key, value) VALUES ('trial', zeroblob(?))
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        [TRIAL_BYTES],
    )?;
    Ok(())
}

fn remove_trial(transaction: &Transaction<'_>) -> Result<(), Failure> {
    transaction.execute("DELETE FROM settings WHERE key = 'trial'", [])?;
    Ok(())
}
