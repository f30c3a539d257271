//! Bearer tokens as rows: the operator's and those of analysts.

use std::sync::Arc;

use eigenveil_shared::Result;
use rusqlite::{Connection, params};

use super::{Sqlite, operator_token, rows};
use crate::contract::{
    credentials::{Analyst, Credentials},
    decide,
    engine::{Analysts, Pending},
    failure::Failure,
    study::{Study, StudyId},
    token::TokenHash,
};

pub(super) fn load(connection: &Connection, operator: TokenHash) -> Result<Credentials, Failure> {
    let mut statement = connection.prepare(
        "SELECT a.id, a.name, s.id, a.created_at_ms, a.hash
         FROM analyst_tokens AS a LEFT JOIN studies AS s USING (study_pk)
         ORDER BY a.created_at_ms, a.name, a.id",
    )?;
    let analysts = statement
        .query_map([], |row| {
            Ok(Analyst {
                id: row.get(0)?,
                name: row.get(1)?,
                study: row.get::<_, Option<[u8; 16]>>(2)?.map(StudyId),
                created_at_ms: row.get(3)?,
                hash: TokenHash::stored(row.get(4)?),
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok(Credentials::new(Some(operator), analysts))
}

impl Analysts for Sqlite {
    fn rotate_operator(&self, old: TokenHash, token: String) -> Pending<'_, Result<()>> {
        let hash = TokenHash::new(&token);
        let files = self.directory.token_files();
        let credentials = Arc::clone(&self.credentials);
        let staged = files.clone();
        Box::pin(self.write(
            move |transaction| {
                operator_token::replace_hash(transaction, &old, &hash)?;
                Ok(staged.stage(&token)?)
            },
            move |(), _| {
                credentials.change(|table| table.operator = Some(hash));
                // If this fails, the next start repeats it; the response contains the token in any case.
                if let Err(error) = files.adopt() {
                    tracing::error!(%error, "the new operator token could not be written to its file");
                }
            },
        ))
    }

    fn add_analyst(&self, analyst: Analyst, study: Option<Arc<Study>>) -> Pending<'_, Result<()>> {
        Box::pin(async move {
            let credentials = Arc::clone(&self.credentials);
            self.write(
                move |transaction| {
                    if let Some(study) = &study {
                        rows::require(transaction, study.key, study.id())?;
                    }
                    let count = "SELECT count(*) FROM analyst_tokens";
                    decide::is_room_for_analyst(
                        transaction.query_row(count, [], |row| row.get(0))?,
                    )?;
                    transaction.execute(
                        "INSERT INTO analyst_tokens (id, name, study_pk, created_at_ms, hash)
                     VALUES (?, ?, ?, ?, ?)",
                        params![
                            analyst.id,
                            analyst.name,
                            study.map(|study| study.key),
                            analyst.created_at_ms,
                            analyst.hash.bytes()
                        ],
                    )?;
                    Ok(analyst)
                },
                move |analyst, _| credentials.change(|table| table.analysts.push(analyst.clone())),
            )
            .await
            .map(drop)
        })
    }

    /// Deletes the token; returns whether it existed.
    fn remove_analyst(&self, id: [u8; 8]) -> Pending<'_, Result<bool>> {
        let credentials = Arc::clone(&self.credentials);
        Box::pin(self.write(
            move |transaction| {
                let removed =
                    transaction.execute("DELETE FROM analyst_tokens WHERE id = ?", params![id])?;
                Ok(removed > 0)
            },
            move |_, _| credentials.change(|table| table.analysts.retain(|other| other.id != id)),
        ))
    }
}
