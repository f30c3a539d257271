//! The ledger of a file of rows: which studies each participant reported to, and what it spent.
//!
//! Row `i` of every file that is used with a ledger is participant `i`: the number is all that the ledger
//! keeps of a participant. Of a whole file it keeps a digest, salted with random bytes of its own, to notice another
//! file: its rows may be other people, or the same people in another order. Whoever has the ledger can compare the
//! digest with a guess at the whole file, which for one row is a guess at that row: keep it as private as the file.
//!
//! The reports themselves are in outboxes, one a study. The order in which the two are written makes one
//! report a participant and study:
//!
//! 1. [`RowLedger::admit`] refuses what would pass a limit, and an outbox that does not hold the reports
//!    that were charged, before anything is perturbed.
//! 2. The reports are written to the outbox.
//! 3. [`RowLedger::charge`] charges them, by a digest of their identifiers. Only then may they be sent.
//!
//! Killed between 2 and 3, the reports are charged by the next run; if by then other reports of the same
//! participants have been charged, from another outbox, these never leave.

use std::{collections::BTreeMap, fmt, ops::Range, path::Path};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    about::UtcDate,
    privacy::{Budget, PrivacyStatement},
    study::Fingerprint,
};
use rusqlite::params;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    limits::{self, Limits, PrivacyCost},
    moved::{self, MOVED},
    schema::{LIMITS, budget, check_known, read_limits, write_limits},
    terms::{self, STUDY_TERMS, StudyTerms},
};
use crate::{
    error::{Error, Result},
    file::{FileSchema, LockedFile},
    outbox::{Outbox, StudyRef},
    reporter::{Reporter, check_fingerprint},
};

/// How a ledger of rows is recognised.
const SCHEMA: FileSchema = FileSchema {
    name: "ledger",
    // "EvRL"; before "EvRl"
    application_id: 0x4576_524c,
    earlier_application_id: 0x4576_526c,
    tables: &[LIMITS, TABLES, STUDY_TERMS, MOVED],
    append_only_table: "charge",
};

