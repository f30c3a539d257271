//! The one-time tokens of an outbox's participants.

use eigenveil_shared::{ErrorCode, enrolment::ParticipantToken};
use rusqlite::params;

use super::{ACKNOWLEDGED, Outbox, PENDING, key, schema::LAYOUT};
use crate::error::Result;

/// What a server says of a token that another one may cure.
pub(crate) const ABOUT_A_TOKEN: [ErrorCode; 3] = [
    ErrorCode::TokenRequired,
    ErrorCode::TokenUnknown,
    ErrorCode::TokenSpent,
];

impl Outbox {
    /// Remembers with which token each of these participants' reports is sent, now and whenever it is sent again. A
    /// participant who has another token gets this one; a report that was refused for its token is pending again. Gives
    /// for how many participants a token is kept: those whose report is acknowledged need none any more.
    ///
    /// To replace a token is safe at any time: a server that has the report already looks at no token.
    ///
    /// # Errors
    /// The file could not be written.
    pub fn assign_tokens<'a>(
        &mut self,
        tokens: impl IntoIterator<Item = (u64, &'a ParticipantToken)>,
    ) -> Result<usize> {
        let path = &self.path;
        let failed = |error| LAYOUT.failed(path, &error);
        let mut kept = 0;
        let transaction = self.connection.transaction().map_err(failed)?;
        {
            let mut keep = transaction
                .prepare_cached(
                    "INSERT INTO token (participant, bytes) SELECT ?1, ?2
                     WHERE NOT EXISTS (SELECT 1 FROM report WHERE participant = ?1 AND state = ?3)
                     ON CONFLICT (participant) DO UPDATE SET bytes = excluded.bytes",
                )
                .map_err(failed)?;
            let mut forgive = transaction
                .prepare_cached(
                    "DELETE FROM refusal WHERE participant = ?1 AND code IN (?2, ?3, ?4)",
                )
                .map_err(failed)?;
            let mut requeue = transaction
                .prepare_cached("UPDATE report SET state = ?2 WHERE participant = ?1")
                .map_err(failed)?;
            let [required, unknown, spent] = ABOUT_A_TOKEN.map(ErrorCode::as_str);
            for (participant, token) in tokens {
                let key = key(participant)?;
                kept += keep
                    .execute(params![key, token.as_bytes(), ACKNOWLEDGED])
                    .map_err(failed)?;
                if forgive
                    .execute(params![key, required, unknown, spent])
                    .map_err(failed)?
                    == 1
                {
                    requeue.execute(params![key, PENDING]).map_err(failed)?;
                }
            }
        }
        transaction.commit().map_err(failed)?;
        Ok(kept)
    }
}
