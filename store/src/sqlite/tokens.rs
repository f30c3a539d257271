//! Participant tokens as rows: a hash and a bit, ordered by hash; of sites their names, too.

use eigenveil_shared::{
    Result,
    api::{SiteToken, TokenCounts},
    enrolment::AdmissionKey,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{Sqlite, rows, schema};
use crate::contract::{
    decide,
    engine::{Pending, Tokens},
    failure::Failure,
    participant_token::{NewToken, SiteRoom},
    study::{Study, StudyKey},
};

impl Tokens for Sqlite {
    fn issue(&self, study: &Study, tokens: Vec<NewToken>) -> Pending<'_, Result<()>> {
        let (key, id, enrolment) = (study.key, study.id(), study.enrolment());
        let room = SiteRoom::of(study, &self.config);
        Box::pin(self.write(
            move |transaction| {
                decide::may_issue(id, rows::state(transaction, key, id)?, enrolment)?;
                if let Some(room) = room {
                    room.check_tokens(count(transaction, key)?.issued, tokens.len())?;
                }
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO participant_tokens (study_pk, hash, site, max_rows) VALUES (?, ?, ?, ?)",
                )?;
                for token in tokens {
                    let (site, max_rows) = token.site.unzip();
                    insert.execute(params![key, token.key, site, max_rows])?;
                }
                Ok(())
            },
            |(), _| (),
        ))
    }

    fn token_counts(&self, study: &Study) -> Result<TokenCounts> {
        let count_all = || -> Result<TokenCounts, Failure> {
            // A separate connection: counting a million rows must not block other readers.
            let mut connection = schema::open_for_reading(&self.directory.database())?;
            let transaction = connection.transaction()?;
            rows::require(&transaction, study.key, study.id())?;
            let mut counts = count(&transaction, study.key)?;
            if study.has_sites() {
                let mut statement = transaction.prepare(
                    "SELECT site, max_rows, spent FROM participant_tokens WHERE study_pk = ?
                     ORDER BY site, max_rows, spent",
                )?;
                let sites = statement.query_map([study.key], site_token)?;
                counts.sites = sites.collect::<rusqlite::Result<_>>()?;
            }
            Ok(counts)
        };
        count_all().map_err(Failure::into_error)
    }

    fn site_token(&self, study: &Study, key: &AdmissionKey) -> Result<Option<SiteToken>> {
        let read = || -> Result<Option<SiteToken>, Failure> {
            let reader = self.reader();
            let mut statement = reader.prepare_cached(
                "SELECT site, max_rows, spent FROM participant_tokens WHERE study_pk = ? AND hash = ?",
            )?;
            Ok(statement
                .query_row(params![study.key, key], site_token)
                .optional()?)
        };
        self.note_damage(read())
    }
}

fn count(connection: &Connection, study_pk: StudyKey) -> Result<TokenCounts, Failure> {
    Ok(connection.query_row(
        "SELECT count(*), coalesce(sum(spent), 0) FROM participant_tokens WHERE study_pk = ?",
        [study_pk],
        |row| {
            Ok(TokenCounts {
                issued: row.get(0)?,
                spent: row.get(1)?,
                sites: Vec::new(),
            })
        },
    )?)
}

fn site_token(row: &Row<'_>) -> rusqlite::Result<SiteToken> {
    Ok(SiteToken {
        site: row.get(0)?,
        max_rows: row.get(1)?,
        spent: row.get(2)?,
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::Cancel;
    use serde_json::json;

    use crate::{
        Store,
        config::StoreConfig,
        contract::decide::SubmitOutcome,
        faults::{Fault, Faults},
        testing::fixtures::{admissions, create, report},
    };

    /// A failed commit spends nothing; a commit whose acknowledgement was lost spends the token with its report.
    #[tokio::test]
    async fn a_token_is_spent_exactly_when_its_report_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig::new(directory.path().join("data"));
        let faults = Faults::default();
        let open = || Store::with_faults(&config, &faults);
        let store = open();
        let study = create(&store, &json!({"enrolment": "token"})).await;
        let tokens = admissions(&store, &study, 2).await;
        let report = report(&study, 7).admitted_by(&tokens[0]);
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