const TABLES: &str = "
    CREATE TABLE salt (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        bytes BLOB NOT NULL CHECK (length(bytes) = 32)
    ) STRICT;
    CREATE TABLE file (digest BLOB PRIMARY KEY CHECK (length(digest) = 32)) STRICT;
    CREATE TABLE study (
        number INTEGER PRIMARY KEY,
        server TEXT NOT NULL,
        study TEXT NOT NULL UNIQUE,
        fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
        mechanism TEXT NOT NULL,
        dimension INTEGER NOT NULL CHECK (dimension > 0),
        neighbours TEXT NOT NULL,
        sentence TEXT NOT NULL,
        epsilon REAL NOT NULL CHECK (epsilon > 0),
        delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
        day INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE charge (
        number INTEGER PRIMARY KEY,
        study INTEGER NOT NULL REFERENCES study,
        first INTEGER NOT NULL CHECK (first >= 0),
        rows INTEGER NOT NULL CHECK (rows > 0),
        reports_digest BLOB NOT NULL CHECK (length(reports_digest) = 32)
    ) STRICT;
    CREATE TRIGGER studies_stay BEFORE DELETE ON study
        BEGIN SELECT RAISE(ABORT, 'a study of a ledger is never deleted'); END;
    CREATE TRIGGER what_studies_cost_stays BEFORE UPDATE ON study
        BEGIN SELECT RAISE(ABORT, 'what a ledger says of a study is never changed'); END;
    CREATE TRIGGER charges_stay BEFORE DELETE ON charge
        BEGIN SELECT RAISE(ABORT, 'a charge of a ledger is never deleted'); END;
    CREATE TRIGGER charges_are_fixed BEFORE UPDATE ON charge
        BEGIN SELECT RAISE(ABORT, 'a charge of a ledger is never changed'); END;
";

/// A file of rows as a ledger knows it: how many rows, and a digest that only this ledger can make.
#[derive(Clone, Debug)]
pub struct RowFileDigest {
    rows: u64,
    digest: [u8; 32],
    same_participants: bool,
}

impl RowFileDigest {
    /// Says that row `i` of this file is the participant that row `i` of earlier files was, though the
    /// files differ: with new measurements, other features, or new participants at the end.
    #[must_use]
    pub fn assume_same_participants(mut self) -> Self {
        self.same_participants = true;
        self
    }
}

/// The durable file of many participants, by number, and many studies.
///
/// ```
/// use eigenveil_client::{Limits, Outbox, Reporter, RowLedger, StudyRef};
/// use eigenveil_shared::{ErrorCode, preprocess::Row};
/// # use eigenveil_shared::{
/// #     mechanism::MechanismKind, privacy::Budget,
/// #     study::{StudyDesign, StudyParams},
/// # };
/// # let params = StudyParams::freeze(StudyDesign::new(MechanismKind::IsotropicGaussian, 2, Budget::approximate(1.0, 1e-6)?))?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path();
/// let study_ref = StudyRef::new("http://localhost:8080", "0123", &params);
/// let reporter = Reporter::new(params);
/// let rows = vec![Row::new(vec![1.0, 2.0]), Row::new(vec![3.0, 4.0])];
///
/// let mut ledger = RowLedger::open(path.join("rows.ledger"))?;
/// let mut outbox = Outbox::open(path.join("outbox"), &study_ref)?;
/// let file = ledger.row_file(2, b"1,2\n3,4\n")?;
/// // Before anything is perturbed ...
/// ledger.admit(&reporter, &study_ref, &file, &outbox)?;
/// for index in outbox.missing(0..2)? {
///     outbox.enqueue(index, &reporter.report(&rows[index as usize])?)?;
/// }
/// // ... and before anything is sent.
/// assert_eq!(ledger.charge(&reporter, &study_ref, &file, &outbox)?, 2);
/// // The ε of the study, and what floating point adds.
/// assert!(ledger.receipt()?.spent.epsilon < 1.000_001);
///
/// // The same rows with another outbox: no second report.
/// let other = Outbox::open(path.join("another"), &study_ref)?;
/// let error = ledger.admit(&reporter, &study_ref, &file, &other).unwrap_err();
/// assert_eq!(error.code(), Some(ErrorCode::AlreadyParticipated));
/// # Ok::<(), eigenveil_client::Error>(())
/// ```
#[derive(Debug)]
pub struct RowLedger {
    store: LockedFile,
}

/// One study of a ledger of rows.
struct RecordedStudy {
    number: i64,
    server: String,
    fingerprint: Fingerprint,
}

/// Reports of one study that were charged together: consecutive rows.
struct Charge {
    study: i64,
    rows: Range<u64>,
    reports_digest: [u8; 32],
}

/// Consecutive rows that took part in the same studies, and what these cost.
type RowRangeCosts = (Range<u64>, BTreeMap<i64, Budget>);

impl RowLedger {
    /// Opens the ledger, creating the file (readable by its owner only, with the default [`Limits`]) if
    /// there is none. A ledger that was lost looks like one that never was.
    ///
    /// # Errors
    /// As [`Ledger::open`](crate::Ledger::open).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::checked(SCHEMA.open_or_create(path.as_ref(), |file| {
            write_limits(file, &Limits::default())?;
            file.execute("INSERT INTO salt VALUES (1, randomblob(32))", [])
                .map(drop)
        })?)
    }

    /// Opens a ledger that is there: to look at it, without making a new one by mistake.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self> {
        Self::checked(SCHEMA.open(path.as_ref())?)
    }

    fn checked(store: LockedFile) -> Result<Self> {
        let ledger = Self { store };
        // A ledger that cannot be counted must not be used.
        ledger.receipt()?;
        Ok(ledger)
    }

    /// Whether the file at this path is a ledger of rows, and not one of a device or something else.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        SCHEMA.is_at(path.as_ref())
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// What each row may spend.
    pub fn limits(&self) -> Result<Limits> {
        read_limits(&SCHEMA, &self.store)
    }

    /// Sets what each row may spend: for whoever answers for the rows. Limits below what is spent already are
    /// allowed: nothing more is spent then.
    pub fn set_limits(&mut self, limits: Limits) -> Result<()> {
        self.store
            .write(|file| Ok(write_limits(file, &limits).map(drop)?))
    }

    /// A file of `rows` rows whose bytes are these.
    pub fn row_file(&self, rows: u64, bytes: &[u8]) -> Result<RowFileDigest> {
        let salt: [u8; 32] = self
            .store
            .one("SELECT bytes FROM salt", [], |row| row.get(0))?;
        Ok(RowFileDigest {
            rows,
            digest: Sha256::new()
                .chain_update(salt)
                .chain_update(rows.to_le_bytes())
                .chain_update(bytes)
                .finalize()
                .into(),
            same_participants: false,
        })
    }

    /// Records that a study in which rows took part is at another address now: their reports are sent there. Ask whoever
    /// answers for the rows first, and see [`Outbox::accept_move`]. Does nothing if no row took part in it, or if it is at
    /// this address already.
    ///
    /// # Errors
    /// `wrong-fingerprint` when the study's parameters are others; `invalid-about` when it states another purpose or
    /// responsible party than it did then.
    pub fn accept_move(&mut self, reporter: &Reporter, study_ref: &StudyRef) -> Result<()> {
        let Some(known) = self.known(study_ref.study())? else {
            return Ok(());
        };
        moved::check(
            &self.store,
            known.number,
            known.fingerprint,
            reporter,
            study_ref,
        )?;
        if known.server == study_ref.server() {
            return Ok(());
        }
        self.store
            .write(|file| Ok(moved::record(file, known.number, study_ref).map(drop)?))
    }

    /// Whether these rows may take part in the study with this outbox. Gives what it costs each of them.
    ///
    /// # Errors
    /// `already-participated` when rows were reported in this study and their reports are not those in the
    /// outbox, or at another address; `budget-exceeded` when it would pass a row's limit;
    /// `wrong-fingerprint`; [`Error::is_row_file_mismatch`] for a file that the ledger does not know
    /// ([`RowFileDigest::assume_same_participants`]); the ledger or the outbox could not be read.
    pub fn admit(
        &self,
        reporter: &Reporter,
        study_ref: &StudyRef,
        file: &RowFileDigest,
        outbox: &Outbox,
    ) -> Result<Budget> {
        check_fingerprint(reporter.fingerprint(), study_ref.fingerprint())?;
        self.check_file(file)?;
        let statement = PrivacyStatement::new(reporter.params());
        let cost = limits::charge(study_ref.study(), reporter.params(), &statement)?;
        let known = self.known(study_ref.study())?;
        let charges = self.charges()?;
        if let Some(known) = &known {
            check_known(study_ref, "rows", &known.server, known.fingerprint)?;
            for charge in charges.iter().filter(|charge| charge.study == known.number) {
                if digest(&outbox.ids(charge.rows.clone())?, &charge.rows)
                    != Some(charge.reports_digest)
                {
                    return Err(SharedError::new(
                        ErrorCode::AlreadyParticipated,
                        format!(
                            "rows {} to {} have taken part in study {}, and the reports in {} are not those that were charged; use the outbox that holds them: a second report would spend the budget of these rows again",
                            charge.rows.start + 1,
                            charge.rows.end,
                            study_ref.study(),
                            outbox.path().display()
                        ),
                    )
                    .into());
                }
            }
        }
        let limits = self.limits()?;
        let here = known.map(|known| known.number);
        for (rows, spent) in self.row_ranges(&charges, 0..file.rows)? {
            if here.is_some_and(|here| spent.contains_key(&here)) {
                continue;
            }
            let spent: Vec<Budget> = spent.into_values().collect();
            limits.check(&spent, cost).map_err(|exceeded| {
                exceeded.to_error(
                    &format!("rows {} to {}: taking part in", rows.start + 1, rows.end),
                    study_ref.study(),
                    "this ledger lets a row spend",
                    "whoever is responsible for the rows raise the limit (RowLedger::set_limits)",
                )
            })?;
        }
        Ok(cost)
    }

    /// Charges every row of the file whose report is in the outbox and was not charged. Gives how many.
    /// Only after this may the outbox be sent.
    ///
    /// # Errors
    /// As [`RowLedger::admit`]; `study-not-open` when there is something to charge for a study that took no reports
    /// when it was fetched, `study-ended` where its last day is over by this machine's clock; a report in the outbox
    /// that belongs to no row of the file and was not charged (then nothing at all is charged); the ledger could not
    /// be written.
    pub fn charge(
        &mut self,
        reporter: &Reporter,
        study_ref: &StudyRef,
        file: &RowFileDigest,
        outbox: &Outbox,
    ) -> Result<u64> {
        let cost = self.admit(reporter, study_ref, file, outbox)?;
        let known = self.known(study_ref.study())?.map(|known| known.number);
        let mut charged: Vec<Range<u64>> = self
            .charges()?
            .into_iter()
            .filter(|charge| Some(charge.study) == known)
            .map(|charge| charge.rows)
            .collect();
        charged.sort_by_key(|rows| rows.start);
        // Runs of consecutive reports between what is charged.
        let mut runs: Vec<Vec<(u64, [u8; 16])>> = Vec::new();
        let mut from = 0;
        let ends = charged.iter().map(|rows| (rows.start, rows.end));
        for (end, next) in ends.chain([(u64::MAX, u64::MAX)]) {
            for report in outbox.ids(from..end)? {
                if report.0 >= file.rows {
                    return Err(Error::usage(format!(
                        "{} has a report of row {}, which was not charged, and the file has {} rows; use the file that has this row, or another outbox",
                        outbox.path().display(),
                        report.0 + 1,
                        file.rows
                    )));
                }
                match runs.last_mut() {
                    Some(run) if run.last().is_some_and(|last| last.0 + 1 == report.0) => {
                        run.push(report);
                    }
                    _ => runs.push(vec![report]),
                }
            }
            from = next;
        }
        if !runs.is_empty() {
            reporter.check_open()?;
        }
        let rows = runs.iter().map(|run| run.len() as u64).sum();
        let statement = PrivacyStatement::new(reporter.params());
        self.store.write(|ledger| {
            ledger.execute(
                "INSERT INTO file VALUES (?1) ON CONFLICT DO NOTHING",
                [file.digest],
            )?;
            if runs.is_empty() {
                return Ok(());
            }
            let study = match known {
                Some(number) => number,
                None => {
                    ledger.execute(
                        "INSERT INTO study (server, study, fingerprint, mechanism, dimension,
                            neighbours, sentence, epsilon, delta, day)
                         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                        params![
                            study_ref.server(),
                            study_ref.study(),
                            study_ref.fingerprint().0,
                            statement.mechanism.as_str(),
                            reporter.params().dimension(),
                            statement.neighbours,
                            statement.sentence,
                            cost.epsilon(),
                            cost.delta(),
                            reporter.day(),
                        ],
                    )?;
                    let number = ledger.last_insert_rowid();
                    terms::record(ledger, number, reporter)?;
                    number
                }
            };
            for run in &runs {
                let range = run[0].0..run[0].0 + run.len() as u64;
                ledger.execute(
                    "INSERT INTO charge (study, first, rows, reports_digest) VALUES (?1, ?2, ?3, ?4)",
                    params![study, range.start, run.len(), digest(run, &range)],
                )?;
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// Which studies the rows took part in, and what remains under the limits.
    pub fn receipt(&self) -> Result<RowReceipt> {
        let charges = self.charges()?;
        let mut spent = PrivacyCost::default();
        for (_, costs) in self.row_ranges(&charges, 0..u64::MAX)? {
            let here = limits::compose(costs.into_values());
            spent.epsilon = spent.epsilon.max(here.epsilon);
            spent.delta = spent.delta.max(here.delta);
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
        Ok(RowReceipt {
            limits,
            spent,
            remaining: limits.remaining(spent),
            studies: studies.into_values().collect(),
        })
    }

    /// Refuses a file that differs from those that were charged, unless the caller answers for it.
    fn check_file(&self, file: &RowFileDigest) -> Result<()> {
        let (any, this): (bool, bool) = self.store.one(
            "SELECT EXISTS (SELECT 1 FROM file), EXISTS (SELECT 1 FROM file WHERE digest = ?1)",
            [file.digest],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        if this || !any || file.same_participants {
            return Ok(());
        }
        Err(Error::row_file_mismatch(self.path()))
    }

    fn known(&self, study: &str) -> Result<Option<RecordedStudy>> {
        self.store.first(
            "SELECT number, coalesce((SELECT moved.server FROM moved WHERE moved.number = study.number
                ORDER BY moved.id DESC LIMIT 1), server), fingerprint FROM study WHERE study = ?1",
            [study],
            |row| {
                Ok(RecordedStudy {
                    number: row.get(0)?,
                    server: row.get(1)?,
                    fingerprint: Fingerprint(row.get(2)?),
                })
            },
        )
    }

    /// What each study costs a row.
    fn budgets(&self) -> Result<BTreeMap<i64, Budget>> {
        let costs = self
            .store
            .all("SELECT number, epsilon, delta FROM study", [], |row| {
                Ok((row.get(0)?, budget(row, 1)?))
            })?;
        Ok(costs.into_iter().collect())
    }

    /// A study, without its number of rows.
    fn study(&self, number: i64, charged: Budget) -> Result<RowStudy> {
        let terms = terms::read(&self.store, number)?;
        let moved_to = moved::addresses(&self.store, number)?;
        self.store.one(
            "SELECT server, study, fingerprint, day, mechanism, dimension, neighbours, sentence
             FROM study WHERE number = ?1",
            [number],
            |row| {
                Ok(RowStudy {
                    server: row.get(0)?,
                    moved_to,
                    study: row.get(1)?,
                    fingerprint: Fingerprint(row.get(2)?).to_string(),
                    day: UtcDate(row.get(3)?).to_string(),
                    mechanism: row.get(4)?,
                    dimension: row.get(5)?,
                    neighbours: row.get(6)?,
                    sentence: row.get(7)?,
                    charged,
                    rows: 0,
                    terms,
                })
            },
        )
    }

    fn charges(&self) -> Result<Vec<Charge>> {
        self.store.all(
            "SELECT study, first, rows, reports_digest FROM charge",
            [],
            |row| {
                let first: u64 = row.get(1)?;
                Ok(Charge {
                    study: row.get(0)?,
                    rows: first..first.saturating_add(row.get(2)?),
                    reports_digest: row.get(3)?,
                })
            },
        )
    }

    /// A range of rows, split where the set of studies changes, with the costs of each part.
    fn row_ranges(&self, charges: &[Charge], range: Range<u64>) -> Result<Vec<RowRangeCosts>> {
        let budgets = self.budgets()?;
        // Where a study begins and where it ends.
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
        let mut now = BTreeMap::new();
        let mut from = range.start;
        for (at, changes) in cuts {
            if from < at {
                row_ranges.push((from..at, now.clone()));
            }
            from = at;
            // A study that ends here may begin again.
            for &(study, _) in changes.iter().filter(|change| !change.1) {
                now.remove(&study);
            }
            for &(study, _) in changes.iter().filter(|change| change.1) {
                let budget = budgets.get(&study).copied().ok_or_else(|| {
                    SCHEMA.damaged(self.path(), "a charge is for a study that it does not hold")
                })?;
                now.insert(study, budget);
            }
        }
        Ok(row_ranges)
    }
}

/// Digest of the identifiers of the reports of these rows; `None` where one has no report.
fn digest(reports: &[(u64, [u8; 16])], rows: &Range<u64>) -> Option<[u8; 32]> {
    if !rows.clone().eq(reports.iter().map(|report| report.0)) {
        return None;
    }
    let mut digest = Sha256::new();
    for (_, id) in reports {
        digest.update(id);
    }
    Some(digest.finalize().into())
}

/// Which studies the rows of a file took part in, and what it cost them. `Display` is a short text; serde gives JSON with exact numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowReceipt {
    /// What each row may spend.
    pub limits: Limits,
    /// What the row that spent most has spent, rounded up (the largest ε and the largest δ).
    pub spent: PrivacyCost,
    /// What remains to that row, rounded down.
    pub remaining: PrivacyCost,
    /// The studies, in the order in which rows took part.
    pub studies: Vec<RowStudy>,
}

/// One study of a [`RowReceipt`], as it was when the first rows took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowStudy {
    /// Address of the server.
    pub server: String,
    /// Addresses that the study moved to since, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved_to: Vec<String>,
    /// Identifier of the study.
    pub study: String,
    /// Fingerprint of the study's parameters, in hexadecimal.
    pub fingerprint: String,
    /// The day of the first charge, UTC, such as `2026-03-14`.
    pub day: String,
    /// The local randomizer.
    pub mechanism: String,
    /// Dimension p of a row.
    pub dimension: u64,
    /// Which two inputs a report must not tell apart.
    pub neighbours: String,
    /// What one report could tell the server, in a sentence.
    pub sentence: String,
    /// What each row was charged: the ε that holds, at least the one that was claimed.
    pub charged: Budget,
    /// How many rows took part.
    pub rows: u64,
    /// What was said of the study when the first rows took part.
    pub terms: StudyTerms,
}

impl fmt::Display for RowReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Rows took part in {} studies. The row that spent most:\n",
            self.studies.len()
        )?;
        super::receipt::write_totals(f, &self.limits, self.spent, self.remaining)?;
        for (number, study) in (1..).zip(&self.studies) {
            let heading =
                super::receipt::heading(&study.day, &study.study, &study.server, &study.moved_to);
            writeln!(f, "\n{number}. {heading}")?;
            writeln!(
                f,
                "   {} rows of {} numbers, perturbed by {}",
                study.rows,
                study.dimension,
                super::terms::printable(&study.mechanism)
            )?;
            super::receipt::write_cost(f, study.charged, &study.neighbours, &study.sentence)?;
            super::receipt::write_terms(f, &study.terms, &study.fingerprint)?;
        }
        Ok(())
    }
}
