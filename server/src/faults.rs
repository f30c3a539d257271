//! Fault injection into the writer. Empty outside tests.

#[cfg(not(test))]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults;

#[cfg(not(test))]
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
}

#[cfg(test)]
pub(crate) use in_tests::{Fault, Faults, Mutation};

#[cfg(test)]
mod in_tests {
    use std::sync::{Arc, Condvar, Mutex, MutexGuard};

    use rusqlite::ffi;

    /// What happens to the next commit of reports or of an operator request.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        CommitFails,
        /// The process dies with everything written and nothing committed.
        DiesBeforeCommit,
        /// The process dies after the commit, before any reply is sent.
        DiesAfterCommit,
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Mutation {
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
    }

    #[derive(Clone, Debug, Default)]
    pub(crate) struct Faults {
        shared: Arc<(Mutex<Plan>, Condvar)>,
    }

    impl Faults {
        pub(crate) fn mutated(mutation: Mutation) -> Self {
            let faults = Self::default();
            faults.plan().mutation = Some(mutation);
            faults
        }

        /// The writer takes no command until released, so that everything sent meanwhile shares a commit.
        pub(crate) fn hold(&self) {
            self.plan().held = true;
        }

        pub(crate) fn release(&self) {
            self.plan().held = false;
            self.shared.1.notify_all();
        }

        pub(crate) fn set_next(&self, fault: Option<Fault>) {
            self.plan().next = fault;
        }

        fn plan(&self) -> MutexGuard<'_, Plan> {
            self.shared.0.lock().unwrap()
        }

        pub(crate) fn wait_while_held(&self) {
            let plan = self.plan();
            drop(self.shared.1.wait_while(plan, |plan| plan.held).unwrap());
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
