//! Bearer tokens as rows: the operator's and those of analysts.

use std::sync::Arc;

use eigenveil_shared::{Hint, Result};
use tokio_postgres::{Client, Row};

use super::{Postgres, connection::value, studies::state_of, unsigned};
use crate::contract::{
    credentials::{Analyst, TokenTable},
    decide,
    engine::{Analysts, Pending},
    failure::{Failure, unavailable},
    study::{Study, StudyId},
    token::{TokenHash, token_replaced},
    token_files::TokenFiles,
};

pub(super) const OPERATOR: &str = "operator-token-sha256";

/// The tokens that can be read, and what cannot be: whatever is damaged, a token that was removed must not stay valid.
pub(super) async fn load(client: &Client) -> Result<(TokenTable, Result<(), Failure>), Failure> {
    let stored = client
        .query_opt("SELECT value FROM settings WHERE key = $1", &[&OPERATOR])
        .await?;
    // One for a study that is no longer there is for nothing, least of all for all studies.
    let rows = client
        .query(
            "SELECT a.id, a.name, s.id, a.created_at_ms, a.hash FROM analysts a LEFT JOIN studies s USING (study)
             WHERE a.study IS NULL OR s.id IS NOT NULL ORDER BY a.created_at_ms, a.name, a.id",
            &[],
        )
        .await?;
    let mut complete = Ok(());
    let analysts = rows
        .iter()
        .filter_map(|row| analyst(row).map_err(|failure| complete = Err(failure)).ok())
        .collect();
    let operator = operator(stored.as_ref());
    let operator = operator.map_err(|failure| complete = Err(failure)).ok();
    Ok((TokenTable { operator, analysts }, complete))
}

fn operator(stored: Option<&Row>) -> Result<TokenHash, Failure> {
    let stored = stored.ok_or_else(|| {
        unavailable("the database has no operator token; migrate the store, which makes it")
            .with_hint(Hint::MigrateStore)
    })?;
    Ok(TokenHash::stored(bytes(stored.try_get(0)?)?))
}

fn analyst(row: &Row) -> Result<Analyst, Failure> {
    let study: Option<&[u8]> = row.try_get(2)?;
    Ok(Analyst {
        id: bytes(row.try_get(0)?)?,
        name: row.try_get(1)?,
        study: study.map(bytes).transpose()?.map(StudyId),
        created_at_ms: unsigned(row.try_get(3)?),
        hash: TokenHash::stored(bytes(row.try_get(4)?)?),
    })
}

pub(super) fn bytes<const N: usize>(stored: &[u8]) -> Result<[u8; N], Failure> {
    let wrong = |_| {
        Failure::damaged(format!(
            "a stored value has {} bytes instead of {N}",
            stored.len()
        ))
    };
    stored.try_into().map_err(wrong)
}

/// Names the files that alone have the token of a rotation in doubt; the next look at the database settles it.
fn name_files(failure: Failure, files: &TokenFiles) -> Failure {
    let Failure::InDoubt(why) = failure else {
        return failure;
    };
    tracing::warn!(why, "a rotation of the operator token is in doubt");
    unavailable(format!(
        "the database did not confirm the rotation, which may have been done or not: if the old token is refused, the new one is in {}, or still in {}; otherwise retry",
        files.path().display(),
        files.next().display()
    ))
    .into()
}

impl Analysts for Postgres {
    /// In the file of this server's directory; other servers refuse the old token within a second.
    fn rotate_operator(&self, old: TokenHash, token: String) -> Pending<'_, Result<()>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.run(async move {
            let _registry = inner.registry.lock().await;
            let files = TokenFiles::in_directory(&inner.config.data_dir);
            let hash = TokenHash::new(&token);
            let session = inner.pool.begin().await?;
            // Only the hash that the request came with: of several rotations with one token, one succeeds.
            let update = "UPDATE settings SET value = $2 WHERE key = $1 AND value = $3";
            let [new, old] = [&hash, &old].map(|hash| hash.bytes().as_slice());
            let rows = session.execute(update, &[&OPERATOR, &new, &old]).await?;
            if rows == 0 {
                session.end().await?;
                return Err(token_replaced().into());
            }
            files.stage(&token)?;
            session
                .commit()
                .await
                .map_err(|failure| name_files(failure, &files))?;
            inner
                .credentials
                .change(|table| table.operator = Some(hash));
            if let Err(error) = files.adopt() {
                tracing::error!(%error, "the new operator token could not be written to its file");
            }
            Ok(())
        }))
    }

    fn add_analyst(&self, analyst: Analyst, study: Option<Arc<Study>>) -> Pending<'_, Result<()>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.run(async move {
            let _registry = inner.registry.lock().await;
            let session = inner.pool.begin().await?;
            if let Some(study) = &study {
                // Held to the commit: a deletion comes before, or removes this token, too.
                state_of(&session, study.key, study.id(), "FOR SHARE").await?;
            }
            let count: i64 = value(&session, "SELECT count(*) FROM analysts", &[]).await?;
            decide::is_room_for_analyst(unsigned(count) as usize)?;
            let (key, created) = (study.map(|study| study.key.0), analyst.created_at_ms as i64);
            session
                .execute(
                    "INSERT INTO analysts (id, name, study, created_at_ms, hash) VALUES ($1, $2, $3, $4, $5)",
                    &[
                        &analyst.id.as_slice(),
                        &analyst.name,
                        &key,
                        &created,
                        &analyst.hash.bytes().as_slice(),
                    ],
                )
                .await?;
            session.commit().await?;
            inner.credentials.change(|table| table.analysts.push(analyst));
            Ok(())
        }))
    }

    /// Deletes the token; returns whether it existed.
    fn remove_analyst(&self, id: [u8; 8]) -> Pending<'_, Result<bool>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.run(async move {
            let _registry = inner.registry.lock().await;
            let session = inner.pool.begin().await?;
            let removed = session
                .execute("DELETE FROM analysts WHERE id = $1", &[&id.as_slice()])
                .await?;
            session.commit().await?;
            inner
                .credentials
                .change(|table| table.analysts.retain(|other| other.id != id));
            Ok(removed > 0)
        }))
    }
}
