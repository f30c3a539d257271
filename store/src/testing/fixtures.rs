//! Studies, reports and a clock for tests.
#![allow(clippy::unwrap_used, reason = "tests fail that way")]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use eigenveil_shared::{
    api::{IssueTokensRequest, NewSiteToken},
    codec::{self, SiteReportFormat},
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

/// A study of sites with three features, without private centring, with these keys changed.
pub async fn create_of_sites(store: &Store, changes: &Value) -> Arc<Study> {
    let mut design = json!({
        "mechanism": "discrete-gaussian", "centring": 0.0, "enrolment": "token", "sites": {"max_rows": 1_000},
    });
    for (key, value) in changes.as_object().unwrap() {
        design[key] = value.clone();
    }
    create(store, &design).await
}

/// A preparation with a number column, which may be missing, and a yes-no column, with these keys changed.
pub async fn create_preparation(store: &Store, changes: &Value) -> Arc<Study> {
    let mut design = json!({
        "name": "preparation", "epsilon": 1.0, "preparation": {"columns": [
            {"name": "size", "kind": {"number": {"lo": 0.0, "hi": 8.0}}, "may_be_missing": true},
            {"name": "smokes", "kind": "yes-no"},
        ]},
    });
    for (key, value) in changes.as_object().unwrap() {
        design[key] = value.clone();
    }
    let design = serde_json::from_value(design).unwrap();
    store.create_study(design).await.unwrap()
}

/// The report with this number and answer: always the same identifier.
pub fn answer(study: &Study, number: u8, bytes: [u8; 4]) -> NewReport {
    let body = codec::encode_report(&Report {
        id: ReportId::from_parts(START_MS, [number; 16]),
        fingerprint: study.fingerprint(),
        payload: bytes.to_vec(),
    });
    NewReport::decode(&body.into(), study).unwrap()
}

/// New tokens of a study of sites: the name of each, and the most rows of its report.
pub async fn site_admissions(
    store: &Store,
    study: &Study,
    sites: &[(&str, u64)],
) -> Vec<Admission> {
    let sites = sites.iter().map(|(site, max_rows)| NewSiteToken {
        site: (*site).to_owned(),
        max_rows: Some(*max_rows),
    });
    let request = IssueTokensRequest {
        count: None,
        sites: sites.collect(),
    };
    let issued = store.issue(study, request).await.unwrap();
    let parse = |text: &String| Some(ParticipantToken::parse(text).unwrap()).into();
    issued.tokens.iter().map(parse).collect()
}

/// The bytes of a site's report with this number: always the same identifier, a moment with its number in one entry, and
/// this count.
pub fn site_report_body(study: &Study, number: u8, rows: f64) -> Vec<u8> {
    let params = study.params().sites().unwrap();
    let format = SiteReportFormat::new(params);
    let bytes = |numbers: &[i64]| -> Vec<u8> {
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    };
    let mut numbers = vec![0_i64; format.payload_len() / 8];
    let count = numbers.len() - 1;
    numbers[count] = 1;
    let one = format.payload(bytes(&numbers)).unwrap();
    numbers[0] = number.into();
    #[allow(clippy::cast_possible_truncation, reason = "a small number")]
    {
        numbers[count] = (rows / params.mechanism().decode(&one).rows).round() as i64;
    }
    codec::encode_site_report(&Report {
        id: ReportId::from_parts(START_MS, [number; 16]),
        fingerprint: study.fingerprint(),
        payload: bytes(&numbers),
    })
}

/// The report of [`site_report_body`] with its token, as it is read before a commit.
pub fn site_report(
    store: &Store,
    study: &Study,
    number: u8,
    rows: f64,
    admission: &Admission,
) -> NewReport {
    let body = site_report_body(study, number, rows).into();
    store.read_site_report(study, &body, admission).unwrap()
}

/// The report with this number: always the same identifier and payload.
pub fn report(study: &Study, number: u8) -> NewReport {
    NewReport::decode(&report_body(study, number).into(), study).unwrap()
}

/// The changes that make a study one of seeds.
pub fn of_seeds() -> Value {
    json!({"mechanism": "double-cap", "delta": null})
}

/// A report with this number: always the same identifier and payload, for more than 256 of them.
pub fn numbered(study: &Study, number: u32) -> NewReport {
    with_payload(study, number, number)
}

/// A report like [`numbered`]'s, with the payload of another one.
pub fn with_payload(study: &Study, number: u32, payload_of: u32) -> NewReport {
    let mut random = [0; 16];
    // The first bytes of an identifier are its time.
    random[12..].copy_from_slice(&number.to_le_bytes());
    let mut payload = vec![0; study.payload_len()];
    payload[..4].copy_from_slice(&payload_of.to_le_bytes());
    let body = codec::encode_report(&Report {
        id: ReportId::from_parts(START_MS, random),
        fingerprint: study.fingerprint(),
        payload,
    });
    NewReport::decode(&body.into(), study).unwrap()
}

/// The bytes of [`report`], as they are sent.
pub fn report_body(study: &Study, number: u8) -> Vec<u8> {
    codec::encode_report(&Report {
        id: ReportId::from_parts(START_MS, [number; 16]),
        fingerprint: study.fingerprint(),
        // As floats these are small.
        payload: vec![number % 64; study.payload_len()],
    })
}
