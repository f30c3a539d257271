//! The one-time tokens of an outbox's participants.

use eigenveil_shared::{ErrorCode, enrolment::ParticipantToken};
use rusqlite::params;

use super::{ACKNOWLEDGED, Outbox, PENDING, key};
use crate::error::Result;

/// Error codes that another token may fix.
pub(crate) const TOKEN_ERRORS: [ErrorCode; 3] = [
    ErrorCode::TokenRequired,
    ErrorCode::ParticipantTokenUnknown,
    ErrorCode::TokenSpent,
];

impl Outbox {
    /// Remembers with which token each of these participants' reports is sent, now and whenever it is sent again. A
    /// participant who has another token gets this one; a report that was refused for its token is pending again. Gives
    /// for how many participants a token is kept: those whose report is acknowledged need none any more.
    ///
    /// To replace a token is safe at any time: a server that has the report already looks at no token.
    pub fn set_tokens<'a>(
        &mut self,
        tokens: impl IntoIterator<Item = (u64, &'a ParticipantToken)>,
    ) -> Result<usize> {
        self.store.write(|file| {
            let mut kept = 0;
            let mut keep = file.prepare_cached(
                "INSERT INTO token (participant, bytes) SELECT ?1, ?2
                 WHERE NOT EXISTS (SELECT 1 FROM report WHERE participant = ?1 AND state = ?3)
                 ON CONFLICT (participant) DO UPDATE SET bytes = excluded.bytes",
            )?;
            let mut forgive = file.prepare_cached(
                "DELETE FROM refusal WHERE participant = ?1 AND code IN (?2, ?3, ?4)",
            )?;
            let mut requeue =
                file.prepare_cached("UPDATE report SET state = ?2 WHERE participant = ?1")?;
            let [required, unknown, spent] = TOKEN_ERRORS.map(ErrorCode::as_str);
            for (participant, token) in tokens {
                let key = key(participant)?;
                kept += keep.execute(params![key, token.as_bytes(), ACKNOWLEDGED])?;
                if forgive.execute(params![key, required, unknown, spent])? == 1 {
                    requeue.execute(params![key, PENDING])?;
                }
            }
            Ok(kept)
        })
    }
}
