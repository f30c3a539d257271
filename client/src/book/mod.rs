//! The state of a device as a value: the studies it took part in, what it spent, and what is still to be sent. No I/O,
//! so that one set of rules holds for every store: SQLite ([`Ledger`](crate::Ledger)), a browser's IndexedDB, a file on
//! a phone.
//!
//! A [`Book`] decides and gives a [`Change`]. The owner of the store writes it ([`Change::write`]): atomically,
//! durably, and only if nobody else has written since the book was read. Only then does the book take it in
//! ([`Book::stored`]), and only then is there a [`Request`](crate::Request): nothing leaves a device before it is
//! stored.
//!
//! ```
//! use std::collections::BTreeMap;
//! use eigenveil_client::{Study, book::{Book, Step}, Limits};
//! use eigenveil_shared::preprocess::Row;
//! # use eigenveil_shared::{mechanism::MechanismKind, privacy::Budget, study::{StudyDesign, StudyParams}};
//! # let params = StudyParams::freeze(StudyDesign::new(MechanismKind::DiscreteGaussian, 3, Budget::approximate(1.0, 1e-6)?))?;
//! let study = Study::new(&"http://localhost:8080".parse()?, "0123456789abcdef0123456789abcdef", params);
//! let (row, now) = (Row::new(vec![3.0, 0.0, 4.0]), 1_800_000_000_000);
//! // A store of the program's own.
//! let mut records = BTreeMap::new();
//! let mut book = Book::new(Limits::default());
//! if let Step::Join(change) = book.take_part(&study, &row, now)? {
//!     let write = change.write()?;
//!     // Of several programs only the first finds the revision that it expects.
//!     assert!(write.expected_revision.is_none());
//!     records.extend(write.put);
//!     book.stored(change)?;
//! }
//! // Whenever the program starts again:
//! let book = Book::load(records.clone())?;
//! for entry in book.pending() {
//!     let request = entry.request(records[&entry.payload_key()].clone())?;
//!     assert_eq!(request.reports(), [entry.report()]);
//! }
//! # Ok::<(), eigenveil_client::Error>(())
//! ```

mod entry;
mod receipt;
mod records;

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    about::UtcDate,
    enrolment::ParticipantToken,
    preprocess::Row,
    privacy::{Budget, PrivacyStatement},
};

use crate::{
    error::{Error, Result},
    exchange::ReportResult,
    rules::{
        Limits, PrivacyCost, StudyTerms, TOKEN_ERRORS, charge, check_known, check_move, compose,
        took_part_in_other_round,
    },
    study::{PreparedReport, Study, random_bytes},
    study_name::{check_called, find_study},
};

pub use entry::{Entry, EntryState};
pub use receipt::{Receipt, ReceiptEntry, StudyRecord};
pub use records::{Revision, Write};

/// The disclosures of a device, as of one write of its store; see the [module](self).
#[derive(Clone, Debug)]
pub struct Book {
    revision: Option<Revision>,
    limits: Limits,
    entries: Vec<Entry>,
}

/// The result of [`Book::take_part`].
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
#[derive(Debug)]
pub enum Step {
    /// The device took part before. The row was not read.
    Known(Entry),
    /// The device takes part once this is stored.
    Join(Change),
}

/// A change that is not stored yet: no part of it leaves the device before [`Book::stored`]. `Debug` shows no bytes of
/// a report.
#[must_use]
pub struct Change {
    expected_revision: Option<Revision>,
    new_revision: Revision,
    /// Number of entries afterwards.
    count: usize,
    limits: Limits,
    /// The entries afterwards.
    pub(crate) entries: Vec<Entry>,
    /// The bytes of a new report.
    payload: Option<Vec<u8>>,
    local_warning: Option<SharedError>,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let studies: Vec<&str> = self.entries.iter().map(Entry::study).collect();
        write!(f, "Change({studies:?})")
    }
}

impl Change {
    /// The write to the store that makes the change.
    ///
    /// # Errors
    /// When a record cannot be written as JSON.
    pub fn write(&self) -> Result<Write> {
        Write::new(
            self.expected_revision,
            self.new_revision,
            (self.limits, self.count),
            &self.entries,
            self.payload.as_ref(),
        )
    }

    /// Why the row is sent as the zero row, if it is. **For the participant only**: see
    /// [`PreparedReport::local_warning`](crate::PreparedReport::local_warning).
    pub fn local_warning(&self) -> Option<&SharedError> {
        self.local_warning.as_ref()
    }
}

