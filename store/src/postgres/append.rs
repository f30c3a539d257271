//! Reports are counted: a group of requests in one transaction, on a connection that belongs to the task that commits.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use eigenveil_estimation::accumulate::Accumulator;
use eigenveil_shared::{
    Result,
    enrolment::{AdmissionKey, Enrolment},
    error,
};
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::{Client, Row, Statement, ToStatement, types::ToSql};

use super::{
    Inner,
    connection::Connection,
    lock,
    statements::{Prepared, require},
    unsigned,
};
use crate::contract::{
    decide::{AdmissionRules, Facts, Spent, SubmitOutcome, admit},
    failure::Failure,
    report::Outcomes,
    study::{Study, StudyKey},
    submission::{self, MAX_COMMIT_BYTES, Submission, by_study},
    sums::{Delta, KeptTable, decode_sum, encode_sum},
};

/// Time after which a request is told that nobody knows.
pub(super) const ANSWER: Duration = Duration::from_secs(30);
/// Runs of a group: studies close under way, connections break.
const MAX_RUNS: u32 = 5;

/// Takes groups from the queue and commits them, on a connection of its own.
pub(super) struct Committer {
    inner: Arc<Inner>,
    number: i32,
    queue: Arc<Mutex<mpsc::Receiver<Submission>>>,
    prepared: Option<Prepared>,
}

impl Committer {
    pub(super) fn new(
        inner: Arc<Inner>,
        number: i32,
        queue: Arc<Mutex<mpsc::Receiver<Submission>>>,
    ) -> Self {
        Self {
            inner,
            number,
            queue,
            prepared: None,
        }
    }

