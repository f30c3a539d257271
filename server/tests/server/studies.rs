//! Studies, credentials, routes: every answer and its code.

use axum::{
    body::Body,
    http::{Request, StatusCode, header},
};
use eigenveil_shared::{
    ErrorCode as E,
    api::{StudyDocument, StudyList, StudyState},
    study::{StudyParams, from_hex},
};
use serde_json::{Value, json};

use crate::common::{Harness, design};

#[tokio::test]
async fn a_study_goes_from_draft_to_open_to_closed() {
    let server = Harness::new();
    let answer = server
        .operator(
            "POST",
            "/v1/studies",
            Some(design(&json!({"draft": true, "default_k": 2}))),
        )
        .await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let study: StudyDocument = answer.json();
    assert_eq!(
        answer.headers[header::LOCATION],
        format!("/v1/studies/{}", study.id)
    );
    assert_eq!(
        (study.state, study.created_at_ms),
        (StudyState::Draft, 1_700_000_000_000)
    );
    // What a device relies on: the bytes lead back to the parameters and have this fingerprint.
    let params = StudyParams::from_canonical(&from_hex(&study.canonical).unwrap()).unwrap();
    assert_eq!(params, study.params);
    assert_eq!(params.fingerprint().to_string(), study.fingerprint);

    let path = format!("/v1/studies/{}", study.id);
    // A draft can be opened, not closed.
    let close = server
        .operator("POST", &format!("{path}/close"), None)
        .await;
    close.is_problem(409, E::InvalidTransition);
    for _ in 0..2 {
        let opened = server.operator("POST", &format!("{path}/open"), None).await;
        assert_eq!(opened.status, StatusCode::OK);
        assert_eq!(opened.json::<StudyDocument>().state, StudyState::Open);
    }
    for _ in 0..2 {
        let closed = server
            .operator("POST", &format!("{path}/close"), None)
            .await;
        assert_eq!(closed.json::<StudyDocument>().state, StudyState::Closed);
    }
    let reopened = server.operator("POST", &format!("{path}/open"), None).await;
    reopened.is_problem(409, E::InvalidTransition);

    let server = server.restart();
    let after: StudyDocument = server.get(&path).await.json();
    assert_eq!(
        after,
        StudyDocument {
            state: StudyState::Closed,
            ..study
        }
    );
}

#[tokio::test]
async fn drafts_are_there_for_the_operator_only() {
    let server = Harness::new();
    let draft = server.study_with(json!({"draft": true})).await;
    let open = server.study(4).await;
    let ids = |list: StudyList| list.studies.into_iter().map(|s| s.id).collect::<Vec<_>>();
    assert_eq!(
        ids(server.get("/v1/studies").await.json()),
        std::slice::from_ref(&open.id)
    );
    let path = format!("/v1/studies/{}", draft.id);
    let unknown = server.get(&format!("/v1/studies/{}", "0".repeat(32))).await;
    let unknown = unknown.is_problem(404, E::StudyNotFound);
    let hidden = server.get(&path).await.is_problem(404, E::StudyNotFound);
    // In the same words as one that never was.
    assert_eq!(
        hidden.detail.replace(&draft.id, ""),
        unknown.detail.replace(&"0".repeat(32), "")
    );
    assert_eq!(server.operator("GET", &path, None).await.status, 200);
    let all = server.operator("GET", "/v1/studies", None).await;
    assert_eq!(ids(all.json()), [draft.id, open.id]);
}

