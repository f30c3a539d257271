//! `eigenveil._core`: the native module of the Python package `eigenveil`. Documents are passed as JSON, tables as
//! numpy arrays of float64. Mechanisms, estimators and rules of ledgers are in the crates.

mod analyst;
mod command;
mod connection;
mod design;
mod error;
mod estimate;
mod ledger;
mod research;
mod rows;
mod site;
mod study;
mod use_case;
mod wait;

/// The compiled part of Eigenveil.
#[pyo3::pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use crate::{
        analyst::PyAnalyst,
        command::run_line,
        estimate::PyEstimate,
        ledger::PyLedger,
        research::{algorithms, fantope, simulated},
        rows::{cell_notices, give_up, read_frame, receipt, report},
        site::site_report,
        study::PyStudy,
        use_case::{account, audit, central, plan, prepare, simulate},
    };
    use pyo3::prelude::*;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Panics, for the test that no panic reaches Python.
    #[pyfunction]
    #[expect(clippy::panic, reason = "the test needs a panic")]
    fn _panic(py: Python<'_>, on_thread: bool) -> PyResult<()> {
        match on_thread {
            true => crate::wait::run_interruptible(py, None, |_| panic!("planted")),
            false => crate::wait::run_detached(py, || panic!("planted")),
        }
    }
}
