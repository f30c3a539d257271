//! The ledger of a program that reports for many participants.

use std::{borrow::Cow, mem, ops::ControlFlow, path::PathBuf};

use eigenveil_client::{
    Hint, Holders, Participants, RowLedger, UploadAnswer, UploadProgress, UploadRequest,
    upload_table,
};
use eigenveil_shared::{ErrorCode, enrolment::ParticipantToken, preprocess::Row, wording::counted};
use eigenveil_tables::{ExpectedColumns, FrameColumn, Settings, identifiers, parse_frame};
use nalgebra::DMatrix;
use numpy::{PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use sha2::{Digest, Sha256};

use crate::{
    connection::Connection,
    error::{Failure, Result, Value},
    estimate::array,
    ledger::{Closable, texts},
    study::{PyStudy, check_len},
    use_case::request,
    wait::{run_detached, run_interruptible},
};

/// A table held by Python, with the owners of its rows.
pub(crate) struct Table {
    /// A row of the table is a column here, so that its numbers lie together.
    pub(crate) numbers: DMatrix<f64>,
    pub(crate) holders: Holders,
}

impl Table {
    /// `persons` has an identifier for each row.
    pub(crate) fn read(
        table: &PyReadonlyArray2<'_, f64>,
        persons: Option<Vec<String>>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> Result<Self> {
        let numbers = transposed(table);
        let holders = match (persons, weights) {
            (Some(persons), _) => {
                let persons = identifiers(&persons);
                let persons =
                    persons.map_err(|error| Failure::from_table_error(&error, "wrong-persons"));
                Holders::persons(persons?)
            }
            (None, Some(weights)) => Holders::Weighted(weights.as_array().to_vec()),
            (None, None) => Holders::Rows(numbers.ncols()),
        };
        Ok(Self { numbers, holders })
    }
}

impl Participants for Table {
    fn row(&self, number: usize) -> Row {
        Row::new(self.numbers.column(number).iter().copied().collect())
    }

    fn holders(&self) -> &Holders {
        &self.holders
    }

    /// Digest of the table and the owners of its rows.
    fn identity(&self) -> Cow<'_, [u8]> {
        let mut hash = Sha256::new();
        hash.update((self.numbers.nrows() as u64).to_le_bytes());
        let mut bytes = Vec::new();
        for row in self.numbers.column_iter() {
            bytes.clear();
            bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            hash.update(&bytes);
        }
        if let Holders::Persons(_) = self.holders {
            hash.update(self.holders.to_bytes());
        }
        Cow::Owned(hash.finalize().to_vec())
    }

    /// The digest of the weights.
    fn settings_digest(&self) -> Vec<u8> {
        let weights = match self.holders {
            Holders::Weighted(_) => self.holders.to_bytes(),
            _ => Vec::new(),
        };
        Sha256::digest(weights).to_vec()
    }
}

/// Reports a table; `arguments` are those of an `UploadRequest`. Returns the outcome as JSON.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call, from Python")]
pub(crate) fn report(
    py: Python<'_>,
    path: PathBuf,
    study: &PyStudy,
    table: PyReadonlyArray2<'_, f64>,
    persons: Option<Vec<String>>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    tokens: Option<Vec<String>>,
    arguments: String,
    progress: Option<&Bound<'_, PyAny>>,
    connection: Option<Connection>,
) -> PyResult<String> {
    let table = Table::read(&table, persons, weights).map_err(|failure| failure.raise(py))?;
    let (request, ledger) = run_detached(py, || {
        let request: UploadRequest = request(&arguments)?;
        Ok((request, Closable::new(RowLedger::open_unchanged(path)?)))
    })?;
    let study = study.rows().map_err(|failure| failure.raise(py))?;
    let shared_ledger = ledger.clone();
    let done = run_interruptible(py, progress, move |control| {
        let settings = Connection::settings(connection.as_ref())?;
        check_len(&study, table.numbers.nrows())?;
        let participants = table.holders.count();
        let tokens = tokens.map(|texts| {
            let texts = texts.iter().take(participants);
            texts
                .map(|text| ParticipantToken::parse(text))
                .collect::<Result<_, _>>()
        });
        let request = UploadRequest {
            tokens: tokens.transpose()?,
            ..request
        };
        // Each participant counts twice: once when perturbed, and once when sent.
        let total = 2 * participants as u64;
        shared_ledger.with(control, |ledger| {
            let admitted = ledger.admit_table(&study, &table, &request);
            let admitted = admitted.map_err(with_arguments)?;
            let upload = upload_table(ledger, admitted, &table, &settings, |progress| {
                let done = match progress {
                    UploadProgress::Made(made, _) => made,
                    UploadProgress::Sent(sent, pending) => total.saturating_sub(pending - sent),
                    UploadProgress::Waiting(_) => return ControlFlow::Continue(()),
                };
                control.set_progress(done, total);
                match control.is_stopped() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            let mut answer = control.run_requests(upload)??;
            let failures = mem::take(&mut answer.sent.failures);
            match failures.into_iter().next() {
                None => {
                    let mut document = serde_json::to_value(&answer)?;
                    document["unusable"] = answer.unusable.into();
                    Ok(document.to_string())
                }
                Some(failure) => Err(unfinished(failure.error, &answer)),
            }
        })
    });
    // After Ctrl-C one step may still use the ledger.
    ledger.close(py)?;
    done
}

/// The receipt of an existing ledger, as text and as JSON.
#[pyfunction]
pub(crate) fn receipt(py: Python<'_>, path: PathBuf) -> PyResult<(String, String)> {
    run_detached(py, || texts(&RowLedger::open_existing(path)?.receipt()?))
}

/// Gives up the reports of a study in an existing ledger; returns the outcome as text and as JSON.
#[pyfunction]
pub(crate) fn give_up(py: Python<'_>, path: PathBuf, study: String) -> PyResult<(String, String)> {
    run_detached(py, || {
        texts(&RowLedger::open_existing(path)?.give_up(&study)?)
    })
}

/// The columns of a data frame: text columns by index, all others numeric.
pub(crate) fn frame_columns(
    values: &PyReadonlyArray2<'_, f64>,
    texts: Vec<(usize, Vec<String>)>,
) -> Vec<FrameColumn> {
    let values = values.as_array();
    let columns = values.columns().into_iter();
    let columns = columns.map(|column| FrameColumn::Numbers(column.to_vec()));
    let mut columns: Vec<FrameColumn> = columns.collect();
    for (index, texts) in texts {
        columns[index] = FrameColumn::Texts(texts);
    }
    columns
}

/// Reads a data frame in the order of the expected features. Returns its numbers, and for the row holder a note on
/// unreadable cells.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call, from Python")]
pub(crate) fn read_frame<'py>(
    py: Python<'py>,
    names: Option<Vec<String>>,
    values: PyReadonlyArray2<'py, f64>,
    texts: Vec<(usize, Vec<String>)>,
    expected: Option<Vec<String>>,
    source: &str,
    reports: bool,
    persons: bool,
    other_categories: bool,
) -> PyResult<(Bound<'py, PyArray2<f64>>, Option<String>)> {
    let columns = frame_columns(&values, texts);
    let expected = ExpectedColumns {
        source: match source {
            "the estimate" => "estimate",
            "the features" => "features",
            _ => "study",
        },
        dimension: expected.as_ref().map_or(columns.len(), Vec::len),
        names: expected,
        reports,
        persons,
        site: false,
        // A missing number is NaN; the caller decides on it.
        missing_cells: true,
        other_categories,
    };
    let (numbers, unreadable_note) = run_detached(py, move || {
        let read = || {
            let table = parse_frame(names, columns, &Settings::default(), Some(&expected))?;
            if !reports {
                table.check_usable(true)?;
            }
            Ok(table)
        };
        let table = read().map_err(|error: eigenveil_tables::Error| {
            Failure::from_table_error(&error, "invalid-dtype")
        })?;
        let numbers = DMatrix::from_row_slice(table.len(), table.dimension(), table.values());
        Ok((numbers, table.unreadable(true)))
    })?;
    Ok((array(py, &numbers), unreadable_note))
}

/// Sentences about cells that spoil the constants, in rows of a preparation; none for a study of another kind, and for
/// rows of another length, which a report refuses.
#[pyfunction]
pub(crate) fn cell_notices(
    py: Python<'_>,
    study: &PyStudy,
    table: PyReadonlyArray2<'_, f64>,
) -> PyResult<Vec<String>> {
    let rows = transposed(&table);
    run_detached(py, || {
        let study = study.rows()?;
        let params = study.params().preparation();
        let params = params.ok().filter(|params| params.dimension() == rows.nrows());
        Ok(params.map_or_else(Vec::new, |params| params.cell_notices(rows.as_slice())))
    })
}

/// The transposed table: each row becomes a column.
pub(crate) fn transposed(table: &PyReadonlyArray2<'_, f64>) -> DMatrix<f64> {
    let table = table.as_array();
    let (rows, columns) = table.dim();
    DMatrix::from_iterator(columns, rows, table.iter().copied())
}

/// The error for reports that are still to be sent, with their number.
fn unfinished(error: eigenveil_client::Error, answer: &UploadAnswer) -> Failure {
    let (acknowledged, pending) = (answer.acknowledged, answer.sent.pending);
    let rest = match error.code() {
        Some(ErrorCode::StudyNotOpen | ErrorCode::StudyEnded) => {
            "a closed study never opens again, so reports that it has not counted never will be, and stay charged"
        }
        _ => "call it again to finish",
    };
    let remark = format!(
        "{} acknowledged, {} of them now, and {pending} still to be sent: {rest}",
        counted(acknowledged, "report"),
        answer.sent.accepted + answer.sent.duplicates
    );
    Failure::from(error)
        .remark(&remark)
        .with("pending", Value::Number(pending as f64))
        .with("acknowledged", Value::Number(acknowledged as f64))
}

/// Adds the argument that may help to a refusal.
pub(crate) fn with_arguments(error: eigenveil_client::Error) -> Failure {
    let remark = match error.hint() {
        Some(Hint::Move(_)) => "if it has, give moved=True",
        Some(Hint::NewPurpose) => "or say so with accept_new_purpose=True",
        Some(Hint::Tokens(..) | Hint::DuplicateTokens { .. }) => {
            "give tokens=, one for each participant"
        }
        _ if error.is_row_file_mismatch() => "the argument is same_participants=True",
        _ => return error.into(),
    };
    Failure::from(error).remark(remark)
}