    /// Until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        while let Some(group) = self.next_group().await {
            self.inner.counters.queue_depth.dec_by(group.len() as i64);
            self.commit(group).await;
        }
    }

    /// Takes what is queued without waiting for more: the next group gathers while this one is committed.
    async fn next_group(&self) -> Option<Vec<Submission>> {
        let mut queue = self.queue.lock().await;
        let first = queue.recv().await?;
        let (mut reports, mut bytes) = (first.reports.len(), first.payload_bytes());
        let mut group = vec![first];
        while reports < self.inner.config.max_commit_reports
            && bytes < MAX_COMMIT_BYTES
            && let Ok(submission) = queue.try_recv()
        {
            reports += submission.reports.len();
            bytes += submission.payload_bytes();
            group.push(submission);
        }
        Some(group)
    }

    /// Commits a group, then replies to all of it. If it fails, its studies are committed one by one, so that a failure
    /// of one does not reject the reports of another.
    async fn commit(&mut self, group: Vec<Submission>) {
        match self.outcomes(&group).await {
            Ok(outcomes) => return submission::answer(group, outcomes),
            Err(failure) => {
                let is_one = group
                    .iter()
                    .all(|other| other.study.key == group[0].study.key);
                if is_one
                    || failure.is_full()
                    || self.prepared.is_none() && self.connect().await.is_err()
                {
                    return self.refuse(group, failure);
                }
            }
        }
        for group in by_study(group) {
            match self.outcomes(&group).await {
                Ok(outcomes) => submission::answer(group, outcomes),
                Err(failure) => self.refuse(group, failure),
            }
        }
    }

    fn refuse(&self, group: Vec<Submission>, failure: Failure) {
        self.inner.counters.commit_failures.inc();
        tracing::error!(%failure, requests = group.len(), "commit failed");
        // Reports that cannot be added say nothing of the store.
        let is_of_store = !matches!(failure, Failure::Rejected(_));
        let error = self.inner.recorded(failure);
        if is_of_store {
            lock(&self.inner.health).commit_failed = Some(error.clone());
        }
        submission::refuse(group, &error);
    }

    /// Runs a group until it is committed, or certainly cannot be.
    async fn outcomes(&mut self, group: &[Submission]) -> Result<Vec<Outcomes>, Failure> {
        let started = Instant::now();
        let mut in_doubt = None;
        let mut last =
            Failure::Unavailable("studies of these reports keep opening and closing".into());
        for _ in 0..MAX_RUNS {
            match self.attempt(group).await {
                Ok(Some(outcomes)) => {
                    let reports = submission::reports(group);
                    self.inner.counters.committed(reports, started.elapsed());
                    lock(&self.inner.health).commit_failed = None;
                    return Ok(outcomes);
                }
                Ok(None) => {}
                Err(failure) => {
                    // Whatever its transaction has done is rolled back, or told by the next run.
                    let broke = self
                        .prepared
                        .take()
                        .is_some_and(|prepared| prepared.connection.is_closed());
                    let is_over = match &failure {
                        Failure::InDoubt(why) => {
                            in_doubt = Some(why.clone());
                            false
                        }
                        // While it was idle, say.
                        Failure::Unavailable(_) | Failure::DatabaseFull(_) => !broke,
                        _ => true,
                    };
                    last = failure;
                    if is_over {
                        break;
                    }
                }
            }
        }
        Err(match in_doubt {
            Some(why) => Failure::InDoubt(why),
            None => last,
        })
    }

    async fn connect(&mut self) -> Result<(), Failure> {
        let connection = self.inner.pool.target.connect_to_commit().await?;
        self.prepared = Some(Prepared::new(connection).await?);
        Ok(())
    }

    /// A run of a group; nothing, neither written nor answered, if a study closed under way.
    async fn attempt(&mut self, group: &[Submission]) -> Result<Option<Vec<Outcomes>>, Failure> {
        if self
            .prepared
            .as_ref()
            .is_none_or(|prepared| prepared.connection.is_closed())
        {
            self.prepared = None;
            self.connect().await?;
        }
        let Some(of) = &self.prepared else {
            return Err(Failure::Unavailable("there is no connection".into()));
        };
        let client = &of.connection;
        let studies: BTreeMap<StudyKey, &Arc<Study>> = group
            .iter()
            .map(|submission| (submission.study.key, &submission.study))
            .collect();
        let keys: Vec<i64> = studies.keys().map(|key| key.0).collect();

        // What is known, in order: admission rules, tokens, identifiers.
        let begin = async {
            client
                .batch_execute("BEGIN ISOLATION LEVEL READ COMMITTED")
                .await
        };
        let admission_rules = async { client.query(&of.admission_rules, &[&keys]).await };
        // Sent at once, in this order.
        let ((), admission_rules) = tokio::try_join!(biased; begin, admission_rules)?;
        let mut known = Knowledge::default();
        for row in admission_rules {
            let key = StudyKey(row.try_get(0)?);
            let Some(study) = studies.get(&key) else {
                continue;
            };
            let rules = AdmissionRules {
                is_open: row.try_get(1)?,
                is_over: row.try_get(2)?,
                enrolment: study.enrolment(),
                room: study
                    .max_reports(&self.inner.config)
                    .saturating_sub(unsigned(row.try_get(3)?)),
            };
            known.admission_rules.insert(key, rules);
        }
        known.unspent = known.presented(group);
        if !known.unspent.is_empty() {
            let (studies, keys) = columns(&known.unspent);
            let others = client.query(&of.spend, &[&studies, &keys]).await?;
            let mut waited_for = Vec::new();
            for row in others {
                let key = key_of(&row)?;
                known.unspent.remove(&key);
                match row.try_get::<_, Option<i16>>(2)? {
                    None => continue,
                    Some(0) => waited_for.push(key),
                    Some(_) => {}
                }
                known.spent.insert(key);
            }
            if !waited_for.is_empty() {
                // A device would believe for ever that its token is spent.
                let (studies, keys) = columns(&waited_for);
                let row = client.query_one(&of.spent, &[&studies, &keys]).await?;
                require("tokens", unsigned(row.try_get(0)?), waited_for.len())?;
            }
        }
        let (wanted, others) = known.identifiers_of(group);
        let (wanted_studies, wanted_ids) = columns(&wanted);
        let (other_studies, other_ids) = columns(&others);
        let ending = known.ending();
        let take = ask(
            client,
            !wanted.is_empty(),
            &of.take,
            [&wanted_studies, &wanted_ids],
        );
        let wait = ask(client, !ending.is_empty(), &of.in_flight, [&ending]);
        let look_up = ask(
            client,
            !others.is_empty(),
            &of.known,
            [&other_studies, &other_ids],
        );
        let (old, _, found) = tokio::try_join!(biased; take, wait, look_up)?;
        for row in old.iter().chain(&found) {
            known.counted.insert(key_of(row)?);
        }
        known.inserted = wanted;
        known.inserted.retain(|id| !known.counted.contains(id));

        let (outcomes, deltas) = known.decide(group)?;
        let taken_back: Vec<_> = known.inserted.difference(&known.taken).copied().collect();
        let given_back: Vec<_> = known.unspent.difference(&known.spending).copied().collect();
        if deltas.is_empty() {
            let has_duplicate = outcomes
                .iter()
                .flatten()
                .any(|outcome| *outcome == SubmitOutcome::Duplicate);
            if !has_duplicate {
                // Nothing is acknowledged, and nothing was written.
                client.batch_execute("ROLLBACK").await?;
                return Ok(Some(outcomes));
            }
        }
        undo(client, &of.take_back, "identifiers", &taken_back).await?;
        undo(client, &of.give_back, "tokens", &given_back).await?;
        if deltas.is_empty() {
            of.beat(self.inner.server, self.number).await?;
            return Ok(Some(outcomes));
        }
        let accepting: Vec<i64> = deltas.keys().map(|key| key.0).collect();
        if !self.count(of, &studies, deltas).await? {
            client.batch_execute("ROLLBACK").await?;
            return Ok(None);
        }
        let counted = client.query(&of.counted, &[&accepting]).await?;
        for row in &counted {
            let (key, n): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            let most = studies
                .get(&StudyKey(key))
                .map(|study| study.max_reports(&self.inner.config));
            // Other servers have taken the room meanwhile.
            if most.is_some_and(|most| unsigned(n) > most) {
                client.batch_execute("ROLLBACK").await?;
                return Ok(None);
            }
        }
        client.commit().await?;
        for row in counted {
            if let Some(study) = studies.get(&StudyKey(row.try_get(0)?)) {
                study.publish_count_unordered(unsigned(row.try_get(1)?));
            }
        }
        Ok(Some(outcomes))
    }

    /// Adds what was accepted to a bucket of each study; false if one is closed.
    async fn count(
        &self,
        of: &Prepared,
        studies: &BTreeMap<StudyKey, &Arc<Study>>,
        deltas: BTreeMap<StudyKey, Delta>,
    ) -> Result<bool, Failure> {
        let client = &of.connection;
        let accepted = deltas.len();
        let (mut keys, mut buckets, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut bodies, mut sums, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        for (key, mut delta) in deltas {
            let of_study = studies.get(&key).map_or(1, |study| study.buckets());
            let bucket = self.draw_bucket(of_study)?;
            // Sorted, so that within a commit nothing shows which seed came with which report.
            delta.seeds.sort_unstable();
            keys.push(key.0);
            buckets.push(bucket);
            sizes.push(delta.n as i64);
            bodies.push((!delta.seeds.is_empty()).then(|| delta.seeds.concat()));
            sums.extend(delta.sum.map(|sum| (key.0, bucket, sum)));
            tables.extend(delta.tables.into_iter().map(|table| (key.0, table)));
        }
        let locked = client.query(&of.lock_buckets, &[&keys, &buckets]).await?;
        if locked.len() != accepted {
            return Ok(false);
        }
        for (key, bucket, delta) in sums {
            if !add_to_sum(client, [&of.sum, &of.keep_sum], key, bucket, &delta).await? {
                return Ok(false);
            }
        }
        for (key, KeptTable { site, payload }) in &tables {
            let rows = client
                .execute(&of.keep_table, &[key, site, &payload.as_bytes()])
                .await?;
            require("site_reports", rows, 1)?;
        }
        let chunks = bodies.iter().flatten().count();
        // Of no other connection, most likely.
        let counter = (self.inner.server as i32).wrapping_add(self.number);
        let row = client
            .query_one(&of.count, &[&keys, &buckets, &sizes, &bodies, &counter])
            .await?;
        let [counted, kept, arrived] =
            [0, 1, 2].map(|column| row.try_get::<_, i64>(column).map(unsigned));
        if counted? != accepted as u64 {
            return Ok(false);
        }
        require("chunks", kept?, chunks)?;
        require("arrivals", arrived?, accepted)?;
        Ok(true)
    }

    /// A bucket that nobody can predict, so that buckets are exchangeable.
    fn draw_bucket(&self, buckets: u32) -> Result<i32, Failure> {
        let mut random = [0; 8];
        self.inner.environment.entropy.fill(&mut random)?;
        // 2⁶⁴ values modulo at most 32 buckets.
        Ok((u64::from_le_bytes(random) % u64::from(buckets.max(1))) as i32)
    }
}

