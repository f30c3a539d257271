//! Memory and queues: some clients cannot keep others out.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    body::{Body, Bytes},
    http::{Request, StatusCode, header},
};
use eigenveil_server::ServerConfig;
use eigenveil_shared::{
    ErrorCode as E,
    api::{IssueTokensResponse, REPORT_MEDIA_TYPE, StudyDocument, StudyList},
    enrolment::{ENROLLED_REPORT_MEDIA_TYPE, ParticipantToken},
};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tower::ServiceExt as _;

use crate::common::{self, Harness, at, new_id, report, report_with, waiting::until, with_token};

/// A body that begins with this many bytes and never ends.
fn held(bytes: usize) -> Body {
    let begin = stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![0; bytes]))]);
    Body::from_stream(begin.chain(stream::pending()))
}

fn upload(study: &StudyDocument, body: Body) -> Request<Body> {
    Request::post(at(study, "/reports"))
        .header(header::CONTENT_TYPE, REPORT_MEDIA_TYPE)
        .body(body)
        .unwrap()
}

async fn readiness(server: &Harness, wanted: StatusCode) -> common::Reply {
    let mut last = None;
    until("/readyz as wanted", async || {
        let response = server.get("/readyz").await;
        let come = response.status == wanted;
        last = Some(response);
        come
    })
    .await;
    last.unwrap()
}

/// Memory for a few large bodies; an endless one is given up soon.
fn short_of_memory(config: &mut ServerConfig) {
    config.max_ingest_bytes = 1 << 20;
    config.body_timeout_ms = 2_000;
}

/// Large unfinished bodies fill their part of the memory. A seed is counted anyway, `/readyz` reports the shortage, and
/// bodies that bring nothing more are cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_bodies_do_not_keep_seeds_out() {
    let server = Arc::new(Harness::with(short_of_memory));
    let dense = server.study(512).await;
    let seeds = server.seed_study(json!({})).await;
    let is_seen = Arc::new(AtomicBool::new(false));
    let holders: Vec<_> = (0..4)
        .map(|_| {
            let (server, dense) = (Arc::clone(&server), dense.clone());
            let is_seen = Arc::clone(&is_seen);
            tokio::spawn(async move {
                while !is_seen.load(Ordering::Relaxed) {
                    server.send(upload(&dense, held(256 << 10))).await;
                }
            })
        })
        .collect();
    let response = readiness(&server, StatusCode::SERVICE_UNAVAILABLE).await;
    is_seen.store(true, Ordering::Relaxed);
    let problem = response.is_problem(503, E::StoreUnavailable);
    assert!(problem.detail.contains("max_ingest_bytes"), "{problem:?}");
    for _ in 0..3 {
        let seed = report_with(&seeds, new_id(), vec![7; 16]);
        server.counts(&seeds, seed).await;
    }
    readiness(&server, StatusCode::OK).await;
    let whole = report(&dense, new_id(), 0.0);
    // Some of the endless bodies may still be in memory.
    until("room for a large report", async || {
        let response = server.post_report(&dense, whole.clone()).await;
        response.status == StatusCode::CREATED
    })
    .await;
    for holder in holders {
        holder.abort();
    }
}

/// Bodies without a token take no memory from one with a token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_without_a_token_do_not_keep_one_with_a_token_out() {
    let server = Arc::new(Harness::with(short_of_memory));
    let study = server
        .study_with(json!({"dimension": 512, "enrolment": "token"}))
        .await;
    let issued = server
        .tell(&at(&study, "/tokens"), json!({"count": 1}))
        .await;
    let issued: IssueTokensResponse = issued.json();
    let token = ParticipantToken::parse(&issued.tokens[0]).unwrap();
    let path = at(&study, "/reports");
    let holders: Vec<_> = (0..12)
        .map(|_| {
            let (server, path) = (Arc::clone(&server), path.clone());
            tokio::spawn(async move {
                // More than one eighth of the limit.
                let body = held(129 << 10);
                server.post(&path, REPORT_MEDIA_TYPE, body).await
            })
        })
        .collect();
    // All that can be rejected were: one may be alone in memory.
    until("most of them refused", async || {
        let refused = holders.iter().filter(|holder| holder.is_finished());
        refused.count() >= holders.len() - 1
    })
    .await;
    let body = with_token(&token, report(&study, new_id(), 0.0));
    let response = server.post(&path, ENROLLED_REPORT_MEDIA_TYPE, body).await;
    assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
    holders.iter().for_each(tokio::task::JoinHandle::abort);
}

