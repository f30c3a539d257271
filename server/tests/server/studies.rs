//! Studies, credentials, routes: every response and its code.

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

use crate::common::{Harness, Reply, at, design, refused, waiting::until};

#[tokio::test]
async fn a_study_goes_from_draft_to_open_to_closed() {
    let server = Harness::new();
    let response = server
        .tell(
            "/v1/studies",
            design(&json!({"draft": true, "default_k": 2})),
        )
        .await;
    assert_eq!(response.status, StatusCode::CREATED);
    let study: StudyDocument = response.json();
    assert_eq!(response.headers[header::LOCATION], at(&study, ""));
    assert_eq!(
        (study.state, study.created_at_ms),
        (StudyState::Draft, 1_700_000_000_000)
    );
    // What a device relies on: the bytes decode to the parameters and have this fingerprint.
    let params = StudyParams::from_canonical(&from_hex(&study.canonical_params).unwrap()).unwrap();
    assert_eq!(&params, study.params.rows().unwrap());
    assert_eq!(params.fingerprint().to_string(), study.fingerprint);

    let path = at(&study, "");
    // (What is refused: the scenarios.)
    for (order, state) in [("open", StudyState::Open), ("close", StudyState::Closed)] {
        let done = server.order(&format!("{path}/{order}")).await;
        assert_eq!(done.status, StatusCode::OK);
        assert_eq!(done.json::<StudyDocument>().state, state);
    }

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

/// (In the list: `availability::the_list_of_studies_is_paged`.)
#[tokio::test]
async fn drafts_are_visible_to_the_operator_only() {
    let server = Harness::new();
    let draft = server.study_with(json!({"draft": true})).await;
    let path = at(&draft, "");
    let unknown = server.get(&format!("/v1/studies/{}", "0".repeat(32))).await;
    let unknown = unknown.is_problem(404, E::StudyNotFound);
    let hidden = refused(server.get(&path), 404, E::StudyNotFound).await;
    // The same text as for a study that never existed.
    assert_eq!(
        hidden.detail.replace(&draft.id, ""),
        unknown.detail.replace(&"0".repeat(32), "")
    );
    assert_eq!(server.read(&path).await.status, 200);
}

async fn ask_for(server: &Harness, media_type: &str, body: String) -> Reply {
    let request = Request::post("/v1/studies")
        .header(header::AUTHORIZATION, format!("Bearer {}", server.token))
        .header(header::CONTENT_TYPE, media_type)
        .body(Body::from(body))
        .unwrap();
    server.send(request).await
}

/// (All values out of range: `wrong_parameters_are_refused` in `shared/src/study.rs`, and `shared/src/about.rs`.)
#[tokio::test]
async fn invalid_designs_are_rejected_and_store_nothing() {
    let server = Harness::new();
    let long = "x".repeat(201);
    for (changes, code) in [
        (json!({"dimension": 1}), E::InvalidDimension),
        (json!({"dimension": -3}), E::MalformedJson),
        (json!({"epsilon": 17.0}), E::InvalidBudget),
        (
            json!({"features": [{"name": "a"}]}),
            E::InvalidPreprocessing,
        ),
        (
            json!({"features": [{"name": "a"}, {"name": "a"}, {"name": "b"}]}),
            E::InvalidName,
        ),
        (json!({"name": ""}), E::InvalidName),
        (json!({"name": " "}), E::InvalidName),
        (json!({"name": "a\nb"}), E::InvalidName),
        (json!({"name": long}), E::InvalidName),
        (json!({"about": {"purpose": ""}}), E::InvalidNotice),
        // The day before that of the test clock.
        (
            json!({"about": {"last_day": "2023-11-13"}}),
            E::InvalidNotice,
        ),
        (
            json!({"about": {"last_day": "2027-02-29"}}),
            E::MalformedJson,
        ),
        (json!({"default_k": 0}), E::InvalidRequest),
        (json!({"default_k": 4}), E::InvalidRequest),
        (json!({"default_k": "some"}), E::MalformedJson),
        (json!({"unknown": 1}), E::MalformedJson),
    ] {
        let status = if code == E::MalformedJson { 400 } else { 422 };
        let response = server.tell("/v1/studies", design(&changes)).await;
        let problem = response.is_problem(status, code);
        assert!(problem.detail.len() > 15, "{changes}: {problem:?}");
    }
    for body in ["", "{", "[]", "null", "\u{0}", "{\"name\":"] {
        let sent = ask_for(&server, "application/json; charset=utf-8", body.to_owned());
        refused(sent, 400, E::MalformedJson).await;
    }
    let all: Value = server.read("/v1/studies").await.json();
    assert_eq!(all, json!({"studies": []}));
}

#[tokio::test]
async fn json_bodies_have_a_type_and_a_limit() {
    let server = Harness::new();
    let post = async |media_type, body| ask_for(&server, media_type, body).await;
    let good = design(&json!({})).to_string();
    let response = post("text/plain", good.clone()).await;
    response.is_problem(415, E::UnsupportedMediaType);
    refused(post("", good.clone()), 415, E::UnsupportedMediaType).await;
    let padded = format!("{good}{}", " ".repeat(4 << 20));
    refused(post("application/json", padded), 413, E::BodyTooLarge).await;
    assert_eq!(
        post("Application/JSON", good).await.status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn unknown_paths_are_problems() {
    let server = Harness::new();
    for path in [
        "/nothing",
        "/v1",
        "/v2/studies",
        "/v1/studies/",
        "/v1/studies/a/b/c",
    ] {
        refused(server.get(path), 404, E::NotFound).await;
    }
    let nobody = "0".repeat(32);
    for id in [nobody.as_str(), "x", "%00", "..%2f..", &"a".repeat(5_000)] {
        let response = server.get(&format!("/v1/studies/{id}")).await;
        response.is_problem(404, E::StudyNotFound);
    }
    refused(server.get("/v1/studies/%ff"), 404, E::NotFound).await;
}

#[tokio::test]
async fn health_checks_distinguish_process_and_store() {
    let server = Harness::new();
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    until("ready", async || {
        server.get("/readyz").await.status == StatusCode::OK
    })
    .await;
    server.app.announce_stop();
    refused(server.get("/readyz"), 503, E::ShuttingDown).await;
    server.app.close();
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
    let create = server.tell("/v1/studies", design(&json!({}))).await;
    create.is_problem(503, E::ShuttingDown);
    assert!(create.headers.contains_key(header::RETRY_AFTER));
}

/// Mounted under a path of another application, locations still lead back. (Links: `system/public_path.rs`, `pages.rs`.)
#[tokio::test]
async fn the_routes_can_be_mounted_anywhere() {
    let mut server = Harness::new();
    server.routes = axum::Router::new().nest("/deep/er", server.routes);
    let response = server.tell("/deep/er/v1/studies", design(&json!({}))).await;
    let location = response.headers[header::LOCATION].to_str().unwrap();
    assert!(location.starts_with("/deep/er/v1/studies/"), "{location}");
    assert_eq!(server.get(location).await.status, StatusCode::OK);
}

/// The JSON of studies is put together from parts; it is what serde writes, whatever a name looks like.
#[tokio::test]
async fn studies_in_parts_are_the_whole_documents() {
    let server = Harness::new();
    let name = r#"","state":"draft","reports_accepted":0,"#;
    for (name, draft) in [(name, false), ("plain", true), ("später", false)] {
        let study: StudyDocument = server
            .tell(
                "/v1/studies",
                design(&json!({"name": name, "draft": draft})),
            )
            .await
            .json();
        let path = at(&study, "");
        if !draft {
            for _ in 0..3 {
                server.count_one(&study).await;
            }
        }
        for close in [false, true] {
            if close && !draft {
                server.order(&format!("{path}/close")).await;
            }
            let reply = server.read(&path).await;
            let read: StudyDocument = reply.json();
            assert_eq!(read.name, name);
            assert_eq!(read.reports_accepted, if draft { 0 } else { 3 });
            assert_eq!(reply.body[..], serde_json::to_vec(&read).unwrap());
            assert_eq!(reply.headers[header::CONTENT_TYPE], "application/json");
        }
    }
    for page in ["", "?limit=2"] {
        let reply = server.read(&format!("/v1/studies{page}")).await;
        let list: StudyList = reply.json();
        assert_eq!(reply.body[..], serde_json::to_vec(&list).unwrap());
        assert_eq!(list.studies.len(), if page.is_empty() { 3 } else { 2 });
    }
}
