//! Whether a body that begins like this can be counted, by the one-time tokens before its reports.
//!
//! As with other tokens the right one is known first: bodies without one take no room from those that have it. They are
//! read while there is room, because what they bring may have been counted before, which their sender has to learn. What
//! is answered, and that a token is spent, is decided in the commit alone.

use std::sync::Arc;

use eigenveil_shared::{
    Result,
    enrolment::{ParticipantToken, TOKEN_LEN},
};

use super::estimates::blocking;
use crate::{
    app::AppState,
    store::{Store, Study},
};

/// The count of a batch, before its tokens.
const COUNT_LEN: usize = 8;

/// Looks for tokens of a study that were not spent.
pub(super) struct Admission {
    store: Store,
    study: Arc<Study>,
    batched: bool,
}

impl Admission {
    pub(super) fn new(app: &AppState, study: &Arc<Study>, batched: bool) -> Self {
        Self {
            store: app.store().clone(),
            study: Arc::clone(study),
            batched,
        }
    }

    /// Whether one of the tokens in these first bytes of a body is good for a report.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn of(self, begin: &[u8]) -> Result<bool> {
        let hashes: Vec<_> = tokens(begin, self.batched)
            .map(|token| ParticipantToken::from_bytes(*token).digest())
            .collect();
        blocking(move || self.store.has_unspent_token(&self.study, &hashes)).await
    }
}

/// The tokens that lie whole in these first bytes.
fn tokens(begin: &[u8], batched: bool) -> impl Iterator<Item = &[u8; TOKEN_LEN]> {
    let (count, begin) = match (batched, begin.split_first_chunk::<COUNT_LEN>()) {
        (false, _) => (1, begin),
        (true, Some((count, rest))) => (u64::from_le_bytes(*count), rest),
        (true, None) => (0, begin),
    };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    begin.as_chunks().0.iter().take(count)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::enrolment::{with_token, with_tokens};

    use super::*;

    #[test]
    fn tokens_are_found_where_they_are_written() {
        let made = [1, 2, 3].map(|byte| ParticipantToken::from_bytes([byte; TOKEN_LEN]));
        let found = |bytes: &[u8], batched| {
            let firsts = tokens(bytes, batched).map(|token| token[0]);
            firsts.collect::<Vec<_>>()
        };
        assert_eq!(found(&with_token(&made[0], &[9; 100]), false), [1]);
        let batch = with_tokens(&made.each_ref(), &[9; 100]);
        assert_eq!(found(&batch, true), [1, 2, 3]);
        // Cut off before the last token's end, and before anything.
        assert_eq!(found(&batch[..8 + 3 * TOKEN_LEN - 1], true), [1, 2]);
        assert!(found(&batch[..7], true).is_empty() && found(&[], false).is_empty());
    }
}
