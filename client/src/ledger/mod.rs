//! The ledger of one device: which studies it reported to and what it spent, in one durable file, for years.
//!
//! The invariants:
//!
//! * **A study has no report of this device, or exactly one, fixed for ever.** Charge and report are
//!   written in one transaction, and synced to the disk, before the report can be sent. Whatever is
//!   killed at whatever point, no second report of the study is ever drawn, and the one that is owed
//!   is not lost.
//! * **A charge stays.** It is made before anybody can have seen the report and never taken back, not
//!   when the server refuses the report either: its bytes may have been seen.
//! * **The limits hold.** A study that would pass one is refused before anything is drawn. Nothing in
//!   the order of the checks, and no decision, depends on the row.
//!
//! # Which study is which
//!
//! A study is known by its identifier, 128 random bits, whatever address it was reached at. A server
//! can copy an identifier, and then this device refuses the second study of that name: less data, no
//! loss of privacy. It can also invent as many studies as it likes, with the same parameters and the
//! same question; no device can tell them from new ones. Only the total limit protects against that: choose it as what
//! you would reveal to one adversary who runs every study.
//!
//! # The file
//!
//! An SQLite database, readable by its owner only and locked while it is open. Keep it on a local disk.
//! Everything that was given out is in this one file, even if the log beside it (`-wal`) is lost: the file may be
//! renamed or moved while nothing has it open. It may not have a second name (hard link); an empty or
//! damaged file is an error, never a new ledger.
//!
//! Whoever deletes it, or puts an older copy in its place, makes the device forget what it has spent, and no
//! program can tell a lost file from a first run: leave it out of backups that are restored piece by piece,
//! open it with [`Ledger::open_existing`] once it has been made, and let a device that has lost its ledger
//! take part in nothing it may have taken part in before.

mod limits;
mod moved;
mod receipt;
mod rows;
mod schema;
mod terms;
mod tokens;

use std::path::Path;

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    enrolment::ParticipantToken,
    preprocess::Row,
    privacy::{Budget, PrivacyStatement},
    report::{Report, ReportId},
};
use rusqlite::params;
use serde::{Deserialize, Serialize};

pub(crate) use self::schema::Entry;
use self::schema::{ACKNOWLEDGED, OWED, REFUSED, SCHEMA};
use crate::{
    error::Result,
    file::{LockedFile, MAX_DETAIL},
    outbox::StudyRef,
    reporter::{PreparedReport, Reporter, check_fingerprint},
};

pub use limits::{Limits, PrivacyCost};
pub use receipt::{Receipt, ReceiptEntry};
pub use rows::{RowFileDigest, RowLedger, RowReceipt, RowStudy};
pub use terms::StudyTerms;

/// What has become of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryState {
    /// Kept, and still to be sent.
    Owed,
    /// The server has it; its bytes are gone from here.
    Acknowledged,
    /// The server refused it for good. Its bytes are kept; see [`Ledger::requeue_refused`].
    Refused {
        /// Stable code.
        code: String,
        /// The server's sentence.
        detail: String,
    },
}

/// A report that is still to be sent, and where; its bytes are the same whenever it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerReport {
    /// The server and the study.
    pub study_ref: StudyRef,
    /// The report.
    pub report: Report,
    /// The one-time token it is sent with, where it has one.
    pub token: Option<ParticipantToken>,
}

/// What [`Ledger::participate`] found or did.
#[derive(Clone, Debug, PartialEq)]
pub enum Participation {
    /// The device takes part now: the report is charged and kept, and may be sent.
    New {
        /// The report.
        owed: LedgerReport,
        /// Why the row was sent as the zero row, if it was. **For the participant only**: see
        /// [`PreparedReport::local_warning`].
        local_warning: Option<SharedError>,
    },
    /// The device took part before, and this is the report it still owes. The row was not looked at.
    Owed(LedgerReport),
    /// The device took part before and the server has the report: nothing is left to send.
    Acknowledged(ReportId),
    /// The device took part before and the server refused the report.
    Refused {
        /// The report.
        id: ReportId,
        /// Stable code.
        code: String,
        /// The server's sentence.
        detail: String,
    },
}

