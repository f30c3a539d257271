//! The ledger of one device: which studies it reported to and what it spent, in one durable file, for years.
//!
//! The invariants:
//!
//! * **A study has no report of this device, or exactly one, fixed for ever.** Charge and report are written in one
//!   transaction, and synced to the disk, before the report can be sent. Wherever a crash interrupts this, no second
//!   report of the study is ever drawn, and a pending one is not lost.
//! * **A charge stays.** It is made before anybody can have seen the report, and never taken back, not even if the
//!   server refuses the report: its bytes may have been seen.
//! * **The limits hold.** A study that would exceed one is refused before anything is drawn. Neither the order of the
//!   checks nor any decision depends on the row.
//!
//! # Identity of studies
//!
//! A study is known by its identifier, 128 random bits, at any address. A server can copy an identifier, and then this
//! device refuses the second study with it: less data, no loss of privacy. It can also invent any number of studies,
//! with the same parameters and the same question; no device can distinguish them from new ones. Only the total limit
//! protects against that: choose it as what you would reveal to one adversary who runs every study.
//!
//! # The file
//!
//! An SQLite database of the records of a [`Book`], readable by its owner only and locked while it is open. Keep it on
//! a local disk. Everything that left the device is in this one file, even if the log beside it (`-wal`) is lost: the
//! file may be renamed or moved while nothing has it open. It may not have a second name (hard link); an empty or
//! damaged file is an error, never a new ledger.
//!
//! Whoever deletes it, or puts an older copy in its place, makes the device forget what it has spent, and no
//! program can tell a lost file from a first run: leave it out of backups that are restored piece by piece,
//! open it with [`Ledger::open_existing`] once it has been made, and let a device that has lost its ledger
//! take part in nothing it may have taken part in before.

use eigenveil_shared::{
    Error as SharedError, clock::Clock, enrolment::ParticipantToken, preprocess::Row,
};

use super::{
    file::{FileSchema, LockedFile},
    layout_1,
    records::{CONSISTENCY_CHECK, RECORDS, STATES, put, to_layout_3},
};
use crate::{
    book::{Book, Change, Entry, EntryState, Receipt, Step},
    error::{Error, Result},
    exchange::{Answer, ReportResult, Request, Response},
    given_up::GivenUp,
    rules::{Limits, PrivacyCost},
    study::Study,
};

/// Tables of a ledger, and how its file is recognised.
const SCHEMA: FileSchema = FileSchema {
    name: "ledger of a device",
    // "EvDL"; before "EvLg"
    application_id: 0x4576_444c,
    tables: &[RECORDS, STATES],
    fill: |file| Ok(put(file, &Book::new(Limits::default()).write_all()?)?),
    upgrades: &[layout_1::to_records, to_layout_3],
    consistency_check_sql: CONSISTENCY_CHECK,
};

/// The outcome of [`Ledger::participate`].
#[derive(Clone, Debug, PartialEq)]
pub enum Participation {
    /// The device takes part now: the report is charged and stored, and may be sent.
    New {
        /// The stored entry.
        entry: Entry,
        /// Why the row was sent as the zero row, if it was. **For the participant only**: see
        /// [`PreparedReport::local_warning`](crate::PreparedReport::local_warning).
        local_warning: Option<SharedError>,
    },
    /// The device took part before. The row was not read.
    Known(Entry),
}

