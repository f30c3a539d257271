//! Estimate jobs as rows. The server that computes a job holds a lease on it, timed by the database's clock. If that
//! server disappears, another one takes the job over, and the first one's result no longer counts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use eigenveil_shared::{
    Result,
    api::{EstimateJob, EstimateRequest, EstimateState},
};
use tokio_postgres::{Client, Row};

use super::{Inner, Postgres, connection::value, lock, unsigned};
use crate::contract::{
    decide,
    engine::{Jobs, Pending},
    failure::{Failure, unavailable},
    job::{self, COLUMNS, Ended, Job, StoredEstimate, state_from},
    listener::Notice,
    study::{Study, StudyId, StudyKey, study_not_found},
};

/// Duration of a lease, in seconds.
const LEASE: f64 = 60.0;
const RENEWAL: Duration = Duration::from_secs(10);
/// Advisory lock held until the commit of a new job: the limit on waiting jobs is for all studies and servers together.
const QUEUE_LOCK: i64 = 0x0045_6956_5300_0002;
const CLAIMABLE: &str = "state = 'running' AND (lease IS NULL OR lease < moment())";

impl Jobs for Postgres {
    fn add_job(&self, study: &Study, request: EstimateRequest) -> Pending<'_, Result<EstimateJob>> {
        let inner = Arc::clone(&self.inner);
        let (key, id) = (study.key, study.id());
        Box::pin(self.run(async move {
            let session = inner.pool.begin().await?;
            let locked = session.query_opt("SELECT 1 FROM studies WHERE study = $1 FOR SHARE", &[&key.0]).await?;
            locked.ok_or_else(|| study_not_found(id))?;
            session.execute("SELECT pg_advisory_xact_lock($1)", &[&QUEUE_LOCK]).await?;
            let waiting = u32::try_from(waiting(&session).await?).unwrap_or(u32::MAX);
            decide::is_room_for_job(waiting, inner.config.max_waiting_estimates)?;
            let text = serde_json::to_string(&request).map_err(Failure::damaged)?;
            let row = session
                .query_one(
                    "INSERT INTO estimates (study, number, state, request, created_at_ms)
                     SELECT $1::bigint, coalesce(max(number), 0) + 1, 'running', $2::text, moment_ms()
                     FROM estimates WHERE study = $1 RETURNING number, created_at_ms",
                    &[&key.0, &text],
                )
                .await?;
            session.commit().await?;
            inner.listener.notify(Notice::JobAdded);
            let (number, created) = (unsigned(row.try_get(0)?), unsigned(row.try_get(1)?));
            Ok(job::document(id, number, EstimateState::Running, request, None, created))
        }))
    }

    fn cancel_job(&self, study: &Study, number: u64) -> Pending<'_, Result<EstimateJob>> {
        let inner = Arc::clone(&self.inner);
        let (key, id) = (study.key, study.id());
        Box::pin(self.run(async move {
            let session = inner.pool.begin().await?;
            let select = format!("SELECT {COLUMNS}, job FROM estimates WHERE study = $1 AND number = $2 FOR NO KEY UPDATE");
            let row = session.query_opt(select.as_str(), &[&key.0, &(number as i64)]).await?;
            let row = row.ok_or_else(|| decide::no_estimate(id, number))?;
            let mut document = document(&row, id)?;
            decide::may_cancel(number, document.state)?;
            let job: i64 = row.try_get(5)?;
            session
                .execute(
                    "UPDATE estimates SET state = 'cancelled', finished_at_ms = moment_ms()
                     WHERE job = $1 AND state = 'running'",
                    &[&job],
                )
                .await?;
            session.commit().await?;
            inner.listener.notify(Notice::JobCancelled(job));
            document.state = EstimateState::Cancelled;
            Ok(document)
        }))
    }

    fn job(&self, study: &Study, number: u64) -> Result<StoredEstimate> {
        self.wait(async {
            let session = self.inner.pool.take().await?;
            let select = format!(
                "SELECT {COLUMNS}, estimate FROM estimates WHERE study = $1 AND number = $2"
            );
            let row = session
                .query_opt(select.as_str(), &[&study.key.0, &(number as i64)])
                .await?;
            session.done();
            let row = row.ok_or_else(|| decide::no_estimate(study.id(), number))?;
            Ok(StoredEstimate {
                document: document(&row, study.id())?,
                text: row.try_get(5)?,
            })
        })
    }

    fn jobs(&self, study: &Study) -> Result<Vec<EstimateJob>> {
        self.wait(async {
            let session = self.inner.pool.take().await?;
            let select =
                format!("SELECT {COLUMNS} FROM estimates WHERE study = $1 ORDER BY number");
            let rows = session.query(select.as_str(), &[&study.key.0]).await?;
            session.done();
            rows.iter().map(|row| document(row, study.id())).collect()
        })
    }

    fn claim_job(&self) -> Result<Option<(Arc<Study>, Job)>> {
        // However the previous job ended: its lease may expire.
        lock(&self.inner.held).take();
        let job = self.wait(self.inner.claim())?;
        let Some(job) = job else {
            return Ok(None);
        };
        if self.studies.by_key(job.study).is_none() {
            // Another server has just created it.
            self.wait(self.inner.refresh())?;
        }
        match self.studies.by_key(job.study) {
            Some(study) => Ok(Some((study, job))),
            // Deleted with its jobs.
            None => Ok(None),
        }
    }

    fn finish_job(&self, job: i64, ended: Ended) -> Result<()> {
        let Ended {
            state,
            estimate,
            problem,
        } = ended;
        self.wait(async {
            let session = self.inner.pool.begin().await?;
            session
                .execute(
                    "UPDATE estimates SET state = $3, estimate = $4, problem = $5, finished_at_ms = moment_ms()
                     WHERE job = $1 AND state = 'running' AND holder = $2",
                    &[&job, &self.inner.server, &state.as_str(), &estimate, &problem],
                )
                .await?;
            delete_old(&session, job, self.inner.config.retain_estimates).await?;
            session.commit().await
        })?;
        lock(&self.inner.held).take();
        Ok(())
    }

    fn put_back_job(&self, job: i64) -> Result<()> {
        self.wait(async {
            let session = self.inner.pool.begin().await?;
            session
                .execute(
                    "UPDATE estimates SET attempts = attempts - 1, holder = NULL, lease = NULL
                     WHERE job = $1 AND state = 'running' AND holder = $2",
                    &[&job, &self.inner.server],
                )
                .await?;
            session.commit().await
        })?;
        lock(&self.inner.held).take();
        Ok(())
    }
}

