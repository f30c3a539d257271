//! The ledger of a program that reports the rows of many.

use std::{ops::ControlFlow, path::PathBuf};

use eigenveil_client::{
    PreparedReport, RowLedger, Study,
    http::{UploadSettings, send_rows},
};
use eigenveil_shared::{enrolment::ParticipantToken, preprocess::Row};
use nalgebra::DMatrix;
use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    connection::Connection,
    error::{Failure, Result},
    ledger::{Closable, summary, texts},
    study::{PyStudy, check_len},
    wait::{Control, briefly, patiently},
};

/// The participants of a table: its rows, or persons of several rows each.
pub(crate) struct Participants {
    /// A row of the table is a column here, so that its numbers lie together.
    table: DMatrix<f64>,
    /// The rows of each, from 0; without, each row is a participant.
    pub(crate) rows: Option<Vec<Vec<usize>>>,
    /// Of each row, in a study with weights.
    pub(crate) weights: Option<Vec<f64>>,
}

impl Participants {
    /// `persons` has a number from 0 for each row.
    pub(crate) fn read(
        table: &PyReadonlyArray2<'_, f64>,
        persons: Option<PyReadonlyArray1<'_, i64>>,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> Result<Self> {
        let rows = persons.map(|numbers| grouped(numbers.as_array().iter().copied()));
        Ok(Self {
            table: transposed(table),
            rows: rows.transpose()?,
            weights: weights.map(|weights| weights.as_array().to_vec()),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.as_ref().map_or(self.table.ncols(), Vec::len)
    }

    pub(crate) fn row(&self, index: usize) -> Row {
        Row::new(self.table.column(index).iter().copied().collect())
    }

    fn report(
        &self,
        person: u64,
        study: &Study,
        now: u64,
    ) -> eigenveil_client::Result<PreparedReport> {
        let person = person as usize;
        match (&self.rows, &self.weights) {
            (Some(rows), _) => {
                let own = rows[person].iter().map(|row| self.row(*row));
                study.report_one_of(&own.collect::<Vec<_>>(), now)
            }
            (None, Some(weights)) => study.report_weighted(&self.row(person), weights[person], now),
            (None, None) => study.report(&self.row(person), now),
        }
    }

    /// The digest of the table and of whose its rows are.
    fn digest(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        hash.update((self.table.nrows() as u64).to_le_bytes());
        let mut bytes = Vec::new();
        for row in self.table.column_iter() {
            bytes.clear();
            bytes.extend(row.iter().flat_map(|value| value.to_le_bytes()));
            hash.update(&bytes);
        }
        for own in self.rows.iter().flatten() {
            hash.update((own.len() as u64).to_le_bytes());
            own.iter()
                .for_each(|row| hash.update((*row as u64).to_le_bytes()));
        }
        hash.finalize().to_vec()
    }

    /// The digest of what else reports depend on.
    fn reading(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        for weight in self.weights.iter().flatten() {
            hash.update(weight.to_le_bytes());
        }
        hash.finalize().to_vec()
    }
}

/// How rows are reported.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    same_participants: bool,
    moved: bool,
    accept_new_purpose: bool,
    resend_refused: bool,
    connections: usize,
    epsilon_per_study: Option<f64>,
    epsilon_total: Option<f64>,
    delta_total: Option<f64>,
}

/// Reports a table. JSON of what became of it. `persons` has a number from 0 for each row.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call, from Python")]
pub(crate) fn report(
    py: Python<'_>,
    path: PathBuf,
    study: &PyStudy,
    table: PyReadonlyArray2<'_, f64>,
    persons: Option<PyReadonlyArray1<'_, i64>>,
    weights: Option<PyReadonlyArray1<'_, f64>>,
    tokens: Option<Vec<String>>,
    options: Options,
    progress: Option<&Bound<'_, PyAny>>,
    connection: Option<Connection>,
) -> PyResult<String> {
    let ledger = briefly(py, || Ok(Closable::new(RowLedger::open(path)?)))?;
    let (study, used) = (study.0.clone(), ledger.clone());
    let participants = Participants::read(&table, persons, weights);
    let done = patiently(py, progress, move |control| {
        let settings = Connection::settings(connection.as_ref())?;
        let participants = participants?;
        check_len(&study, participants.table.nrows())?;
        let tokens = tokens.unwrap_or_default();
        let tokens = tokens
            .iter()
            .map(|token| Ok(ParticipantToken::parse(token)?));
        let report = Reporting {
            study,
            participants,
            tokens: tokens.collect::<Result<_>>()?,
            options,
            settings,
        };
        used.with(control, |ledger| report.run(ledger, control))
    });
    // After Ctrl-C one step may still use it.
    ledger.close(py)?;
    done
}

/// The receipt of a ledger that is there, as text and as JSON.
#[pyfunction]
pub(crate) fn receipt(py: Python<'_>, path: PathBuf) -> PyResult<(String, String)> {
    briefly(py, || texts(&RowLedger::open_existing(path)?.receipt()?))
}

/// The table with a row in each column.
pub(crate) fn transposed(table: &PyReadonlyArray2<'_, f64>) -> DMatrix<f64> {
    let table = table.as_array();
    let (rows, columns) = table.dim();
    DMatrix::from_iterator(columns, rows, table.iter().copied())
}

/// The rows of each person, numbered from 0 without gaps.
fn grouped(numbers: impl Iterator<Item = i64>) -> Result<Vec<Vec<usize>>> {
    let mut persons: Vec<Vec<usize>> = Vec::new();
    for (row, number) in numbers.enumerate() {
        match usize::try_from(number) {
            Ok(number) if number < persons.len() => persons[number].push(row),
            Ok(number) if number == persons.len() => persons.push(vec![row]),
            _ => {
                return Err(Failure::input(
                    "persons are numbered from 0, by their first row",
                ));
            }
        }
    }
    Ok(persons)
}

struct Reporting {
    study: Study,
    participants: Participants,
    tokens: Vec<ParticipantToken>,
    options: Options,
    settings: eigenveil_client::http::HttpSettings,
}

impl Reporting {
    fn run(&self, ledger: &mut RowLedger, control: &Control) -> Result<String> {
        let Self {
            study,
            participants,
            options,
            ..
        } = self;
        if options.moved {
            ledger.accept_move(study)?;
        }
        let before = ledger.counts(study)?;
        if before.pending > 0
            && !options.accept_new_purpose
            && let Some(terms) = ledger.terms_of(study.id())?
        {
            terms.check_unchanged(study.about()).map_err(|error| {
                Failure::from(error).remark("or say so with accept_new_purpose=True")
            })?;
        }
        let (now, own) = (ledger.limits()?, options);
        let limits = now.changed(own.epsilon_per_study, own.epsilon_total, own.delta_total)?;
        ledger.set_limits(limits)?;
        let file = ledger.row_file(
            participants.len() as u64,
            &participants.digest(),
            &participants.reading(),
        )?;
        let file = match options.same_participants {
            true => file.assume_same_participants(),
            false => file,
        };
        let cost = ledger.admit(study, &file)?;
        if options.resend_refused {
            ledger.requeue_refused(study)?;
        }
        // Each participant counts twice: perturbed, then sent.
        let total = 2 * participants.len() as u64;
        let prepared = ledger.prepare(
            study,
            &file,
            |row, now| participants.report(row, study, now),
            |rows| {
                control.progress(before.total() + rows, total);
                match control.is_stopped() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            },
        )?;
        ledger.set_tokens(study, (0..).zip(&self.tokens))?;
        let ready = ledger.counts(study)?;
        let sending = UploadSettings {
            connections: options.connections,
            ..UploadSettings::default()
        };
        let done_before = ready.acknowledged + ready.refused;
        let sent =
            control.requests(send_rows(ledger, study, &self.settings, &sending, |now| {
                let done = now.accepted + now.duplicates + now.refused;
                control.progress(total / 2 + done_before + done, total);
                ControlFlow::Continue(())
            }))??;
        let counts = ledger.counts(study)?;
        control.progress(total - counts.pending, total);
        let mut answer = summary(&sent);
        answer["participants"] = json!(participants.len());
        answer["prepared"] = json!(prepared.rows);
        answer["unusable"] = json!(prepared.unusable);
        answer["acknowledged"] = json!(counts.acknowledged);
        answer["refused"] = json!(counts.refused);
        answer["pending"] = json!(counts.pending);
        answer["epsilon"] = json!(cost.epsilon());
        answer["delta"] = json!(cost.delta());
        answer["refusals"] = serde_json::Value::Array(
            ledger
                .refused(study, 8)?
                .iter()
                .map(|refused| json!({ "row": refused.row, "code": refused.code, "detail": refused.detail }))
                .collect(),
        );
        Ok(answer.to_string())
    }
}
