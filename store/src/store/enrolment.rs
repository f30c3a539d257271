//! One-time participant tokens.
//!
//! A token is redeemed in the transaction that stores its report. No column links the two; what transactions and copies
//! of the files show: docs/limitations.md.

use eigenveil_shared::{
    Error, Result,
    api::{IssueTokensResponse, TokenCounts},
    enrolment::{MAX_TOKENS_PER_REQUEST, ParticipantToken},
};

use super::Store;
use crate::contract::study::Study;

impl Store {
    /// Creates one-time tokens for the participants of a study. Their text is only in the response.
    ///
    /// # Errors
    /// `invalid-request` for none or more than 100,000; `invalid-transition` for a study that is closed or has open
    /// enrolment; `study-not-found`; those of the store; `randomness-unavailable`.
    pub async fn issue_tokens(&self, study: &Study, count: usize) -> Result<IssueTokensResponse> {
        if !(1..=MAX_TOKENS_PER_REQUEST).contains(&count) {
            return Err(Error::invalid_request(format!(
                "count is {count}; one request makes 1 to {MAX_TOKENS_PER_REQUEST} tokens"
            )));
        }
        let mut tokens = Vec::with_capacity(count);
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let mut random = [0; 32];
            self.shared.environment.entropy.fill(&mut random)?;
            let token = ParticipantToken::from_bytes(random);
            keys.push(token.digest());
            tokens.push(token.reveal());
        }
        // In index order: fast, and the stored order reveals nothing about the order of the response.
        keys.sort_unstable();
        self.engine().issue(study, keys).await?;
        Ok(IssueTokensResponse { tokens })
    }

    /// How many participant tokens a study has. Blocks.
    pub fn token_counts(&self, study: &Study) -> Result<TokenCounts> {
        self.engine().token_counts(study)
    }
}
