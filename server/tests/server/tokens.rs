//! Analyst tokens, and rotation of the operator token.

use axum::{
    body::{Body, Bytes},
    http::{Request, header},
};
use eigenveil_server::Environment;
use eigenveil_shared::{
    ErrorCode as E,
    api::{
        AnalystTokenList, CreateAnalystTokenResponse, RotateOperatorTokenResponse,
        STUDY_EXPORT_MEDIA_TYPE, StudyDocument, StudyList, TokenCounts,
    },
};
use eigenveil_store::rotate_operator_token;
use futures_util::stream;
use serde_json::json;
use tower::ServiceExt as _;

use crate::common::{Harness, Reply, at, design, refused};

async fn ask(server: &Harness, method: &str, path: &str, token: &str) -> Reply {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from("{}"))
        .unwrap();
    server.send(request).await
}

async fn analyst(
    server: &Harness,
    name: &str,
    study: Option<&StudyDocument>,
) -> CreateAnalystTokenResponse {
    let wanted = json!({ "name": name, "study": study.map(|study| &study.id) });
    let response = server.tell("/v1/tokens", wanted).await;
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.headers["cache-control"], "no-store");
    response.json()
}

async fn listed(server: &Harness) -> Vec<String> {
    let list: AnalystTokenList = server.read("/v1/tokens").await.json();
    list.tokens.into_iter().map(|token| token.name).collect()
}

/// (What else a token may not do: `openapi::without_the_right_token_nothing_is_shown_or_changed`.)
#[tokio::test]
async fn an_analyst_token_reads_estimates_of_one_study_or_of_all() {
    let server = Harness::new();
    let (one, two) = (server.study(3).await, server.study(3).await);
    let all = analyst(&server, "all", None).await;
    let narrow = analyst(&server, "narrow", Some(&one)).await;
    let list_of = |study: &StudyDocument| at(study, "/estimates");
    for (token, study, status) in [
        (&all, &one, 200),
        (&all, &two, 200),
        (&narrow, &one, 200),
        (&narrow, &two, 403),
    ] {
        let response = ask(&server, "GET", &list_of(study), &token.token).await;
        assert_eq!(response.status, status, "{response:?}");
    }
    // Drafts are for the operator only.
    let draft = server.study_with(json!({ "draft": true })).await;
    for end in ["/estimates", "/estimates/1"] {
        let of_draft = at(&draft, end);
        let read = ask(&server, "GET", &of_draft, &all.token);
        refused(read, 404, E::StudyNotFound).await;
    }
    let list: StudyList = ask(&server, "GET", "/v1/studies", &all.token).await.json();
    assert_eq!(list.studies.len(), 2);

    let server = server.restart();
    // Created in the same millisecond of the test clock, so ordered by name.
    assert_eq!(listed(&server).await, ["all", "narrow"]);
    let read = async |token: &str| ask(&server, "GET", &list_of(&one), token).await;
    assert_eq!(read(&narrow.token).await.status, 200);
    let path = format!("/v1/tokens/{}", all.analyst.id);
    assert_eq!(server.remove(&path).await.status, 204);
    refused(server.remove(&path), 404, E::AnalystTokenNotFound).await;
    refused(read(&all.token), 403, E::Forbidden).await;
    assert_eq!(listed(&server).await, ["narrow"]);
    // A token for one study is deleted with it.
    let study = at(&one, "");
    server.close(&one).await;
    assert_eq!(server.remove(&study).await.status, 204);
    refused(read(&narrow.token), 403, E::Forbidden).await;
    assert!(listed(&server).await.is_empty());
    let server = server.restart();
    assert!(listed(&server).await.is_empty());
}

#[tokio::test]
async fn analyst_tokens_need_a_name_and_an_existing_study() {
    let server = Harness::new();
    for (wanted, status, code) in [
        (json!({ "name": "" }), 422, E::InvalidName),
        (json!({ "name": "a\nb" }), 422, E::InvalidName),
        (json!({ "name": "a", "study": "x" }), 404, E::StudyNotFound),
        (
            json!({ "name": "a", "study": "0".repeat(32) }),
            404,
            E::StudyNotFound,
        ),
        (
            json!({ "name": "a", "role": "operator" }),
            400,
            E::MalformedJson,
        ),
    ] {
        refused(server.tell("/v1/tokens", wanted), status, code).await;
    }
    for id in ["x", "0123456789abcdef", &"0".repeat(64)] {
        let response = server.remove(&format!("/v1/tokens/{id}")).await;
        response.is_problem(404, E::AnalystTokenNotFound);
    }
}

fn token_file(server: &Harness) -> String {
    let text = std::fs::read_to_string(server.app.store().token_path()).unwrap();
    text.trim().to_owned()
}

