//! The ledger of one device: which studies it reported to and what it spent, in one durable file, for years.
//!
//! The invariants:
//!
//! * **A study has no report of this device, or exactly one, fixed for ever.** Charge and report are
//!   written in one transaction, and synced to the disk, before the report can be sent. Whatever is
//!   killed at whatever point, no second report of the study is ever drawn, and the one that is pending
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

use std::fmt::Display;

use eigenveil_shared::{
    Error as SharedError, about::UtcDate, clock::Clock, enrolment::ParticipantToken,
    preprocess::Row, report::ReportId, study::Fingerprint,
};
use rusqlite::{Connection, Row as SqlRow, params};

use super::{
    file::{FileSchema, LockedFile},
    tables::{
        ACKNOWLEDGED, LIMITS, MOVED, PENDING, REFUSED, STUDY_TERMS, budget, read_limits,
        read_servers, read_terms, write_limits, write_move, write_terms,
    },
};
use crate::{
    book::{Book, Change, Entry, EntryState, Receipt, Step},
    error::{Error, Result},
    exchange::{Answer, ReportResult, Request, Response},
    rules::{Limits, PrivacyCost, StudyTerms},
    study::Study,
};

/// How a ledger is recognised.
const SCHEMA: FileSchema = FileSchema {
    name: "ledger of a device",
    // "EvDL"; before "EvLg"
    application_id: 0x4576_444c,
    tables: &[LIMITS, TABLES, STUDY_TERMS, MOVED],
    append_only_table: "entry",
    counted: "(SELECT count(*) FROM entry)",
    consistent: "(SELECT count(*) FROM entry WHERE state <> 1) = (SELECT count(*) FROM payload)
        AND NOT EXISTS (SELECT 1 FROM payload JOIN entry USING (number) WHERE state = 1)",
};

// The database itself enforces it with triggers: a charge stays, and so does the report it was for.
const TABLES: &str = "
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY,
        server TEXT NOT NULL,
        study TEXT NOT NULL UNIQUE,
        fingerprint BLOB NOT NULL CHECK (length(fingerprint) = 32),
        payload_len INTEGER NOT NULL CHECK (payload_len > 0),
        mechanism TEXT NOT NULL,
        dimension INTEGER NOT NULL CHECK (dimension > 0),
        neighbours TEXT NOT NULL,
        sentence TEXT NOT NULL,
        epsilon REAL NOT NULL CHECK (epsilon > 0),
        delta REAL NOT NULL CHECK (delta >= 0 AND delta < 1),
        day INTEGER NOT NULL,
        report BLOB NOT NULL UNIQUE CHECK (length(report) = 16),
        state INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
        code TEXT,
        detail TEXT,
        CHECK ((state = 2) = (code IS NOT NULL AND detail IS NOT NULL))
    ) STRICT;
    CREATE TABLE payload (number INTEGER PRIMARY KEY REFERENCES entry, bytes BLOB NOT NULL) STRICT;
    CREATE TABLE token (
        number INTEGER PRIMARY KEY REFERENCES entry,
        bytes BLOB NOT NULL CHECK (length(bytes) = 32)
    ) STRICT;
    CREATE TRIGGER entries_stay BEFORE DELETE ON entry
        BEGIN SELECT RAISE(ABORT, 'an entry of a ledger is never deleted'); END;
    CREATE TRIGGER charges_stay
        BEFORE UPDATE OF number, server, study, fingerprint, payload_len, mechanism, dimension,
            neighbours, sentence, epsilon, delta, day, report ON entry
        BEGIN SELECT RAISE(ABORT, 'what an entry of a ledger says is never changed'); END;
    CREATE TRIGGER acknowledged_stays BEFORE UPDATE OF state ON entry WHEN OLD.state = 1
        BEGIN SELECT RAISE(ABORT, 'an acknowledged report is never sent again'); END;
    CREATE TRIGGER reports_stay BEFORE UPDATE ON payload
        BEGIN SELECT RAISE(ABORT, 'a report of a ledger is never changed'); END;
    CREATE TRIGGER owed_reports_stay BEFORE DELETE ON payload
        WHEN (SELECT state FROM entry WHERE number = OLD.number) IS NOT 1
        BEGIN SELECT RAISE(ABORT, 'a report is kept until it is acknowledged'); END;
