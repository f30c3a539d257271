//! Studies, reports and a clock for tests.
#![allow(clippy::unwrap_used, reason = "tests fail that way")]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use eigenveil_shared::{
    codec,
    enrolment::{Admission, ParticipantToken},
    report::{Report, ReportId},
};
use serde_json::{Value, json};

use crate::{
    Store,
    contract::{report::NewReport, study::Study},
    environment::Clock,
};

/// Start time of test clocks, in milliseconds.
pub const START_MS: u64 = 1_700_000_000_000;

/// A clock that stands still until it is set.
pub struct SetClock(AtomicU64);

impl SetClock {
    /// At [`START_MS`].
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(START_MS)))
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub fn set(&self, unix_ms: u64) {
        self.0.store(unix_ms, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A study of three features with numeric payloads, with these keys changed.
pub async fn create(store: &Store, changes: &Value) -> Arc<Study> {
    let mut design = json!({
        "name": "test", "dimension": 3, "mechanism": "symmetric-gaussian", "epsilon": 1.0, "delta": 1e-6,
    });
    for (key, value) in changes.as_object().unwrap() {
        design[key] = value.clone();
    }
    let design = serde_json::from_value(design).unwrap();
    store.create_study(design).await.unwrap()
}

/// New tokens of a study.
pub async fn admissions(store: &Store, study: &Study, count: usize) -> Vec<Admission> {
    let issued = store.issue_tokens(study, count).await.unwrap();
    let parse = |text: &String| Some(ParticipantToken::parse(text).unwrap()).into();
    issued.tokens.iter().map(parse).collect()
}

/// The report with this number: always the same identifier and payload.
pub fn report(study: &Study, number: u8) -> NewReport {
    NewReport::decode(&report_body(study, number).into(), study).unwrap()
}

/// The bytes of [`report`], as they are sent.
pub fn report_body(study: &Study, number: u8) -> Vec<u8> {
    codec::encode_report(&Report {
        id: ReportId::from_parts(START_MS, [number; 16]),
        fingerprint: study.report_format().fingerprint(),
        // As floats these are small.
        payload: vec![number % 64; study.report_format().payload_len()],
    })
}
