//! The command line as a process.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command line and returns its exit code. The first word is the program's name.
#[pyfunction]
pub(crate) fn run_line(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| eigenveil::run_line(&words))
}