impl Book {
    /// An empty book.
    pub fn new(limits: Limits) -> Self {
        Self {
            revision: None,
            limits,
            entries: Vec::new(),
        }
    }

    /// Loads a book from a store's records; the payload records may be omitted.
    ///
    /// # Errors
    /// A record is missing or damaged, or was written by a later version.
    pub fn load(records: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self> {
        Self::load_with(records, |detail| {
            Error::usage(format!("the store is damaged: {detail}"))
        })
    }

    /// Loads like [`load`](Self::load), with the caller's error for a damaged store.
    pub(crate) fn load_with(
        records: impl IntoIterator<Item = (String, Vec<u8>)>,
        damaged: impl Fn(&str) -> Error,
    ) -> Result<Self> {
        let (revision, limits, entries) = records::read(records, damaged)?;
        Ok(Self {
            revision: Some(revision),
            limits,
            entries,
        })
    }

    /// A write of everything except payloads, to an empty store.
    #[cfg(feature = "sqlite")]
    pub(crate) fn write_all(&self) -> Result<Write> {
        self.change(self.entries.clone())?.write()
    }

    /// The device's limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entries whose reports are pending, oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.entries.iter();
        entries.filter(|entry| entry.state == EntryState::Pending)
    }

    /// The total cost of all reports of this device, in any state.
    pub fn spent(&self) -> PrivacyCost {
        compose(self.charges())
    }

    /// Takes part in a study with one report, once.
    ///
    /// In this order: for a study that the device took part in before, the entry is returned and nothing is drawn; a
    /// study that would exceed a limit is refused; the row is prepared and perturbed. A row that cannot be prepared (a
    /// NaN, say) is still charged and sent, as the zero row. Two calls before a change is stored draw two reports; only
    /// one of them can be stored, and neither has left the device.
    ///
    /// # Errors
    /// `budget-exceeded`; `already-participated` if the device took part in a study with this identifier at another
    /// address, or in another study of this server that had the name by which this one was [called](Study::called);
    /// `wrong-fingerprint` if the study's parameters have changed since the device took part; `already-participated`, too,
    /// for a round of a preparation in another round of which the device took part; `study-not-open`, `study-ended`,
    /// `wrong-dimension`, `randomness-unavailable`; `usage` for a study with weights.
    pub fn take_part(&self, study: &Study, row: &Row, now: u64) -> Result<Step> {
        self.join(study, study.privacy(), now, || {
            check_unweighted(study)?;
            study.report(row, now)
        })
    }

    /// Takes part like [`take_part`](Self::take_part) in a study with weights, as [`Study::report_weighted`] does.
    ///
    /// # Errors
    /// As [`take_part`](Self::take_part); `invalid-preprocessing` in a study without weights.
    pub fn take_part_weighted(
        &self,
        study: &Study,
        row: &Row,
        weight: f64,
        now: u64,
    ) -> Result<Step> {
        self.join(study, study.privacy(), now, || {
            study.report_weighted(row, weight, now)
        })
    }

    /// Takes part like [`take_part`](Self::take_part) for a person who has several rows, as [`Study::report_one_of`]
    /// does.
    ///
    /// # Errors
    /// As [`take_part`](Self::take_part).
    pub fn take_part_as_person(&self, study: &Study, rows: &[Row], now: u64) -> Result<Step> {
        self.join(study, study.privacy().of_person(), now, || {
            check_unweighted(study)?;
            study.report_one_of(rows, now)
        })
    }

