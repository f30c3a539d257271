//! Estimate jobs as rows: requested, computed in order, finished or cancelled.

use eigenveil_shared::{
    Result,
    api::{EstimateJob, EstimateRequest, EstimateState},
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use std::sync::Arc;

use super::{Sqlite, rows};
use crate::contract::{
    decide,
    engine::{Engine as _, Jobs, Pending},
    failure::Failure,
    job::{self, COLUMNS, Ended, Job, StoredEstimate, state_from},
    listener::Notice,
    study::{Study, StudyId, StudyKey},
};

impl Jobs for Sqlite {
    fn add_job(&self, study: &Study, request: EstimateRequest) -> Pending<'_, Result<EstimateJob>> {
        let (key, id, now) = (study.key, study.id(), self.unix_ms());
        let limit = self.config.max_waiting_estimates;
        let listener = self.listener.clone();
        Box::pin(self.write(
            move |transaction| {
                rows::require(transaction, key, id)?;
                decide::is_room_for_job(waiting(transaction)?, limit)?;
                let text = serde_json::to_string(&request).map_err(Failure::damaged)?;
                let number: u64 = transaction.query_row(
                    "SELECT coalesce(max(number), 0) + 1 FROM estimates WHERE study_pk = ?",
                    [key],
                    |row| row.get(0),
                )?;
                transaction.execute(
                    "INSERT INTO estimates (study_pk, number, state, request, created_at_ms)
                     VALUES (?, ?, 'running', ?, ?)",
                    params![key, number, text, now],
                )?;
                let state = EstimateState::Running;
                Ok(job::document(id, number, state, request, None, now))
            },
            move |_, _| listener.notify(Notice::JobAdded),
        ))
    }

    fn cancel_job(&self, study: &Study, number: u64) -> Pending<'_, Result<EstimateJob>> {
        let (key, id, now) = (study.key, study.id(), self.unix_ms());
        Box::pin(async move {
            let listener = self.listener.clone();
            let (document, _) = self
                .write(
                    move |transaction| {
                        let mut document = get(transaction, key, id, number)?.document;
                        decide::may_cancel(number, document.state)?;
                        transaction.execute(
                            "UPDATE estimates SET state = 'cancelled', finished_at_ms = ?
                         WHERE study_pk = ? AND number = ? AND state = 'running'",
                            params![now, key, number],
                        )?;
                        let job: i64 = transaction.query_row(
                            "SELECT job FROM estimates WHERE study_pk = ? AND number = ?",
                            params![key, number],
                            |row| row.get(0),
                        )?;
                        document.state = EstimateState::Cancelled;
                        Ok((document, job))
                    },
                    move |(_, job), _| listener.notify(Notice::JobCancelled(*job)),
                )
                .await?;
            Ok(document)
        })
    }

    fn job(&self, study: &Study, number: u64) -> Result<StoredEstimate> {
        // Others wait for the reader, so nothing is parsed here: that takes seconds for a large result.
        get(&self.reader(), study.key, study.id(), number).map_err(Failure::into_error)
    }

    fn jobs(&self, study: &Study) -> Result<Vec<EstimateJob>> {
        let read = || -> Result<_, Failure> {
            let reader = self.reader();
            let mut statement = reader.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM estimates WHERE study_pk = ? ORDER BY number"
            ))?;
            let rows = statement.query_map([study.key], |row| Ok(document(row, study.id())))?;
            rows.map(|row| row?).collect()
        };
        read().map_err(Failure::into_error)
    }

    fn claim_job(&self) -> Result<Option<(Arc<Study>, Job)>> {
        // A study deleted between the two steps took its jobs with it.
        for _ in 0..8 {
            let Some(job) = self.write_blocking(start_next)? else {
                return Ok(None);
            };
            if let Some(study) = self.studies.by_key(job.study) {
                return Ok(Some((study, job)));
            }
        }
        Err(Failure::damaged("an estimate belongs to no study").into_error())
    }

    fn finish_job(&self, job: i64, ended: Ended) -> Result<()> {
        let (now, keep) = (self.unix_ms(), self.config.retain_estimates);
        self.write_blocking(move |transaction| {
            transaction.execute(
                "UPDATE estimates SET state = ?, estimate = ?, problem = ?, finished_at_ms = ?
                 WHERE job = ? AND state = 'running'",
                params![
                    ended.state.as_str(),
                    ended.estimate,
                    ended.problem,
                    now,
                    job
                ],
            )?;
            delete_old(transaction, job, keep)
        })
    }

    fn put_back_job(&self, job: i64) -> Result<()> {
        self.write_blocking(move |transaction| {
            transaction.execute(
                "UPDATE estimates SET attempts = attempts - 1
                 WHERE job = ? AND state = 'running' AND attempts > 0",
                [job],
            )?;
            Ok(())
        })
    }
}

/// Estimates waiting or being computed, over all studies.
pub(super) fn waiting(connection: &Connection) -> Result<u32, Failure> {
    Ok(connection.query_row(
        "SELECT count(*) FROM estimates WHERE state = 'running'",
        [],
        |row| row.get(0),
    )?)
}

/// Deletes all but the newest `keep` finished jobs of the study of `job`. Numbers are not reused, because the newest
/// job is never deleted.
fn delete_old(transaction: &Transaction<'_>, job: i64, keep: u32) -> Result<(), Failure> {
    transaction.execute(
        "DELETE FROM estimates WHERE state != 'running'
         AND study_pk = (SELECT study_pk FROM estimates WHERE job = ?1)
         AND number <= (SELECT number FROM estimates WHERE state != 'running'
                        AND study_pk = (SELECT study_pk FROM estimates WHERE job = ?1)
                        ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        params![job, keep.max(1)],
    )?;
    Ok(())
}

fn get(
    connection: &Connection,
    study_pk: StudyKey,
    study: StudyId,
    number: u64,
) -> Result<StoredEstimate, Failure> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS}, estimate FROM estimates WHERE study_pk = ? AND number = ?"
        ))?
        .query_row(params![study_pk, number], |row| {
            let text = row.get(5)?;
            Ok(document(row, study).map(|document| StoredEstimate { document, text }))
        })
        .optional()?
        .unwrap_or_else(|| Err(decide::no_estimate(study, number).into()))
}

fn start_next(transaction: &Transaction<'_>) -> Result<Option<Job>, Failure> {
    let next: Option<(i64, StudyKey, String, u32)> = transaction
        .query_row(
            "SELECT job, study_pk, request, attempts FROM estimates
             WHERE state = 'running' ORDER BY job LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .optional()?;
    let Some((job, study_pk, request, attempts)) = next else {
        return Ok(None);
    };
    transaction.execute(
        "UPDATE estimates SET attempts = attempts + 1 WHERE job = ?",
        [job],
    )?;
    Ok(Some(Job {
        id: job,
        study: study_pk,
        request: serde_json::from_str(&request).map_err(Failure::damaged)?,
        attempts,
    }))
}

fn document(row: &Row<'_>, study: StudyId) -> Result<EstimateJob, Failure> {
    let (state, request): (String, String) = (row.get(1)?, row.get(2)?);
    let problem: Option<String> = row.get(3)?;
    let problem = problem.map(|text| serde_json::from_str(&text)).transpose();
    Ok(job::document(
        study,
        row.get(0)?,
        state_from(&state)?,
        serde_json::from_str(&request).map_err(Failure::damaged)?,
        problem.map_err(Failure::damaged)?,
        row.get(4)?,
    ))
}
