//! Estimate jobs as rows: requested, computed in order, finished or cancelled.

use eigenveil_shared::{
    Result,
    api::{EstimateJob, EstimateRequest, EstimateState, Problem},
};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use std::sync::Arc;

use super::{Embedded, rows};
use crate::store::{
    decide,
    failure::Failure,
    job::{Job, StoredEstimate, state_from},
    listener::Notice,
    study::{Study, StudyId, StudyKey},
};

const COLUMNS: &str = "number, state, request, problem, created_at_ms";

impl Embedded {
    pub(crate) async fn add_job(
        &self,
        study: &Study,
        request: EstimateRequest,
    ) -> Result<EstimateJob> {
        let (key, id, now) = (study.key, study.id(), self.unix_ms());
        let limit = self.config.tuning.max_waiting_estimates;
        let listener = self.listener.clone();
        self.write(
            move |transaction| {
                rows::require(transaction, key, id)?;
                decide::is_room_for_job(waiting(transaction)?, limit)?;
                insert(transaction, key, id, request, now)
            },
            move |_, _| listener.tell(Notice::JobAdded),
        )
        .await
    }

    pub(crate) async fn cancel_job(&self, study: &Study, number: u64) -> Result<EstimateJob> {
        let (key, id, now) = (study.key, study.id(), self.unix_ms());
        let listener = self.listener.clone();
        let (document, _) = self
            .write(
                move |transaction| cancel(transaction, key, id, number, now),
                move |(_, job), _| listener.tell(Notice::JobCancelled(*job)),
            )
            .await?;
        Ok(document)
    }

    pub(crate) fn job(&self, study: &Study, number: u64) -> Result<StoredEstimate> {
        // Others wait for the reader, so nothing is parsed here: that takes seconds for a large result.
        get(&self.reader(), study.key, study.id(), number).map_err(Failure::into_error)
    }

    pub(crate) fn jobs(&self, study: &Study) -> Result<Vec<EstimateJob>> {
        list(&self.reader(), study.key, study.id()).map_err(Failure::into_error)
    }

    pub(crate) fn claim_job(&self) -> Result<Option<(Arc<Study>, Job)>> {
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

    pub(crate) fn finish_job(&self, job: i64, result: Result<String, Problem>) -> Result<()> {
        let (now, keep) = (self.unix_ms(), self.config.retain_estimates);
        self.write_blocking(move |transaction| {
            finish(transaction, job, &result, now)?;
            delete_old(transaction, job, keep)
        })
    }

    pub(crate) fn put_back_job(&self, job: i64) -> Result<()> {
        self.write_blocking(move |transaction| requeue(transaction, job))
    }
}

fn insert(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    study: StudyId,
    request: EstimateRequest,
    created_at_ms: u64,
) -> Result<EstimateJob, Failure> {
    let text = serde_json::to_string(&request).map_err(Failure::damaged)?;
    let number: u64 = transaction.query_row(
        "SELECT coalesce(max(number), 0) + 1 FROM estimates WHERE study_pk = ?",
        [study_pk],
        |row| row.get(0),
    )?;
    transaction.execute(
        "INSERT INTO estimates (study_pk, number, state, request, created_at_ms)
         VALUES (?, ?, 'running', ?, ?)",
        params![study_pk, number, text, created_at_ms],
    )?;
    Ok(EstimateJob {
        number,
        study: study.to_string(),
        state: EstimateState::Running,
        request,
        estimate: None,
        problem: None,
        created_at_ms,
    })
}

/// Estimates waiting or being computed, over all studies.
pub(super) fn waiting(connection: &Connection) -> Result<u32, Failure> {
    Ok(connection.query_row(
        "SELECT count(*) FROM estimates WHERE state = 'running'",
        [],
        |row| row.get(0),
    )?)
}

/// Deletes all but the newest `keep` finished jobs of this job's study. Numbers are not reused, because the newest
/// stays.
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

/// All jobs of a study, oldest first, without their results.
fn list(
    connection: &Connection,
    study_pk: StudyKey,
    study: StudyId,
) -> Result<Vec<EstimateJob>, Failure> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM estimates WHERE study_pk = ? ORDER BY number"
    ))?;
    let rows = statement.query_map([study_pk], |row| Ok(document(row, study)))?;
    rows.map(|row| row?).collect()
}

/// Cancels a job that is not finished. Returns its document and its position in the queue.
fn cancel(
    transaction: &Transaction<'_>,
    study_pk: StudyKey,
    study: StudyId,
    number: u64,
    now_ms: u64,
) -> Result<(EstimateJob, i64), Failure> {
    let mut current = get(transaction, study_pk, study, number)?.document;
    decide::may_cancel(number, current.state)?;
    transaction.execute(
        "UPDATE estimates SET state = 'cancelled', finished_at_ms = ?
         WHERE study_pk = ? AND number = ? AND state = 'running'",
        params![now_ms, study_pk, number],
    )?;
    let job = transaction.query_row(
        "SELECT job FROM estimates WHERE study_pk = ? AND number = ?",
        params![study_pk, number],
        |row| row.get(0),
    )?;
    current.state = EstimateState::Cancelled;
    Ok((current, job))
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

/// Undoes [`start_next`]: after a graceful shutdown the job runs again.
fn requeue(transaction: &Transaction<'_>, job: i64) -> Result<(), Failure> {
    transaction.execute(
        "UPDATE estimates SET attempts = attempts - 1
         WHERE job = ? AND state = 'running' AND attempts > 0",
        [job],
    )?;
    Ok(())
}

fn finish(
    transaction: &Transaction<'_>,
    job: i64,
    result: &Result<String, Problem>,
    now_ms: u64,
) -> Result<(), Failure> {
    let (state, estimate, problem) = match result {
        Ok(estimate) => (EstimateState::Done, Some(estimate), None),
        Err(problem) => (
            EstimateState::Failed,
            None,
            Some(serde_json::to_string(problem).map_err(Failure::damaged)?),
        ),
    };
    transaction.execute(
        "UPDATE estimates SET state = ?, estimate = ?, problem = ?, finished_at_ms = ?
         WHERE job = ? AND state = 'running'",
        params![state.as_str(), estimate, problem, now_ms, job],
    )?;
    Ok(())
}

fn document(row: &Row<'_>, study: StudyId) -> Result<EstimateJob, Failure> {
    let state: String = row.get(1)?;
    let request: String = row.get(2)?;
    let problem: Option<String> = row.get(3)?;
    Ok(EstimateJob {
        number: row.get(0)?,
        study: study.to_string(),
        state: state_from(&state)?,
        request: serde_json::from_str(&request).map_err(Failure::damaged)?,
        estimate: None,
        problem: problem
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(Failure::damaged)?,
        created_at_ms: row.get(4)?,
    })
}
