//! Work without the interpreter's lock, which Ctrl-C ends and of which progress is told.

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

/// How often the interpreter is asked for Ctrl-C, and told of progress.
const POLL: Duration = Duration::from_millis(50);
/// How long work that was told to stop may take to put things in order. Then it is left behind: its result is dropped.
const GRACE: Duration = Duration::from_millis(300);

/// Shared by work and whoever waits for it.
#[derive(Clone, Default)]
pub(crate) struct Control(Arc<Shared>);

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl Control {
    /// Whether the work is wanted no more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed)
    }

    /// How much is done, of how much.
    pub(crate) fn progress(&self, done: u64, total: u64) {
        self.0.total.store(total, Ordering::Relaxed);
        self.0.done.store(done, Ordering::Relaxed);
    }

    /// Waits for requests: as the SDK's own `blocking`, a thread for the network and this one for the ledger.
    pub(crate) fn requests<T>(&self, work: impl Future<Output = T>) -> Result<T> {
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
        // A name that is being resolved is not waited for.
        runtime.shutdown_background();
        done.ok_or_else(Failure::interrupted)
    }
}

/// Short work.
pub(crate) fn briefly<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    done.unwrap_or_else(|_| Err(Failure::internal()))
        .map_err(|failure| failure.raise(py))
}

/// Work that may take long, on a thread of its own, while this one looks for Ctrl-C and calls
/// `progress(done, total)` a few times a second.
pub(crate) fn patiently<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Control) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let control = Control::default();
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let inner = control.clone();
    thread::Builder::new()
        .name("eigenveil".to_owned())
        .spawn(move || {
            let done = catch_unwind(AssertUnwindSafe(|| work(&inner)));
            // Nobody waits any more after Ctrl-C.
            let _ = sender.send(done.unwrap_or_else(|_| Err(Failure::internal())));
        })
        .map_err(|error| {
            Failure::input(format!("no thread could be started: {error}")).raise(py)
        })?;
    let mut last_told = (0, 0);
    let mut tell = |control: &Control| -> PyResult<()> {
        let Some(progress) = progress else {
            return Ok(());
        };
        let now = (
            control.0.done.load(Ordering::Relaxed),
            control.0.total.load(Ordering::Relaxed),
        );
        if now != last_told {
            last_told = now;
            progress.call1(now)?;
        }
        Ok(())
    };
    loop {
        match py.detach(|| receive(&mut receiver, POLL)) {
            Ok(done) => {
                tell(&control)?;
                return done.map_err(|failure| failure.raise(py));
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::internal().raise(py)),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(stop) = py.check_signals().and_then(|()| tell(&control)) {
                    control.0.stop.store(true, Ordering::Relaxed);
                    let _ = py.detach(|| receive(&mut receiver, GRACE));
                    return Err(stop);
                }
            }
        }
    }
}

/// Exclusive, as a receiver is not shared between threads.
fn receive<T>(receiver: &mut mpsc::Receiver<T>, longest: Duration) -> Result<T, RecvTimeoutError> {
    receiver.recv_timeout(longest)
}