";

/// The outcome of [`Ledger::participate`].
#[derive(Clone, Debug, PartialEq)]
pub enum Participation {
    /// The device takes part now: the report is charged and kept, and may be sent.
    New {
        /// The stored entry.
        entry: Entry,
        /// Why the row was sent as the zero row, if it was. **For the participant only**: see
        /// [`PreparedReport::local_warning`](crate::PreparedReport::local_warning).
        local_warning: Option<SharedError>,
    },
    /// The device took part before. The row was not looked at.
    Known(Entry),
}

impl Participation {
    /// The entry that the device keeps.
    pub fn entry(&self) -> &Entry {
        match self {
            Self::New { entry, .. } | Self::Known(entry) => entry,
        }
    }

    /// Whether the device took part with this call, and not before.
    pub fn is_new(&self) -> bool {
        matches!(self, Self::New { .. })
    }
}

/// The durable file of one device with one participant and many studies; see the [crate] for an example.
pub struct Ledger {
    store: LockedFile,
    clock: Box<dyn Clock>,
}

ledger_file!(Ledger, SCHEMA, |_| Ok(()));

impl Ledger {
    /// The book that it holds.
    pub fn book(&self) -> Result<Book> {
        // A change may be there after a write that failed half-way: it is in the file before it is told.
        self.store.settle()?;
        let limits = read_limits(&SCHEMA, &self.store)?;
        let rows = self.store.all(
            "SELECT number, server, study, fingerprint, payload_len, mechanism, dimension, neighbours, sentence,
                epsilon, delta, day, report, state, code, detail,
                (SELECT bytes FROM token WHERE token.number = entry.number)
             FROM entry ORDER BY number",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, read_entry(row)?)),
        )?;
        let entries = rows.into_iter().map(|(number, first, entry)| {
            let (terms, canonical_params) = read_terms(&self.store, number)?;
            Ok(Entry {
                servers: read_servers(&SCHEMA, &self.store, number, &first)?,
                terms,
                canonical_params,
                ..entry
            })
        });
        Ok(Book::of_file(limits, entries.collect::<Result<_>>()?))
    }

    /// The device's limits.
    pub fn limits(&self) -> Result<Limits> {
        Ok(self.book()?.limits())
    }

    /// Sets limits as [`Book::set_limits`] does.
    pub fn set_limits(&mut self, limits: Limits) -> Result<()> {
        let change = self.book()?.set_limits(limits)?;
        self.write(&change)
    }

    /// The total cost of all reports of this device, whatever became of them.
    pub fn spent(&self) -> Result<PrivacyCost> {
        Ok(self.book()?.spent())
    }

    /// Takes part in a study with one report, once: as [`Book::take_part`], and charge and report are written together
    /// and synced before the report is given.
    ///
    /// # Errors
    /// As there; the file could not be written. After an error nothing was given out. If the disk kept the entry in
    /// spite of the failure it reported, the next call finds it and gives its report.
    pub fn participate(&mut self, study: &Study, row: &Row) -> Result<Participation> {
        self.join(study, |book, now| book.take_part(study, row, now))
    }

    /// Takes part with a weight, once: as [`Book::take_part_weighted`] and [`participate`](Self::participate).
    ///
    /// # Errors
    /// As theirs.
    pub fn participate_weighted(
        &mut self,
        study: &Study,
        row: &Row,
        weight: f64,
    ) -> Result<Participation> {
        self.join(study, |book, now| {
            book.take_part_weighted(study, row, weight, now)
        })
    }

