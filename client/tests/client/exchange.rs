//! How responses are interpreted; the shared table also tests other clients.

use std::{collections::BTreeMap, sync::LazyLock};

use eigenveil_client::{Error, ReportResult, Request, Response, Study};
use eigenveil_shared::{
    api::{BatchResponse, ReportResponse},
    clock::{Clock as _, SystemClock},
    enrolment::Admission,
    preprocess::Row,
};
use proptest::prelude::*;
use serde::Deserialize;

use crate::common::{STUDY, report, study};

/// A case of `bindings/conformance/answers.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    batch: bool,
    reports: usize,
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
    expect: Vec<String>,
    /// The name of the error for the whole, if there is one.
    error: Option<String>,
    /// Seconds.
    retry_after: Option<u64>,
}

fn request(reports: usize, batch: bool) -> Request {
    static ONE: LazyLock<Study> = LazyLock::new(|| study(STUDY, 1.0));
    let study = &*ONE;
    let reports: Vec<_> = (0..reports).map(|_| report(study)).collect();
    if !batch {
        assert_eq!(reports.len(), 1);
        return study.upload_one(&reports[0], &Admission::Open).unwrap();
    }
    let reports: Vec<_> = reports
        .iter()
        .map(|report| (report, &Admission::Open))
        .collect();
    study.upload_batch(&reports).unwrap()
}

fn shown(result: &ReportResult) -> String {
    match result {
        ReportResult::Accepted => "accepted".to_owned(),
        ReportResult::Duplicate => "duplicate".to_owned(),
        ReportResult::Pending => "pending".to_owned(),
        ReportResult::Refused { code, .. } => format!("refused:{code}"),
    }
}

#[test]
fn answers_are_read_as_the_table_says() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../../bindings/conformance/answers.json")).unwrap();
    assert!(cases.len() > 30);
    for case in cases {
        let name = &case.name;
        let headers: Vec<_> = case
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let answer = request(case.reports, case.batch).answer(&Response {
            status: case.status,
            headers: &headers,
            body: case.body.as_bytes(),
            now: None,
        });
        let results: Vec<_> = answer.results.iter().map(shown).collect();
        assert_eq!(results, case.expect, "{name}");
        let error = answer.error.as_ref();
        let error_name = error.map(|error| error.name().to_owned());
        assert_eq!(error_name, case.error, "{name}");
        let wait = error.and_then(Error::retry_after);
        assert_eq!(wait.map(|wait| wait.as_secs()), case.retry_after, "{name}");
        // A report that was not counted is never treated as sent.
        let counted = case
            .expect
            .iter()
            .all(|result| result == "accepted" || result == "duplicate");
        assert_eq!(answer.into_result().is_ok(), counted, "{name}");
    }
}

/// A case of `bindings/conformance/studies.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyCase {
    name: String,
    document: serde_json::Value,
    pinned: Option<String>,
    /// The name of the error of reading it.
    code: Option<String>,
    /// The name of the error of taking part.
    take_part: Option<String>,
}

#[test]
fn studies_are_read_as_the_table_says() {
    let text = include_str!("../../../bindings/conformance/studies.json");
    let cases: Vec<StudyCase> = serde_json::from_str(text).unwrap();
    assert!(cases.len() > 30);
    let server = "http://localhost".parse().unwrap();
    for case in cases {
        let name = &case.name;
        let id = case.document.get("id").and_then(|id| id.as_str());
        let pinned = case.pinned.map(|pinned| pinned.parse().unwrap());
        let body = serde_json::to_vec(&case.document).unwrap();
        let response = Response {
            status: 200,
            headers: &[("content-type", "application/json")],
            body: &body,
            now: None,
        };
        let read = Study::read(&server, id.unwrap_or_default(), &response, pinned);
        let code = read.as_ref().err().map(|error| error.name().to_owned());
        assert_eq!(code, case.code, "{name}");
        if let Ok(study) = read {
            let row = Row::new(vec![1.0; study.params().dimension()]);
            let refused = study.report(&row, SystemClock.unix_ms()).err();
            let refused = refused.map(|error| error.name().to_owned());
            assert_eq!(refused, case.take_part, "{name}");
        }
    }
}

#[test]
fn without_a_response_every_report_is_still_to_be_sent() {
    let answer = request(3, true).no_response("the phone is in a tunnel");
    assert_eq!(answer.results, vec![ReportResult::Pending; 3]);
    let error = answer.into_result().unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("tunnel"));
}

/// Response bodies: complete, truncated or unrelated.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        r#"{"outcome":"accepted"}"#,
        r#"{"outcome":"duplicate"}"#,
        r#"{"accepted":2,"duplicates":0,"refused":[]}"#,
        r#"{"accepted":1,"duplicates":0,"refused":[{"index":1,"code":"malformed-report","detail":"x"}]}"#,
        r#"{"accepted":0,"duplicates":0,"refused":[{"index":9,"code":"study-ended","detail":"x"}]}"#,
        r#"{"code":"payload-not-finite","detail":"x"}"#,
    ]);
    let cut = (known, any::<prop::sample::Index>(), any::<bool>());
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        cut.prop_map(|(text, at, whole)| {
            let end = if whole {
                text.len()
            } else {
                at.index(text.len())
            };
            text.as_bytes()[..end].to_vec()
        }),
    ]
}

fn headers() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let header = prop::sample::select(vec![
        ("content-type", "application/json"),
        ("Content-Type", "application/json; charset=utf-8"),
        ("content-type", "application/problem+json"),
        ("content-type", "text/html"),
        ("content-type", ";"),
        ("retry-after", "5"),
        ("retry-after", "99999999999999999999"),
        ("retry-after", "Fri, 31 Dec 1999 12:01:30 GMT"),
        ("date", "Fri, 31 Dec 9999 12:00:00 GMT"),
        ("location", "\u{1b}[2J"),
    ]);
    prop::collection::vec(header, 0..4)
}

fn statuses() -> impl Strategy<Value = u16> {
    let usual = prop::sample::select(vec![200_u16, 201, 204, 302, 400, 409, 422, 429, 503]);
    prop_oneof![usual, any::<u16>()]
}

proptest! {
    #[test]
    fn only_the_receipt_acknowledges_whatever_came(
        status in statuses(),
        headers in headers(),
        body in bodies(),
        (reports, batch) in prop_oneof![Just((1, false)), (1_usize..4, Just(true))],
        now in any::<Option<u64>>(),
    ) {
        let request = request(reports, batch);
        let answer = request.answer(&Response { status, headers: &headers, body: &body, now });
        prop_assert_eq!(answer.results.len(), reports);
        let json = headers
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("content-type"))
            .is_some_and(|(_, value)| value.starts_with("application/json"));
        let counted = match batch {
            false => serde_json::from_slice::<ReportResponse>(&body).map_or(0, |_| 1),
            true => serde_json::from_slice::<BatchResponse>(&body)
                .map_or(0, |receipt| receipt.accepted + receipt.duplicates),
        };
        let receipt = json && (200..300).contains(&status);
        let of_them = answer
            .results
            .iter()
            .filter(|result| matches!(result, ReportResult::Accepted | ReportResult::Duplicate))
            .count() as u64;
        prop_assert!(of_them == 0 || (receipt && of_them == counted));
        if let Some(error) = &answer.error {
            let steers = error.to_string().contains(char::is_control);
            prop_assert!(!steers);
        }
    }
}
