//! Admission of rows to a study: the whole request is checked before any of it is stored.

use std::{
    collections::HashMap,
    ops::{ControlFlow, Range},
};

use eigenveil_shared::{
    Error as SharedError, ErrorCode,
    enrolment::{Enrolment, ParticipantToken},
    privacy::Budget,
    wording::counted,
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
    study_info::StudyInfo,
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
    /// One-time tokens, the first for row 0; those beyond the last row are ignored.
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

/// A study as an upload would change it, whoever takes part.
pub(super) struct AdmittedStudy {
    /// The study, if the ledger knows it.
    pub(super) known: Option<RecordedStudy>,
    pub(super) counts: RowCounts,
    pub(super) moved: bool,
    pub(super) limits: Limits,
}

impl RowLedger {
    /// Checks a whole upload, before [`take_part`](Self::take_part) stores any part of it.
    ///
    /// # Errors
    /// `already-participated` if rows took part in this study at another address, or in another study of this server
    /// that had the name by which this one was [called](Study::called), or in another round of the same preparation;
    /// `wrong-fingerprint`; `study-not-open` and `study-ended` if rows have no report yet; `invalid-about` if reports
    /// that may be sent were made for another purpose (a study that moves must keep its purpose even with consent);
    /// `invalid-budget`; [`Error::is_row_file_mismatch`] for a file that the ledger does not know
    /// ([`RowFile::assume_same_participants`]); a file that is read with other settings than for the study's first
    /// reports; `budget-exceeded` if it would exceed a row's limit; `token-required` or `usage` for rows that would be
    /// charged without their own token. [`Error::hint`] says how to avoid the error.
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
        self.apply(study, request, rows.moved, rows.limits)?;
        let tokens = request.tokens.as_deref().unwrap_or_default();
        if !tokens.is_empty() {
            self.set_tokens(study, (0..).zip(tokens))?;
        }
        // Other rows may have been charged since these were admitted.
        self.admit(study, &rows.file, request)?;
        self.make_reports(study, &rows.file, tokens, report, progress)
    }

    /// Makes the reports of all rows of the file that have none for this study, on all cores; `report` gets the row's
    /// number and the time. Charge and report are one write, in chunks: after a crash a row has both or neither, and a
    /// report that was not written has not left the device. Tokens may follow ([`set_tokens`](Self::set_tokens)).
    ///
    /// `progress` gets the number of rows done in this call, several times a second; if it breaks, the current chunk is
    /// discarded, unwritten and uncharged.
    ///
    /// # Errors
    /// Those of [`admit_upload`](Self::admit_upload), except for tokens; those of `report`; the ledger could not be
    /// written. Chunks that were written before stay.
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

    /// Checks everything about an upload except its tokens; the only way to a charge.
    fn admit<'a>(
        &self,
        study: &'a Study,
        file: &RowFile,
        request: &'a UploadRequest,
    ) -> Result<AdmittedRows<'a>> {
        let mut file = *file;
        file.same_participants |= request.same_participants;
        let missing = self.missing(study.id(), file.rows)?;
        let admitted = self.admit_study(study, request, !missing.is_empty())?;
        self.check_no_persons()?;
        self.check_other_rounds(study, &missing, named_rows)?;
        if let Some(known) = &admitted.known {
            self.check_settings(known, &file)?;
        }
        self.check_file(&file)?;
        let cost = charge(study.id(), study.parameters(), &study.privacy())?;
        self.check_limits(admitted.limits, study, cost, &missing, named_rows)?;
        Ok(AdmittedRows {
            counts: admitted.counts,
            cost,
            study,
            file,
            request,
            missing: missing.iter().map(|rows| rows.end - rows.start).sum(),
            moved: admitted.moved,
            limits: admitted.limits,
        })
    }

    /// Checks what an upload asks for of a study of either unit; `is_new` says whether anybody would be charged.
    pub(super) fn admit_study(
        &self,
        study: &StudyInfo,
        request: &UploadRequest,
        is_new: bool,
    ) -> Result<AdmittedStudy> {
        let from = self.server_of(study.id())?;
        let moved = request.moved && from.is_some_and(|from| from != *study.server());
        let known = self.known(study.id())?;
        match &known {
            Some(known) => known.check(study, moved)?,
            None => self.check_called(study)?,
        }
        if is_new {
            study.check_open(Error::check_clock(self.clock.unix_ms())?)?;
        }
        let counts = self.counts(study)?;
        let limits = self.limits()?.changed(
            request.epsilon_per_study,
            request.epsilon_total,
            request.delta_total,
        )?;
        if let Some(known) = &known {
            // A refused report is sent again with another token, or on request; a missing one is made.
            let may_be_sent = counts.pending + counts.refused > 0 || is_new;
            if moved || (may_be_sent && !request.accept_new_purpose) {
                let terms = read_terms(&self.store, known.number)?;
                let unchanged = terms.check_unchanged(study.about());
                // After a move the same reports are sent, so that no consent covers another purpose.
                unchanged.map_err(|error| match moved {
                    true => error,
                    false => error.with_hint(Hint::NewPurpose),
                })?;
            }
        }
        Ok(AdmittedStudy {
            known,
            counts,
            moved,
            limits,
        })
    }

    /// Stores what an upload asks for beside its reports: a move, limits, and that refused reports are pending again.
    pub(super) fn apply(
        &mut self,
        study: &StudyInfo,
        request: &UploadRequest,
        moved: bool,
        limits: Limits,
    ) -> Result<()> {
        self.store.begin()?;
        if moved {
            self.accept_move(study)?;
        }
        if limits != self.limits()? {
            self.set_limits(limits)?;
        }
        if request.resend_refused {
            self.requeue_refused(study)?;
        }
        Ok(())
    }

    /// Refuses a study called by a name that meant another study of this server before.
    fn check_called(&self, study: &StudyInfo) -> Result<()> {
        let known_names: Vec<(String, Option<String>)> = self.store.all(
            "SELECT study, name FROM study JOIN study_terms USING (number)
             WHERE server = ?1 OR number IN (SELECT moved.number FROM moved WHERE moved.server = ?1)",
            [study.server().as_str()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        let known_names = known_names.iter();
        let known_names = known_names.map(|(id, name)| (id.as_str(), name.as_deref()));
        check_called(study, "the rows", known_names)
    }

    /// Refuses a file that is read with other settings than for the first reports of the study.
    pub(super) fn check_settings(&self, known: &RecordedStudy, file: &RowFile) -> Result<()> {
        let digest: Option<[u8; 32]> = self.store.first(
            "SELECT digest FROM reading WHERE study = ?1",
            [known.number],
            |row| row.get(0),
        )?;
        if digest.is_none_or(|digest| digest == file.settings_digest) {
            return Ok(());
        }
        Err(Error::rows_changed(self.path()))
    }

    /// Refuses a file that differs from those that were charged, unless the caller takes responsibility for it.
    pub(super) fn check_file(&self, file: &RowFile) -> Result<()> {
        let (any_charged, this_charged): (bool, bool) = self.store.one(
            "SELECT EXISTS (SELECT 1 FROM file), EXISTS (SELECT 1 FROM file WHERE digest = ?1)",
            [file.participants],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?;
        if this_charged || !any_charged || file.same_participants {
            return Ok(());
        }
        Err(Error::row_file_mismatch(self.path()))
    }
}

/// Consecutive rows, in a message.
pub(super) fn named_rows(rows: &Range<u64>) -> String {
    match rows.end - rows.start {
        1 => format!("row {}", rows.end),
        _ => format!("rows {} to {}", rows.start + 1, rows.end),
    }
}

impl UploadRequest {
    /// Refuses rows that would be charged without their own token; `missing` is the number of rows without a report.
    fn check_tokens(&self, study: &Study, rows: u64, missing: u64) -> Result<()> {
        let tokens = self.tokens.as_deref().unwrap_or_default();
        let row_limit = usize::try_from(rows).unwrap_or(usize::MAX);
        let mut first_index = HashMap::new();
        for (second, token) in tokens.iter().take(row_limit).enumerate() {
            if let Some(first) = first_index.insert(token.as_bytes(), second) {
                let detail = "two tokens are equal, but each participant needs a different one; nothing was perturbed or charged";
                return Err(Error::usage(detail).with_hint(Hint::DuplicateTokens { first, second }));
            }
        }
        let (token_count, participant_count) = match (&self.tokens, study.enrolment()) {
            (Some(tokens), _) => (tokens.len(), rows),
            (None, Enrolment::Token) => (0, missing),
            (None, Enrolment::Open) => return Ok(()),
        };
        if token_count as u64 >= participant_count {
            return Ok(());
        }
        let detail = format!(
            "there are {} for {} of study {}, who report with one each; nothing was perturbed or charged",
            counted(token_count as u64, "one-time token"),
            counted(participant_count, "participant"),
            study.id()
        );
        let error = SharedError::new(ErrorCode::TokenRequired, detail);
        Err(Error::from(error).with_hint(Hint::Tokens(token_count, participant_count)))
    }
}
