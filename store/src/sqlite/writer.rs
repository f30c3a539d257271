//! The single writer thread: group commit, and acknowledgements only after it.

use std::{
    path::PathBuf,
    sync::{Arc, mpsc::Receiver},
    time::{Duration, Instant},
};

use eigenveil_estimation::accumulate::Accumulator;
use eigenveil_shared::{Result, api::StudyState, enrolment::AdmissionKey};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{
    arrivals,
    buckets::BucketCache,
    database_files::DatabaseFiles,
    health::Health,
    notice,
    recent::{CommitIds, RecentIds},
    reserve::ReserveFile,
    rows,
    schema::BUSY_TIMEOUT,
    seeds, site_reports,
};
use crate::{
    config::StoreConfig,
    contract::{
        decide::{AdmissionRules, Facts, Spent, SubmitOutcome, admit},
        failure::Failure,
        report::Outcomes,
        study::{Study, StudyIndex, StudyKey, state_from},
        submission::{self, MAX_COMMIT_BYTES, Submission, by_study, request_ids},
        sums::Delta,
    },
    counters::StoreCounters,
    environment::Clock,
    faults::Faults,
};

pub(super) enum Command {
    Submit(Submission),
    /// Any other write: runs alone, in order.
    Task(Box<dyn FnOnce(&mut Writer) + Send>),
    Stop,
}

pub(super) struct Caches {
    pub(super) sums: BucketCache,
    pub(super) recent: RecentIds,
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) commands: Receiver<Command>,
    pub(super) caches: Caches,
    pub(super) config: StoreConfig,
    pub(super) health: Arc<Health>,
    pub(super) counters: StoreCounters,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) files: DatabaseFiles,
    pub(super) reserve: ReserveFile,
    /// The files are no longer this server's: it writes no more.
    pub(super) has_stopped: bool,
    pub(super) studies: Arc<StudyIndex>,
    pub(super) data_dir: PathBuf,
    pub(super) faults: Faults,
}

/// A group that could not be committed, and why.
type Refused = (Vec<Submission>, Failure);

struct StudyUpdate {
    study: Arc<Study>,
    reports_accepted: u64,
    sums: Option<(u32, Accumulator)>,
}

impl Writer {
    /// Serves commands until told to stop. Commands still queued then are dropped, and their senders get an error.
    pub(super) fn run(mut self) {
        let mut next = self.commands.recv().ok();
        while let Some(command) = next {
            self.counters.queue_depth.dec();
            self.faults.wait_while_held();
            next = match command {
                Command::Stop => {
                    if let Err(failure) = self.files.release(&self.connection) {
                        let failure = self.classify_failure(failure);
                        tracing::warn!(%failure, "shutdown checkpoint failed; keep the write-ahead log with the database");
                    }
                    return;
                }
                Command::Task(task) => {
                    task(&mut self);
                    None
                }
                Command::Submit(first) => {
                    let (group, next) = self.collect(first);
                    self.counters.queue_depth.dec_by(group.len() as i64 - 1);
                    self.commit(group);
                    next
                }
            };
            if self.has_stopped {
                return;
            }
            next = next.or_else(|| self.commands.recv().ok());
        }
    }

    /// Takes what is queued without waiting for more: the next group gathers while this one is synced.
    fn collect(&self, first: Submission) -> (Vec<Submission>, Option<Command>) {
        let mut reports = first.reports.len();
        let mut bytes = first.payload_bytes();
        let mut group = vec![first];
        while reports < self.config.max_commit_reports && bytes < MAX_COMMIT_BYTES {
            match self.commands.try_recv() {
                Ok(Command::Submit(submission)) => {
                    reports += submission.reports.len();
                    bytes += submission.payload_bytes();
                    group.push(submission);
                }
                Ok(other) => return (group, Some(other)),
                Err(_) => break,
            }
        }
        (group, None)
    }

    /// Commits a group, then replies to all of it. If it fails, the studies in it are committed one by one, so that a
    /// failure of one study does not reject the reports of another.
    fn commit(&mut self, group: Vec<Submission>) {
        let committed = self
            .try_commit(group)
            .or_else(|refused| self.commit_in_used_log(refused));
        let Err((group, failure)) = committed else {
            return;
        };
        let studies = by_study(group);
        if studies.len() == 1 || failure.is_full() || matches!(failure, Failure::FilesReplaced) {
            self.reply_failure(studies.into_iter().flatten().collect(), failure);
            return;
        }
        for group in studies {
            if let Err((group, failure)) = self.try_commit(group) {
                self.reply_failure(group, failure);
            }
        }
    }

    /// Commits a group again for which the log could not grow on a full disk: in the log as large as it is.
    fn commit_in_used_log(&mut self, (group, failure): Refused) -> Result<(), Refused> {
        if !failure.is_full() || !self.reserve.is_needed() {
            return Err((group, failure));
        }
        self.reuse_log();
        self.try_commit(group)
    }

    fn reply_failure(&self, group: Vec<Submission>, failure: Failure) {
        self.health.commit_failed(&failure);
        self.counters.commit_failures.inc();
        let request_ids = request_ids(&group);
        tracing::error!(%failure, requests = group.len(), request_ids, "commit failed; nothing was counted");
        submission::refuse(group, &failure.into_error());
    }