    /// Takes part for a person of several rows, once: as [`Book::take_part_as_person`] and
    /// [`participate`](Self::participate).
    ///
    /// # Errors
    /// As theirs.
    pub fn participate_as_person(&mut self, study: &Study, rows: &[Row]) -> Result<Participation> {
        self.join(study, |book, now| {
            book.take_part_as_person(study, rows, now)
        })
    }

    fn join(
        &mut self,
        study: &Study,
        take_part: impl FnOnce(&Book, u64) -> Result<Step>,
    ) -> Result<Participation> {
        let book = self.book()?;
        if let Some(known) = book.known(study)? {
            return Ok(Participation::Known(known.clone()));
        }
        let now = Error::check_clock(self.clock.unix_ms())?;
        match take_part(&book, now)? {
            Step::Known(entry) => Ok(Participation::Known(entry)),
            Step::Join(mut change) => {
                self.write(&change)?;
                Ok(Participation::New {
                    local_warning: change.local_warning().cloned(),
                    entry: change.entries.remove(0),
                })
            }
        }
    }

    /// Accepts a move as [`Book::accept_move`] does.
    pub fn accept_move(&mut self, study: &Study) -> Result<()> {
        let change = self.book()?.accept_move(study)?;
        self.write_any(change).map(drop)
    }

    /// Sets a token as [`Book::set_token`] does. Returns whether the token is of use.
    pub fn set_token(&mut self, study: &str, token: &ParticipantToken) -> Result<bool> {
        let change = self.book()?.set_token(study, token)?;
        self.write_any(change)
    }

    /// Makes refused reports pending as [`Book::requeue_refused`] does. Returns their number.
    pub fn requeue_refused(&mut self) -> Result<usize> {
        let change = self.book()?.requeue_refused()?;
        let count = change.as_ref().map_or(0, |change| change.entries.len());
        self.write_any(change)?;
        Ok(count)
    }

    /// The entries whose reports are pending, oldest first.
    pub fn pending(&self) -> Result<Vec<Entry>> {
        Ok(self.book()?.pending().cloned().collect())
    }

    /// The request that sends the report of this entry, which has not been acknowledged; the same bytes each time.
    ///
    /// # Errors
    /// The report is not in the file, or damaged; the file was moved, replaced or overwritten while it was open.
    pub fn request(&self, entry: &Entry) -> Result<Request> {
        self.check_current()?;
        let damaged = |what: &dyn Display| SCHEMA.damaged(self.store.path(), what);
        let payload: Option<Vec<u8>> = self.store.first(
            "SELECT bytes FROM payload WHERE number = ?1",
            [entry.number.cast_signed()],
            |row| row.get(0),
        )?;
        let payload = payload.ok_or_else(|| {
            damaged(&format_args!(
                "the report for study {} is not there",
                entry.study()
            ))
        })?;
        entry
            .request(payload)
            .map_err(|error| damaged(&error.detail()))
    }

    /// Whether what this value knows is still what the file says.
    pub(crate) fn check_current(&self) -> Result<()> {
        self.store.check_current()
    }

    /// Records what the response to a request says of its report.
    pub fn settle(&mut self, request: &Request, response: &Response<'_>) -> Result<Answer> {
        let answer = request.answer(response);
        self.record(request, &answer.results)?;
        Ok(answer)
    }

    /// Records what has become of the reports of a request.
    pub(crate) fn record(&mut self, request: &Request, results: &[ReportResult]) -> Result<()> {
        for (report, result) in request.reports().iter().zip(results) {
            let change = self.book()?.settle(*report, result)?;
            self.write_any(change)?;
        }
        Ok(())
    }

    /// Which studies the device took part in, and what remains under its limits, for a person to read and
    /// keep. It holds no report and nothing of any row.
    pub fn receipt(&self) -> Result<Receipt> {
        Ok(self.book()?.receipt())
    }