    fn join(
        &self,
        study: &Study,
        statement: PrivacyStatement,
        now: u64,
        report: impl FnOnce() -> Result<PreparedReport>,
    ) -> Result<Step> {
        if let Some(entry) = self.known(study)? {
            return Ok(Step::Known(entry.clone()));
        }
        let known_names = self.entries.iter();
        let known_names = known_names.filter(|entry| entry.servers.contains(study.server()));
        let known_names = known_names.map(|entry| (entry.study(), entry.terms.name.as_deref()));
        check_called(study, "the device", known_names)?;
        study.check_open(now)?;
        if let Some(first) = study.parameters().first_round()
            && let Some(entry) = self.entries.iter().find(|entry| entry.is_round_of(first))
        {
            return Err(took_part_in_other_round(study, "the device", entry.study()));
        }
        let charge = charge(study.id(), study.parameters(), &statement)?;
        let spent: Vec<Budget> = self.charges().collect();
        self.limits.check(&spent, charge).map_err(|exceeded| {
            exceeded.to_error(
                "taking part in",
                study.id(),
                "this device spends",
                "the device's owner",
            )
        })?;
        let prepared = report()?;
        let local_warning = prepared.local_warning().cloned();
        let report = prepared.into_report();
        let entry = Entry {
            number: self.entries.last().map_or(1, |entry| entry.number + 1),
            servers: vec![study.server().clone()],
            study: study.id().to_owned(),
            fingerprint: study.fingerprint(),
            payload_len: study.payload_len(),
            mechanism: statement.mechanism.as_str().to_owned(),
            dimension: study.params().dimension() as u64,
            neighbours: statement.neighbours,
            sentence: statement.sentence,
            charge,
            day: UtcDate::from_unix_ms(now),
            report: report.id,
            state: EntryState::Pending,
            token: None,
            canonical_params: study.params().canonical_bytes(),
            terms: StudyTerms::of(study),
        };
        Ok(Step::Join(Change {
            count: self.entries.len() + 1,
            payload: Some(report.payload),
            local_warning,
            ..self.change(vec![entry])?
        }))
    }

    /// The entry of a study that the device took part in.
    pub(crate) fn known(&self, study: &Study) -> Result<Option<&Entry>> {
        let entry = self.find(study.id());
        if let Some(entry) = entry {
            check_known(study, "the device", entry.server(), entry.fingerprint)?;
        }
        Ok(entry)
    }

    /// Records the outcome of a report. `None` if that changes nothing: the report was not pending, or still is. Of a
    /// report that was given up while it was on its way, only that the server has it is recorded.
    ///
    /// # Errors
    /// `randomness-unavailable`.
    pub fn settle(
        &self,
        report: eigenveil_shared::report::ReportId,
        result: &ReportResult,
    ) -> Result<Option<Change>> {
        let state = match result.clone().into_ledger_state() {
            Some(None) => EntryState::Acknowledged,
            Some(Some((code, detail))) => EntryState::Refused { code, detail },
            None => return Ok(None),
        };
        let is_news = |entry: &&Entry| {
            matches!(
                (&entry.state, &state),
                (EntryState::Pending, _) | (EntryState::GivenUp, EntryState::Acknowledged)
            )
        };
        let mut entries = self.entries.iter().filter(is_news);
        let Some(entry) = entries.find(|entry| entry.report == report) else {
            return Ok(None);
        };
        let token = match state {
            EntryState::Acknowledged => None,
            _ => entry.token.clone(),
        };
        self.change(vec![Entry {
            state,
            token,
            ..entry.clone()
        }])
        .map(Some)
    }

    /// Makes all refused reports pending again, with the same bytes: for refusals by a server's mistake. `None` if
    /// there are none.
    ///
    /// # Errors
    /// `randomness-unavailable`.
    pub fn requeue_refused(&self) -> Result<Option<Change>> {
        let refused = self.entries.iter();
        let refused = refused.filter(|entry| matches!(entry.state, EntryState::Refused { .. }));
        let pending: Vec<Entry> = refused
            .map(|entry| Entry {
                state: EntryState::Pending,
                ..entry.clone()
            })
            .collect();
        if pending.is_empty() {
            return Ok(None);
        }
        self.change(pending).map(Some)
    }

    /// Gives up the report for the study that is [called](Self::find_called) so, if it is pending or refused: its bytes
    /// go, it is never sent again, and no other report is made for this study. Its charge stays: the server may have it
    /// already, if only the response was lost. `None` if there is nothing to give up: the server acknowledged the
    /// report, or it was given up before.
    ///
    /// # Errors
    /// Those of [`find_called`](Self::find_called); `randomness-unavailable`.
    pub fn give_up(&self, called: &str) -> Result<Option<Change>> {
        let entry = self.find_called(called)?;
        if !entry.state.can_be_sent() {
            return Ok(None);
        }
        self.change(vec![Entry {
            state: EntryState::GivenUp,
            token: None,
            ..entry.clone()
        }])
        .map(Some)
    }

