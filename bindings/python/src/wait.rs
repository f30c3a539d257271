//! Runs work without the interpreter's lock; Ctrl-C stops it, and progress is reported.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use pyo3::prelude::*;
use tokio::runtime::Builder;

use crate::error::{Failure, Result};

/// Interval at which Ctrl-C is checked and progress is reported.
const POLL: Duration = Duration::from_millis(50);
/// Time that stopped work may take to finish. After that its result is dropped.
const GRACE: Duration = Duration::from_millis(300);

/// Shared by the work and the thread that waits for it.
#[derive(Clone, Default)]
pub(crate) struct Control(Arc<Shared>);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl Control {
    /// Whether the work should stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// Sets the progress.
    pub(crate) fn set_progress(&self, done: u64, total: u64) {
        self.0.total.store(total, Ordering::Relaxed);
        self.0.done.store(done, Ordering::Relaxed);
    }

    /// Runs requests like the SDK's `blocking`: the network on its own thread, the ledger on this one.
    pub(crate) fn run_requests<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("eigenveil-http")
            .enable_all()
            .build()
            .map_err(|error| Failure::input(format!("no runtime could be started: {error}")))?;
        let stopped = async {
            while !self.is_stopped() {
                tokio::time::sleep(POLL / 2).await;
            }
        };
        let done = runtime.block_on(async {
            tokio::select! {
                done = work => Some(done),
                () = stopped => None,
            }
        });
        // Does not wait for a pending DNS lookup.
        runtime.shutdown_background();
        done.ok_or_else(Failure::interrupted)
    }
}

/// Runs short work on this thread without the interpreter's lock.
pub(crate) fn run_detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    done.unwrap_or_else(|_| Err(Failure::internal()))
        .map_err(|failure| failure.raise(py))
}

/// Runs work that may take long on a separate thread, while this one checks for Ctrl-C and calls `progress(done,
/// total)` a few times a second.
pub(crate) fn run_interruptible<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Control) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let control = Control::default();
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let work_control = control.clone();
    thread::Builder::new()
        .name("eigenveil".to_owned())
        .spawn(move || {
            let done = catch_unwind(AssertUnwindSafe(|| work(&work_control)));
            // After Ctrl-C nobody waits any more.
            let _ = sender.send(done.unwrap_or_else(|_| Err(Failure::internal())));
        })
        .map_err(|error| {
            Failure::input(format!("no thread could be started: {error}")).raise(py)
        })?;
    let mut last_reported = (0, 0);
    let mut report_progress = |control: &Control| -> PyResult<()> {
        let Some(progress) = progress else {
            return Ok(());
        };
        let now = (
            control.0.done.load(Ordering::Relaxed),
            control.0.total.load(Ordering::Relaxed),
        );
        if now != last_reported {
            last_reported = now;
            progress.call1(now)?;
        }
        Ok(())
    };
    loop {
        match py.detach(|| receive(&mut receiver, POLL)) {
            Ok(done) => {
                report_progress(&control)?;
                return done.map_err(|failure| failure.raise(py));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::internal().raise(py)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(stop) = py.check_signals().and_then(|()| report_progress(&control)) {
                    control.0.stop.store(true, Ordering::Relaxed);
                    let _ = py.detach(|| receive(&mut receiver, GRACE));
                    return Err(stop);
                }
            }
        }
    }
}

/// Takes `&mut` because a `Receiver` is not `Sync`.
fn receive<T>(receiver: &mut mpsc::Receiver<T>, timeout: Duration) -> Result<T, RecvTimeoutError> {
    receiver.recv_timeout(timeout)
}
