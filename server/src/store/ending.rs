//! Studies whose last day is over: closed by the server itself.
//!
//! The writer refuses their reports from the first millisecond on, whatever the state; the state follows, so that
//! pages, devices and the deletion see a closed study.

use std::time::Duration;

use eigenveil_shared::{Result, api::StudyState};

use rusqlite::params;

use super::{Store, Urgency};

impl Store {
    /// Closes the open studies whose last day is over. Gives the time until the next one ends. Blocks.
    ///
    /// # Errors
    /// Those of the store; `shutting-down`.
    pub(crate) fn close_ended(&self) -> Result<Option<Duration>> {
        let now = self.now_ms();
        let mut next: Option<u64> = None;
        for study in self.studies() {
            let Some(day) = study.about().ends else {
                continue;
            };
            if study.state() != StudyState::Open {
                continue;
            }
            if !day.is_over(now) {
                let left = day.over_at_ms() - now;
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            let row = study.row;
            self.write_blocking_then(
                Urgency::Chore,
                move |transaction| {
                    Ok(transaction.execute(
                        "UPDATE studies SET state = 'closed', closed_at_ms = ?
                         WHERE study = ? AND state = 'open'",
                        params![now, row],
                    )?)
                },
                {
                    let study = study.clone();
                    move |closed, _| {
                        if *closed > 0 {
                            study.publish_state(StudyState::Closed);
                        }
                    }
                },
            )?;
            tracing::info!(study = %study.id(), "study closed: its last day is over");
        }
        Ok(next.map(Duration::from_millis))
    }
}
