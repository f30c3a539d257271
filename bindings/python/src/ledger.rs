//! The ledger of a device, and the sending of its reports.

use std::{
    fmt::Display,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, TryLockError},
    thread,
    time::Duration,
};

use eigenveil_client::{EntryState, http::send_pending};
use eigenveil_shared::{enrolment::ParticipantToken, preprocess::Row};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde::Serialize;
use serde_json::json;

use crate::{
    connection::Connection,
    error::{Failure, Result},
    study::{PyStudy, check_len},
    wait::{Control, run_detached, run_interruptible},
};

/// Interval at which a call checks whether another one has released a ledger.
const POLL: Duration = Duration::from_millis(10);

/// A resource that can be closed, and is used by one call at a time.
pub(crate) struct Closable<T> {
    open: Arc<Mutex<Option<T>>>,
    process: u32,
}

impl<T> Clone for Closable<T> {
    fn clone(&self) -> Self {
        Self {
            open: Arc::clone(&self.open),
            ..*self
        }
    }
}

impl<T: Send> Closable<T> {
    pub(crate) fn new(open: T) -> Self {
        Self {
            open: Arc::new(Mutex::new(Some(open))),
            process: std::process::id(),
        }
    }

    /// Runs short work; Ctrl-C ends the wait for another call.
    pub(crate) fn run_detached<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> Result<R> + Send,
    ) -> PyResult<R> {
        self.with_lock(py, |open| match open {
            Some(open) => work(open),
            None => Err(closed()),
        })
    }

    /// Closes the resource; does nothing in a forked child, where a thread of the parent may have been using it.
    pub(crate) fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_same_process() {
            true => self.with_lock(py, |open| {
                open.take();
                Ok(())
            }),
            false => Ok(()),
        }
    }

    fn with_lock<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<T>) -> Result<R> + Send,
    ) -> PyResult<R> {
        let mut work = Some(work);
        loop {
            let done = run_detached(py, || {
                let Some(mut guard) = self.try_lock()? else {
                    thread::sleep(POLL);
                    return Ok(None);
                };
                work.take().map(|work| work(&mut guard)).transpose()
            })?;
            match done {
                Some(done) => return Ok(done),
                None => py.check_signals()?,
            }
        }
    }

    /// Runs long work, as part of [`run_interruptible`].
    pub(crate) fn with<R>(
        &self,
        control: &Control,
        work: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R> {
        loop {
            match self.try_lock()? {
                Some(mut guard) => return work(guard.as_mut().ok_or_else(closed)?),
                None if control.is_stopped() => return Err(Failure::interrupted()),
                None => thread::sleep(POLL),
            }
        }
    }

    /// The lock; `None` while another call has it.
    fn try_lock(&self) -> Result<Option<MutexGuard<'_, Option<T>>>> {
        if !self.is_same_process() {
            // The lock may be held by a thread that does not exist in this process.
            return Err(Failure::forked());
        }
        match self.open.try_lock() {
            Ok(guard) => Ok(Some(guard)),
            // A panic has left the file unchanged: a write is atomic.
            Err(TryLockError::Poisoned(poisoned)) => Ok(Some(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    fn is_same_process(&self) -> bool {
        self.process == std::process::id()
    }
}

fn closed() -> Failure {
    Failure::input("the ledger is closed; open it again")
}

/// A document for people, such as a receipt, as text and as JSON.
pub(crate) fn texts(document: &(impl Display + Serialize)) -> Result<(String, String)> {
    Ok((document.to_string(), serde_json::to_string(document)?))
}

#[pyclass(frozen, module = "eigenveil._core", name = "Ledger")]
pub(crate) struct PyLedger(Closable<eigenveil_client::Ledger>);

#[pymethods]
impl PyLedger {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, existing: bool) -> PyResult<Self> {
        run_detached(py, || {
            let ledger = match existing {
                true => eigenveil_client::Ledger::open_existing(path)?,
                false => eigenveil_client::Ledger::open(path)?,
            };
            Ok(Self(Closable::new(ledger)))
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.0.close(py)
    }

    /// Takes part; returns JSON of the stored report. `row` has the study's order. An invalid token is refused before
    /// anything is charged.
    #[pyo3(signature = (study, row, weight, token))]
    fn take_part(
        &self,
        py: Python<'_>,
        study: &PyStudy,
        row: PyReadonlyArray1<'_, f64>,
        weight: Option<f64>,
        token: Option<&str>,
    ) -> PyResult<String> {
        let row = Row::new(row.as_array().to_vec());
        self.0.run_detached(py, |ledger| {
            let study = study.rows()?;
            check_len(&study, row.values().len())?;
            let token = token.map(ParticipantToken::parse).transpose()?;
            let participation = match weight {
                None => ledger.participate(&study, &row)?,
                Some(weight) => ledger.participate_weighted(&study, &row, weight)?,
            };
            let entry = participation.entry();
            if let Some(token) = &token {
                ledger.set_token(entry.study(), token)?;
            }
            let warning = match &participation {
                eigenveil_client::Participation::New { local_warning, .. } => {
                    local_warning.as_ref()
                }
                eigenveil_client::Participation::Known(_) => None,
            };
            let state = match entry.state() {
                EntryState::Pending => "owed",
                EntryState::Acknowledged => "acknowledged",
                EntryState::Refused { .. } => "refused",
                EntryState::GivenUp => "given-up",
            };
            Ok(json!({
                "new": participation.is_new(),
                "study": entry.study(),
                "report": entry.report().to_string(),
                "state": state,
                "epsilon": entry.charge().epsilon(),
                "delta": entry.charge().delta(),
                "local_warning": warning.map(ToString::to_string),
            })
            .to_string())
        })
    }

    fn set_token(&self, py: Python<'_>, study: &str, token: &str) -> PyResult<bool> {
        self.0.run_detached(py, |ledger| {
            Ok(ledger.set_token(study, &ParticipantToken::parse(token)?)?)
        })
    }

    /// Gives up the report of a study; returns the outcome as text and as JSON.
    fn give_up(&self, py: Python<'_>, study: &str) -> PyResult<(String, String)> {
        self.0
            .run_detached(py, |ledger| texts(&ledger.give_up(study)?))
    }

    fn accept_move(&self, py: Python<'_>, study: &PyStudy) -> PyResult<()> {
        self.0
            .run_detached(py, |ledger| Ok(ledger.accept_move(&study.rows()?)?))
    }

    fn requeue_refused(&self, py: Python<'_>) -> PyResult<usize> {
        self.0
            .run_detached(py, |ledger| Ok(ledger.requeue_refused()?))
    }

    fn set_limits(
        &self,
        py: Python<'_>,
        epsilon_per_study: Option<f64>,
        epsilon_total: Option<f64>,
        delta_total: Option<f64>,
    ) -> PyResult<()> {
        self.0.run_detached(py, |ledger| {
            let current = ledger.limits()?;
            let limits = current.changed(epsilon_per_study, epsilon_total, delta_total)?;
            Ok(ledger.set_limits(limits)?)
        })
    }

    /// Sends the pending reports; returns the outcome as JSON.
    fn send(&self, py: Python<'_>, connection: Option<Connection>) -> PyResult<String> {
        let ledger = self.0.clone();
        run_interruptible(py, None, move |control| {
            let settings = Connection::settings(connection.as_ref())?;
            ledger.with(control, |ledger| {
                let sent = control.run_requests(send_pending(ledger, &settings))??;
                Ok(serde_json::to_string(&sent)?)
            })
        })
    }

    /// The receipt, as text and as JSON.
    fn receipt(&self, py: Python<'_>) -> PyResult<(String, String)> {
        self.0.run_detached(py, |ledger| texts(&ledger.receipt()?))
    }
}
