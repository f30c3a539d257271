//! Studies: created, opened, closed.

use std::sync::Arc;

use eigenveil_shared::{Result, api::StudyState};
use rusqlite::params;

use super::{Sqlite, TaskKind, rows};
use crate::contract::{
    decide,
    engine::{Engine as _, Pending, Studies},
    study::{NewStudy, Study, StudyId},
};

impl Studies for Sqlite {
    fn create(&self, id: StudyId, design: NewStudy) -> Pending<'_, Result<Arc<Study>>> {
        let (studies, now) = (Arc::clone(&self.studies), self.unix_ms());
        Box::pin(self.write(
            move |transaction| {
                let key = rows::insert(transaction, id, &design, now)?;
                Ok(Arc::new(Study::new(key, id, design, now)))
            },
            move |study, _| studies.add(Arc::clone(study)),
        ))
    }

    fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Pending<'_, Result<()>> {
        let (study, now) = (Arc::clone(study), self.unix_ms());
        let (key, id, studies) = (study.key, study.id(), Arc::clone(&self.studies));
        // A study must be closed before it can be deleted.
        let kind = match wanted {
            StudyState::Closed => TaskKind::FreesSpace,
            _ => TaskKind::Request,
        };
        Box::pin(self.write_as(
            kind,
            move |transaction| {
                if decide::changes_state(id, rows::state(transaction, key, id)?, wanted)? {
                    let closed_at_ms = (wanted == StudyState::Closed).then_some(now);
                    transaction.execute(
                        "UPDATE studies SET state = ?, closed_at_ms = ? WHERE study_pk = ?",
                        params![wanted.as_str(), closed_at_ms, key],
                    )?;
                }
                Ok(())
            },
            move |(), _| studies.publish_state(&study, wanted),
        ))
    }
}
