//! Studies: created, opened, closed, deleted; their tokens, and the end of their last day.
//!
//! The row of a study is locked before its buckets, and these in order.

use std::sync::Arc;

use eigenveil_shared::{
    Result,
    api::{SiteToken, StudyState, TokenCounts},
    enrolment::AdmissionKey,
    estimate::ComponentCount,
};
use tokio_postgres::{Client, Row};

use super::{Postgres, connection::moment_ms, statements::require, unsigned};
use crate::contract::{
    decide,
    engine::{Expiry, Pending, Studies, Tokens},
    failure::Failure,
    participant_token::{NewToken, SiteRoom},
    study::{NewStudy, Study, StudyId, StudyKey, features_to_text, state_from, study_not_found},
};

/// Keys in one statement.
const KEYS: usize = 10_000;

impl Studies for Postgres {
    fn create(&self, id: StudyId, design: NewStudy) -> Pending<'_, Result<Arc<Study>>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(self.run(async move {
            let _registry = inner.registry.lock().await;
            let session = inner.pool.begin().await?;
            let study = insert(&session, id, design, None).await?;
            session.commit().await?;
            inner.studies.add(Arc::clone(&study));
            Ok(study)
        }))
    }

    fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Pending<'_, Result<()>> {
        let (inner, study) = (Arc::clone(&self.inner), Arc::clone(study));
        Box::pin(self.run(async move {
            let _registry = inner.registry.lock().await;
            let session = inner.pool.begin().await?;
            let state = locked_state(&session, &study).await?;
            if decide::changes_state(study.id(), state, wanted)? {
                change_state(&session, study.key, wanted).await?;
            }
            session.commit().await?;
            inner.studies.publish_state(&study, wanted);
            Ok(())
        }))
    }
}

impl Tokens for Postgres {
    fn issue(&self, study: &Study, tokens: Vec<NewToken>) -> Pending<'_, Result<()>> {
        let inner = Arc::clone(&self.inner);
        let (key, id, enrolment) = (study.key, study.id(), study.enrolment());
        let room = SiteRoom::of(study, &inner.config);
        Box::pin(self.run(async move {
            let session = inner.pool.begin().await?;
            decide::may_issue(
                id,
                state_of(&session, key, id, "FOR SHARE").await?,
                enrolment,
            )?;
            if let Some(room) = room {
                room.check_tokens(count_tokens(&session, key).await?.issued, tokens.len())?;
            }
            for tokens in tokens.chunks(KEYS) {
                let keys: Vec<&[u8]> = tokens.iter().map(|token| &token.key[..]).collect();
                let (sites, most): (Vec<_>, Vec<_>) = tokens
                    .iter()
                    .map(|token| match &token.site {
                        Some((site, max_rows)) => (Some(site.as_str()), Some(*max_rows as i64)),
                        None => (None, None),
                    })
                    .unzip();
                let insert = "INSERT INTO tokens (study, key, site, max_rows)
                              SELECT $1::bigint, * FROM unnest($2::bytea[], $3::text[], $4::bigint[])";
                let rows = session
                    .execute(insert, &[&key.0, &keys, &sites, &most])
                    .await?;
                require("tokens", rows, keys.len())?;
            }
            session.commit().await
        }))
    }

    fn token_counts(&self, study: &Study) -> Result<TokenCounts> {
        self.wait(async {
            let session = self.inner.pool.snapshot().await?;
            require_study(&session, study).await?;
            let mut counts = count_tokens(&session, study.key).await?;
            if study.has_sites() {
                let select = "SELECT site, max_rows, spent > 0 FROM tokens WHERE study = $1 ORDER BY site, max_rows, spent > 0";
                let rows = session.query(select, &[&study.key.0]).await?;
                counts.sites = rows.iter().map(site_token).collect::<Result<_, Failure>>()?;
            }
            session.end().await?;
            Ok(counts)
        })
    }

    fn site_token(&self, study: &Study, key: &AdmissionKey) -> Result<Option<SiteToken>> {
        self.wait(async {
            let session = self.inner.pool.take().await?;
            let select =
                "SELECT site, max_rows, spent > 0 FROM tokens WHERE study = $1 AND key = $2";
            let row = session
                .query_opt(select, &[&study.key.0, &key.as_slice()])
                .await?;
            session.done();
            row.as_ref().map(site_token).transpose()
        })
    }
}

async fn count_tokens(client: &Client, study: StudyKey) -> Result<TokenCounts, Failure> {
    let count = "SELECT count(*), count(*) FILTER (WHERE spent > 0) FROM tokens WHERE study = $1";
    let row = client.query_one(count, &[&study.0]).await?;
    Ok(TokenCounts {
        issued: unsigned(row.try_get(0)?),
        spent: unsigned(row.try_get(1)?),
        sites: Vec::new(),
    })
}

fn site_token(row: &Row) -> Result<SiteToken, Failure> {
    Ok(SiteToken {
        site: row.try_get(0)?,
        max_rows: unsigned(row.try_get(1)?),
        spent: row.try_get(2)?,
    })
}

impl Expiry for Postgres {
    fn moment_ms(&self) -> Result<u64> {
        self.wait(async {
            let session = self.inner.pool.take().await?;
            let now = moment_ms(&session).await?;
            session.done();
            Ok(unsigned(now))
        })
    }

    /// By the database's clock.
    fn end(&self, study: &Arc<Study>, wanted: StudyState, over_at: u64, _now: u64) -> Result<()> {
        self.wait(async {
            let _registry = self.inner.registry.lock().await;
            let session = self.inner.pool.begin().await?;
            if !may_end(&session, study, wanted, over_at).await? {
                return session.end().await;
            }
            change_state(&session, study.key, wanted).await?;
            session.commit().await?;
            self.studies.publish_state(study, wanted);
            tracing::info!(study = %study.id(), state = wanted.as_str(), "the last day of a study has changed its state");
            Ok(())
        })
    }
}