#[tokio::test]
async fn a_rotated_token_is_valid_at_once_and_after_a_restart() {
    let server = Harness::new();
    let old = server.token.clone();
    let response = ask(&server, "POST", "/v1/operator-token", &old).await;
    assert_eq!(response.headers["cache-control"], "no-store");
    let RotateOperatorTokenResponse { token: new } = response.json();
    assert_ne!(new, old);
    assert_eq!(token_file(&server), new);
    let works = async |server: &Harness, token: &str| {
        ask(server, "GET", "/v1/tokens", token).await.status == 200
    };
    assert!(!works(&server, &old).await && works(&server, &new).await);
    let server = server.restart();
    assert!(!works(&server, &old).await && works(&server, &new).await);

    // While a server runs, the directory is locked.
    let data = server.config.data_dir.clone();
    let error = rotate_operator_token(&data, &Environment::system()).unwrap_err();
    assert!(error.detail().contains("another server"), "{error}");
    let (directory, config) = server.stop();
    let path = rotate_operator_token(&data, &Environment::system()).unwrap();
    let newest = std::fs::read_to_string(path).unwrap().trim().to_owned();
    assert_ne!(newest, new);
    let server = Harness::start(directory, config);
    assert!(!works(&server, &new).await && works(&server, &newest).await);
}

/// A body that is held back until the operator token has been rotated.
pub(crate) fn after_rotation(server: &Harness, body: impl Into<Bytes>) -> Body {
    let rotate = Request::post("/v1/operator-token")
        .header(header::AUTHORIZATION, format!("Bearer {}", server.token))
        .body(Body::empty())
        .unwrap();
    let rotated = server.routes.clone().oneshot(rotate);
    let body: Bytes = body.into();
    Body::from_stream(stream::once(async move {
        assert_eq!(rotated.await.unwrap().status(), 200);
        Ok::<_, std::io::Error>(body)
    }))
}

#[tokio::test]
async fn a_request_whose_body_comes_after_a_rotation_does_nothing() {
    let mut server = Harness::new();
    let study = server.study_with(json!({ "enrolment": "token" })).await;
    let export = server.export(&study).await;
    let json = "application/json";
    for (path, media_type, body) in [
        ("/v1/tokens".into(), json, br#"{"name":"mine"}"#.to_vec()),
        (
            "/v1/studies".into(),
            json,
            design(&json!({})).to_string().into(),
        ),
        (at(&study, "/estimates"), json, b"{}".to_vec()),
        (at(&study, "/tokens"), json, br#"{"count":1}"#.to_vec()),
        (
            "/v1/imports".into(),
            STUDY_EXPORT_MEDIA_TYPE,
            export.clone(),
        ),
        (at(&study, "/import"), STUDY_EXPORT_MEDIA_TYPE, export),
    ] {
        let request = Request::post(&path)
            .header(header::AUTHORIZATION, format!("Bearer {}", server.token))
            .header(header::CONTENT_TYPE, media_type)
            .body(after_rotation(&server, body))
            .unwrap();
        refused(server.send(request), 403, E::Forbidden).await;
        server.token = token_file(&server);
    }
    assert!(listed(&server).await.is_empty());
    assert_eq!(server.app.store().studies().len(), 1);
    let counts: TokenCounts = server.read(&at(&study, "/tokens")).await.json();
    assert_eq!(counts.issued, 0);
    let imported: Vec<i64> = server.column("SELECT count(*) FROM imports");
    assert_eq!(imported, [0]);
    let estimates: Vec<i64> = server.column("SELECT count(*) FROM estimates");
    assert_eq!(estimates, [0]);
}

/// Wherever a rotation is interrupted, after the next start the file has the valid token.
#[tokio::test]
async fn an_interrupted_rotation_is_completed_or_discarded() {
    let server = Harness::new();
    let staged = server.config.data_dir.join("operator.token.new");
    // Before the commit: the staged token was never valid.
    std::fs::write(&staged, "a token that nobody committed\n").unwrap();
    let server = server.restart();
    assert!(!staged.exists());
    assert_eq!(token_file(&server), server.token);
    assert_eq!(server.read("/v1/tokens").await.status, 200);
    // After it: the file in force is still the old one.
    let RotateOperatorTokenResponse { token: new } =
        server.order("/v1/operator-token").await.json();
    std::fs::rename(server.app.store().token_path(), &staged).unwrap();
    std::fs::write(server.app.store().token_path(), &server.token).unwrap();
    let server = server.restart();
    assert!(!staged.exists());
    assert_eq!(token_file(&server), new);
    assert_eq!(server.read("/v1/tokens").await.status, 200);
}

#[test]
fn only_a_data_directory_has_a_token_to_rotate() {
    let folder = tempfile::tempdir().unwrap();
    let error = rotate_operator_token(folder.path(), &Environment::system()).unwrap_err();
    assert!(error.detail().contains("no database"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
