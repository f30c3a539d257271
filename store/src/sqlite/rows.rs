//! The rows of studies: loaded at the start, inserted, looked up.

use std::sync::Arc;

use eigenveil_shared::{
    about::{StudyNotice, UtcDate},
    api::StudyState,
    enrolment::AdmissionKey,
    estimate::ComponentCount,
    parameters::Parameters,
};
use rusqlite::{
    Connection, OptionalExtension, ToSql, Transaction, params,
    types::{FromSql, FromSqlResult, ToSqlOutput, ValueRef},
};

use crate::contract::{
    decide::Spent,
    failure::Failure,
    listener::Listener,
    study::{
        NewStudy, Study, StudyId, StudyIndex, StudyKey, features_from_text, features_to_text,
        state_from, study_not_found,
    },
};

impl ToSql for StudyKey {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for StudyKey {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        i64::column_result(value).map(Self)
    }
}

/// Inserts a study without reports and returns its primary key, which no study ever had.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    id: StudyId,
    design: &NewStudy,
    created_at_ms: u64,
) -> Result<StudyKey, Failure> {
    let default_k = match design.default_k {
        ComponentCount::Auto => None,
        ComponentCount::Fixed(k) => Some(k as u64),
    };
    // Never reuse the key of a deleted study: requests for it may still be in progress.
    transaction.execute(
        "INSERT INTO studies
         (study_pk, id, name, state, canonical, fingerprint, default_k, buckets, created_at_ms, enrolment,
          purpose, responsible_party, contact, last_day, features)
         VALUES (1 + max((SELECT coalesce(max(study_pk), 0) FROM studies),
                         (SELECT coalesce(max(study_pk), 0) FROM deleted_studies)),
                 ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            id.0,
            design.name,
            design.state.as_str(),
            design.params.canonical_bytes(),
            design.params.fingerprint().0,
            default_k,
            design.buckets,
            created_at_ms,
            design.enrolment.as_str(),
            design.about.purpose,
            design.about.responsible_party,
            design.about.contact,
            design.about.last_day.map(|day| day.0),
            features_to_text(&design.about)?
        ],
    )?;
    Ok(StudyKey(transaction.last_insert_rowid()))
}

/// Fails if the study was deleted meanwhile.
pub(super) fn require(connection: &Connection, pk: StudyKey, id: StudyId) -> Result<(), Failure> {
    let row = connection
        .prepare_cached("SELECT 1 FROM studies WHERE study_pk = ? AND id = ?")?
        .query_row(params![pk, id.0], |_| Ok(()))
        .optional()?;
    row.ok_or_else(|| study_not_found(id).into())
}

/// The state of a study, unless it was deleted meanwhile.
pub(super) fn state(
    connection: &Connection,
    pk: StudyKey,
    id: StudyId,
) -> Result<StudyState, Failure> {
    require(connection, pk, id)?;
    let query = "SELECT state FROM studies WHERE study_pk = ?";
    let state: String = connection.query_row(query, [pk], |row| row.get(0))?;
    state_from(&state)
}

/// All studies, without deleted ones that are still being removed.
pub(super) fn load(connection: &Connection, listener: Listener) -> Result<StudyIndex, Failure> {
    let study_index = StudyIndex::new(listener);
    let mut statement = connection.prepare(
        "SELECT study_pk, id, name, state, canonical, fingerprint, default_k, buckets,
                created_at_ms, reports_accepted, enrolment, purpose, responsible_party, contact, last_day,
                features
         FROM studies WHERE study_pk NOT IN (SELECT study_pk FROM deleted_studies) ORDER BY study_pk",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = StudyId(row.get(1)?);
        let canonical: Vec<u8> = row.get(4)?;
        let fingerprint: [u8; 32] = row.get(5)?;
        let params = Parameters::from_canonical(&canonical)
            .map_err(|error| Failure::damaged(format!("study {id}: {error}")))?;
        if params.fingerprint().0 != fingerprint {
            return Err(Failure::damaged(format!(
                "the parameters of study {id} do not have its fingerprint"
            )));
        }
        let state: String = row.get(3)?;
        let enrolment: String = row.get(10)?;
        let default_k: Option<u64> = row.get(6)?;
        let design = NewStudy {
            name: row.get(2)?,
            params,
            default_k: match default_k {
                None => ComponentCount::Auto,
                Some(k) => ComponentCount::Fixed(usize::try_from(k).unwrap_or(usize::MAX)),
            },
            state: state_from(&state)
                .map_err(|_| Failure::damaged(format!("study {id} has an unknown state")))?,
            buckets: row.get(7)?,
            enrolment: enrolment
                .parse()
                .map_err(|_| Failure::damaged(format!("study {id} has an unknown enrolment")))?,
            about: StudyNotice {
                purpose: row.get(11)?,
                responsible_party: row.get(12)?,
                contact: row.get(13)?,
                last_day: row.get::<_, Option<u64>>(14)?.map(UtcDate),
                features: features_from_text(row.get(15)?, id)?,
            },
        };
        let study = Study::new(row.get(0)?, id, design, row.get(8)?);
        study.publish_count(row.get(9)?);
        study_index.add(Arc::new(study));
    }
    Ok(study_index)
}

/// Spends the token with this hash.
///
/// The time of a lookup depends on the stored hashes. That does not help to find a token: a sender who cannot choose
/// the hash learns nothing about its neighbours.
pub(super) fn spend_token(
    transaction: &Transaction<'_>,
    pk: StudyKey,
    hash: &AdmissionKey,
) -> Result<Spent, Failure> {
    let spent = transaction
        .prepare_cached(
            "UPDATE participant_tokens SET spent = 1 WHERE study_pk = ? AND hash = ? AND spent = 0",
        )?
        .execute(params![pk, hash])?;
    if spent == 1 {
        return Ok(Spent::Now);
    }
    let known = transaction
        .prepare_cached("SELECT 1 FROM participant_tokens WHERE study_pk = ? AND hash = ?")?
        .query_row(params![pk, hash], |_| Ok(()))
        .optional()?;
    Ok(known.map_or(Spent::Unknown, |()| Spent::Before))
}
