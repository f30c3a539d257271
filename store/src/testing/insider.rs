//! Somebody who has the files of a store, and pairs identifiers with what came with them.

use std::{collections::HashMap, sync::Arc};

use eigenveil_shared::{
    api::StudyState,
    codec,
    enrolment::ParticipantToken,
    report::{Report, ReportId},
};
use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha12Rng};
use serde_json::json;

use super::fixtures::{START_MS, create};
use crate::{
    Store,
    contract::{decide::SubmitOutcome, report::NewReport, study::Study},
};

pub(crate) const DEVICES: usize = 100;

/// A report as a device sent it.
pub(crate) struct Sent {
    pub(crate) id: Vec<u8>,
    pub(crate) seed: Vec<u8>,
    /// The hash of its token.
    pub(crate) token: Vec<u8>,
    report: NewReport,
}

/// Reports to a study of seeds and tokens, so many at once each minute; `set_clock` sets the store's.
pub(crate) async fn send(
    store: &Store,
    at_once: usize,
    set_clock: impl Fn(u64),
) -> (Arc<Study>, Vec<Sent>) {
    let design = json!({"mechanism": "double-cap", "delta": null, "enrolment": "token"});
    let study = create(store, &design).await;
    let issued = store.issue_tokens(&study, DEVICES).await.unwrap();
    let mut rng = ChaCha12Rng::seed_from_u64(at_once as u64);
    let mut all = Vec::new();
    for (minute, tokens) in (0..).zip(issued.tokens.chunks(at_once)) {
        let now_ms = START_MS + minute * 60_000;
        set_clock(now_ms);
        let first = all.len();
        for token in tokens {
            let token = ParticipantToken::parse(token).unwrap();
            let id = ReportId::from_parts(now_ms, rng.random());
            let seed: [u8; 16] = rng.random();
            let body = codec::encode_report(&Report {
                id,
                fingerprint: study.fingerprint(),
                payload: seed.to_vec(),
            });
            let hash = token.digest();
            let report = NewReport::decode(&body.into(), &study).unwrap();
            all.push(Sent {
                id: id.0.to_vec(),
                seed: seed.to_vec(),
                token: hash.to_vec(),
                report: report.admitted_by(&Some(token).into()),
            });
        }
        let reports = all[first..].iter().map(|sent: &Sent| sent.report.clone());
        let outcomes = store.submit(&study, reports.collect()).await.unwrap();
        assert_eq!(outcomes, vec![SubmitOutcome::Accepted; at_once]);
    }
    (study, all)
}

/// Closes the study.
pub(crate) async fn close(store: &Store, study: &Arc<Study>) {
    let closed = store.set_state(study, StudyState::Closed);
    closed.await.unwrap();
}

/// All of them are still counted, once.
pub(crate) async fn assert_counted(store: &Store, study: &Arc<Study>, all: &[Sent]) {
    let reports = all.iter().map(|sent| sent.report.clone()).collect();
    let outcomes = store.submit(study, reports).await.unwrap();
    assert_eq!(outcomes, vec![SubmitOutcome::Duplicate; all.len()]);
    assert_eq!(study.reports_accepted(), all.len() as u64);
}

/// How many of these pairs of an identifier and something else are right.
pub(crate) fn right<'a>(
    all: &[Sent],
    pairs: impl IntoIterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> usize {
    let by_id: HashMap<&[u8], &Sent> = all.iter().map(|sent| (&sent.id[..], sent)).collect();
    let is_right = |(id, other): &(&Vec<u8>, &Vec<u8>)| {
        let sent = by_id[&id[..]];
        sent.seed == **other || sent.token == **other
    };
    pairs.into_iter().filter(is_right).count()
}
