//! Upload of a table: its participants and their weights, their admission, their reports, and the sending.

use std::{borrow::Cow, collections::HashMap, hash::Hash, ops::ControlFlow};

use eigenveil_shared::preprocess::Row;
use serde::Serialize;

use crate::{
    error::{Error, Result},
    http::{HttpSettings, SendSummary, UploadMode, UploadSettings, send_rows},
    rules::{Limits, PrivacyCost},
    sqlite::{AdmittedRows, RefusedRow, RowLedger, UploadRequest},
    study::{PreparedReport, Study},
};

/// Maximum number of simultaneous connections.
const MAX_CONNECTIONS: u16 = 1_024;

/// A table whose rows are reported.
pub trait Participants: Sync {
    /// The row with this number, from 0.
    fn row(&self, number: usize) -> Row;
    /// The holders of the rows, and their weights.
    fn holders(&self) -> &Holders;
    /// Bytes that identify the participants: those of a file, say. A ledger stores a digest of them.
    fn identity(&self) -> Cow<'_, [u8]>;
    /// Bytes that identify the settings with which the rows are read and counted, such as the selected columns. A
    /// ledger stores a digest of them.
    fn settings_digest(&self) -> Vec<u8>;
}

/// The holders of the rows of a table, and their weights.
pub enum Holders {
    /// This number of rows, one per participant, all with the same weight.
    Rows(usize),
    /// Persons, and the rows of each.
    Persons(Vec<Vec<usize>>),
    /// One participant per row, with this weight.
    Weighted(Vec<f64>),
}

impl Holders {
    /// Persons, numbered by their first row: rows with the same label belong to one person.
    pub fn persons<L: Eq + Hash>(labels: impl IntoIterator<Item = L>) -> Self {
        let mut persons: Vec<Vec<usize>> = Vec::new();
        let mut numbers = HashMap::new();
        for (row, label) in labels.into_iter().enumerate() {
            let number = *numbers.entry(label).or_insert(persons.len());
            match persons.get_mut(number) {
                Some(person) => person.push(row),
                None => persons.push(vec![row]),
            }
        }
        Self::Persons(persons)
    }

    /// The rows of each person, where they are persons'.
    pub fn rows_of_persons(&self) -> Option<&[Vec<usize>]> {
        match self {
            Self::Persons(persons) => Some(persons),
            Self::Rows(_) | Self::Weighted(_) => None,
        }
    }

    /// Number of participants.
    pub fn count(&self) -> usize {
        match self {
            Self::Rows(count) => *count,
            Self::Persons(persons) => persons.len(),
            Self::Weighted(weights) => weights.len(),
        }
    }

    /// Bytes that identify persons or weights, for digests; empty for plain rows.
    pub fn to_bytes(&self) -> Vec<u8> {
        let to_bytes = |number: usize| (number as u64).to_le_bytes();
        match self {
            Self::Rows(_) => Vec::new(),
            Self::Persons(persons) => persons
                .iter()
                .flat_map(|rows| std::iter::once(rows.len()).chain(rows.iter().copied()))
                .flat_map(to_bytes)
                .collect(),
            Self::Weighted(weights) => weights.iter().flat_map(|w| w.to_le_bytes()).collect(),
        }
    }
}

/// Progress of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UploadProgress {
    /// Participants that have a report, and all participants.
    Made(u64, u64),
    /// Reports that the server has answered, and all that were pending.
    Sent(u64, u64),
    /// A request is sent again only after some seconds, because of this failure.
    Waiting(String),
}

/// The outcome of an upload.
#[derive(Debug, Serialize)]
pub struct UploadAnswer {
    /// The study.
    pub study: String,
    /// Participants of the table: rows, or persons.
    pub rows: u64,
    /// Counts of this upload; `refused` and `pending` count all reports of the study in the ledger.
    #[serde(flatten)]
    pub sent: SendSummary,
    /// Reports of the study that the server has.
    pub acknowledged: u64,
    /// Reports of the study that were given up before.
    pub given_up: u64,
    /// Participants charged now whose report is that of the zero row. **Only for the person responsible for the rows**,
    /// so that no document contains it.
    #[serde(skip)]
    pub unusable: u64,
    /// The ledger's charges.
    pub charged: RowCharges,
    /// The first eight refused reports of the study.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedRow>,
}

/// Charges of an upload, and the ledger after them.
#[derive(Debug, Serialize)]
pub struct RowCharges {
    /// The ε of the study for each participant.
    pub epsilon: f64,
    /// Its δ.
    pub delta: f64,
    /// Participants charged by this upload; the others were charged before.
    pub rows: u64,
    /// The spending of the row that spent most in all studies.
    pub spent: PrivacyCost,
    /// The limits of each row.
    pub limits: Limits,
    /// The ledger's file.
    pub ledger: String,
}

