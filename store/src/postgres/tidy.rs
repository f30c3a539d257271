//! In the background, in small transactions: what deleted studies leave, identifiers past their retention time, counts
//! that get coarser, and rows of open studies rewritten among many others, so that no transaction number pairs a token,
//! an identifier and a seed (those of closed studies: `rewrite.rs`).

use std::sync::Arc;

use eigenveil_shared::Result;
use tokio_postgres::{Client, types::ToSql};

use super::{
    Inner, Postgres,
    chunks::Run,
    connection::Session,
    statements::require,
    studies::{lock_buckets, locked_state},
};
use crate::contract::{
    decide,
    engine::{Pending, Removal},
    failure::Failure,
    study::{Study, StudyKey},
};

const ROWS: i64 = 50_000;
/// Rows of a study that are removed together: so few that the database needs no temporary file, which a full disk would
/// refuse.
const REMOVED: i64 = 4_096;
/// Seeds or tokens that are rewritten together.
const TOGETHER: i64 = 4_096;
/// Seeds in a chunk that is left alone.
const WHOLE: i64 = 4_096;
/// Seeds after which no further chunk is merged into one.
const MOST_SEEDS: i64 = 1 << 16;

impl Removal for Postgres {
    /// The identifier is free at once; the rest is removed in the background, as sums without a study show. Nothing is
    /// inserted, which a full disk would refuse.
    fn delete(&self, study: &Arc<Study>) -> Pending<'_, Result<()>> {
        let (inner, study) = (Arc::clone(&self.inner), Arc::clone(study));
        Box::pin(self.run(async move {
            let _registry = inner.registry.lock().await;
            let session = inner.pool.begin().await?;
            decide::may_delete(study.id(), locked_state(&session, &study).await?)?;
            lock_buckets(&session, study.key).await?;
            for table in ["buckets", "estimates", "analysts", "studies"] {
                let delete = format!("DELETE FROM {table} WHERE study = $1");
                session.execute(delete.as_str(), &[&study.key.0]).await?;
            }
            session.commit().await?;
            inner.studies.remove(study.id());
            inner.credentials.forget_study(study.id());
            Ok(())
        }))
    }

    fn sweep(&self, stopping: &dyn Fn() -> bool) -> Result<()> {
        loop {
            if stopping() {
                return Ok(());
            }
            let more = self.wait(async {
                Ok(self.inner.remove_deleted().await?
                    || self.inner.remove_old_identifiers().await?
                    || self.inner.rewrite_tokens().await?
                    || self.inner.merge_chunks().await?
                    || self.inner.rewrite_closed().await?)
            })?;
            if !more {
                break;
            }
        }
        self.wait(self.inner.roll_up())?;
        self.inner.begin_vacuum();
        Ok(())
    }

    fn is_rewritten(&self, study: &Study) -> Result<bool> {
        self.wait(self.inner.is_rewritten(study))
    }
}