impl Inner {
    /// Claims the oldest job that nobody holds, or whose lease has expired. A job that this program does not understand
    /// is left to a newer program.
    async fn claim(&self) -> Result<Option<Job>, Failure> {
        // Materialized: with another query plan PostgreSQL might lock more than one job.
        let claim = format!(
            "WITH next AS MATERIALIZED (SELECT job FROM estimates WHERE {CLAIMABLE} AND job > $3 ORDER BY job LIMIT 1
                FOR NO KEY UPDATE SKIP LOCKED)
             UPDATE estimates e SET attempts = e.attempts + 1, holder = $1, lease = moment() + make_interval(secs => $2)
             FROM next WHERE e.job = next.job RETURNING e.job, e.study, e.request, e.attempts - 1"
        );
        let mut after = 0_i64;
        loop {
            let session = self.pool.begin().await?;
            let Some(row) = session
                .query_opt(claim.as_str(), &[&self.server, &LEASE, &after])
                .await?
            else {
                session.end().await?;
                return Ok(None);
            };
            let (id, attempts): (i64, i64) = (row.try_get(0)?, row.try_get(3)?);
            let Ok(request) = serde_json::from_str(row.try_get(2)?) else {
                session.end().await?;
                after = id;
                continue;
            };
            let job = Job {
                id,
                study: StudyKey(row.try_get(1)?),
                request,
                attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
            };
            session.commit().await?;
            *lock(&self.held) = Some(job.id);
            return Ok(Some(job));
        }
    }

    /// Notifies the listener of jobs that other servers have added, abandoned or cancelled, and renews the lease on this
    /// server's job. `newest` is the newest job of which the listener was notified.
    pub(super) async fn look_for_jobs(
        &self,
        renewed: &mut Instant,
        newest: &mut i64,
    ) -> Result<(), Failure> {
        let session = self.pool.take().await?;
        let held = *lock(&self.held);
        if let Some(job) = held {
            let is_own_job = "job = $1 AND state = 'running' AND holder = $2";
            let still_held = if renewed.elapsed() > RENEWAL {
                *renewed = Instant::now();
                let renew = format!(
                    "UPDATE estimates SET lease = moment() + make_interval(secs => $3) WHERE {is_own_job}"
                );
                session
                    .execute(renew.as_str(), &[&job, &self.server, &LEASE])
                    .await?
                    > 0
            } else {
                let select = format!("SELECT 1 FROM estimates WHERE {is_own_job}");
                session
                    .query_opt(select.as_str(), &[&job, &self.server])
                    .await?
                    .is_some()
            };
            if !still_held && *lock(&self.held) == held {
                self.listener.notify(Notice::JobCancelled(job));
            }
        }
        let select = format!(
            "SELECT coalesce(bool_or({CLAIMABLE}), false), coalesce(max(job), 0) FROM estimates WHERE state = 'running'"
        );
        let row = session.query_one(select.as_str(), &[]).await?;
        let (is_waiting, job): (bool, i64) = (row.try_get(0)?, row.try_get(1)?);
        session.done();
        // A server without a job of its own folds seeds for one that another server computes.
        let is_new = job > *newest;
        *newest = job.max(*newest);
        if (is_waiting || is_new) && self.config.computes_estimates {
            self.listener.notify(Notice::JobAdded);
        }
        Ok(())
    }
}