/// A body that cannot be counted is rejected before it is read.
#[tokio::test]
async fn a_study_that_accepts_no_reports_reads_no_bodies() {
    let server = Harness::with(|config| config.body_timeout_ms = 500);
    let draft = server.study_with(json!({"draft": true})).await;
    let closed = server.study(3).await;
    server.close(&closed).await;
    for (study, status, code) in [
        (draft, 404, E::StudyNotFound),
        (closed, 409, E::StudyNotOpen),
    ] {
        let refused = server.send(upload(&study, held(16))).await;
        refused.is_problem(status, code);
    }
}

/// Unread responses are counted, and released when they are read or dropped.
#[tokio::test]
async fn responses_have_a_memory_budget() {
    let server = Harness::with(|config| config.tuning.max_response_bytes = 1 << 20);
    let feature = |i| json!({"name": format!("{i:0>100}"), "center": 0.0, "scale": 1.0});
    let features: Vec<_> = (0..1_000).map(feature).collect();
    let study = server
        .study_with(json!({"dimension": 1_000, "features": features}))
        .await;
    let path = at(&study, "");
    let ask = async || {
        let request = Request::get(&path).body(Body::empty()).unwrap();
        server.routes.clone().oneshot(request).await.unwrap()
    };
    let mut untaken = Vec::new();
    let refused = loop {
        let response = ask().await;
        if response.status() != StatusCode::OK {
            break response;
        }
        untaken.push(response);
        assert!(untaken.len() < 100, "no limit");
    };
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers().contains_key(header::RETRY_AFTER));
    assert!(!untaken.is_empty());
    // Small ones find room.
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    let list = server.get("/v1/studies").await;
    assert!(list.body.len() < 1_000, "{} bytes", list.body.len());
    untaken.pop();
    let again: StudyDocument = server.get(&path).await.json();
    assert_eq!(again, study);
}

#[tokio::test]
async fn the_list_of_studies_is_paged() {
    let server = Harness::new();
    let mut ids = Vec::new();
    for draft in [false, true, false, false, true] {
        ids.push(server.study_with(json!({"draft": draft})).await.id);
    }
    for (operator, wanted) in [(true, &[0, 1, 2, 3, 4][..]), (false, &[0, 2, 3])] {
        for limit in [1, 2, 3, 4, 100] {
            let mut listed = Vec::new();
            let mut next = format!("/v1/studies?limit={limit}");
            loop {
                let response = match operator {
                    true => server.read(&next).await,
                    false => server.get(&next).await,
                };
                let page: StudyList = response.json();
                assert!(page.studies.len() <= limit);
                listed.extend(page.studies.into_iter().map(|study| study.id));
                let Some(after) = page.next else {
                    assert!(!response.headers.contains_key(header::LINK));
                    break;
                };
                next = format!("/v1/studies?after={after}&limit={limit}");
                let link = response.headers[header::LINK].to_str().unwrap();
                assert_eq!(link, format!("<{next}>; rel=\"next\""));
            }
            let wanted: Vec<&String> = wanted.iter().map(|&i| &ids[i]).collect();
            assert_eq!(listed.iter().collect::<Vec<_>>(), wanted, "{limit}");
        }
    }
    for query in ["limit=0", "limit=1001", "limit=x", "after=-1", "after=x"] {
        let refused = server.get(&format!("/v1/studies?{query}")).await;
        refused.is_problem(422, E::InvalidRequest);
    }
}
