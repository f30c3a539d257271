//! What every server shows of the store: read anew each second, since others change it, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use eigenveil_shared::{
    ErrorCode,
    about::{StudyNotice, UtcDate},
    estimate::ComponentCount,
    parameters::Parameters,
};
use tokio::time::MissedTickBehavior;
use tokio_postgres::{Client, Row};

use super::{
    Inner, connection::moment_ms, credentials, lock, statements::Prepared, told, unsigned,
};
use crate::contract::{
    failure::Failure,
    study::{NewStudy, Study, StudyId, StudyKey, features_from_text, state_from},
    token_files::TokenFiles,
};

const EVERY: Duration = Duration::from_secs(1);
/// Whoever asks: a look is answered by one that began this long after the one before.
const LEAST: Duration = Duration::from_millis(250);
/// A database that is silent for so long is away.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pulse of whoever is no committer.
const WATCHER: i32 = -1;

/// Until it is aborted.
pub(super) async fn watch(inner: Arc<Inner>) {
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut renewed, mut newest) = (Instant::now(), 0);
    loop {
        ticks.tick().await;
        let mut look = pin!(inner.look(&mut renewed, &mut newest));
        let looked = match tokio::time::timeout(PATIENCE, &mut look).await {
            Ok(looked) => looked,
            Err(_) => {
                inner.found(Err(Failure::Unavailable(
                    "the database does not answer".into(),
                )));
                // Not dropped: what it has sent would go on waiting there, and the next one's, too.
                look.await
            }
        };
        inner.found(looked);
    }
}

impl Inner {
    /// Each of this is tried, whatever became of the one before: a lease is renewed also by who cannot read a new
    /// study.
    async fn look(&self, renewed: &mut Instant, newest: &mut i64) -> Result<(), Failure> {
        // While something is being changed, what is shown is about to be.
        let registry = match self.registry.try_lock() {
            Ok(mut registry) => self.show(&mut registry).await,
            Err(_) => Ok(()),
        };
        let jobs = self.look_for_jobs(renewed, newest).await;
        registry.and(jobs).and(self.probe().await)
    }

    fn found(&self, looked: Result<(), Failure>) {
        let failure = looked.err();
        let unusable = failure.map(|failure| (failure.to_string(), told(failure)));
        let mut health = lock(&self.health);
        // Once for each cause.
        if let Some((why, _)) = &unusable
            && health.unusable != unusable
        {
            tracing::error!(why, "the database cannot be used");
        }
        health.unusable = unusable;
    }

    /// Reads studies and credentials, and shows them.
    pub(super) async fn refresh(&self) -> Result<(), Failure> {
        let mut registry = self.registry.lock().await;
        self.show(&mut registry).await
    }

    /// Refreshes like [`refresh`](Self::refresh), once for all who ask meanwhile.
    pub(super) async fn look_again(&self) -> Result<(), Failure> {
        // Nobody waits for a database that is away; a full one can be read.
        let is_readable = || match &lock(&self.health).unusable {
            Some((_, why)) if why.code() != ErrorCode::StoreFull => Err(why.clone()),
            _ => Ok(()),
        };
        let asked = Instant::now();
        is_readable()?;
        let next = *self.registry.lock().await + LEAST;
        tokio::time::sleep_until(next.into()).await;
        let mut registry = self.registry.lock().await;
        if *registry > asked {
            return Ok(());
        }
        is_readable()?;
        self.show(&mut registry).await
    }

