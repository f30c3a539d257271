//! One-time participant tokens.
//!
//! A token is redeemed in the transaction that stores its report, and nothing stored links the two: the table has only
//! a hash and a bit, ordered by hash.

use eigenveil_shared::{
    Error, ErrorCode, Result,
    api::{IssueTokensResponse, StudyState, TokenCounts},
    enrolment::{Enrolment, MAX_TOKENS_PER_REQUEST, ParticipantToken},
};
use rusqlite::params;

use super::{Store, failure::Failure, rows, schema, study::Study};

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
        let (pk, id) = (study.pk, study.id());
        if study.enrolment() == Enrolment::Open {
            return Err(Error::new(
                ErrorCode::InvalidTransition,
                format!(
                    "study {id} has open enrolment and uses no tokens; create a study with enrolment token"
                ),
            ));
        }
        let mut tokens = Vec::with_capacity(count);
        let mut hashes = Vec::with_capacity(count);
        for _ in 0..count {
            let mut random = [0; 32];
            self.shared.environment.entropy.fill(&mut random)?;
            let token = ParticipantToken::from_bytes(random);
            hashes.push(token.digest());
            tokens.push(token.reveal());
        }
        // In index order: fast, and the stored order reveals nothing about the order of the response.
        hashes.sort_unstable();
        self.write(
            move |transaction| {
                if rows::state(transaction, pk, id)? == StudyState::Closed {
                    return Err(Error::new(
                        ErrorCode::InvalidTransition,
                        format!(
                            "study {id} is closed and accepts no reports, so tokens for it would be useless"
                        ),
                    )
                    .into());
                }
                let mut insert = transaction
                    .prepare_cached("INSERT INTO participant_tokens (study_pk, hash) VALUES (?, ?)")?;
                for hash in hashes {
                    insert.execute(params![pk, hash])?;
                }
                Ok(())
            },
            |(), _| (),
        )
        .await?;
        Ok(IssueTokensResponse { tokens })
    }

    /// How many participant tokens a study has. Blocks.
    pub fn token_counts(&self, study: &Study) -> Result<TokenCounts> {
        let count = || -> Result<TokenCounts, Failure> {
            // A separate connection: counting a million rows must not block other readers.
            let connection = schema::open_for_reading(&self.shared.directory.database())?;
            rows::require(&connection, study.pk, study.id())?;
            Ok(connection.query_row(
                "SELECT count(*), coalesce(sum(spent), 0) FROM participant_tokens WHERE study_pk = ?",
                [study.pk],
                |row| {
                    Ok(TokenCounts {
                        issued: row.get(0)?,
                        spent: row.get(1)?,
                    })
                },
            )?)
        };
        count().map_err(Failure::into_error)
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::Cancel;
    use serde_json::json;

    use super::*;
    use crate::{
        ServerConfig,
        faults::{Fault, Faults},
        store::{
            Store, SubmitOutcome,
            fixtures::{create, report},
        },
    };

    /// A failed commit spends nothing; a commit whose acknowledgement was lost spends the token with its report.
    #[tokio::test]
    async fn a_token_is_spent_exactly_when_its_report_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let config = ServerConfig::new(directory.path().join("data"));
        let faults = Faults::default();
        let open = || Store::with_faults(&config, &faults);
        let store = open();
        let study = create(&store, &json!({"enrolment": "token"})).await;
        let issued = store.issue_tokens(&study, 2).await.unwrap();
        let token = ParticipantToken::parse(&issued.tokens[0]).unwrap();
        let report = report(&study, 7).admitted_by(&Some(token.clone()).into());
        let spent = |store: &Store| store.token_counts(&study).unwrap().spent;
        let counted = |store: &Store| store.bucket_sums(&study, Cancel::NEVER).unwrap().n;
        let stored = |store: &Store| (spent(store), counted(store));

        faults.set_next(Some(Fault::CommitFails));
        assert!(store.submit(&study, vec![report.clone()]).await.is_err());
        faults.set_next(None);
        assert_eq!(stored(&store), (0, 0));
        let mut store = store;
        for (fault, reports) in [(Fault::DiesBeforeCommit, 0), (Fault::DiesAfterCommit, 1)] {
            faults.set_next(Some(fault));
            assert!(store.submit(&study, vec![report.clone()]).await.is_err());
            faults.set_next(None);
            // The directory is free once the last clone of the store is dropped.
            drop(store);
            store = open();
            assert_eq!(spent(&store), reports);
        }
        let outcomes = store.submit(&study, vec![report]).await.unwrap();
        assert_eq!(outcomes, [SubmitOutcome::Duplicate]);
        assert_eq!(stored(&store), (1, 1));
    }
}
