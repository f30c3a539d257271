//! Admission of rows to a study: the whole request is checked before any of it is stored.

use std::{collections::HashMap, ops::ControlFlow};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    enrolment::{Enrolment, ParticipantToken},
    privacy::Budget,
};
use serde::Deserialize;

use super::{
    ledger::{RecordedStudy, RowFile, RowLedger},
    prepare::Prepared,
    queue::RowCounts,
    tables::read_terms,
};
use crate::{
    error::{Error, Hint, Result},
    rules::{Limits, charge},
    study::{PreparedReport, Study},
    study_name::check_called,
};

/// A request for an upload of rows, by whoever is responsible for them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UploadRequest {
    /// Consent to a move: reports made for the study at another address are sent to this one from now on.
    pub moved: bool,
    /// Consent to send prepared reports although the study's purpose or responsible party has changed since.
    pub accept_new_purpose: bool,
    /// Send refused reports again, unchanged.
    pub resend_refused: bool,
    /// Consent to rows of another file, as by [`RowFile::assume_same_participants`].
    pub same_participants: bool,
    /// A new limit of ε for each row in one study; `None` leaves the ledger's.
    pub epsilon_per_study: Option<f64>,
    /// A new limit of ε for each row in all studies together.
    pub epsilon_total: Option<f64>,
    /// A new limit of δ for each row in all studies together.
    pub delta_total: Option<f64>,
    /// Requests under way at a time, from 1 to 1024; `None`: 4.
    pub connections: Option<u16>,
    /// Send one report per request instead of batches.
    pub single: bool,
    /// One-time tokens, the first for row 0; those beyond the last row are not looked at.
    #[serde(skip)]
    pub tokens: Option<Vec<ParticipantToken>>,
}

/// Rows admitted by [`RowLedger::admit_upload`]; nothing is stored yet.
#[derive(Clone, Copy, Debug)]
pub struct AdmittedRows<'a> {
    /// The study's reports in the ledger; refused ones that the request sends again are pending.
    pub counts: RowCounts,
    /// The charge of each row that has no report yet.
    pub cost: Budget,
    pub(crate) study: &'a Study,
    file: RowFile,
    pub(crate) request: &'a UploadRequest,
    /// The number of rows without a report.
    missing: u64,
    moved: bool,
    limits: Limits,
}