    async fn show(&self, shown: &mut Instant) -> Result<(), Failure> {
        let began = Instant::now();
        let session = self.pool.take().await?;
        // First, so that a token that was revoked is refused whatever becomes of the rest.
        let (table, complete) = credentials::load(&session).await?;
        let operator = table.operator;
        self.credentials.change(|credentials| *credentials = table);
        // The commit of a rotation may have been in doubt, and may still come: a staged token is never thrown away
        // here.
        let files = TokenFiles::in_directory(&self.config.data_dir);
        if let Some(operator) = operator
            && let Err(error) = files.adopt_if_valid(&operator)
        {
            tracing::error!(%error, "the new operator token is still in operator.token.new");
        }
        complete?;
        let moment = moment_ms(&session).await?;
        let local = self.environment.clock.unix_ms().min(i64::MAX as u64) as i64;
        self.ahead_ms
            .store(moment.saturating_sub(local), Ordering::Relaxed);
        let rows = session
            .query(
                "SELECT s.study, s.state, (SELECT coalesce(sum(n), 0)::bigint FROM buckets b WHERE b.study = s.study)
                 FROM studies s ORDER BY s.study",
                &[],
            )
            .await?;
        let mut studies = BTreeMap::new();
        for row in rows {
            let (key, state): (i64, &str) = (row.try_get(0)?, row.try_get(1)?);
            studies.insert(
                StudyKey(key),
                (state_from(state)?, unsigned(row.try_get(2)?)),
            );
        }
        let mut known = BTreeSet::new();
        for study in self.studies.list() {
            match studies.get(&study.key) {
                Some((state, n)) => {
                    self.studies.publish_state(&study, *state);
                    study.publish_count_unordered(*n);
                    known.insert(study.key);
                }
                None => self.studies.remove(study.id()),
            }
        }
        let new: Vec<i64> = studies
            .keys()
            .filter(|key| !known.contains(key))
            .map(|key| key.0)
            .collect();
        for study in load(&session, &new).await? {
            if let Some((_, n)) = studies.get(&study.key) {
                study.publish_count_unordered(*n);
            }
            self.studies.add(Arc::new(study));
        }
        session.done();
        *shown = began;
        Ok(())
    }

    /// After a failed commit: whether another one succeeds.
    async fn probe(&self) -> Result<(), Failure> {
        if lock(&self.health).commit_failed.is_none() {
            return Ok(());
        }
        // A new connection: those who commit may have failed to get one.
        let probe = Prepared::new(self.pool.target.connect_to_commit().await?).await?;
        // Keys of studies are positive, and no other server rehearses with this one.
        probe.rehearse(StudyKey(self.server | i64::MIN)).await?;
        probe.connection.batch_execute("BEGIN").await?;
        probe.beat(self.server, WATCHER).await?;
        lock(&self.health).commit_failed = None;
        Ok(())
    }
}

/// These studies, by key.
async fn load(client: &Client, keys: &[i64]) -> Result<Vec<Study>, Failure> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let rows = client
        .query(
            "SELECT study, id, name, state, canonical, fingerprint, default_k, buckets, created_at_ms, enrolment,
                    purpose, responsible_party, contact, last_day, features
             FROM studies WHERE study = ANY ($1) ORDER BY study",
            &[&keys],
        )
        .await?;
    rows.iter().map(study).collect()
}

fn study(row: &Row) -> Result<Study, Failure> {
    let id = row.try_get::<_, &[u8]>(1)?.try_into();
    let id = StudyId(
        id.map_err(|_| Failure::damaged("an identifier of a study does not have 16 bytes"))?,
    );
    let damaged = |what: &str| Failure::damaged(format!("study {id} has {what}"));
    let params = Parameters::from_canonical(row.try_get(4)?)
        .map_err(|error| Failure::damaged(format!("study {id}: {error}")))?;
    if params.fingerprint().0 != *row.try_get::<_, &[u8]>(5)? {
        return Err(damaged("parameters that do not have its fingerprint"));
    }
    let default_k: Option<i64> = row.try_get(6)?;
    let design = NewStudy {
        name: row.try_get(2)?,
        params,
        default_k: default_k.map_or(ComponentCount::Auto, |k| {
            ComponentCount::Fixed(usize::try_from(k).unwrap_or(usize::MAX))
        }),
        state: state_from(row.try_get(3)?).map_err(|_| damaged("an unknown state"))?,
        buckets: row.try_get::<_, i32>(7)?.unsigned_abs(),
        enrolment: row
            .try_get::<_, &str>(9)?
            .parse()
            .map_err(|_| damaged("an unknown enrolment"))?,
        about: StudyNotice {
            purpose: row.try_get(10)?,
            responsible_party: row.try_get(11)?,
            contact: row.try_get(12)?,
            last_day: row
                .try_get::<_, Option<i64>>(13)?
                .map(|day| UtcDate(unsigned(day))),
            features: features_from_text(row.try_get(14)?, id)?,
        },
    };
    Ok(Study::new(
        StudyKey(row.try_get(0)?),
        id,
        design,
        unsigned(row.try_get(8)?),
    ))
}
