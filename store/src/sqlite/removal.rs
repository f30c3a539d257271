//! Removal of deleted studies, and of identifiers after their retention time.
//!
//! A deletion takes effect in one small transaction; the rows are deleted afterwards in small steps, so that uploads to
//! other studies never wait for long. After a crash the removal continues at the next start.

use std::sync::Arc;

use eigenveil_shared::Result;
use rusqlite::{OptionalExtension, Params, Transaction, params};

use super::{Sqlite, TaskKind, folds, recent, rows};
use crate::contract::{
    decide,
    engine::{Engine as _, Pending, Removal},
    failure::Failure,
    study::{Study, StudyKey},
};

const IDS_PER_TRANSACTION: u64 = 50_000;
const COMMITS_PER_TRANSACTION: u64 = 1_000;
/// Each has up to 34 MB.
const SITE_REPORTS_PER_TRANSACTION: u64 = 8;
const DAY_MS: u64 = 86_400_000;

impl Removal for Sqlite {
    fn delete(&self, study: &Arc<Study>) -> Pending<'_, Result<()>> {
        let (pk, id, now) = (study.key, study.id(), self.unix_ms());
        let (studies, credentials) = (Arc::clone(&self.studies), Arc::clone(&self.credentials));
        Box::pin(self.write_as(
            TaskKind::FreesSpace,
            move |transaction| {
                decide::may_delete(id, rows::state(transaction, pk, id)?)?;
                transaction.execute(
                    "INSERT INTO deleted_studies (study_pk, id, deleted_at_ms) VALUES (?, ?, ?)",
                    params![pk, id.0, now],
                )?;
                // The identifier is free at once, so that an export can be imported again.
                transaction.execute(
                    "UPDATE studies SET id = randomblob(16), state = 'closed' WHERE study_pk = ?",
                    [pk],
                )?;
                for table in ["estimates", "analyst_tokens"] {
                    transaction
                        .execute(&format!("DELETE FROM {table} WHERE study_pk = ?"), [pk])?;
                }
                recent::remove(transaction, pk)?;
                Ok(())
            },
            move |(), caches| {
                studies.remove(id);
                credentials.forget_study(id);
                caches.sums.evict(pk);
                caches.recent.mark_stale();
            },
        ))
    }

    /// Also drops folds that are larger than allowed, moves the latest identifiers of closed studies into the index, and
    /// sorts their seeds; uses many small transactions.
    fn sweep(&self, stopping: &dyn Fn() -> bool) -> Result<()> {
        let now = self.unix_ms();
        let keep = self.config.retain_ids_days;
        let max_fold_bytes = self.config.max_fold_bytes;
        while !stopping() {
            let may_grow = self.reserve.allows_growth();
            let more = self.write_blocking_then(
                TaskKind::BackgroundCleanup,
                move |transaction| {
                    Ok(remove_deleted_study(transaction)?
                        || remove_old_identifiers(transaction, keep, now)?
                        || folds::drop_above(transaction, max_fold_bytes)?
                        // A study that was closed on a full disk is about to be deleted.
                        || (may_grow && index_closed_study(transaction)?))
                },
                |more, caches| {
                    if *more {
                        caches.recent.mark_stale();
                    }
                },
            )?;
            if !more {
                break;
            }
        }
        self.reserve.ensure();
        self.sort_closed(stopping)
    }

    fn is_rewritten(&self, study: &Study) -> Result<bool> {
        let select = "SELECT state = 'closed' AND (commit_seq = 0 OR rewritten_seq IS commit_seq) FROM studies
                      WHERE study_pk = ? AND id = ?";
        let read = || -> Result<Option<Option<bool>>, Failure> {
            let reader = self.reader();
            let row = reader.query_row(select, params![study.key, study.id().0], |row| row.get(0));
            Ok(row.optional()?)
        };
        Ok(self.note_damage(read())?.flatten().unwrap_or(false))
    }
}

/// Deletes some rows of a deleted study; returns whether there may be more.
fn remove_deleted_study(transaction: &Transaction<'_>) -> Result<bool, Failure> {
    let deleted = "SELECT study_pk FROM studies WHERE study_pk IN (SELECT study_pk FROM deleted_studies) LIMIT 1";
    let Some(pk) = first_study(transaction, deleted, [])? else {
        return Ok(false);
    };
    let removed = remove_identifiers(transaction, pk)?
        + folds::remove(transaction, pk)?
        + transaction.execute(
            "DELETE FROM seeds WHERE (study_pk, bucket, commit_seq) IN
             (SELECT study_pk, bucket, commit_seq FROM seeds WHERE study_pk = ? LIMIT ?)",
            params![pk, COMMITS_PER_TRANSACTION],
        )?
        + transaction.execute(
            "DELETE FROM site_reports WHERE (study_pk, number) IN
             (SELECT study_pk, number FROM site_reports WHERE study_pk = ? LIMIT ?)",
            params![pk, SITE_REPORTS_PER_TRANSACTION],
        )?
        + transaction.execute(
            "DELETE FROM participant_tokens WHERE (study_pk, hash) IN
             (SELECT study_pk, hash FROM participant_tokens WHERE study_pk = ? LIMIT ?)",
            params![pk, IDS_PER_TRANSACTION],
        )?;
    if removed == 0 {
        for table in ["buckets", "imports", "estimates", "arrivals", "studies"] {
            transaction.execute(&format!("DELETE FROM {table} WHERE study_pk = ?"), [pk])?;
        }
    }
    Ok(true)
}