    /// Commits a group and replies to all of it, or gives it back.
    fn try_commit(&mut self, group: Vec<Submission>) -> Result<(), Refused> {
        let started = Instant::now();
        match self.transact(&group) {
            Ok((outcomes, updates)) => {
                let reports = submission::reports(&group);
                self.counters.committed(reports, started.elapsed());
                self.health.succeeded();
                for update in updates {
                    update.study.publish_count(update.reports_accepted);
                    if let Some((bucket, sums)) = update.sums {
                        self.caches.sums.put(&update.study, bucket, sums);
                    }
                }
                submission::answer(group, outcomes);
                self.faults.after_replies();
                Ok(())
            }
            Err(failure) => {
                self.caches.recent.mark_stale();
                Err((group, self.classify_failure(failure)))
            }
        }
    }

    /// Replaces a failure by `FilesReplaced` if the files were replaced. The writer then stops permanently, and saves
    /// the number of acknowledged reports for the next start.
    pub(super) fn classify_failure(&mut self, failure: Failure) -> Failure {
        if !matches!(failure, Failure::FilesReplaced) && self.files.are_ours() {
            return failure;
        }
        if !self.has_stopped {
            self.has_stopped = true;
            // Perhaps the log was removed because the disk is full.
            self.reserve.release();
            if let Err(failure) = self.files.rescue_log(&self.connection) {
                tracing::error!(%failure, "the contents of the removed log could not be saved to the database");
            }
            if let Err(error) = notice::write_notice(&self.data_dir, &self.studies) {
                tracing::error!(%error, "the number of acknowledged reports could not be saved for the next start");
            }
        }
        Failure::FilesReplaced
    }

    pub(super) fn make_room(&mut self) {
        if self.health.is_good() && !self.reserve.is_needed() {
            return;
        }
        self.reserve.release();
        self.reuse_log();
    }

    /// Moves the log into the database, after which its own disk space is reused.
    fn reuse_log(&mut self) {
        if let Err(failure) = self.files.checkpoint(&self.connection, "PASSIVE") {
            tracing::debug!(%failure, "checkpoint failed; the write-ahead log was not reset");
        }
    }

    /// Empties the log, whose pages have what the main file no longer has; false while another connection reads it:
    /// nobody's upload waits for that one.
    pub(super) fn empty_log(&mut self) -> Result<bool, Failure> {
        self.connection.busy_timeout(Duration::ZERO)?;
        let emptied = self.files.checkpoint(&self.connection, "TRUNCATE");
        self.connection.busy_timeout(BUSY_TIMEOUT)?;
        emptied
    }

    fn transact(
        &mut self,
        group: &[Submission],
    ) -> Result<(Vec<Outcomes>, Vec<StudyUpdate>), Failure> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        self.reserve.check_room(&transaction)?;
        self.caches.recent.refresh(&transaction)?;
        let mut outcomes = vec![Outcomes::new(); group.len()];
        let mut updates: Vec<StudyUpdate> = Vec::new();
        let now_ms = self.clock.unix_ms();
        for submission in group {
            let study = &submission.study;
            if updates.iter().any(|update| update.study.key == study.key) {
                continue;
            }
            let study_submissions = group
                .iter()
                .zip(&mut outcomes)
                .filter(|(other, _)| other.study.key == study.key);
            let reports = group
                .iter()
                .filter(|other| other.study.key == study.key)
                .map(|other| other.reports.len())
                .sum();
            let conditions = Conditions {
                now_ms,
                max_reports: study.max_reports(&self.config),
                skip_dedup: self.faults.skips_dedup(),
            };
            updates.push(add_reports(
                &transaction,
                &mut self.caches,
                study,
                reports,
                study_submissions,
                conditions,
            )?);
        }
        if self.faults.permit_commit()? {
            transaction.commit()?;
            self.files.committed(&self.connection)?;
        }
        self.faults.after_commit();
        Ok((outcomes, updates))
    }
}

/// A study's facts, as this transaction knows them.
struct StoredFacts<'a, 'ids> {
    transaction: &'a Transaction<'a>,
    study_pk: StudyKey,
    ids: CommitIds<'ids>,
    skip_dedup: bool,
}

impl Facts for StoredFacts<'_, '_> {
    type Failure = Failure;

    fn is_known(&mut self, id: &[u8; 16]) -> Result<bool, Failure> {
        self.ids.contains(id)
    }

    fn insert_id(&mut self, id: &[u8; 16]) -> Result<bool, Failure> {
        Ok(self.ids.insert(id)? || self.skip_dedup)
    }

    fn spend(&mut self, key: &AdmissionKey) -> Result<Spent, Failure> {
        rows::spend_token(self.transaction, self.study_pk, key)
    }
}

/// Conditions of a commit for the reports of a study.
#[derive(Clone, Copy)]
struct Conditions {
    /// Read once, so that the last day ends for a whole commit.
    now_ms: u64,
    /// Reports of the study at most.
    max_reports: u64,
    /// True only in a test with a planted bug.
    skip_dedup: bool,
}