impl Inner {
    /// A study that a query finds, in a transaction.
    async fn next_study(
        &self,
        query: &str,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Option<(Session, i64)>, Failure> {
        let session = self.pool.begin().await?;
        let Some(row) = session.query_opt(query, params).await? else {
            session.end().await?;
            return Ok(None);
        };
        let study = row.try_get(0)?;
        Ok(Some((session, study)))
    }

    /// Removes some rows of a deleted study; returns whether there may be more.
    async fn remove_deleted(&self) -> Result<bool, Failure> {
        let next = "SELECT study FROM sums s WHERE bucket = 0 AND NOT EXISTS (SELECT 1 FROM studies t WHERE t.study = s.study)
                    LIMIT 1 FOR UPDATE OF s SKIP LOCKED";
        let Some((session, study)) = self.next_study(next, &[]).await? else {
            return Ok(false);
        };
        let mut removed = 0;
        for (table, key, most) in [
            ("identifiers", "id", REMOVED),
            ("tokens", "key", REMOVED),
            ("chunks", "(bucket, last)", 1_000),
            // Of up to 34 MB each.
            ("site_reports", "number", 8),
        ] {
            let delete = format!(
                "DELETE FROM {table} WHERE study = $1 AND {key} IN (SELECT {} FROM {table} WHERE study = $1 LIMIT $2)",
                key.trim_matches(['(', ')'])
            );
            removed += session.execute(delete.as_str(), &[&study, &most]).await?;
        }
        if removed == 0 {
            for table in ["sums", "imports", "arrivals"] {
                let delete = format!("DELETE FROM {table} WHERE study = $1");
                session.execute(delete.as_str(), &[&study]).await?;
            }
        }
        session.commit().await?;
        Ok(true)
    }

    /// Removes some identifiers of a study past its retention time; returns whether there may be more.
    async fn remove_old_identifiers(&self) -> Result<bool, Failure> {
        let Some(days) = self.config.retain_ids_days else {
            return Ok(false);
        };
        let next = "SELECT study FROM studies s WHERE state = 'closed' AND closed_at_ms < moment_ms() - $1
                    AND (identifiers_kept OR EXISTS (SELECT 1 FROM identifiers i WHERE i.study = s.study))
                    LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED";
        let age_ms = i64::from(days) * 86_400_000;
        let Some((session, study)) = self.next_study(next, &[&age_ms]).await? else {
            return Ok(false);
        };
        // With the first of them: nobody may take the rest for all.
        let update = "UPDATE studies SET identifiers_kept = false WHERE study = $1";
        session.execute(update, &[&study]).await?;
        let delete = "DELETE FROM identifiers WHERE study = $1
                      AND id IN (SELECT id FROM identifiers WHERE study = $1 LIMIT $2)";
        session.execute(delete, &[&study, &REMOVED]).await?;
        session.commit().await?;
        Ok(true)
    }

    /// Rewrites spent tokens where they lie, many at once: moved elsewhere they could be issued and spent again.
    async fn rewrite_tokens(&self) -> Result<bool, Failure> {
        let next =
            "SELECT study FROM tokens WHERE spent = 1 GROUP BY study HAVING count(*) >= $1 LIMIT 1";
        let Some((session, study)) = self.next_study(next, &[&TOGETHER]).await? else {
            return Ok(false);
        };
        let lock = "SELECT key FROM tokens WHERE study = $1 AND spent = 1 ORDER BY study, key LIMIT $2 FOR NO KEY UPDATE";
        let rows = session.query(lock, &[&study, &ROWS]).await?;
        let mut keys: Vec<&[u8]> = Vec::with_capacity(rows.len());
        for row in &rows {
            keys.push(row.try_get(0)?);
        }
        let update =
            "UPDATE tokens SET spent = 2 WHERE study = $1 AND key = ANY ($2) AND spent = 1";
        let rewritten = session.execute(update, &[&study, &keys]).await?;
        require("tokens", rewritten, keys.len())?;
        session.commit().await?;
        // Another server may have taken them meanwhile.
        Ok(!keys.is_empty())
    }

    /// Merges the chunks of a bucket, from a small one on, where they have many seeds together: those that a fold has, or
    /// those after it, so that a fold never ends within a chunk. Returns whether there may be more.
    async fn merge_chunks(&self) -> Result<bool, Failure> {
        let session = self.pool.begin().await?;
        let next = "WITH small AS (
                SELECT c.study, c.bucket, c.last <= s.upto AS folded, min(c.last) AS start
                FROM chunks c JOIN sums s ON s.study = c.study AND s.bucket = c.bucket
                WHERE c.n < $1 GROUP BY c.study, c.bucket, c.last <= s.upto)
            SELECT small.study, small.bucket, start FROM small
            JOIN studies t ON t.study = small.study
            JOIN sums s ON s.study = small.study AND s.bucket = small.bucket, LATERAL (
                SELECT sum(c.n) AS n, count(*) AS chunks FROM chunks c
                WHERE c.study = small.study AND c.bucket = small.bucket AND c.last >= start
                    AND (c.last <= s.upto) = folded) later
            WHERE later.chunks > 1 AND later.n >= $2 LIMIT 1";
        let merged = match session
            .query_opt(next, &[&(WHOLE as i32), &TOGETHER])
            .await?
        {
            Some(row) => {
                let study = StudyKey(row.try_get(0)?);
                merge(&session, study, row.try_get(1)?, row.try_get(2)?).await?
            }
            None => false,
        };
        session.commit().await?;
        Ok(merged)
    }

    /// Minutes become hours, and hours days, as their age demands.
    async fn roll_up(&self) -> Result<(), Failure> {
        let session = self.pool.begin().await?;
        for (fine, coarse, age) in [(60_i32, 3_600_i64, 7_200_i64), (3_600, 86_400, 1_209_600)] {
            session
                .execute(
                    "WITH old AS (DELETE FROM arrivals WHERE seconds = $1
                         AND start < (moment_ms() / 1000 - $3) / $2 * $2 RETURNING study, start, n)
                     INSERT INTO arrivals AS a (study, bucket, seconds, start, n)
                     SELECT study, 0, $2::bigint::int, start / $2 * $2, sum(n)::bigint FROM old
                     GROUP BY study, start / $2
                     ON CONFLICT (study, bucket, seconds, start) DO UPDATE SET n = a.n + excluded.n",
                    &[&fine, &coarse, &age],
                )
                .await?;
        }
        let unused = "DELETE FROM pulse WHERE at < moment() - interval '1 day'";
        session.execute(unused, &[]).await?;
        session.commit().await
    }
}

/// The chunks from this commit on into one, sorted. The row of sums is held, so that nobody else merges or folds the
/// bucket meanwhile.
async fn merge(client: &Client, study: StudyKey, bucket: i32, start: i64) -> Result<bool, Failure> {
    let held =
        "SELECT upto FROM sums WHERE study = $1 AND bucket = $2 FOR NO KEY UPDATE SKIP LOCKED";
    let Some(row) = client.query_opt(held, &[&study.0, &bucket]).await? else {
        return Ok(false);
    };
    let upto: i64 = row.try_get(0)?;
    // As many as are merged. Commits never end in between: they hold the bucket's row, and get higher numbers.
    let select = "SELECT last, first, n, body FROM (
             SELECT *, row_number() OVER w AS number, sum(n) OVER w - n AS before FROM (
                 SELECT * FROM chunks WHERE study = $1 AND bucket = $2 AND last >= $3
                     AND (last <= $5) = ($3 <= $5) ORDER BY last LIMIT 1024) c
             WINDOW w AS (ORDER BY last ROWS UNBOUNDED PRECEDING)) c
         WHERE before < $4 OR number <= 2 ORDER BY last";
    let params: [&(dyn ToSql + Sync); 5] = [&study.0, &bucket, &start, &MOST_SEEDS, &upto];
    let rows = client.query(select, &params).await?;
    if rows.len() < 2 {
        return Ok(false);
    }
    let mut run = Run::default();
    for row in &rows {
        run.add(row)?;
    }
    run.replace(client, study, bucket, usize::MAX).await?;
    Ok(true)
}
