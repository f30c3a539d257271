//! The contents of a ledger of rows: files, studies, and their cost for each row.

use std::{collections::BTreeMap, ops::Range, path::Path};

use eigenveil_shared::{
    about::UtcDate, clock::Clock, parameters::Parameters, privacy::Budget, study::Fingerprint,
};
use sha2::{Digest, Sha256};

use super::{
    receipt::{RowReceipt, RowStudy},
    schema::{ROW_BITS, SCHEMA},
    tables::{GIVEN_UP, budget, read_limits, read_servers, read_terms, write_limits, write_move},
};
use crate::{
    book::StudyRecord,
    error::{Error, Result},
    exchange::Server,
    rules::{Limits, PrivacyCost, check_known, check_move, compose, took_part_in_other_round},
    sqlite::file::LockedFile,
    study_info::StudyInfo,
};

/// A file of rows as a ledger knows it: its number of rows, and digests that only this ledger can compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFile {
    pub(super) rows: u64,
    pub(super) participants: [u8; 32],
    pub(super) settings_digest: [u8; 32],
    pub(super) same_participants: bool,
    pub(super) persons: bool,
}

impl RowFile {
    /// States that participants are persons, one of whose rows is reported: the receipt names persons as neighbours.
    #[must_use]
    pub fn of_persons(mut self) -> Self {
        self.persons = true;
        self
    }

    /// States that row `i` of this file is the same participant as row `i` of earlier files, although the files differ:
    /// by new measurements, other features, or new participants at the end. Only for new studies: once a study has
    /// reports, the file must stay the same.
    #[must_use]
    pub fn assume_same_participants(mut self) -> Self {
        self.same_participants = true;
        self
    }
}

/// The durable file of many participants, by number, and many studies.
///
/// ```
/// use std::ops::ControlFlow;
/// use eigenveil_client::{RowLedger, Study};
/// use eigenveil_shared::preprocess::Row;
/// # use eigenveil_shared::{
/// #     mechanism::MechanismKind, privacy::Budget,
/// #     study::{StudyDesign, StudyParams},
/// # };
/// # let params = StudyParams::freeze(StudyDesign::new(MechanismKind::IsotropicGaussian, 2, Budget::approximate(1.0, 1e-6)?))?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path();
/// let study = Study::new(&"http://localhost:8080".parse()?, "0123", params);
/// let rows = vec![Row::new(vec![1.0, 2.0]), Row::new(vec![3.0, 4.0])];
///
/// let mut ledger = RowLedger::open(path.join("rows.ledger"))?;
/// let file = ledger.row_file(2, b"1,2\n3,4\n", b"both columns")?;
/// // Each row is perturbed once; its report and its charge are durable before anything can be sent.
/// let report = |row: u64, now| study.report(&rows[row as usize], now);
/// let prepared = ledger.prepare(&study, &file, report, |_| ControlFlow::Continue(()))?;
/// assert_eq!(prepared.rows, 2);
/// // The ε of the study, plus floating-point slack.
/// assert!(ledger.receipt()?.spent.epsilon < 1.000_001);
/// // A second call makes no other reports.
/// assert_eq!(ledger.prepare(&study, &file, report, |_| ControlFlow::Continue(()))?.rows, 0);
/// assert_eq!(ledger.counts(&study)?.pending, 2);
/// # Ok::<(), eigenveil_client::Error>(())
/// ```
pub struct RowLedger {
    pub(super) store: LockedFile,
    pub(super) clock: Box<dyn Clock>,
}

ledger_file!(RowLedger, SCHEMA);

/// One study of a ledger of rows.
pub(super) struct RecordedStudy {
    pub(super) number: i64,
    servers: Vec<Server>,
    fingerprint: Fingerprint,
}

impl RecordedStudy {
    /// Refuses a study at another address, unless it has moved there, or with other parameters.
    pub(super) fn check(&self, study: &StudyInfo, moved: bool) -> Result<()> {
        let server = self.servers.last().filter(|_| !moved);
        check_known(
            study,
            "rows",
            server.unwrap_or(study.server()),
            self.fingerprint,
        )
    }
}

