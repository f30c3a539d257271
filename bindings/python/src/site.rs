//! The table of a site, held by Python, as one report.

use std::{
    ops::{ControlFlow, Range},
    path::PathBuf,
};

use eigenveil_client::{
    Participants as _, RowLedger, SitePersons, SiteTable, SiteUploadRequest, TableCounts,
    UploadRequest, upload_site_table,
};
use eigenveil_shared::{ErrorCode, enrolment::ParticipantToken, preprocess::Row};
use eigenveil_tables::{identifiers, numbers_of};
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::{
    connection::Connection,
    error::{Failure, Result},
    ledger::Closable,
    rows::{Table, with_arguments},
    study::{PyStudy, check_len},
    use_case::request,
    wait::{run_detached, run_interruptible},
};

struct SiteArray {
    table: Table,
    persons: Option<SitePersons>,
}

impl SiteTable for SiteArray {
    fn row_count(&self) -> usize {
        self.table.numbers.ncols()
    }

    fn rows(&self, numbers: Range<usize>) -> eigenveil_client::Result<Vec<Row>> {
        Ok(numbers.map(|number| self.table.row(number)).collect())
    }

    fn persons(&self) -> Option<&SitePersons> {
        self.persons.as_ref()
    }

    fn identity(&self) -> Vec<u8> {
        self.table.identity().into_owned()
    }

    fn settings_digest(&self) -> Vec<u8> {
        self.table.settings_digest()
    }
}

/// The persons of the rows, as this ledger knows them.
fn persons_of(ledger: &RowLedger, labels: &[String]) -> Result<SitePersons> {
    let identifiers = identifiers(labels);
    let identifiers =
        identifiers.map_err(|error| Failure::from_table_error(&error, "wrong-persons"))?;
    let mut persons = ledger.site_persons(numbers_of)?;
    identifiers
        .iter()
        .for_each(|identifier| persons.push(identifier));
    Ok(persons)
}

/// Counts of the table that would be sent, or was.
fn counted(counts: TableCounts) -> Value {
    json!({
        "rows": counts.rows,
        "charged": counts.charged,
        "charged_before": counts.charged_before,
        "beyond_cap": counts.beyond_cap,
        "unusable": counts.unusable,
        "waiting": counts.waiting,
        "known_others": counts.known_others,
    })
}

/// Reports a table; `arguments` are those of a `SiteUploadRequest`. Returns the counts, and if the report was approved
/// the outcome, as JSON.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one call, from Python")]
pub(crate) fn site_report(
    py: Python<'_>,
    path: PathBuf,
    study: &PyStudy,
    table: PyReadonlyArray2<'_, f64>,
    persons: Option<Vec<String>>,
    token: Option<String>,
    arguments: String,
    approve: bool,
    progress: Option<&Bound<'_, PyAny>>,
    connection: Option<Connection>,
) -> PyResult<String> {
    let table = Table::read(&table, None, None).map_err(|failure| failure.raise(py))?;
    let study = study.sites().map_err(|failure| failure.raise(py))?;
    let (request, ledger) = run_detached(py, || {
        let request: SiteUploadRequest = request(&arguments)?;
        Ok((request, Closable::new(RowLedger::open_unchanged(path)?)))
    })?;
    let shared_ledger = ledger.clone();
    let done = run_interruptible(py, progress, move |control| {
        let settings = Connection::settings(connection.as_ref())?;
        check_len(&study, table.numbers.nrows())?;
        let token = token.map(|text| ParticipantToken::parse(&text));
        let request = SiteUploadRequest {
            upload: UploadRequest {
                tokens: token.transpose()?.map(|token| vec![token]),
                ..request.upload
            },
            ..request
        };
        shared_ledger.with(control, |ledger| {
            let persons = persons.map(|labels| persons_of(ledger, &labels));
            let table = SiteArray {
                table,
                persons: persons.transpose()?,
            };
            let admitted = ledger.admit_site_table(&study, &table, &request, &settings);
            let mut admitted = control
                .run_requests(admitted)?
                .map_err(with_site_arguments)?;
            let rows = table.row_count() as u64;
            let summed = admitted.sum(|done| {
                control.set_progress(done, rows);
                match control.is_stopped() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            });
            if !summed? {
                return Err(Failure::interrupted());
            }
            if !approve {
                return Ok(json!({ "counts": counted(admitted.counts()) }).to_string());
            }
            let upload =
                upload_site_table(ledger, admitted, &settings, |_| ControlFlow::Continue(()));
            let mut answer = control.run_requests(upload)??;
            control.set_progress(rows, rows);
            if let Some(failure) = answer.sent.failures.pop() {
                let rest = "the report is charged and still to be sent: call it again to finish";
                return Err(Failure::from(failure.error).remark(rest));
            }
            let mut document = serde_json::to_value(&answer)?;
            document["counts"] = counted(answer.counts);
            Ok(document.to_string())
        })
    });
    // After Ctrl-C one step may still use the ledger.
    ledger.close(py)?;
    done
}

/// Adds the argument that may help to a refusal.
fn with_site_arguments(error: eigenveil_client::Error) -> Failure {
    match error.code() {
        Some(ErrorCode::TokenRequired) => Failure::from(error).remark("the argument is token="),
        _ => with_arguments(error),
    }
}
