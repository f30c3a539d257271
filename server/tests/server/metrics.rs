//! The contents of `/metrics`, and who may read it.

use axum::{
    body::Body,
    http::{Request, StatusCode, header},
};
use eigenveil_shared::{ErrorCode, api::CreateAnalystTokenResponse};
use serde_json::json;

use crate::common::{Harness, batch, new_id, report, waiting::until};

/// The value of a line with this name and labels.
fn value(text: &str, name: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}"))
        .parse()
        .unwrap()
}

async fn scrape(server: &Harness) -> String {
    let response = server.read("/metrics").await;
    assert_eq!(response.status, StatusCode::OK);
    let media_type = response.headers[header::CONTENT_TYPE].to_str().unwrap();
    assert!(media_type.starts_with("application/openmetrics-text"));
    let text = String::from_utf8(response.body).unwrap();
    assert!(text.ends_with("# EOF\n"));
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_metric_is_counted() {
    let server = Harness::new();
    let study = server.study_with(json!({"name": "Secret Name"})).await;
    let (one, other) = (new_id(), new_id());
    let body = report(&study, one, 0.5);
    let bytes = body.len();
    for status in [StatusCode::CREATED, StatusCode::OK] {
        assert_eq!(
            server.post_report(&study, body.clone()).await.status,
            status
        );
    }
    let framed = batch(&study, &[(one, 0.5), (other, 0.5), (new_id(), f32::NAN)]);
    let all_bytes = 2 * bytes + framed.len();
    let response = server.post_batch(&study, framed).await;
    assert_eq!(response.status, StatusCode::OK);
    let response = server.post_report(&study, vec![1, 0, 3]).await;
    response.is_problem(400, ErrorCode::MalformedReport);
    server.estimated(&study, json!({"k": 1})).await;

    // A probe of the server's own may be waiting just now.
    until("nothing waits", async || {
        value(&scrape(&server).await, "eigenveil_queue_depth") == 0.0
    })
    .await;
    let text = scrape(&server).await;
    let reports = |outcome: &str| {
        value(
            &text,
            &format!("eigenveil_reports_total{{outcome=\"{outcome}\"}}"),
        ) as u64
    };
    assert_eq!(reports("accepted"), 2);
    assert_eq!(reports("duplicate"), 2);
    assert_eq!(reports("payload-not-finite"), 1);
    assert_eq!(reports("malformed-report"), 1);
    let requests = |route: &str, method: &str, status: u16| {
        let labels = format!("route=\"{route}\",method=\"{method}\",status=\"{status}\"");
        value(&text, &format!("eigenveil_http_requests_total{{{labels}}}")) as u64
    };
    let route = "/v1/studies/{id}/reports";
    assert_eq!(requests(route, "POST", 201), 1);
    assert_eq!(requests(route, "POST", 200), 2);
    assert_eq!(requests(route, "POST", 400), 1);
    assert_eq!(requests("/v1/studies", "POST", 201), 1);
    assert!(value(&text, "eigenveil_request_body_bytes_total") as usize >= all_bytes + 3);
    for (name, wanted) in [
        ("eigenveil_commit_duration_seconds_count", 3.0),
        ("eigenveil_commit_reports_sum", 4.0),
        ("eigenveil_commit_failures_total", 0.0),
        ("eigenveil_queue_capacity", 4_096.0),
        ("eigenveil_ingest_bytes", 0.0),
        ("eigenveil_estimates_waiting", 0.0),
        ("eigenveil_store_healthy", 1.0),
        ("eigenveil_studies{state=\"open\"}", 1.0),
        ("eigenveil_studies{state=\"closed\"}", 0.0),
    ] {
        assert_eq!(value(&text, name), wanted, "{name}");
    }
    let estimates: f64 = ["done", "failed"]
        .map(|end| format!("eigenveil_estimate_duration_seconds_count{{outcome=\"{end}\"}}"))
        .iter()
        .map(|name| value(&text, name))
        .sum();
    assert_eq!(estimates as u64, 1);
    assert!(value(&text, "eigenveil_store_bytes") > 4_096.0);
    assert!(value(&text, "eigenveil_disk_free_bytes") > 4_096.0);
    assert!(value(&text, "eigenveil_resident_memory_bytes") > 1e6);

    // The reference lists every name, and nothing reveals a study.
    let guide = include_str!("../../../docs/server-reference.md");
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        assert!(
            guide.contains(&format!("`{name}")),
            "{name} is not in the guide"
        );
    }
    assert!(!text.contains("Secret") && !text.contains(&study.id));
}

/// The metrics are those of the whole server: an analyst of one study may not read them.
#[tokio::test]
async fn metrics_are_for_those_of_the_whole_server_or_for_all_if_configured() {
    let server = Harness::new();
    let study = server.study(3).await;
    for (wanted, status) in [(json!(study.id), 403), (json!(null), 200)] {
        let wanted = json!({"name": "analyst", "study": wanted});
        let created: CreateAnalystTokenResponse = server.tell("/v1/tokens", wanted).await.json();
        let request = Request::get("/metrics")
            .header(header::AUTHORIZATION, format!("Bearer {}", created.token));
        let reply = server.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(reply.status.as_u16(), status);
        if status == 403 {
            let detail = reply.is_problem(403, ErrorCode::Forbidden).detail;
            assert!(detail.contains("whole server"), "{detail}");
        }
    }
    // (By default: `openapi::without_the_right_token_nothing_is_shown_or_changed`.)
    let open = Harness::with(|config| config.metrics_without_token = true);
    assert_eq!(open.get("/metrics").await.status, StatusCode::OK);
}