/// Consecutive rows of one study that were charged.
struct Charge {
    study: i64,
    rows: Range<u64>,
}

/// Consecutive rows that took part in the same studies, and what these cost.
type RowRangeCosts = (Range<u64>, BTreeMap<i64, Budget>);

impl RowLedger {
    /// Whether the file at this path is a ledger of rows rather than one of a device or another file.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        SCHEMA.is_at(path.as_ref())
    }

    /// Opens like [`open`](Self::open), and changes nothing on the disk before the first write: until then, a missing
    /// ledger is in memory only, and an interrupted change in the log beside the file is read and stays there. An
    /// admission or a refusal leaves no trace.
    ///
    /// # Errors
    /// Those of [`open`](Self::open). The first write is refused as locked if another process has created the ledger
    /// since.
    pub fn open_unchanged(path: impl AsRef<Path>) -> Result<Self> {
        Self::checked(SCHEMA.open_unchanged(path.as_ref())?)
    }

    /// The limits of each row.
    pub fn limits(&self) -> Result<Limits> {
        read_limits(&self.store)
    }

    /// Sets the limits of each row: **only for the person responsible for the rows**. Limits below what is already
    /// spent are allowed: then nothing more is spent.
    pub fn set_limits(&mut self, limits: Limits) -> Result<()> {
        self.store.write(|file| Ok(write_limits(file, &limits)?))
    }

    /// A file of `rows` rows; `participants` are bytes that identify them (those of the file, say), `settings` bytes
    /// for what else their values depend on (the selected columns, say).
    ///
    /// # Errors
    /// 2⁴⁰ rows or more; the ledger could not be read.
    pub fn row_file(&self, rows: u64, participants: &[u8], settings: &[u8]) -> Result<RowFile> {
        if rows >> ROW_BITS != 0 {
            return Err(Error::usage(format!(
                "{rows} rows are too many for one ledger, which takes fewer than 2^{ROW_BITS}"
            )));
        }
        let digest = Sha256::new()
            .chain_update(self.salt()?)
            .chain_update(rows.to_le_bytes())
            .chain_update(participants);
        Ok(RowFile {
            rows,
            participants: digest.clone().finalize().into(),
            // The length keeps the two parts apart.
            settings_digest: digest
                .chain_update(settings)
                .chain_update((settings.len() as u64).to_le_bytes())
                .finalize()
                .into(),
            same_participants: false,
            persons: false,
        })
    }

    /// Random bytes that make the digests of this ledger its own.
    pub(super) fn salt(&self) -> Result<[u8; 32]> {
        self.store
            .one("SELECT bytes FROM salt", [], |row| row.get(0))
    }

    /// The server to which the reports of a study are sent; `None` if no row took part in it.
    pub fn server_of(&self, study: &str) -> Result<Option<Server>> {
        let known = self.known(study)?;
        Ok(known.and_then(|mut known| known.servers.pop()))
    }

    /// Records that a study in which rows took part has moved to another address, where their reports are sent. Ask the
    /// person responsible for the rows first. Does nothing if no row took part in it, or if it already was at this
    /// address.
    ///
    /// # Errors
    /// `wrong-fingerprint` if the study's parameters differ; `invalid-about` if its purpose or responsible party has
    /// changed.
    pub fn accept_move(&mut self, study: &StudyInfo) -> Result<()> {
        let Some(known) = self.known(study.id())? else {
            return Ok(());
        };
        let terms = read_terms(&self.store, known.number)?;
        check_move(study, known.fingerprint, &terms)?;
        if known.servers.last() == Some(study.server()) {
            return Ok(());
        }
        self.store
            .write(|file| Ok(write_move(file, known.number, study.server())?))
    }

    /// Refuses a study that would exceed one of these limits for one of these rows, which are ascending and have not
    /// taken part in it; `whom` names some of them.
    pub(super) fn check_limits(
        &self,
        limits: Limits,
        study: &StudyInfo,
        cost: Budget,
        rows: &[Range<u64>],
        whom: impl Fn(&Range<u64>) -> String,
    ) -> Result<()> {
        let end = rows.last().map_or(0, |last| last.end);
        for (range, spent) in self.row_ranges(&self.charges()?, 0..end)? {
            let first = rows.partition_point(|rows| rows.end <= range.start);
            if rows.get(first).is_none_or(|rows| range.end <= rows.start) {
                continue;
            }
            let spent: Vec<Budget> = spent.into_values().collect();
            limits.check(&spent, cost).map_err(|exceeded| {
                exceeded.to_error(
                    &format!("{}: taking part in", whom(&range)),
                    study.id(),
                    "this ledger lets a row spend",
                    "whoever is responsible for the rows",
                )
            })?;
        }
        Ok(())
    }

    /// Refuses a round of a preparation for rows that took part in another round of it; `whom` names some of them.
    pub(super) fn check_other_rounds(
        &self,
        study: &StudyInfo,
        rows: &[Range<u64>],
        whom: impl Fn(&Range<u64>) -> String,
    ) -> Result<()> {
        let Some(first) = study.parameters().first_round() else {
            return Ok(());
        };
        let known: Vec<(i64, String, Vec<u8>)> = self.store.all(
            "SELECT number, study, canonical_params FROM study JOIN study_terms USING (number) WHERE study != ?1",
            [study.id()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )?;
        let is_round = |params: &[u8]| {
            Parameters::from_canonical(params)
                .is_ok_and(|params| params.first_round() == Some(first))
        };
        let rounds: BTreeMap<i64, String> = known
            .into_iter()
            .filter(|(_, _, params)| is_round(params))
            .map(|(number, study, _)| (number, study))
            .collect();
        for charge in self.charges()? {
            let Some(other) = rounds.get(&charge.study) else {
                continue;
            };
            let both = |rows: &Range<u64>| {
                rows.start.max(charge.rows.start)..rows.end.min(charge.rows.end)
            };
            if let Some(rows) = rows.iter().map(both).find(|both| !both.is_empty()) {
                return Err(took_part_in_other_round(study, &whom(&rows), other));
            }
        }
        Ok(())
    }

    /// The rows of the file that have not taken part in the study yet, ascending.
    pub(super) fn missing(&self, study: &str, rows: u64) -> Result<Vec<Range<u64>>> {
        let study_number = self.known(study)?.map(|known| known.number);
        let charges = self.charges()?;
        let charged = charges
            .iter()
            .filter(|charge| Some(charge.study) == study_number);
        let (mut missing, mut from) = (Vec::new(), 0);
        for charge in charged {
            missing.push(from..charge.rows.start.min(rows));
            from = charge.rows.end;
        }
        missing.push(from..rows);
        missing.retain(|range| range.start < range.end);
        Ok(missing)
    }

    /// The studies that the rows took part in, and what remains under the limits.
    pub fn receipt(&self) -> Result<RowReceipt> {
        let charges = self.charges()?;
        let mut spent = PrivacyCost::default();
        for (_, costs) in self.row_ranges(&charges, 0..u64::MAX)? {
            let row_cost = compose(costs.into_values());
            spent.epsilon = spent.epsilon.max(row_cost.epsilon);
            spent.delta = spent.delta.max(row_cost.delta);
        }
        let limits = self.limits()?;
        let mut studies = BTreeMap::new();
        for (number, charged) in self.budgets()? {
            studies.insert(number, self.study(number, charged)?);
        }
        for charge in &charges {
            if let Some(study) = studies.get_mut(&charge.study) {
                study.rows += charge.rows.end - charge.rows.start;
            }
        }
        for (study, given_up) in self.given_up()? {
            if let Some(study) = studies.get_mut(&study) {
                study.given_up = given_up;
            }
        }
        Ok(RowReceipt {
            limits,
            spent,
            remaining: limits.remaining(spent),
            studies: studies.into_values().collect(),
        })
    }

    pub(super) fn known(&self, study: &str) -> Result<Option<RecordedStudy>> {
        let stored = self.store.first(
            "SELECT number, server, fingerprint FROM study WHERE study = ?1",
            [study],
            |row| {
                Ok((
                    row.get(0)?,
                    row.get::<_, String>(1)?,
                    Fingerprint(row.get(2)?),
                ))
            },
        )?;
        let Some((number, first, fingerprint)) = stored else {
            return Ok(None);
        };
        Ok(Some(RecordedStudy {
            number,
            servers: read_servers(&self.store, number, &first)?,
            fingerprint,
        }))
    }

    /// The charge of a row for each study.
    fn budgets(&self) -> Result<BTreeMap<i64, Budget>> {
        let costs = self
            .store
            .all("SELECT number, epsilon, delta FROM study", [], |row| {
                Ok((row.get(0)?, budget(row, 1)?))
            })?;
        Ok(costs.into_iter().collect())
    }

    /// A study, without its numbers of rows and reports.
    fn study(&self, number: i64, charged: Budget) -> Result<RowStudy> {
        let terms = read_terms(&self.store, number)?;
        let record = self.store.one(
            "SELECT server, study, fingerprint, day, mechanism, dimension, neighbours, sentence
             FROM study WHERE number = ?1",
            [number],
            |row| {
                Ok(StudyRecord {
                    server: row.get(0)?,
                    moved_to: Vec::new(),
                    study: row.get(1)?,
                    fingerprint: Fingerprint(row.get(2)?).to_string(),
                    day: UtcDate(row.get(3)?).to_string(),
                    mechanism: row.get(4)?,
                    dimension: row.get(5)?,
                    neighbours: row.get(6)?,
                    sentence: row.get(7)?,
                    charged,
                    terms,
                })
            },
        )?;
        let servers = read_servers(&self.store, number, &record.server)?;
        Ok(RowStudy {
            record: record.with_servers(&servers),
            rows: 0,
            given_up: 0,
            site: self.site_of(number)?,
        })
    }

    /// Numbers of reports that were given up, by study.
    fn given_up(&self) -> Result<Vec<(i64, u64)>> {
        self.store.all(
            "SELECT key >> ?1, count(*) FROM report WHERE state = ?2 GROUP BY 1",
            [i64::from(ROW_BITS), GIVEN_UP],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
    }

    /// All charges, by study and row; adjacent ones are merged.
    fn charges(&self) -> Result<Vec<Charge>> {
        let mut charges: Vec<Charge> = Vec::new();
        self.store.all(
            "SELECT study, first, rows FROM charge ORDER BY study, first",
            [],
            |row| {
                let (study, first): (i64, u64) = (row.get(0)?, row.get(1)?);
                let end = first.saturating_add(row.get(2)?);
                match charges.last_mut() {
                    Some(last) if (last.study, last.rows.end) == (study, first) => {
                        last.rows.end = end;
                    }
                    _ => charges.push(Charge {
                        study,
                        rows: first..end,
                    }),
                }
                Ok(())
            },
        )?;
        Ok(charges)
    }

    /// A range of rows, split where the set of studies changes, with the costs of each part.
    fn row_ranges(&self, charges: &[Charge], range: Range<u64>) -> Result<Vec<RowRangeCosts>> {
        let budgets = self.budgets()?;
        // The rows at which a study begins (`true`) or ends.
        let mut cuts: BTreeMap<u64, Vec<(i64, bool)>> = BTreeMap::new();
        cuts.insert(range.start, Vec::new());
        cuts.insert(range.end, Vec::new());
        for charge in charges {
            let (start, end) = (
                charge.rows.start.clamp(range.start, range.end),
                charge.rows.end.clamp(range.start, range.end),
            );
            if start < end {
                cuts.entry(start).or_default().push((charge.study, true));
                cuts.entry(end).or_default().push((charge.study, false));
            }
        }
        let mut row_ranges: Vec<RowRangeCosts> = Vec::new();
        let mut current = BTreeMap::new();
        let mut from = range.start;
        for (cut, changes) in cuts {
            if from < cut {
                row_ranges.push((from..cut, current.clone()));
            }
            from = cut;
            // A study that ends here may begin again.
            for &(study, _) in changes.iter().filter(|change| !change.1) {
                current.remove(&study);
            }
            for &(study, _) in changes.iter().filter(|change| change.1) {
                let budget = budgets.get(&study).copied().ok_or_else(|| {
                    self.store
                        .damaged_error("a charge is for a study that it does not hold")
                })?;
                current.insert(study, budget);
            }
        }
        Ok(row_ranges)
    }
}