impl Participation {
    /// What is to be sent, if anything is.
    pub fn to_send(&self) -> Option<&LedgerReport> {
        match self {
            Self::New { owed, .. } | Self::Owed(owed) => Some(owed),
            Self::Acknowledged(_) | Self::Refused { .. } => None,
        }
    }

    /// Whether the device took part with this call, and not before.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }
}

/// The durable file of one device with one participant and many studies; see the [module](self), and the
/// [crate] for an example.
#[derive(Debug)]
pub struct Ledger {
    store: LockedFile,
}

impl Ledger {
    /// Opens the device's ledger, creating the file (readable by its owner only, with the default
    /// [`Limits`]) if there is none. A ledger that was lost looks like one that never was: see
    /// [`Ledger::open_existing`].
    ///
    /// # Errors
    /// [`Error::is_locked`](crate::Error::is_locked) when another process (or another `Ledger`) has it open; otherwise the file
    /// could not be created, read or written, is empty or damaged, has two names, or is no ledger; or the
    /// log beside it is not its own.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::checked(SCHEMA.open_or_create(path.as_ref(), |file| {
            schema::write_limits(file, &Limits::default()).map(drop)
        })?)
    }

    /// Opens a ledger that is there, and makes no new one by mistake: to look at it, and on a device that
    /// knows that it has one.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Self> {
        Self::checked(SCHEMA.open(path.as_ref())?)
    }

    fn checked(store: LockedFile) -> Result<Self> {
        let ledger = Self { store };
        // A ledger that cannot be counted must not be used.
        ledger.limits()?;
        ledger.entries()?;
        Ok(ledger)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        self.store.path()
    }

    /// The device's limits.
    pub fn limits(&self) -> Result<Limits> {
        schema::read_limits(&SCHEMA, &self.store)
    }

    /// Sets the device's limits: **for its owner**, never because a study asks for it. Limits below
    /// what is spent already are allowed: nothing more is spent then.
    pub fn set_limits(&mut self, limits: Limits) -> Result<()> {
        self.store
            .write(|file| Ok(schema::write_limits(file, &limits).map(drop)?))
    }

    /// The total cost of all reports of this device, whatever became of them.
    pub fn spent(&self) -> Result<PrivacyCost> {
        Ok(limits::compose(self.charges()?))
    }

    /// Takes part in a study with one report, once.
    ///
    /// In this order: for a study that the device took part in before, the existing report is returned and nothing is
    /// drawn; a study that would pass a limit is refused; the row is prepared and perturbed;
    /// charge and report are written together and synced. Only then is the report given. A row that
    /// cannot be prepared (a NaN, say) is charged and sent all the same, as the zero row.
    ///
    /// # Errors
    /// `budget-exceeded`; `already-participated` when the device took part in a study of this identifier
    /// at another address; `wrong-fingerprint` when the study's parameters are not those of `study_ref`, or have
    /// changed since the device took part; `study-not-open` when it is new to the device and took no
    /// reports when it was fetched; `study-ended` when its last day is over by this device's clock; `wrong-dimension`, `randomness-unavailable`; the file could not be written. After an error nothing was given out. If the disk kept the entry in spite
    /// of the failure it reported, the next call finds it and gives its report.
    pub fn participate(
        &mut self,
        reporter: &Reporter,
        study_ref: &StudyRef,
        row: &Row,
    ) -> Result<Participation> {
        check_fingerprint(reporter.fingerprint(), study_ref.fingerprint())?;
        if let Some(entry) = self.entry_of(study_ref.study())? {
            return self.took_part(entry, study_ref);
        }
        reporter.check_open()?;
        let statement = PrivacyStatement::new(reporter.params());
        let charge = limits::charge(study_ref.study(), reporter.params(), &statement)?;
        self.limits()?
            .check(&self.charges()?, charge)
            .map_err(|exceeded| {
                exceeded.to_error(
                    "taking part in",
                    study_ref.study(),
                    "this device spends",
                    "the device's owner raise the limit (Ledger::set_limits)",
                )
            })?;
        let prepared = reporter.report(row)?;
        self.keep(reporter, study_ref, &statement, charge, &prepared)?;
        let local_warning = prepared.local_warning().cloned();
        Ok(Participation::New {
            owed: LedgerReport {
                study_ref: study_ref.clone(),
                report: prepared.into_report(),
                token: None,
            },
            local_warning,
        })
    }

    /// Charge and report, together or not at all, on the disk.
    fn keep(
        &mut self,
        reporter: &Reporter,
        study_ref: &StudyRef,
        statement: &PrivacyStatement,
        charge: Budget,
        prepared: &PreparedReport,
    ) -> Result<()> {
        let report = prepared.report();
        self.store.write(|file| {
            file.execute(
                "INSERT INTO entry (server, study, fingerprint, payload_len, mechanism, dimension,
                neighbours, sentence, epsilon, delta, day, report, state)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
                params![
                    study_ref.server,
                    study_ref.study,
                    study_ref.fingerprint.0,
                    study_ref.payload_len,
                    statement.mechanism.as_str(),
                    reporter.params().dimension(),
                    statement.neighbours,
                    statement.sentence,
                    charge.epsilon(),
                    charge.delta(),
                    reporter.day(),
                    report.id.0,
                    OWED,
                ],
            )?;
            let number = file.last_insert_rowid();
            file.execute(
                "INSERT INTO payload (number, bytes) VALUES (?1, ?2)",
                params![number, report.payload],
            )?;
            terms::record(file, number, reporter)?;
            Ok(())
        })
    }

    /// Records that a study which the device took part in is at another address now: the same report is sent there.
    /// Ask whoever's row it is first. Does nothing if it is at this address already.
    ///
    /// # Errors
    /// `study-not-found` when the device did not take part in it; `wrong-fingerprint` when its parameters are others;
    /// `invalid-about` when it states another purpose or responsible party than it did then.
    pub fn accept_move(&mut self, reporter: &Reporter, study_ref: &StudyRef) -> Result<()> {
        let entry = self.entry_of(study_ref.study())?.ok_or_else(|| {
            SharedError::new(
                ErrorCode::StudyNotFound,
                format!(
                    "the device did not take part in study {}",
                    study_ref.study()
                ),
            )
        })?;
        let recorded = entry.study_ref.fingerprint;
        moved::check(&self.store, entry.number, recorded, reporter, study_ref)?;
        if entry.study_ref.server() == study_ref.server() {
            return Ok(());
        }
        self.store
            .write(|file| Ok(moved::record(file, entry.number, study_ref).map(drop)?))
    }

    /// What the device has for a study it took part in before.
    fn took_part(&self, entry: Entry, study_ref: &StudyRef) -> Result<Participation> {
        let (server, fingerprint) = (&entry.study_ref.server, entry.study_ref.fingerprint);
        schema::check_known(study_ref, "the device", server, fingerprint)?;
        self.store.settle()?;
        match entry.state {
            EntryState::Owed => Ok(Participation::Owed(self.report_of(entry)?)),
            EntryState::Acknowledged => Ok(Participation::Acknowledged(entry.report)),
            EntryState::Refused { code, detail } => Ok(Participation::Refused {
                id: entry.report,
                code,
                detail,
            }),
        }
    }

    /// Everything that is still to be sent, oldest first.
    pub fn owed(&self) -> Result<Vec<LedgerReport>> {
        self.owed_entries()?
            .into_iter()
            .map(|entry| self.report_of(entry))
            .collect()
    }

    /// The entries of what is still to be sent, oldest first.
    pub(crate) fn owed_entries(&self) -> Result<Vec<Entry>> {
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.state == EntryState::Owed);
        Ok(entries)
    }

    /// The report of this entry, which has not been acknowledged.
    pub(crate) fn report_of(&self, entry: Entry) -> Result<LedgerReport> {
        // It may be there after a write that failed half-way.
        self.store.settle()?;
        let token: Option<[u8; 32]> = self.store.first(
            "SELECT bytes FROM token WHERE number = ?1",
            [entry.number],
            |row| row.get(0),
        )?;
        let payload: Option<Vec<u8>> = self.store.first(
            "SELECT bytes FROM payload WHERE number = ?1",
            [entry.number],
            |row| row.get(0),
        )?;
        match payload {
            Some(payload) if payload.len() == entry.study_ref.payload_len => Ok(LedgerReport {
                report: Report {
                    id: entry.report,
                    fingerprint: entry.study_ref.fingerprint,
                    payload,
                },
                token: token.map(ParticipantToken::from_bytes),
                study_ref: entry.study_ref,
            }),
            other => Err(schema::without_its_bytes(
                self.store.path(),
                &entry,
                other.map(|payload| payload.len()),
            )),
        }
    }

    /// Records that the server has this report; its bytes are dropped, its charge stays. Gives whether
    /// it was owed. Harmless when repeated.
    pub fn record_acknowledged(&mut self, report: ReportId) -> Result<bool> {
        self.store.write(|file| {
            let settled = file.execute(
                "UPDATE entry SET state = ?2 WHERE report = ?1 AND state = ?3",
                params![report.0, ACKNOWLEDGED, OWED],
            )?;
            if settled == 1 {
                for table in ["payload", "token"] {
                    let forget = format!(
                        "DELETE FROM {table} WHERE number = (SELECT number FROM entry WHERE report = ?1)"
                    );
                    file.execute(&forget, [report.0])?;
                }
            }
            Ok(settled == 1)
        })
    }

    /// Records that the server refused this report for good. Its charge and its bytes stay. Gives
    /// whether it was owed.
    pub fn record_refused(&mut self, report: ReportId, code: &str, detail: &str) -> Result<bool> {
        let cut = |text: &str| text.chars().take(MAX_DETAIL).collect::<String>();
        self.store.write(|file| {
            let settled = file.execute(
                "UPDATE entry SET state = ?2, code = ?3, detail = ?4
                 WHERE report = ?1 AND state = ?5",
                params![report.0, REFUSED, cut(code), cut(detail), OWED],
            )?;
            Ok(settled == 1)
        })
    }

    /// Makes all refused reports owed again, with the bytes they had: for a refusal that was the
    /// server's mistake. Gives how many.
    pub fn requeue_refused(&mut self) -> Result<usize> {
        self.store.write(|file| {
            Ok(file.execute(
                "UPDATE entry SET state = ?1, code = NULL, detail = NULL WHERE state = ?2",
                [OWED, REFUSED],
            )?)
        })
    }

    /// Which studies the device took part in, and what remains under its limits, for a person to read and
    /// keep. It holds no report and nothing of any row.
    pub fn receipt(&self) -> Result<Receipt> {
        let limits = self.limits()?;
        let entries = self.entries()?;
        let spent = limits::compose(entries.iter().map(|entry| entry.charge));
        let studies = entries.into_iter().map(|entry| {
            let terms = terms::read(&self.store, entry.number)?;
            let moved_to = moved::addresses(&self.store, entry.number)?;
            Ok(ReceiptEntry::new(entry, moved_to, terms))
        });
        Ok(Receipt {
            limits,
            spent,
            remaining: limits.remaining(spent),
            studies: studies.collect::<Result<_>>()?,
        })
    }

    fn charges(&self) -> Result<Vec<Budget>> {
        Ok(self.entries()?.iter().map(|entry| entry.charge).collect())
    }

    /// All entries, oldest first.
    fn entries(&self) -> Result<Vec<Entry>> {
        self.select("ORDER BY number", [])
    }

    fn entry_of(&self, study: &str) -> Result<Option<Entry>> {
        Ok(self.select("WHERE study = ?1", [study])?.pop())
    }

    fn select(&self, which: &str, values: impl rusqlite::Params) -> Result<Vec<Entry>> {
        let query = format!("SELECT {} FROM entry {which}", Entry::COLUMNS);
        self.store.all(&query, values, Entry::read)
    }
}