/// Estimates waiting or being computed, over all studies.
pub(super) async fn waiting(client: &Client) -> Result<u64, Failure> {
    let count = "SELECT count(*) FROM estimates WHERE state = 'running'";
    Ok(unsigned(value(client, count, &[]).await?))
}

/// Deletes all but the newest `keep` finished jobs of the study of `job`. Numbers are not reused, because the newest
/// job is never deleted.
async fn delete_old(client: &Client, job: i64, keep: u32) -> Result<(), Failure> {
    client
        .execute(
            "WITH of AS (SELECT study FROM estimates WHERE job = $1)
             DELETE FROM estimates WHERE state != 'running' AND study = (SELECT study FROM of)
             AND number <= (SELECT number FROM estimates WHERE state != 'running' AND study = (SELECT study FROM of)
                            ORDER BY number DESC LIMIT 1 OFFSET $2)",
            &[&job, &i64::from(keep.max(1))],
        )
        .await?;
    Ok(())
}

/// The error for a request that only a newer program understands, as one may run while servers are replaced one at a
/// time.
fn written_by_newer_program() -> Failure {
    unavailable(
        "a newer program has asked for an estimate that this one does not understand; update this server",
    )
    .into()
}

fn document(row: &Row, study: StudyId) -> Result<EstimateJob, Failure> {
    let problem: Option<&str> = row.try_get(3)?;
    let problem = problem.map(serde_json::from_str).transpose();
    Ok(job::document(
        study,
        unsigned(row.try_get(0)?),
        state_from(row.try_get(1)?)?,
        serde_json::from_str(row.try_get(2)?).map_err(|_| written_by_newer_program())?,
        problem.map_err(|_| written_by_newer_program())?,
        unsigned(row.try_get(4)?),
    ))
}
