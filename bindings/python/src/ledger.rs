//! The ledger of a device, and what it sends.

use std::{path::PathBuf, sync::Arc, sync::Mutex};

use eigenveil_client::{
    EntryState, Limits,
    http::{SendSummary, send_owed},
};
use eigenveil_shared::{enrolment::ParticipantToken, preprocess::Row};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use serde_json::json;

use crate::{
    connection::Connection,
    error::{Failure, Result},
    study::{PyStudy, check_len},
    wait::{briefly, patiently},
};

/// What may be closed, and is used by one call at a time.
pub(crate) struct Closable<T>(Arc<Mutex<Option<T>>>);

impl<T> Clone for Closable<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Closable<T> {
    pub(crate) fn new(open: T) -> Self {
        Self(Arc::new(Mutex::new(Some(open))))
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        // What panicked has left the file as it was: a write is all or nothing.
        let mut guard = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        match guard.as_mut() {
            Some(open) => work(open),
            None => Err(Failure::input("the ledger is closed; open it again")),
        }
    }

    pub(crate) fn close(&self) {
        drop(
            self.0
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .take(),
        );
    }
}

pub(crate) fn limits(now: Limits, changed: [Option<f64>; 3]) -> Result<Limits> {
    let [study, total, delta] = changed;
    Ok(Limits::new(
        study.unwrap_or(now.epsilon_per_study()),
        total.unwrap_or(now.epsilon_total()),
        delta.unwrap_or(now.delta_total()),
    )?)
}

/// What became of reports, and why some are still to be sent.
pub(crate) fn summary(sent: &SendSummary) -> serde_json::Value {
    let failures = sent.failures.iter().map(|failure| {
        json!({
            "url": failure.server.as_str(),
            "study": failure.study,
            "code": failure.error.name(),
            "detail": failure.error.detail(),
            "retryable": failure.error.is_retryable(),
        })
    });
    json!({
        "accepted": sent.accepted,
        "duplicates": sent.duplicates,
        "refused": sent.refused,
        "pending": sent.pending,
        "bytes": sent.bytes,
        "retries": sent.retries,
        "seconds": sent.seconds,
        "failures": failures.collect::<Vec<_>>(),
    })
}

#[pyclass(frozen, module = "eigenveil._core", name = "Ledger")]
pub(crate) struct PyLedger(Closable<eigenveil_client::Ledger>);

#[pymethods]
impl PyLedger {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, existing: bool) -> PyResult<Self> {
        briefly(py, || {
            let ledger = match existing {
                true => eigenveil_client::Ledger::open_existing(path)?,
                false => eigenveil_client::Ledger::open(path)?,
            };
            Ok(Self(Closable::new(ledger)))
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        briefly(py, || {
            self.0.close();
            Ok(())
        })
    }

    /// JSON of what the device keeps of its report. `row` has the study's order.
    fn take_part(
        &self,
        py: Python<'_>,
        study: &PyStudy,
        row: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<String> {
        let row = Row::new(row.as_array().to_vec());
        briefly(py, || {
            check_len(&study.0, row.values().len())?;
            self.0.with(|ledger| {
                let done = ledger.participate(&study.0, &row)?;
                let entry = done.entry();
                let warning = match &done {
                    eigenveil_client::Participation::New { local_warning, .. } => {
                        local_warning.as_ref()
                    }
                    eigenveil_client::Participation::Known(_) => None,
                };
                let state = match entry.state() {
                    EntryState::Owed => "owed",
                    EntryState::Acknowledged => "acknowledged",
                    EntryState::Refused { .. } => "refused",
                };
                Ok(json!({
                    "new": done.is_new(),
                    "study": entry.study(),
                    "report": entry.report().to_string(),
                    "state": state,
                    "epsilon": entry.charge().epsilon(),
                    "delta": entry.charge().delta(),
                    "local_warning": warning.map(ToString::to_string),
                })
                .to_string())
            })
        })
    }

    fn set_token(&self, py: Python<'_>, study: &str, token: &str) -> PyResult<bool> {
        briefly(py, || {
            let token = ParticipantToken::parse(token)?;
            self.0.with(|ledger| Ok(ledger.set_token(study, &token)?))
        })
    }

    fn accept_move(&self, py: Python<'_>, study: &PyStudy) -> PyResult<()> {
        briefly(py, || {
            self.0.with(|ledger| Ok(ledger.accept_move(&study.0)?))
        })
    }

    fn requeue_refused(&self, py: Python<'_>) -> PyResult<usize> {
        briefly(py, || self.0.with(|ledger| Ok(ledger.requeue_refused()?)))
    }

    fn set_limits(
        &self,
        py: Python<'_>,
        epsilon_per_study: Option<f64>,
        epsilon_total: Option<f64>,
        delta_total: Option<f64>,
    ) -> PyResult<()> {
        briefly(py, || {
            self.0.with(|ledger| {
                let changed = [epsilon_per_study, epsilon_total, delta_total];
                let limits = limits(ledger.limits()?, changed)?;
                Ok(ledger.set_limits(limits)?)
            })
        })
    }

    /// JSON of what became of the reports that were owed.
    fn send(&self, py: Python<'_>, connection: Option<Connection>) -> PyResult<String> {
        let ledger = self.0.clone();
        patiently(py, None, move |control| {
            let settings = Connection::settings(connection.as_ref())?;
            ledger.with(|ledger| {
                let sent = control.requests(send_owed(ledger, &settings))??;
                Ok(summary(&sent).to_string())
            })
        })
    }

    /// The receipt, as text and as JSON.
    fn receipt(&self, py: Python<'_>) -> PyResult<(String, String)> {
        briefly(py, || {
            self.0.with(|ledger| {
                let receipt = ledger.receipt()?;
                Ok((receipt.to_string(), serde_json::to_string(&receipt)?))
            })
        })
    }
}
