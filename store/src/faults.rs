//! Fault injection into the writer. Empty without the feature `testing`.

#[cfg(not(any(test, feature = "testing")))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults;

#[cfg(not(any(test, feature = "testing")))]
#[expect(
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "same signatures as in tests"
)]
impl Faults {
    pub(crate) fn wait_while_held(self) {}

    pub(crate) fn permit_commit(self) -> rusqlite::Result<bool> {
        Ok(true)
    }

    pub(crate) fn after_commit(self) {}

    pub(crate) fn after_replies(self) {}

    pub(crate) fn skips_dedup(self) -> bool {
        false
    }

    pub(crate) fn has_small_log(self) -> bool {
        false
    }
}

#[cfg(any(test, feature = "testing"))]
pub use in_tests::{Fault, Faults, Mutation};

#[cfg(any(test, feature = "testing"))]
mod in_tests {
    use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

    use rusqlite::ffi;

    /// A fault of the next commit of reports or of an operator request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// The disk is full.
        CommitFails,
        /// The process dies with everything written and nothing committed.
        DiesBeforeCommit,
        /// The process dies after the commit, before any reply is sent.
        DiesAfterCommit,
    }

    /// A planted bug, which tests have to notice.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mutation {
        /// A report that was counted is counted again.
        NoDedupe,
        /// Replies are sent before the commit.
        EarlyAcknowledgement,
    }

    #[derive(Debug, Default)]
    struct Plan {
        held: bool,
        next: Option<Fault>,
        mutation: Option<Mutation>,
        dies_after_replies: bool,
        has_small_log: bool,
    }

    /// Faults of one store's writer. Clones share it.
    #[derive(Clone, Debug, Default)]
    pub struct Faults {
        shared: Arc<(Mutex<Plan>, Condvar)>,
    }

    impl Faults {
        /// A writer with this bug.
        pub fn mutated(mutation: Mutation) -> Self {
            let faults = Self::default();
            faults.plan().mutation = Some(mutation);
            faults
        }

        /// The writer takes no command until released, so that everything sent meanwhile shares a commit.
        pub fn hold(&self) {
            self.plan().held = true;
        }

        /// Ends what [`hold`](Self::hold) began.
        pub fn release(&self) {
            self.plan().held = false;
            self.shared.1.notify_all();
        }

        /// Sets the fault of the next commit.
        pub fn set_next(&self, fault: Option<Fault>) {
            self.plan().next = fault;
        }

        fn plan(&self) -> MutexGuard<'_, Plan> {
            self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn wait_while_held(&self) {
            let plan = self.plan();
            drop(self.shared.1.wait_while(plan, |plan| plan.held));
        }

        pub(crate) fn permit_commit(&self) -> rusqlite::Result<bool> {
            let mut plan = self.plan();
            match plan.next {
                None => Ok(true),
                Some(Fault::CommitFails) => {
                    plan.next = None;
                    let full = ffi::Error::new(ffi::SQLITE_FULL);
                    Err(rusqlite::Error::SqliteFailure(full, None))
                }
                Some(Fault::DiesBeforeCommit) => {
                    plan.next = None;
                    if plan.mutation == Some(Mutation::EarlyAcknowledgement) {
                        plan.dies_after_replies = true;
                        return Ok(false);
                    }
                    drop(plan);
                    die()
                }
                Some(Fault::DiesAfterCommit) => Ok(true),
            }
        }

        pub(crate) fn after_commit(&self) {
            let mut plan = self.plan();
            if plan.next == Some(Fault::DiesAfterCommit) {
                plan.next = None;
                drop(plan);
                die();
            }
        }

        pub(crate) fn after_replies(&self) {
            let mut plan = self.plan();
            if std::mem::take(&mut plan.dies_after_replies) {
                drop(plan);
                die();
            }
        }

        /// From the next start of a store on, its id log is full after a few commits.
        pub fn use_small_log(&self) {
            self.plan().has_small_log = true;
        }

        /// This crate's own tests have a small one always.
        pub(crate) fn has_small_log(&self) -> bool {
            cfg!(test) || self.plan().has_small_log
        }

        pub(crate) fn skips_dedup(&self) -> bool {
            self.plan().mutation == Some(Mutation::NoDedupe)
        }
    }

    /// Panics the writer: the transaction is rolled back, no reply is sent, queued commands are lost, and no message is
    /// printed.
    fn die() -> ! {
        std::panic::resume_unwind(Box::new("the writer dies here"))
    }
}