/// Deletes some identifiers of a study past its retention time; returns whether there may be more.
fn remove_old_identifiers(
    transaction: &Transaction<'_>,
    keep_days: Option<u32>,
    now_ms: u64,
) -> Result<bool, Failure> {
    let Some(days) = keep_days else {
        return Ok(false);
    };
    let before = now_ms.saturating_sub(u64::from(days).saturating_mul(DAY_MS));
    let over = "SELECT study_pk FROM studies AS s WHERE state = 'closed' AND closed_at_ms < ?
                AND (identifiers_kept = 1 OR EXISTS (SELECT 1 FROM report_ids AS r WHERE r.study_pk = s.study_pk)) LIMIT 1";
    let Some(pk) = first_study(transaction, over, [before])? else {
        return Ok(false);
    };
    // With the first of them: nobody may take the rest for all.
    transaction.execute(
        "UPDATE studies SET identifiers_kept = 0 WHERE study_pk = ?",
        [pk],
    )?;
    recent::remove(transaction, pk)?;
    remove_identifiers(transaction, pk)?;
    Ok(true)
}

/// Moves the latest identifiers of a closed study into the index; returns whether there may be more.
fn index_closed_study(transaction: &Transaction<'_>) -> Result<bool, Failure> {
    let closed = "SELECT study_pk FROM recent_ids JOIN studies USING (study_pk) WHERE state = 'closed' LIMIT 1";
    let Some(pk) = first_study(transaction, closed, [])? else {
        return Ok(false);
    };
    recent::move_all(transaction, pk)?;
    Ok(true)
}

fn first_study(
    transaction: &Transaction<'_>,
    query: &str,
    params: impl Params,
) -> Result<Option<StudyKey>, Failure> {
    let first = transaction.query_row(query, params, |row| row.get(0));
    Ok(first.optional()?)
}

fn remove_identifiers(transaction: &Transaction<'_>, pk: StudyKey) -> Result<usize, Failure> {
    Ok(transaction.execute(
        "DELETE FROM report_ids WHERE study_pk = ?1 AND id <= (SELECT max(id) FROM
         (SELECT id FROM report_ids WHERE study_pk = ?1 ORDER BY id LIMIT ?2))",
        params![pk, IDS_PER_TRANSACTION],
    )?)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use eigenveil_estimation::Cancel;
    use serde_json::json;
    use tokio::runtime::Runtime;

    use eigenveil_shared::{ErrorCode, api::StudyState};
    use rusqlite::Connection;

    use super::*;
    use crate::{
        Store,
        config::StoreConfig,
        contract::decide::SubmitOutcome,
        database_path,
        environment::Environment,
        testing::fixtures::{START_MS, SetClock, create, report},
    };

    #[test]
    fn identifiers_of_closed_studies_are_deleted_after_the_retention_time() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            retain_ids_days: Some(30),
            ..StoreConfig::new(directory.path().join("data"))
        };
        let clock = SetClock::new();
        let environment = Environment {
            clock: Arc::<SetClock>::clone(&clock),
            ..Environment::system()
        };
        let store = Store::open(&config, environment).unwrap();
        let runtime = Runtime::new().unwrap();
        let submit = |study: &Arc<Study>, numbers: &[u8]| {
            let reports = numbers.iter().map(|number| report(study, *number));
            let submitted = store.submit(study, reports.collect());
            runtime.block_on(submitted).unwrap()
        };
        let [open, closed] = [(); 2].map(|()| {
            let study = runtime.block_on(create(&store, &json!({})));
            assert_eq!(submit(&study, &[1, 2, 3]), [SubmitOutcome::Accepted; 3]);
            study
        });
        runtime
            .block_on(store.set_state(&closed, StudyState::Closed))
            .unwrap();
        let database = Connection::open(database_path(&config.data_dir)).unwrap();
        let swept_at = |now: u64| -> [u64; 2] {
            clock.set(now);
            store.sweep(&|| false).unwrap();
            [&open, &closed].map(|study| {
                let count = "SELECT count(*) FROM report_ids WHERE study_pk = ?";
                database
                    .query_row(count, [study.key], |row| row.get(0))
                    .unwrap()
            })
        };
        // One day too early, or with a clock set back, nothing is deleted. The identifiers of the closed study are in
        // the index, where nothing shows which came together; those of the open one are in the id log.
        assert_eq!(swept_at(START_MS + 29 * DAY_MS), [0, 3]);
        assert_eq!(swept_at(0), [0, 3]);
        assert_eq!(submit(&closed, &[1]), [SubmitOutcome::Duplicate]);
        // The first step ends with a crash: what is left is not taken for all.
        clock.set(START_MS + 31 * DAY_MS);
        let steps = Cell::new(0);
        store.sweep(&|| steps.replace(steps.get() + 1) > 0).unwrap();
        let kept = "SELECT identifiers_kept FROM studies WHERE study_pk = ?";
        let kept: bool = database
            .query_row(kept, [closed.key], |row| row.get(0))
            .unwrap();
        assert!(!kept);
        // As a study of more identifiers than one step deletes has them.
        database
            .execute("INSERT INTO report_ids VALUES (?, x'01')", [closed.key])
            .unwrap();
        assert_eq!(swept_at(START_MS + 31 * DAY_MS), [0, 0]);
        assert_eq!(submit(&open, &[1]), [SubmitOutcome::Duplicate]);
        // The sums stay; a late retry is rejected and changes nothing; an export would lose what was counted.
        assert_eq!(submit(&closed, &[1]), [SubmitOutcome::NotOpen]);
        assert_eq!(store.bucket_sums(&closed, Cancel::NEVER).unwrap().n, 3);
        let error = store.export(&closed).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidTransition);
        assert!(error.detail().contains("backup"), "{error}");
    }
}