impl RowLedger {
    /// Checks the whole upload of a table, and stores nothing.
    ///
    /// # Errors
    /// Those of [`admit_upload`](Self::admit_upload); `usage` for weights that the study does not take, missing
    /// weights, and an invalid number of connections.
    pub fn admit_table<'a>(
        &self,
        study: &'a Study,
        table: &dyn Participants,
        request: &'a UploadRequest,
    ) -> Result<AdmittedRows<'a>> {
        let holders = table.holders();
        match (study.has_weights(), holders) {
            (true, Holders::Weighted(_)) => {}
            (true, _) => {
                return Err(Error::usage(
                    "participants of this study count by weights above 0 and at most 1; give one for each row",
                ));
            }
            (false, Holders::Weighted(_)) => {
                return Err(Error::usage(
                    "all participants of this study count equally; omit the weights",
                ));
            }
            (false, _) => {}
        }
        let connections = request.connections.unwrap_or(1);
        if !(1..=MAX_CONNECTIONS).contains(&connections) {
            return Err(Error::usage(format!(
                "connections is {connections}; it must be from 1 to {MAX_CONNECTIONS}"
            )));
        }
        let file = self.row_file(
            holders.count() as u64,
            &table.identity(),
            &table.settings_digest(),
        )?;
        let file = match holders {
            Holders::Persons(_) => file.of_persons(),
            Holders::Rows(_) | Holders::Weighted(_) => file,
        };
        self.admit_upload(study, &file, request)
    }
}

/// Makes a report for each participant of the admitted table that has none, and sends the pending reports. `progress`
/// is called several times a second, and may break: reports charged by then stay pending.
///
/// # Errors
/// As [`RowLedger::take_part`] and [`send_rows`].
pub async fn upload_table(
    ledger: &mut RowLedger,
    rows: AdmittedRows<'_>,
    table: &dyn Participants,
    http: &HttpSettings,
    mut progress: impl FnMut(UploadProgress) -> ControlFlow<()>,
) -> Result<UploadAnswer> {
    let (study, request, cost) = (rows.study, rows.request, rows.cost);
    let (participants, reported) = (table.holders().count() as u64, rows.counts.total());
    let prepared = ledger.take_part(
        rows,
        |number, now| report(table, number as usize, study, now),
        |done| progress(UploadProgress::Made(reported + done, participants)),
    )?;
    let (receipt, pending) = (ledger.receipt()?, ledger.counts(study)?.pending);
    let mut sent = SendSummary::default();
    if !prepared.stopped && progress(UploadProgress::Sent(0, pending)).is_continue() {
        let default = UploadSettings::default();
        let settings = UploadSettings {
            connections: request.connections.map_or(default.connections, usize::from),
            mode: match request.single {
                true => UploadMode::Single,
                false => default.mode,
            },
            ..default
        };
        sent = send_rows(ledger, study, http, &settings, |now| {
            let done = now.accepted + now.duplicates + now.refused;
            if let Some(reason) = &now.waiting {
                progress(UploadProgress::Waiting(reason.clone()))?;
            }
            progress(UploadProgress::Sent(done, pending))
        })
        .await?;
    }
    let counts = ledger.counts(study)?;
    (sent.refused, sent.pending) = (counts.refused, counts.pending);
    Ok(UploadAnswer {
        study: study.id().to_owned(),
        rows: participants,
        sent,
        acknowledged: counts.acknowledged,
        given_up: counts.given_up,
        unusable: prepared.unusable,
        charged: RowCharges {
            epsilon: cost.epsilon(),
            delta: cost.delta(),
            rows: prepared.rows,
            spent: receipt.spent,
            limits: receipt.limits,
            ledger: ledger.path().display().to_string(),
        },
        refusals: ledger.refused(study, 8)?,
    })
}

/// The report of one participant.
fn report(
    table: &dyn Participants,
    number: usize,
    study: &Study,
    now: u64,
) -> Result<PreparedReport> {
    match table.holders() {
        Holders::Rows(_) => study.report(&table.row(number), now),
        Holders::Persons(persons) => {
            let rows = persons[number].iter().map(|row| table.row(*row));
            study.report_one_of(&rows.collect::<Vec<_>>(), now)
        }
        Holders::Weighted(weights) => {
            study.report_weighted(&table.row(number), weights[number], now)
        }
    }
}
