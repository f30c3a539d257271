//! Who is told what an engine has committed.

use std::sync::{Arc, OnceLock};

/// A notice of an engine after a commit and before its next write, also if whoever asked for it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// An estimate waits.
    JobAdded,
    /// One came, went or changed its state, also by another server: there may be something to remove, or another that
    /// ends next.
    StudiesChanged,
    /// With its position in the queue.
    JobCancelled(i64),
}

/// The one who is told.
#[derive(Clone, Default)]
pub(crate) struct Listener(Arc<OnceLock<Listen>>);

type Listen = Box<dyn Fn(Notice) + Send + Sync>;

impl Listener {
    pub(crate) fn set(&self, listen: impl Fn(Notice) + Send + Sync + 'static) {
        // A second one is refused: a store has one queue of estimates.
        let _ = self.0.set(Box::new(listen));
    }

    pub(crate) fn notify(&self, notice: Notice) {
        if let Some(listen) = self.0.get() {
            listen(notice);
        }
    }
}
