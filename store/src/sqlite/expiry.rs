//! Expiry: the server closes studies whose last day is over.
//!
//! The writer rejects their reports from the first millisecond on, whatever the state. The state follows, so that
//! pages, devices and deletion see a closed study. If a wrong clock closed a study, it is reopened once the clock is
//! right.

use std::sync::Arc;

use eigenveil_shared::{Result, api::StudyState};
use rusqlite::{OptionalExtension, Transaction, params};

use super::{Sqlite, TaskKind};
use crate::contract::{
    engine::{Engine as _, Expiry},
    failure::Failure,
    study::Study,
};

impl Expiry for Sqlite {
    fn moment_ms(&self) -> Result<u64> {
        Ok(self.unix_ms())
    }

    fn end(&self, study: &Arc<Study>, wanted: StudyState, over_at: u64, now: u64) -> Result<()> {
        match wanted {
            StudyState::Closed => self.close_at(study, now),
            _ => self.reopen(study, over_at),
        }
    }
}

impl Sqlite {
    fn close_at(&self, study: &Arc<Study>, now: u64) -> Result<()> {
        let pk = study.key;
        let closed = self.change_state(study, StudyState::Closed, move |transaction| {
            Ok(transaction.execute(
                "UPDATE studies SET state = 'closed', closed_at_ms = ?
                 WHERE study_pk = ? AND state = 'open'",
                params![now, pk],
            )?)
        })?;
        if closed {
            tracing::info!(study = %study.id(), "study closed: its last day is over");
        }
        Ok(())
    }

    /// A study closed by the operator was closed before its last day was over, and stays closed. A study without
    /// identifiers cannot be reopened: it could count a report twice.
    fn reopen(&self, study: &Arc<Study>, over_at: u64) -> Result<()> {
        let pk = study.key;
        // Read first: usually there is nothing to write.
        let closed_early = self.reader().query_row(
            "SELECT closed_at_ms >= ? FROM studies WHERE study_pk = ? AND closed_at_ms IS NOT NULL",
            params![over_at, pk],
            |row| row.get(0),
        );
        if !self
            .note_damage(closed_early.optional().map_err(Failure::from))?
            .unwrap_or(false)
        {
            return Ok(());
        }
        let opened = self.change_state(study, StudyState::Open, move |transaction| {
            Ok(transaction.execute(
                "UPDATE studies SET state = 'open', closed_at_ms = NULL
                 WHERE study_pk = ? AND state = 'closed' AND closed_at_ms >= ? AND identifiers_kept = 1",
                params![pk, over_at],
            )?)
        })?;
        if opened {
            tracing::warn!(
                study = %study.id(),
                "study reopened: its closing time lies in the future, so this machine's clock was wrong"
            );
        }
        Ok(())
    }

    /// Whether `change` moved the study to this state.
    fn change_state(
        &self,
        study: &Arc<Study>,
        state: StudyState,
        change: impl FnOnce(&Transaction<'_>) -> Result<usize, Failure> + Send + 'static,
    ) -> Result<bool> {
        let (study, studies) = (Arc::clone(study), Arc::clone(&self.studies));
        let changed =
            self.write_blocking_then(TaskKind::Background, change, move |changed, _| {
                if *changed > 0 {
                    studies.publish_state(&study, state);
                }
            })?;
        Ok(changed > 0)
    }
}
