//! The one-time tokens of a device's studies.

use eigenveil_shared::{ErrorCode, enrolment::ParticipantToken};
use rusqlite::params;

use super::{EntryState, Ledger};
use crate::{
    error::{Error, Result},
    outbox::TOKEN_ERRORS,
};

impl Ledger {
    /// Remembers the one-time token with which the report for this study is sent, now and whenever it is sent again.
    /// A second token replaces the first, and a report that was refused because of its token is owed again. Returns
    /// `false` if the token is of no use because the server already has the report.
    ///
    /// # Errors
    /// When the device has not taken part in the study; the file could not be written.
    pub fn set_token(&mut self, study: &str, token: &ParticipantToken) -> Result<bool> {
        let entry = self.entry_of(study)?.ok_or_else(|| {
            Error::usage(format!(
                "the device has no report for study {study}; take part first, then keep the token"
            ))
        })?;
        let again = match &entry.state {
            EntryState::Acknowledged => return Ok(false),
            EntryState::Owed => false,
            EntryState::Refused { code, .. } => {
                ErrorCode::parse(code).is_some_and(|code| TOKEN_ERRORS.contains(&code))
            }
        };
        self.store.write(|file| {
            file.execute(
                "INSERT INTO token (number, bytes) VALUES (?1, ?2)
                 ON CONFLICT (number) DO UPDATE SET bytes = excluded.bytes",
                params![entry.number, token.as_bytes()],
            )?;
            if again {
                file.execute(
                    "UPDATE entry SET state = ?2, code = NULL, detail = NULL WHERE number = ?1",
                    params![entry.number, super::OWED],
                )?;
            }
            Ok(())
        })?;
        Ok(true)
    }
}