impl Participation {
    /// The stored entry of the study.
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

ledger_file!(Ledger, SCHEMA);

impl Ledger {
    /// The book in the file.
    pub fn book(&self) -> Result<Book> {
        // A failed write may have left its change in the log: move it into the file before it is read.
        self.store.checkpoint()?;
        let records = self.store.all("SELECT key, value FROM record", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?))
        })?;
        Book::load_with(records, |detail| self.store.damaged_error(detail))
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

    /// The total cost of all reports of this device, in any state.
    pub fn spent(&self) -> Result<PrivacyCost> {
        Ok(self.book()?.spent())
    }

    /// Takes part in a study with one report, once, as [`Book::take_part`] does; charge and report are written together
    /// and synced before this returns.
    ///
    /// # Errors
    /// Those of [`Book::take_part`]; the file could not be written. After an error nothing has left the device. If the
    /// disk kept the entry although it reported a failure, the next call finds the entry.
    pub fn participate(&mut self, study: &Study, row: &Row) -> Result<Participation> {
        self.join(study, |book, now| book.take_part(study, row, now))
    }

    /// Takes part with a weight, once: as [`Book::take_part_weighted`] and [`participate`](Self::participate).
    ///
    /// # Errors
    /// Those of these two methods.
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
    /// Those of these two methods.
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
        self.write_if_some(change).map(drop)
    }

    /// Sets a token as [`Book::set_token`] does. Returns whether the token is of use.
    pub fn set_token(&mut self, called: &str, token: &ParticipantToken) -> Result<bool> {
        let change = self.book()?.set_token(called, token)?;
        self.write_if_some(change)
    }

    /// Gives up the report for the study that is called so, as [`Book::give_up`] does; it is durable when this returns.
    /// It may be repeated.
    ///
    /// # Errors
    /// Those of [`Book::give_up`].
    pub fn give_up(&mut self, called: &str) -> Result<GivenUp> {
        let change = self.book()?.give_up(called)?;
        self.write_if_some(change)?;
        let book = self.book()?;
        let entry = book.find_called(called)?;
        let is = |state: &EntryState| u64::from(entry.state() == state);
        Ok(GivenUp {
            study: entry.study().to_owned(),
            given_up: is(&EntryState::GivenUp),
            acknowledged: is(&EntryState::Acknowledged),
            charged: entry.charge(),
        })
    }

    /// Makes refused reports pending as [`Book::requeue_refused`] does. Returns their number.
    pub fn requeue_refused(&mut self) -> Result<usize> {
        let change = self.book()?.requeue_refused()?;
        let count = change.as_ref().map_or(0, |change| change.entries.len());
        self.write_if_some(change)?;
        Ok(count)
    }

    /// The entries whose reports are pending, oldest first.
    pub fn pending(&self) -> Result<Vec<Entry>> {
        Ok(self.book()?.pending().cloned().collect())
    }

    /// The request that sends the report of this entry, which has not been acknowledged; the same bytes each time.
    ///
    /// # Errors
    /// `usage` if the report was given up since the entry was read; the report is missing or damaged; the file was
    /// moved, replaced or overwritten while it was open.
    pub fn request(&self, entry: &Entry) -> Result<Request> {
        self.check_current()?;
        let payload: Option<Vec<u8>> = self.store.first(
            "SELECT value FROM payload WHERE key = ?1",
            [entry.payload_key()],
            |row| row.get(0),
        )?;
        let Some(payload) = payload else {
            let study = entry.study();
            let book = self.book()?;
            let state = book.find(study).map(Entry::state);
            return Err(match state == Some(&EntryState::GivenUp) {
                true => Error::usage(format!(
                    "the report for study {study} was given up, and is not sent"
                )),
                false => self
                    .store
                    .damaged_error(format_args!("the report for study {study} is missing")),
            });
        };
        entry
            .request(payload)
            .map_err(|error| self.store.damaged_error(error.detail()))
    }

    /// Refuses to continue if the file was changed elsewhere; see [`LockedFile::check_current`].
    pub(crate) fn check_current(&self) -> Result<()> {
        self.store.check_current()
    }

    /// Reads the response to a request, and records the outcome of its report.
    pub fn settle(&mut self, request: &Request, response: &Response<'_>) -> Result<Answer> {
        let answer = request.answer(response);
        self.record(request, &answer.results)?;
        Ok(answer)
    }

    /// Records the outcomes of the reports of a request.
    pub(crate) fn record(&mut self, request: &Request, results: &[ReportResult]) -> Result<()> {
        for (report, result) in request.reports().iter().zip(results) {
            let change = self.book()?.settle(*report, result)?;
            self.write_if_some(change)?;
        }
        Ok(())
    }

    /// The studies that the device took part in, and what remains under its limits, for a person to read and keep. It
    /// contains no report and no data of a row.
    pub fn receipt(&self) -> Result<Receipt> {
        Ok(self.book()?.receipt())
    }

    fn write_if_some(&mut self, change: Option<Change>) -> Result<bool> {
        match change {
            Some(change) => self.write(&change).map(|()| true),
            None => Ok(false),
        }
    }

    /// Makes one change, atomic and durable. (The file's own revision replaces that of the change.)
    fn write(&mut self, change: &Change) -> Result<()> {
        let write = change.write()?;
        self.store.write(|file| Ok(put(file, &write)?))
    }
}