/// Adds the reports of one study in a group to the transaction.
fn add_reports<'a>(
    transaction: &Transaction<'_>,
    caches: &mut Caches,
    study: &Arc<Study>,
    reports: usize,
    submissions: impl Iterator<Item = (&'a Submission, &'a mut Outcomes)>,
    conditions: Conditions,
) -> Result<StudyUpdate, Failure> {
    let now_ms = conditions.now_ms;
    // The state is read in the transaction that stores the reports, so that closing is a barrier.
    let found: Option<(String, u64, u64)> = transaction
        .prepare_cached(
            "SELECT state, reports_accepted, commit_seq FROM studies WHERE study_pk = ? AND id = ?",
        )?
        .query_row(params![study.key, study.id().0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((state, before, commit_seq)) = found else {
        for (submission, outcomes) in submissions {
            outcomes.resize(submission.reports.len(), SubmitOutcome::StudyDeleted);
        }
        return Ok(StudyUpdate {
            study: Arc::clone(study),
            reports_accepted: study.reports_accepted(),
            sums: None,
        });
    };
    let mut rules = AdmissionRules {
        is_open: state_from(&state).is_ok_and(|state| state == StudyState::Open),
        is_over: study.about().is_over(now_ms),
        enrolment: study.enrolment(),
        room: conditions.max_reports.saturating_sub(before),
    };
    let Caches {
        sums: cache,
        recent,
    } = caches;
    let bucket = cache.bucket_of(study, commit_seq);
    let mut delta = Delta::default();
    let fresh = {
        let mut facts = StoredFacts {
            transaction,
            study_pk: study.key,
            ids: recent.begin(transaction, study.key, reports)?,
            skip_dedup: conditions.skip_dedup,
        };
        for (submission, outcomes) in submissions {
            outcomes.reserve_exact(submission.reports.len());
            for report in &submission.reports {
                let outcome = admit(&mut rules, &mut facts, report.claim())?;
                if outcome == SubmitOutcome::Accepted {
                    let stored = || cache.take_sum(transaction, study, bucket);
                    delta.add(&report.content, stored)?;
                }
                outcomes.push(outcome);
            }
        }
        facts.ids.into_fresh()
    };
    if delta.n > 0 {
        recent.end(transaction, study.key, fresh)?;
        if let Some(sum) = &delta.sum {
            cache.write(transaction, study, bucket, sum)?;
        }
        if !delta.seeds.is_empty() {
            seeds::append(transaction, study, bucket, commit_seq, &mut delta.seeds)?;
        }
        for (number, table) in (before..).zip(&delta.tables) {
            let payload = table.payload.as_bytes();
            site_reports::append(transaction, study.key, number, &table.site, payload)?;
        }
        transaction
            .prepare_cached(
                "UPDATE studies SET reports_accepted = reports_accepted + ?, commit_seq = commit_seq + 1
                 WHERE study_pk = ?",
            )?
            .execute(params![delta.n, study.key])?;
        arrivals::count(transaction, study.key, now_ms / 1_000, delta.n)?;
    }
    Ok(StudyUpdate {
        study: Arc::clone(study),
        reports_accepted: before + delta.n,
        sums: delta.sum.map(|sum| (bucket, sum)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{
        Store,
        config::StoreConfig,
        contract::decide::SubmitOutcome,
        database_path,
        faults::Faults,
        testing::fixtures::{create, report},
    };

    /// Two studies share a commit, and one of them has a damaged sum: the reports of the other are counted.
    #[tokio::test]
    async fn a_damaged_study_does_not_reject_the_reports_of_another() {
        let directory = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            // One bucket.
            sum_cache_bytes: 8 * 6,
            ..StoreConfig::new(directory.path().join("data"))
        };
        let faults = Faults::default();
        let open = || Store::with_faults(&config, &faults);
        let mut store = open();
        let mut ids = Vec::new();
        for name in ["damaged", "whole"] {
            ids.push(create(&store, &json!({"name": name})).await.id());
        }
        let mut number = 0;
        let mut send = |store: &Store, id| {
            number += 1;
            let study = store.study(id).unwrap();
            let (report, store) = (report(&study, number), store.clone());
            async move { store.submit(&study, vec![report]).await }
        };
        send(&store, ids[0]).await.unwrap();
        drop(store);
        rusqlite::Connection::open(database_path(&config.data_dir))
            .unwrap()
            .execute(
                "UPDATE buckets SET sum = ?",
                [f64::INFINITY.to_le_bytes().repeat(6)],
            )
            .unwrap();
        store = open();
        faults.hold();
        let (damaged, whole) = (send(&store, ids[0]), send(&store, ids[1]));
        let both = tokio::spawn(async { tokio::join!(damaged, whole) });
        // One is held by the writer and one waits: they share the next commit.
        while store.counters().queue_depth.get() < 1 {
            tokio::task::yield_now().await;
        }
        faults.release();
        let (damaged, whole) = both.await.unwrap();
        assert!(damaged.is_err());
        assert_eq!(whole.unwrap(), [SubmitOutcome::Accepted]);
    }
}