/// Rows of a statement, if there is something to ask.
async fn ask<const N: usize>(
    client: &Client,
    is_needed: bool,
    statement: &Statement,
    params: [&(dyn ToSql + Sync); N],
) -> Result<Vec<Row>, tokio_postgres::Error> {
    match is_needed {
        true => client.query(statement, &params).await,
        false => Ok(Vec::new()),
    }
}

/// Removes what was inserted or spent for reports that are not accepted.
async fn undo<const N: usize>(
    client: &Connection,
    statement: &Statement,
    table: &str,
    keys: &[(StudyKey, [u8; N])],
) -> Result<(), Failure> {
    if keys.is_empty() {
        return Ok(());
    }
    let (studies, columns) = columns(keys);
    let rows = client.execute(statement, &[&studies, &columns]).await?;
    require(table, rows, keys.len())
}

/// Two columns for `unnest`.
fn columns<'a, const N: usize>(
    pairs: impl IntoIterator<Item = &'a (StudyKey, [u8; N])>,
) -> (Vec<i64>, Vec<&'a [u8]>) {
    pairs
        .into_iter()
        .map(|(study, bytes)| (study.0, bytes.as_slice()))
        .unzip()
}

/// An identifier or a token.
fn key_of<const N: usize>(row: &Row) -> Result<(StudyKey, [u8; N]), Failure> {
    let (study, key): (i64, &[u8]) = (row.try_get(0)?, row.try_get(1)?);
    let key = key
        .try_into()
        .map_err(|_| Failure::damaged("an identifier does not have 16 bytes, or a token 32"))?;
    Ok((StudyKey(study), key))
}

