//! Whether the store can write, judged by the last writes and by probes.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use eigenveil_shared::Result;

use crate::contract::failure::Failure;

#[derive(Debug, Default)]
pub(super) struct Health {
    failed: AtomicBool,
    /// Damage does not go away by itself: it is reported until the server starts on an undamaged store.
    damage: OnceLock<String>,
    /// The writer has stopped for good.
    files_replaced: AtomicBool,
    /// The last probe, with whether a commit had failed by then.
    pub(super) last_probe: tokio::sync::Mutex<Option<Probe>>,
}

/// The outcome of a probe of the writer.
#[derive(Debug)]
pub(super) struct Probe {
    pub(super) at: Instant,
    pub(super) failed: bool,
    pub(super) result: Result<()>,
}

impl Health {
    pub(super) fn succeeded(&self) {
        self.failed.store(false, Ordering::Release);
    }

    pub(super) fn commit_failed(&self, failure: &Failure) {
        self.failed.store(true, Ordering::Release);
        self.record_damage(failure);
    }

    /// Another read or write failed. The request itself may be the cause, unless it is damage, which is recorded.
    pub(super) fn record_damage(&self, failure: &Failure) {
        if let Some(damage) = failure.damage() {
            // Only the first one is recorded.
            let _ = self.damage.set(damage);
        }
        if matches!(failure, Failure::FilesReplaced) {
            self.files_replaced.store(true, Ordering::Release);
        }
    }

    pub(super) fn are_files_replaced(&self) -> bool {
        self.files_replaced.load(Ordering::Acquire)
    }

    /// Whether the last commit failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The damage that was found.
    pub(super) fn damage(&self) -> Option<&String> {
        self.damage.get()
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// Whether the last commit succeeded and no damage was found.
    pub(super) fn is_good(&self) -> bool {
        !self.failed.load(Ordering::Acquire) && self.damage.get().is_none()
    }
}
