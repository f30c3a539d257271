//! Who is told what an engine has committed.

use std::sync::{Arc, OnceLock};

/// What an engine tells after a commit and before its next write, also if whoever asked for it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    JobAdded,
    /// One came, went or changed its state, also by another server: there may be something to remove, or another that
    /// ends next.
    StudiesChanged,
    /// With its position in the queue.
    JobCancelled(i64),
}

/// The one who is told.
#[derive(Clone, Default)]
pub(super) struct Listener(Arc<OnceLock<Listen>>);

type Listen = Box<dyn Fn(Notice) + Send + Sync>;

impl Listener {
    pub(super) fn set(&self, listen: impl Fn(Notice) + Send + Sync + 'static) {
        // A second one is refused: a store has one queue of estimates.
        let _ = self.0.set(Box::new(listen));
    }

    pub(super) fn tell(&self, notice: Notice) {
        if let Some(listen) = self.0.get() {
            listen(notice);
        }
    }
}