/// Adds to a stored sum, which one statement finds and the other one keeps; false where there is none.
pub(super) async fn add_to_sum<S: ToStatement + Sync + ?Sized>(
    client: &Client,
    [find, keep]: [&S; 2],
    study: i64,
    bucket: i32,
    delta: &Accumulator,
) -> Result<bool, Failure> {
    let Some(row) = client.query_opt(find, &[&study, &bucket]).await? else {
        return Ok(false);
    };
    let total = merged(unsigned(row.try_get(0)?), row.try_get(1)?, delta)?;
    let (n, body) = (total.count() as i64, encode_sum(&total));
    let stored = client.execute(keep, &[&study, &bucket, &n, &body]).await?;
    require("sums", stored, 1)?;
    Ok(true)
}

/// A stored sum and what is added to it.
fn merged(n: u64, body: Option<&[u8]>, delta: &Accumulator) -> Result<Accumulator, Failure> {
    let Some(body) = body else {
        return Ok(delta.clone());
    };
    let mut sum = decode_sum(delta.dimension(), n, body)?;
    sum.merge(delta)?;
    match sum.sum().as_slice().iter().all(|entry| entry.is_finite()) {
        true => Ok(sum),
        false => Err(error!(
            ImplausibleReport,
            "with these reports a sum would not be finite; none of them was counted"
        )
        .into()),
    }
}

/// The rows that a transaction has read and locked before it decides, and those it adds.
#[derive(Default)]
struct Knowledge {
    admission_rules: BTreeMap<StudyKey, AdmissionRules>,
    /// Unspent ones, which this transaction has spent, and spent ones.
    unspent: Tokens,
    spent: HashSet<(StudyKey, AdmissionKey)>,
    /// New ones, which this transaction has inserted.
    inserted: Identifiers,
    counted: HashSet<(StudyKey, [u8; 16])>,
    taken: Identifiers,
    spending: Tokens,
}

type Tokens = BTreeSet<(StudyKey, AdmissionKey)>;
type Identifiers = BTreeSet<(StudyKey, [u8; 16])>;

