//! Folds of buckets as rows: written by the writer's thread, dropped by whatever gives seeds another order.

use std::fs::metadata;

use eigenveil_shared::Result;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::seeds::read_rows;
use crate::{
    contract::{
        engine::{NewFold, ReadSeeds, RowSink, SeedReader, Seeds},
        failure::Failure,
        study::{Study, StudyKey},
    },
    sqlite::{Sqlite, rows, schema, snapshot::accepted},
};

impl Seeds for Sqlite {
    /// In a read transaction, on a connection of its own: reading must not block others.
    fn read_seeds(&self, study: &Study, read: &mut ReadSeeds<'_>) -> Result<()> {
        let mut read_all = || -> Result<(), Failure> {
            let mut connection = schema::open_for_reading(&self.directory.database())?;
            let transaction = connection.transaction()?;
            read(&Reader {
                accepted: accepted(&transaction, study)?,
                connection: &transaction,
                study_pk: study.key,
            })
        };
        self.note_damage(read_all())
    }

    /// Leaves the last of the space to reports.
    fn keep_fold(&self, study: &Study, bucket: u32, from: i64, fold: NewFold) -> Result<bool> {
        let bytes = (fold.body.len() + fold.run.len()) as u64;
        let size = metadata(self.directory.database()).map_or(0, |file| file.len());
        let limit = self.config.max_store_bytes.unwrap_or(u64::MAX);
        if !self.reserve.has_room_for(bytes) || size.saturating_add(bytes) > limit - limit / 8 {
            return Err(Failure::Full.into_error());
        }
        let (pk, id) = (study.key, study.id());
        self.write_blocking(move |transaction| {
            rows::require(transaction, pk, id)?;
            keep(transaction, pk, bucket, from, &fold)
        })
    }
}

struct Reader<'a> {
    connection: &'a Connection,
    study_pk: StudyKey,
    accepted: u64,
}

impl SeedReader for Reader<'_> {
    fn accepted(&self) -> u64 {
        self.accepted
    }

    fn folded(&self, bucket: u32) -> Result<(i64, u64), Failure> {
        let select = "SELECT upto, n FROM folds WHERE study_pk = ? AND bucket = ?";
        let mut statement = self.connection.prepare_cached(select)?;
        let row = statement.query_row(params![self.study_pk, bucket], |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
        Ok(row.optional()?.unwrap_or((-1, 0)))
    }

    fn fold(&self, bucket: u32) -> Result<Option<Vec<u8>>, Failure> {
        let select = "SELECT body FROM folds WHERE study_pk = ? AND bucket = ?";
        let mut statement = self.connection.prepare_cached(select)?;
        let body: Option<Option<Vec<u8>>> = statement
            .query_row(params![self.study_pk, bucket], |row| row.get(0))
            .optional()?;
        Ok(body.flatten())
    }

    fn runs(&self, bucket: u32, take: &mut RowSink<'_>) -> Result<(), Failure> {
        let mut statement = self.connection.prepare_cached(
            "SELECT upto, body FROM fold_runs WHERE study_pk = ? AND bucket = ? ORDER BY upto DESC",
        )?;
        let mut rows = statement.query(params![self.study_pk, bucket])?;
        while let Some(row) = rows.next()? {
            let body = row.get_ref(1)?.as_blob().map_err(Failure::damaged)?;
            if !take(row.get(0)?, body)? {
                break;
            }
        }
        Ok(())
    }

    fn rows(&self, bucket: u32, after: i64, take: &mut RowSink<'_>) -> Result<(), Failure> {
        read_rows(self.connection, self.study_pk, bucket, after, take)
    }
}

fn keep(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
    from: i64,
    fold: &NewFold,
) -> Result<bool, Failure> {
    let kept = transaction.execute(
        "INSERT INTO folds (study_pk, bucket, upto, n, body) SELECT ?1, ?2, ?4, ?5, ?6
         WHERE ?3 = coalesce((SELECT upto FROM folds WHERE study_pk = ?1 AND bucket = ?2), -1)
         ON CONFLICT (study_pk, bucket) DO UPDATE SET upto = excluded.upto, n = excluded.n, body = excluded.body",
        params![study_pk, bucket, from, fold.upto, fold.n, fold.body],
    )?;
    if kept == 0 {
        return Ok(false);
    }
    // Runs show which seeds came earlier: nothing of them stays in free pages.
    transaction.pragma_update(None, "secure_delete", true)?;
    transaction.execute(
        "DELETE FROM fold_runs WHERE study_pk = ? AND bucket = ? AND upto > ?",
        params![study_pk, bucket, fold.run_after],
    )?;
    transaction.pragma_update(None, "secure_delete", "FAST")?;
    transaction.execute(
        "INSERT INTO fold_runs (study_pk, bucket, upto, body) VALUES (?, ?, ?, ?)",
        params![study_pk, bucket, fold.upto, fold.run],
    )?;
    Ok(true)
}

/// Before rows of the bucket are sorted and numbered anew: a fold of all seeds stays what it is, and any other is dropped.
/// Runs go in any case, since they show which seeds came earlier.
pub(crate) fn before_sorting(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    bucket: u32,
) -> Result<(), Failure> {
    transaction.execute(
        "DELETE FROM fold_runs WHERE study_pk = ? AND bucket = ?",
        params![study_pk, bucket],
    )?;
    // Never twice the same row: whoever has read the seeds before keeps nothing.
    transaction.execute(
        "INSERT INTO folds (study_pk, bucket, upto, n) SELECT ?1, ?2, -2, 0
         WHERE coalesce((SELECT n FROM folds WHERE study_pk = ?1 AND bucket = ?2), 0)
             != (SELECT sum(n) FROM seeds WHERE study_pk = ?1 AND bucket = ?2)
         ON CONFLICT (study_pk, bucket) DO UPDATE SET upto = min(upto, -1) - 1, n = 0, body = NULL",
        params![study_pk, bucket],
    )?;
    Ok(())
}

/// Removes some of what is kept of a study; returns the number of rows.
pub(crate) fn remove(transaction: &Transaction<'_>, study_pk: StudyKey) -> Result<usize, Failure> {
    let mut removed = 0;
    for table in ["folds", "fold_runs"] {
        // Each has up to eight megabytes, or a sum.
        removed += transaction.execute(
            &format!(
                "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE study_pk = ? LIMIT 4)"
            ),
            [study_pk],
        )?;
    }
    Ok(removed)
}