/// Whether the end of its last day, or a clock that was wrong about it, moves the study to this state. One that the
/// operator closed was closed before its last day was over; one without identifiers could count a report twice.
async fn may_end(
    client: &Client,
    study: &Study,
    wanted: StudyState,
    over_at: u64,
) -> Result<bool, Failure> {
    let row = match wanted {
        StudyState::Closed => {
            let open =
                "SELECT 1 FROM studies WHERE study = $1 AND state = 'open' FOR NO KEY UPDATE";
            client.query_opt(open, &[&study.key.0]).await?
        }
        _ => {
            let closed =
                "SELECT 1 FROM studies WHERE study = $1 AND state = 'closed' AND closed_at_ms >= $2
                          AND identifiers_kept FOR NO KEY UPDATE";
            client
                .query_opt(closed, &[&study.key.0, &(over_at as i64)])
                .await?
        }
    };
    Ok(row.is_some())
}

/// Inserts a study without reports, with its buckets, under a key that no study ever had.
pub(super) async fn insert(
    client: &Client,
    id: StudyId,
    design: NewStudy,
    created_at_ms: Option<u64>,
) -> Result<Arc<Study>, Failure> {
    let default_k = match design.default_k {
        ComponentCount::Auto => None,
        ComponentCount::Fixed(k) => Some(k as i64),
    };
    let (buckets, last_day) = (design.buckets as i32, design.about.last_day);
    let row = client
        .query_one(
            "INSERT INTO studies (id, name, state, canonical, fingerprint, default_k, buckets, created_at_ms, enrolment,
                                  purpose, responsible_party, contact, last_day, features, closed_at_ms)
             VALUES ($1, $2, $3::text, $4, $5, $6, $7, coalesce($8::bigint, moment_ms()), $9, $10, $11, $12, $13, $14,
                     CASE WHEN $3::text = 'closed' THEN moment_ms() END)
             RETURNING study, created_at_ms",
            &[
                &id.0.as_slice(),
                &design.name,
                &design.state.as_str(),
                &design.params.canonical_bytes(),
                &design.params.fingerprint().0.as_slice(),
                &default_k,
                &buckets,
                &created_at_ms.map(|at| at as i64),
                &design.enrolment.as_str(),
                &design.about.purpose,
                &design.about.responsible_party,
                &design.about.contact,
                &last_day.map(|day| day.0 as i64),
                &features_to_text(&design.about)?,
            ],
        )
        .await?;
    let (key, created): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
    let is_open = design.state == StudyState::Open;
    // As the clock counts, without a day's leap.
    let until = last_day.map(|day| day.end_ms() as i64);
    client
        .execute(
            "INSERT INTO buckets (study, bucket, open, until)
             SELECT $1::bigint, bucket, $2::boolean, coalesce(to_timestamp($3::bigint / 1000.0), 'infinity')
             FROM generate_series(0, $4::int - 1) bucket",
            &[&key, &is_open, &until, &buckets],
        )
        .await?;
    client
        .execute(
            "INSERT INTO sums (study, bucket) SELECT $1::bigint, bucket FROM generate_series(0, $2::int - 1) bucket",
            &[&key, &buckets],
        )
        .await?;
    Ok(Arc::new(Study::new(
        StudyKey(key),
        id,
        design,
        unsigned(created),
    )))
}

async fn change_state(client: &Client, study: StudyKey, wanted: StudyState) -> Result<(), Failure> {
    let update = "UPDATE studies SET state = $2::text, closed_at_ms = CASE WHEN $2::text = 'closed' THEN moment_ms() END
                  WHERE study = $1";
    let rows = client
        .execute(update, &[&study.0, &wanted.as_str()])
        .await?;
    require("studies", rows, 1)?;
    let buckets = lock_buckets(client, study).await?;
    let is_open = wanted == StudyState::Open;
    let update = "UPDATE buckets SET open = $2 WHERE study = $1";
    let rows = client.execute(update, &[&study.0, &is_open]).await?;
    require("buckets", rows, buckets)
}

/// In order: an UPDATE alone would lock them as they lie, and wait for appends that wait for it.
pub(super) async fn lock_buckets(client: &Client, study: StudyKey) -> Result<usize, Failure> {
    let select = "SELECT 1 FROM buckets WHERE study = $1 ORDER BY study, bucket FOR NO KEY UPDATE";
    Ok(client.query(select, &[&study.0]).await?.len())
}

pub(super) async fn locked_state(client: &Client, study: &Study) -> Result<StudyState, Failure> {
    state_of(client, study.key, study.id(), "FOR NO KEY UPDATE").await
}

pub(super) async fn state_of(
    client: &Client,
    key: StudyKey,
    id: StudyId,
    lock: &str,
) -> Result<StudyState, Failure> {
    let select = format!("SELECT state FROM studies WHERE study = $1 {lock}");
    let row = client.query_opt(select.as_str(), &[&key.0]).await?;
    let row = row.ok_or_else(|| study_not_found(id))?;
    state_from(row.try_get(0)?)
}

/// Fails if the study was deleted meanwhile.
pub(super) async fn require_study(client: &Client, study: &Study) -> Result<(), Failure> {
    let row = client
        .query_opt("SELECT 1 FROM studies WHERE study = $1", &[&study.key.0])
        .await?;
    row.map(drop)
        .ok_or_else(|| study_not_found(study.id()).into())
}