impl Knowledge {
    /// Studies that are over and not closed yet, which would wait for reports in flight.
    fn ending(&self) -> Vec<i64> {
        let ending = self
            .admission_rules
            .iter()
            .filter(|(_, rules)| rules.is_open && rules.is_over);
        ending.map(|(study, _)| study.0).collect()
    }

    /// Tokens of studies that take reports: of others nothing shall be written.
    fn presented(&self, group: &[Submission]) -> Tokens {
        let of_tokens = group.iter().filter(|submission| {
            self.admission_rules
                .get(&submission.study.key)
                .is_some_and(|rules| {
                    rules.enrolment == Enrolment::Token && rules.is_open && !rules.is_over
                })
        });
        of_tokens
            .flat_map(|submission| {
                let tokens = submission
                    .reports
                    .iter()
                    .filter_map(|report| report.token.as_deref());
                tokens.map(|key| (submission.study.key, *key))
            })
            .collect()
    }

    /// Identifiers with a copy that could be accepted, and the others, which are only looked up: what is refused shall
    /// write nothing.
    fn identifiers_of(&self, group: &[Submission]) -> (Identifiers, Identifiers) {
        let (mut wanted, mut others) = (Identifiers::new(), Identifiers::new());
        for submission in group {
            let study = submission.study.key;
            let Some(rules) = self.admission_rules.get(&study) else {
                continue;
            };
            for report in &submission.reports {
                let is_unspent = |key: &AdmissionKey| self.unspent.contains(&(study, *key));
                let could_be_accepted = rules.is_open
                    && !rules.is_over
                    && match rules.enrolment {
                        Enrolment::Open => true,
                        Enrolment::Token => report.token.as_deref().is_some_and(is_unspent),
                    };
                match could_be_accepted {
                    true => wanted.insert((study, report.id.0)),
                    false => others.insert((study, report.id.0)),
                };
            }
        }
        others.retain(|id| !wanted.contains(id));
        (wanted, others)
    }

    /// Report by report, in order of arrival.
    fn decide(
        &mut self,
        group: &[Submission],
    ) -> Result<(Vec<Outcomes>, BTreeMap<StudyKey, Delta>), Failure> {
        let mut deltas: BTreeMap<StudyKey, Delta> = BTreeMap::new();
        let mut all = Vec::with_capacity(group.len());
        for submission in group {
            let study = &submission.study;
            let mut outcomes = Outcomes::new();
            let Some(mut rules) = self.admission_rules.get(&study.key).copied() else {
                outcomes.resize(submission.reports.len(), SubmitOutcome::StudyDeleted);
                all.push(outcomes);
                continue;
            };
            let mut facts = View {
                known: self,
                study: study.key,
            };
            for report in &submission.reports {
                let outcome = admit(&mut rules, &mut facts, report.claim())?;
                if outcome == SubmitOutcome::Accepted {
                    let p = study.params().sum_dimension();
                    let delta = deltas.entry(study.key).or_default();
                    delta.add(&report.content, || Ok(Accumulator::new(p)?))?;
                }
                outcomes.push(outcome);
            }
            self.admission_rules.insert(study.key, rules);
            all.push(outcomes);
        }
        Ok((all, deltas))
    }
}

struct View<'a> {
    known: &'a mut Knowledge,
    study: StudyKey,
}

impl Facts for View<'_> {
    type Failure = Failure;

    fn is_known(&mut self, id: &[u8; 16]) -> Result<bool, Failure> {
        let id = (self.study, *id);
        Ok(self.known.counted.contains(&id) || self.known.taken.contains(&id))
    }

    fn insert_id(&mut self, id: &[u8; 16]) -> Result<bool, Failure> {
        if self.is_known(id)? {
            return Ok(false);
        }
        let id = (self.study, *id);
        match self.known.inserted.contains(&id) {
            true => Ok(self.known.taken.insert(id)),
            // It could not have been accepted.
            false => Err(Failure::Unavailable(
                "an identifier was not looked up".into(),
            )),
        }
    }

    fn spend(&mut self, key: &AdmissionKey) -> Result<Spent, Failure> {
        let key = (self.study, *key);
        Ok(match self.known.unspent.contains(&key) {
            true if self.known.spending.insert(key) => Spent::Now,
            false if !self.known.spent.contains(&key) => Spent::Unknown,
            _ => Spent::Before,
        })
    }
}