impl RowLedger {
    /// Checks all of an upload, before [`take_part`](Self::take_part) stores anything of it.
    ///
    /// # Errors
    /// `already-participated` when rows took part in this study at another address, or in another one of this server
    /// that had the name by which this one was [called](Study::called); `wrong-fingerprint`; `study-not-open` and
    /// `study-ended` where rows have no report yet; `invalid-about` if reports that may be sent were made for another
    /// purpose (a study that moves must keep its purpose even with consent); `invalid-budget`;
    /// [`Error::is_row_file_mismatch`] for a file that the ledger does not know
    /// ([`RowFile::assume_same_participants`]); a file that is not read as it was when the study's reports were begun;
    /// `budget-exceeded` when it would pass a row's limit; `token-required` or `usage` for rows that would be charged
    /// without a token of their own. [`Error::hint`] says how to avoid the error.
    pub fn admit_upload<'a>(
        &self,
        study: &'a Study,
        file: &RowFile,
        request: &'a UploadRequest,
    ) -> Result<AdmittedRows<'a>> {
        let mut rows = self.admit(study, file, request)?;
        request.check_tokens(study, file.rows, rows.missing)?;
        let requeued = match &request.tokens {
            _ if request.resend_refused => rows.counts.refused,
            Some(_) => self.refused_for_tokens(study)?,
            None => 0,
        };
        rows.counts.pending += requeued;
        rows.counts.refused -= requeued;
        Ok(rows)
    }

    /// Stores the changes requested, and then, as [`prepare`](Self::prepare) does, makes a report for each row that has
    /// none: charge, report and token are one write.
    ///
    /// # Errors
    /// Those of [`prepare`](Self::prepare).
    pub fn take_part(
        &mut self,
        rows: AdmittedRows<'_>,
        report: impl Fn(u64, u64) -> Result<PreparedReport> + Sync,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Prepared> {
        let (study, request) = (rows.study, rows.request);
        self.store.begin()?;
        if rows.moved {
            self.accept_move(study)?;
        }
        if rows.limits != self.limits()? {
            self.set_limits(rows.limits)?;
        }
        if request.resend_refused {
            self.requeue_refused(study)?;
        }
        let tokens = request.tokens.as_deref().unwrap_or_default();
        if !tokens.is_empty() {
            self.set_tokens(study, (0..).zip(tokens))?;
        }
        // Others may have been charged since these were admitted.
        self.admit(study, &rows.file, request)?;
        self.make_reports(study, &rows.file, tokens, report, progress)
    }

    /// Makes the reports of all rows of the file that have none for this study, on all cores, with `report` of the
    /// row's number and the time. Charge and report are one write, in chunks: after a kill a row has both or neither,
    /// and what was drawn and not written has not left. Tokens may follow ([`set_tokens`](Self::set_tokens)).
    ///
    /// `progress` is told how many rows of this call are done, several times a second; when it breaks, the chunk under
    /// way is dropped, unwritten and uncharged.
    ///
    /// # Errors
    /// As [`admit_upload`](Self::admit_upload), but for tokens; those of `report`; the ledger could not be written.
    /// What was written before stays.
    pub fn prepare(
        &mut self,
        study: &Study,
        file: &RowFile,
        report: impl Fn(u64, u64) -> Result<PreparedReport> + Sync,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Prepared> {
        self.admit(study, file, &UploadRequest::default())?;
        self.make_reports(study, file, &[], report, progress)
    }

    /// Checks all of an upload but its tokens: the one way to a charge.
    fn admit<'a>(
        &self,
        study: &'a Study,
        file: &RowFile,
        request: &'a UploadRequest,
    ) -> Result<AdmittedRows<'a>> {
        let mut file = *file;
        file.same_participants |= request.same_participants;
        let from = self.server_of(study.id())?;
        let moved = request.moved && from.is_some_and(|from| from != *study.server());
        let known = self.known(study.id())?;
        match &known {
            Some(known) => known.check(study, moved)?,
            None => self.check_called(study)?,
        }
        let missing = self.missing(study.id(), file.rows)?.into_iter();
        let missing: u64 = missing.map(|rows| rows.end - rows.start).sum();
        if missing > 0 {
            study.check_open(Error::check_clock(self.clock.unix_ms())?)?;
        }
        let counts = self.counts(study)?;
        let limits = self.limits()?.changed(
            request.epsilon_per_study,
            request.epsilon_total,
            request.delta_total,
        )?;
        if let Some(known) = &known {
            // A refused report is sent again with another token, or on request.
            let may_be_sent = counts.pending + counts.refused > 0;
            if moved || (may_be_sent && !request.accept_new_purpose) {
                let terms = read_terms(&self.store, known.number)?;
                let unchanged = terms.check_unchanged(study.about());
                // To move is to send the same reports: not for another purpose, whatever else is agreed to.
                unchanged.map_err(|error| match moved {
                    true => error,
                    false => error.with_hint(Hint::NewPurpose),
                })?;
            }
            self.check_reading(known, &file)?;
        }
        self.check_file(&file)?;
        let cost = charge(study.id(), study.params(), &study.privacy())?;
        let here = known.map(|known| known.number);
        self.check_limits(limits, study, here, &file, cost)?;
        Ok(AdmittedRows {
            counts,
            cost,
            study,
            file,
            request,
            missing,
            moved,
            limits,
        })
    }

    /// Refuses a study that is called what meant another one of this server before.
    fn check_called(&self, study: &Study) -> Result<()> {
        let here: Vec<(String, Option<String>)> = self.store.all(
            "SELECT study, name FROM study JOIN study_terms USING (number)
             WHERE server = ?1 OR number IN (SELECT moved.number FROM moved WHERE moved.server = ?1)",
            [study.server().as_str()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let here = here.iter();
        let here = here.map(|(id, name)| (id.as_str(), name.as_deref()));
        check_called(study, "the rows", here)
    }

    /// Refuses a file that is read otherwise than when the first reports of the study were made from it.
    fn check_reading(&self, known: &RecordedStudy, file: &RowFile) -> Result<()> {
        let digest: Option<[u8; 32]> = self.store.first(
            "SELECT digest FROM reading WHERE study = ?1",
            [known.number],
            |row| row.get(0),
        )?;
        if digest.is_none_or(|digest| digest == file.reading) {
            return Ok(());
        }
        Err(Error::rows_changed(self.path()))
    }

    /// Refuses a file that differs from those that were charged, unless the caller answers for it.
    fn check_file(&self, file: &RowFile) -> Result<()> {
        let (any, this): (bool, bool) = self.store.one(
            "SELECT EXISTS (SELECT 1 FROM file), EXISTS (SELECT 1 FROM file WHERE digest = ?1)",
            [file.participants],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        if this || !any || file.same_participants {
            return Ok(());
        }
        Err(Error::row_file_mismatch(self.path()))
    }
}

impl UploadRequest {
    /// Refuses rows that would be charged without a token of their own; `missing` is the number of rows without a
    /// report.
    fn check_tokens(&self, study: &Study, rows: u64, missing: u64) -> Result<()> {
        let tokens = self.tokens.as_deref().unwrap_or_default();
        let most = usize::try_from(rows).unwrap_or(usize::MAX);
        let mut places = HashMap::new();
        for (second, token) in tokens.iter().take(most).enumerate() {
            if let Some(first) = places.insert(token.as_bytes(), second) {
                let refusal = "two tokens are the same, with which one participant can report; nothing was perturbed or charged";
                return Err(Error::usage(refusal).with_hint(Hint::OtherTokens(first, second)));
            }
        }
        let (given, needed) = match (&self.tokens, study.enrolment()) {
            (Some(tokens), _) => (tokens.len(), rows),
            (None, Enrolment::Token) => (0, missing),
            (None, Enrolment::Open) => return Ok(()),
        };
        if given as u64 >= needed {
            return Ok(());
        }
        let what = format!(
            "there are {given} one-time tokens for {needed} participants of study {}, who report with one each; nothing was perturbed or charged",
            study.id()
        );
        let error = SharedError::new(ErrorCode::TokenRequired, what);
        Err(Error::from(error).with_hint(Hint::Tokens(given, needed)))
    }
}
