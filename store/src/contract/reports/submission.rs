//! The reports of a request on their way to a commit.

use std::sync::Arc;

use eigenveil_shared::{Error, Result};
use tokio::sync::oneshot;

use super::report::{NewReport, Outcomes, Reports};
use crate::{
    contract::{memory::Reservation, study::Study},
    request_id,
};

/// Payload bytes after which no further request joins a commit.
pub(crate) const MAX_COMMIT_BYTES: usize = 64 << 20;

/// The reports of one request: all in one commit, or in none.
pub(crate) struct Submission {
    pub(crate) study: Arc<Study>,
    pub(crate) reports: Reports,
    reply: oneshot::Sender<Result<Outcomes>>,
    /// Holds the memory of the bodies until the commit.
    reservation: Reservation,
    request: Option<u64>,
}

impl Submission {
    /// Creates a submission and the receiver of its answer.
    pub(crate) fn new(
        study: &Arc<Study>,
        reports: Reports,
        reservation: Reservation,
    ) -> (Self, oneshot::Receiver<Result<Outcomes>>) {
        let (reply, answer) = oneshot::channel();
        let submission = Self {
            study: Arc::clone(study),
            reports,
            reply,
            reservation,
            request: request_id::current(),
        };
        (submission, answer)
    }

    pub(crate) fn payload_bytes(&self) -> usize {
        self.reports.iter().map(NewReport::payload_bytes).sum()
    }

    fn answer(self, answer: Result<Outcomes>) {
        drop(self.reservation);
        // A client that has gone will retry and get "duplicate".
        let _ = self.reply.send(answer);
    }
}

pub(crate) fn reports(group: &[Submission]) -> usize {
    group
        .iter()
        .map(|submission| submission.reports.len())
        .sum()
}

/// Groups the submissions by study, in order.
pub(crate) fn by_study(group: Vec<Submission>) -> Vec<Vec<Submission>> {
    let mut studies: Vec<Vec<Submission>> = Vec::new();
    for submission in group {
        let key = submission.study.key;
        let same = |share: &&mut Vec<Submission>| {
            share.first().is_some_and(|first| first.study.key == key)
        };
        match studies.iter_mut().find(same) {
            Some(share) => share.push(submission),
            None => studies.push(vec![submission]),
        }
    }
    studies
}

pub(crate) fn answer(group: Vec<Submission>, outcomes: Vec<Outcomes>) {
    for (submission, outcomes) in group.into_iter().zip(outcomes) {
        submission.answer(Ok(outcomes));
    }
}

pub(crate) fn refuse(group: Vec<Submission>, error: &Error) {
    for submission in group {
        submission.answer(Err(error.clone()));
    }
}

/// Identifiers of the requests, or the first few if there are many.
pub(crate) fn request_ids(group: &[Submission]) -> String {
    const MAX_SHOWN: usize = 32;
    let numbers = group.iter().filter_map(|submission| submission.request);
    let listed: Vec<String> = numbers.take(MAX_SHOWN).map(|id| id.to_string()).collect();
    listed.join(" ")
}
