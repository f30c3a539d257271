//! Studies: created, opened, closed.

use std::sync::Arc;

use eigenveil_shared::{Result, api::StudyState};
use rusqlite::params;

use super::{Embedded, TaskKind, rows};
use crate::store::{
    decide,
    study::{NewStudy, Study, StudyId},
};

impl Embedded {
    pub(crate) async fn create(&self, id: StudyId, design: NewStudy) -> Result<Arc<Study>> {
        let (studies, now) = (Arc::clone(&self.studies), self.unix_ms());
        self.write(
            move |transaction| {
                let key = rows::insert(transaction, id, &design, now)?;
                Ok(Arc::new(Study::new(key, id, design, now)))
            },
            move |study, _| studies.add(Arc::clone(study)),
        )
        .await
    }

    pub(crate) async fn set_state(&self, study: &Arc<Study>, wanted: StudyState) -> Result<()> {
        let (study, now) = (Arc::clone(study), self.unix_ms());
        let (key, id, studies) = (study.key, study.id(), Arc::clone(&self.studies));
        // A study must be closed before it can be deleted.
        let kind = match wanted {
            StudyState::Closed => TaskKind::FreesSpace,
            _ => TaskKind::Request,
        };
        self.write_as(
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
        )
        .await
    }
}