    /// Stores the one-time token with which the report for the study that is [called](Self::find_called) so is sent,
    /// every time. A second token replaces the first, and a report that was refused because of its token is pending
    /// again. `None` if the token is of no use because the server already has the report, or because it was given up.
    ///
    /// # Errors
    /// Those of [`find_called`](Self::find_called); `randomness-unavailable`.
    pub fn set_token(&self, called: &str, token: &ParticipantToken) -> Result<Option<Change>> {
        let entry = self.find_called(called)?;
        let state = match &entry.state {
            EntryState::Acknowledged | EntryState::GivenUp => return Ok(None),
            EntryState::Refused { code, .. }
                if ErrorCode::parse(code).is_some_and(|code| TOKEN_ERRORS.contains(&code)) =>
            {
                EntryState::Pending
            }
            state => state.clone(),
        };
        self.change(vec![Entry {
            token: Some(token.clone()),
            state,
            ..entry.clone()
        }])
        .map(Some)
    }

    /// Sets the device's limits: **for its owner**, never because a study asks for it. Limits below what is spent
    /// already are allowed: nothing more is spent then.
    ///
    /// # Errors
    /// `randomness-unavailable`.
    pub fn set_limits(&self, limits: Limits) -> Result<Change> {
        Ok(Change {
            limits,
            ..self.change(Vec::new())?
        })
    }

    /// Records that a study which the device took part in has moved to another address, where the same report is sent.
    /// Ask the participant first. `None` if it already was at this address.
    ///
    /// # Errors
    /// `study-not-found` if the device did not take part in it; `wrong-fingerprint` if its parameters differ;
    /// `invalid-about` if its purpose or responsible party has changed.
    pub fn accept_move(&self, study: &Study) -> Result<Option<Change>> {
        let entry = self.find(study.id()).ok_or_else(|| {
            SharedError::new(
                ErrorCode::StudyNotFound,
                format!("the device did not take part in study {}", study.id()),
            )
        })?;
        check_move(study, entry.fingerprint, &entry.terms)?;
        if entry.server() == study.server() {
            return Ok(None);
        }
        let mut moved = entry.clone();
        moved.servers.push(study.server().clone());
        self.change(vec![moved]).map(Some)
    }

    /// Takes in a change that the store has durably.
    ///
    /// # Errors
    /// [`Error::is_changed`] if another change was stored after this one was made.
    pub fn stored(&mut self, change: Change) -> Result<()> {
        if change.expected_revision != self.revision {
            return Err(Error::changed(
                "the change was made before another one was stored; read the store, and ask again",
            ));
        }
        self.revision = Some(change.new_revision);
        self.limits = change.limits;
        for entry in change.entries {
            match self
                .entries
                .iter_mut()
                .find(|known| known.number == entry.number)
            {
                Some(known) => *known = entry,
                None => self.entries.push(entry),
            }
        }
        Ok(())
    }

    /// The studies that the device took part in, and what remains under its limits, for a person to read and keep. It
    /// contains no report and no data of a row.
    pub fn receipt(&self) -> Receipt {
        let spent = self.spent();
        Receipt {
            limits: self.limits,
            spent,
            remaining: self.limits.remaining(spent),
            studies: self.entries.iter().map(ReceiptEntry::new).collect(),
        }
    }

    /// The entry of the study with this identifier.
    pub fn find(&self, study: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.study == study)
    }

    /// The entry of the one study that a person calls so: by its identifier, the first four digits or more of it, or
    /// its name.
    ///
    /// # Errors
    /// `study-not-found` if the device took part in none that is called so, `usage` with the identifiers if in several.
    pub fn find_called(&self, called: &str) -> Result<&Entry> {
        let entries = self.entries.iter();
        let entries = entries.map(|entry| (entry.study(), entry.terms.name.as_deref()));
        let at = find_study(entries, called, "that the device took part in")?;
        Ok(&self.entries[at])
    }

    fn charges(&self) -> impl Iterator<Item = Budget> {
        self.entries.iter().map(|entry| entry.charge)
    }

    fn change(&self, entries: Vec<Entry>) -> Result<Change> {
        Ok(Change {
            expected_revision: self.revision,
            new_revision: random_bytes()?,
            count: self.entries.len(),
            limits: self.limits,
            entries,
            payload: None,
            local_warning: None,
        })
    }
}

/// Refuses a study with weights: a row without a weight would count 1.
fn check_unweighted(study: &Study) -> Result<()> {
    match study.has_weights() {
        false => Ok(()),
        true => Err(Error::usage(
            "participants of this study count by weights above 0 and at most 1; take part with one",
        )),
    }
}