#[tokio::test]
async fn wrong_designs_are_refused_and_store_nothing() {
    let server = Harness::new();
    let long = "x".repeat(201);
    for (changes, status, code) in [
        (json!({"dimension": 0}), 422, E::InvalidDimension),
        (json!({"dimension": 1}), 422, E::InvalidDimension),
        (json!({"dimension": 4097}), 422, E::InvalidDimension),
        (json!({"dimension": u64::MAX}), 422, E::InvalidDimension),
        (json!({"dimension": -3}), 400, E::MalformedJson),
        (json!({"dimension": 3.5}), 400, E::MalformedJson),
        (json!({"dimension": null}), 400, E::MalformedJson),
        (json!({"epsilon": 0.0}), 422, E::InvalidBudget),
        (json!({"epsilon": -1.0}), 422, E::InvalidBudget),
        (json!({"epsilon": 17.0}), 422, E::InvalidBudget),
        (json!({"epsilon": 1e-310}), 422, E::InvalidBudget),
        (json!({"epsilon": "one"}), 400, E::MalformedJson),
        (json!({"delta": 0.0}), 422, E::InvalidBudget),
        (json!({"delta": 1.0}), 422, E::InvalidBudget),
        (json!({"delta": 2.0}), 422, E::InvalidBudget),
        (json!({"delta": -1e-6}), 422, E::InvalidBudget),
        (json!({"mechanism": "laplace"}), 400, E::MalformedJson),
        (
            json!({"norm": {"kind": "clip", "radius": 0.0}}),
            422,
            E::InvalidPreprocessing,
        ),
        (
            json!({"norm": {"kind": "clip", "radius": 1.0, "extra": 1}}),
            400,
            E::MalformedJson,
        ),
        (
            json!({"features": [{"name": "a"}]}),
            422,
            E::InvalidPreprocessing,
        ),
        (
            json!({"features": [{"name": "a"}, {"name": "a"}, {"name": "b"}]}),
            422,
            E::InvalidName,
        ),
        (json!({"name": ""}), 422, E::InvalidName),
        (json!({"name": " "}), 422, E::InvalidName),
        (json!({"name": "a\nb"}), 422, E::InvalidName),
        (json!({"name": long}), 422, E::InvalidName),
        (json!({"default_k": 0}), 422, E::InvalidRequest),
        (json!({"default_k": 4}), 422, E::InvalidRequest),
        (json!({"default_k": "some"}), 400, E::MalformedJson),
        (json!({"unknown": 1}), 400, E::MalformedJson),
    ] {
        let answer = server
            .operator("POST", "/v1/studies", Some(design(&changes)))
            .await;
        let problem = answer.is_problem(status, code);
        assert!(problem.detail.len() > 15, "{changes}: {problem:?}");
    }
    for body in ["", "{", "[]", "null", "\u{0}", "{\"name\":"] {
        let request = Request::post("/v1/studies")
            .header(header::AUTHORIZATION, format!("Bearer {}", server.token))
            .header(header::CONTENT_TYPE, "application/json; charset=utf-8")
            .body(Body::from(body))
            .unwrap();
        server.send(request).await.is_problem(400, E::MalformedJson);
    }
    let all: Value = server.operator("GET", "/v1/studies", None).await.json();
    assert_eq!(all, json!({"studies": []}));
}

#[tokio::test]
async fn json_bodies_have_a_type_and_a_limit() {
    let server = Harness::new();
    let post = |media_type: &'static str, body: String| {
        let request = Request::post("/v1/studies")
            .header(header::AUTHORIZATION, format!("Bearer {}", server.token))
            .header(header::CONTENT_TYPE, media_type)
            .body(Body::from(body))
            .unwrap();
        server.send(request)
    };
    let good = design(&json!({})).to_string();
    post("text/plain", good.clone())
        .await
        .is_problem(415, E::UnsupportedMediaType);
    post("", good.clone())
        .await
        .is_problem(415, E::UnsupportedMediaType);
    let padded = format!("{good}{}", " ".repeat(4 << 20));
    post("application/json", padded)
        .await
        .is_problem(413, E::BodyTooLarge);
    assert_eq!(
        post("Application/JSON", good).await.status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn unknown_places_are_problems() {
    let server = Harness::new();
    for path in [
        "/nothing",
        "/v1",
        "/v2/studies",
        "/v1/studies/",
        "/v1/studies/a/b/c",
    ] {
        server.get(path).await.is_problem(404, E::NotFound);
    }
    let nobody = "0".repeat(32);
    for id in [nobody.as_str(), "x", "%00", "..%2f..", &"a".repeat(5_000)] {
        let answer = server.get(&format!("/v1/studies/{id}")).await;
        answer.is_problem(404, E::StudyNotFound);
    }
    server
        .get("/v1/studies/%ff")
        .await
        .is_problem(404, E::NotFound);
}

#[tokio::test]
async fn health_tells_the_process_from_the_store() {
    let server = Harness::new();
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(server.get("/readyz").await.status, StatusCode::OK);
    server.app.announce_stop();
    server.get("/readyz").await.is_problem(503, E::ShuttingDown);
    server.app.close();
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    let create = server
        .operator("POST", "/v1/studies", Some(design(&json!({}))))
        .await;
    create.is_problem(503, E::ShuttingDown);
    assert!(create.headers.contains_key(header::RETRY_AFTER));
}

/// Mounted under a path of somebody's own application, locations lead back.
#[tokio::test]
async fn the_routes_can_be_mounted_anywhere() {
    let mut server = Harness::new();
    server.routes = axum::Router::new().nest("/pca", server.routes);
    let answer = server
        .operator("POST", "/pca/v1/studies", Some(design(&json!({}))))
        .await;
    let location = answer.headers[header::LOCATION].to_str().unwrap();
    assert!(location.starts_with("/pca/v1/studies/"), "{location}");
    assert_eq!(server.get(location).await.status, StatusCode::OK);
}
