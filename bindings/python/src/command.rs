//! The command line: as a process, and as functions that give its JSON.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::wait::patiently;

/// Runs the command line and gives its exit code. The first word is the program's name.
#[pyfunction]
pub(crate) fn run_line(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| eigenveil::run_line(&words))
}

/// What a command says with `--json`, and the notes it would print on standard error.
#[pyfunction]
pub(crate) fn answer(py: Python<'_>, words: Vec<OsString>) -> PyResult<(String, Vec<String>)> {
    patiently(py, None, move |control| {
        let answer = eigenveil::answer(&words, &|| control.is_stopped())?;
        Ok((answer.json, answer.notes))
    })
}