    fn write_any(&mut self, change: Option<Change>) -> Result<bool> {
        match change {
            Some(change) => self.write(&change).map(|()| true),
            None => Ok(false),
        }
    }

    /// One change, all of it or nothing, on the disk. (The file's own revision takes the part of the change's.)
    fn write(&mut self, change: &Change) -> Result<()> {
        self.store.write(|file| {
            write_limits(file, &change.limits)?;
            for entry in &change.entries {
                match &change.payload {
                    Some(payload) => insert(file, entry, payload)?,
                    None => update(file, entry)?,
                }
            }
            Ok(())
        })
    }
}

fn read_entry(row: &SqlRow<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry {
        number: row.get(0)?,
        servers: Vec::new(),
        study: row.get(2)?,
        fingerprint: Fingerprint(row.get(3)?),
        payload_len: row.get(4)?,
        mechanism: row.get(5)?,
        dimension: row.get(6)?,
        neighbours: row.get(7)?,
        sentence: row.get(8)?,
        charge: budget(row, 9)?,
        day: UtcDate(row.get(11)?),
        report: ReportId(row.get(12)?),
        state: match row.get(13)? {
            PENDING => EntryState::Pending,
            ACKNOWLEDGED => EntryState::Acknowledged,
            _ => EntryState::Refused {
                code: row.get(14)?,
                detail: row.get(15)?,
            },
        },
        token: row
            .get::<_, Option<_>>(16)?
            .map(ParticipantToken::from_bytes),
        terms: StudyTerms::default(),
        canonical_params: Vec::new(),
    })
}

/// Charge and report, together.
fn insert(file: &Connection, entry: &Entry, payload: &[u8]) -> rusqlite::Result<()> {
    let number = entry.number.cast_signed();
    file.execute(
        "INSERT INTO entry (number, server, study, fingerprint, payload_len, mechanism, dimension,
            neighbours, sentence, epsilon, delta, day, report, state)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        params![
            number,
            entry.server().as_str(),
            entry.study,
            entry.fingerprint.0,
            entry.payload_len,
            entry.mechanism,
            entry.dimension,
            entry.neighbours,
            entry.sentence,
            entry.charge.epsilon(),
            entry.charge.delta(),
            entry.day.0,
            entry.report.0,
            PENDING,
        ],
    )?;
    file.execute(
        "INSERT INTO payload (number, bytes) VALUES (?1, ?2)",
        params![number, payload],
    )?;
    write_terms(file, number, &entry.terms, &entry.canonical_params)
}

/// Writes the parts of an entry that may change: state, token and address.
fn update(file: &Connection, entry: &Entry) -> rusqlite::Result<()> {
    let number = entry.number.cast_signed();
    let (state, refusal) = match &entry.state {
        EntryState::Pending => (PENDING, None),
        EntryState::Acknowledged => (ACKNOWLEDGED, None),
        EntryState::Refused { code, detail } => (REFUSED, Some((code, detail))),
    };
    let (code, detail) = refusal.unzip();
    file.execute(
        "UPDATE entry SET state = ?2, code = ?3, detail = ?4
         WHERE number = ?1 AND (state, code, detail) IS NOT (?2, ?3, ?4)",
        params![number, state, code, detail],
    )?;
    if entry.state == EntryState::Acknowledged {
        file.execute("DELETE FROM payload WHERE number = ?1", [number])?;
    }
    match &entry.token {
        None => file.execute("DELETE FROM token WHERE number = ?1", [number])?,
        Some(token) => file.execute(
            "INSERT INTO token (number, bytes) VALUES (?1, ?2)
             ON CONFLICT (number) DO UPDATE SET bytes = excluded.bytes",
            params![number, token.as_bytes()],
        )?,
    };
    let moves: usize = file.query_row(
        "SELECT count(*) FROM moved WHERE number = ?1",
        [number],
        |row| row.get(0),
    )?;
    for server in entry.servers.iter().skip(1 + moves) {
        write_move(file, number, server)?;
    }
    Ok(())
}
