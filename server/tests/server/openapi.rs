//! The OpenAPI document: it matches what is served, and says who may do what, path by path.

use std::{collections::BTreeSet, path::PathBuf};

use axum::{
    body::Body,
    http::{Request, header},
};
use eigenveil_server::openapi;
use eigenveil_shared::{
    ErrorCode as E,
    api::{
        CreateAnalystTokenResponse, IssueTokensResponse, Problem, RotateOperatorTokenResponse,
        StudyDocument,
    },
};
use eigenveil_store::database_path;
use rusqlite::types::Value as Cell;
use serde_json::{Value, json};

use crate::common::{Harness, Reply, at};

const METHODS: [&str; 5] = ["get", "post", "put", "delete", "patch"];

/// Public operations. A new path is for the operator unless it is listed here.
const PUBLIC: [(&str, &str); 7] = [
    ("get", "/healthz"),
    ("get", "/openapi.json"),
    ("get", "/readyz"),
    ("get", "/v1/studies"),
    ("get", "/v1/studies/{id}"),
    ("post", "/v1/studies/{id}/reports"),
    ("post", "/v1/studies/{id}/tokens/lookup"),
];

const ANALYSTS: [(&str, &str); 4] = [
    ("get", "/metrics"),
    ("get", "/v1/studies/{id}/answers"),
    ("get", "/v1/studies/{id}/estimates"),
    ("get", "/v1/studies/{id}/estimates/{number}"),
];

struct Operation {
    method: String,
    path: String,
    /// Names of the accepted security schemes; none for a public operation.
    schemes: BTreeSet<String>,
}

fn operations() -> Vec<Operation> {
    let document = openapi();
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(METHODS.contains(&method.as_str()), "{method} {path}");
            let schemes = operation["security"].as_array().into_iter().flatten();
            operations.push(Operation {
                method: method.clone(),
                path: path.clone(),
                schemes: schemes
                    .flat_map(|scheme| scheme.as_object().unwrap().keys().cloned())
                    .collect(),
            });
        }
    }
    operations
}

/// `EIGENVEIL_WRITE_OPENAPI=1 cargo test --workspace --test server openapi::golden_file` writes it anew.
#[test]
fn golden_file() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let now = serde_json::to_string_pretty(&openapi()).unwrap() + "\n";
    if std::env::var_os("EIGENVEIL_WRITE_OPENAPI").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    assert!(
        now == stored,
        "docs/openapi.json is not what the handlers say; look at the difference, then run EIGENVEIL_WRITE_OPENAPI=1 cargo test --workspace --test server openapi:: golden"
    );
}

/// All references resolve.
#[test]
fn every_reference_resolves() {
    fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = openapi();
    let mut names = BTreeSet::new();
    references(&document, &mut names);
    assert!(names.len() > 30, "{names:?}");
    for reference in names {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_operation_has_an_intended_role() {
    let with = |wanted: &[&str]| -> BTreeSet<(String, String)> {
        let wanted: BTreeSet<String> = wanted.iter().map(|&name| name.to_owned()).collect();
        let operations = operations().into_iter();
        operations
            .filter(|operation| operation.schemes == wanted)
            .map(|operation| (operation.method, operation.path))
            .collect()
    };
    let sorted = |table: &[(&str, &str)]| -> BTreeSet<(String, String)> {
        let owned = table.iter().map(|&(m, p)| (m.to_owned(), p.to_owned()));
        owned.collect()
    };
    assert_eq!(with(&[]), sorted(&PUBLIC));
    assert_eq!(with(&["analyst", "operator"]), sorted(&ANALYSTS));
    let operators = with(&["operator"]);
    let others = PUBLIC.len() + ANALYSTS.len();
    assert_eq!(others + operators.len(), operations().len());
    assert!(operators.len() >= 16, "{operators:?}");
}

/// All routes are in one table, so that the document has all of them.
#[test]
fn all_routes_are_in_one_table() {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = ["http", "http/layers", "routes"]
        .map(|folder| std::fs::read_dir(source.join(folder)).unwrap());
    let mut served = 0;
    for entry in files.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let source = std::fs::read_to_string(&path).unwrap();
        // Pages are not part of the API; server/tests/server/pages.rs has their table.
        let source = source.replacen(".merge(pages::routes(app.clone()))", "", 1);
        for other in [
            ".route(",
            ".route_service(",
            ".nest(",
            ".nest_service(",
            ".merge(",
        ] {
            assert!(!source.contains(other), "{}: {other}", path.display());
        }
        served += source.matches("#[utoipa::path(").count();
    }
    assert_eq!(served, operations().len());
    let protocol = include_str!("../../../docs/protocol.md");
    for operation in operations() {
        // The tables of protocol.md shorten a path that follows from the one before.
        let end = operation.path.trim_start_matches("/v1/studies/{id}");
        assert!(
            protocol.contains(&operation.path) || protocol.contains(&format!("`{end}`")),
            "docs/protocol.md says nothing of {} {}",
            operation.method,
            operation.path
        );
    }
}

#[tokio::test]
async fn the_served_document_is_this_one_and_paths_allow_only_its_methods() {
    let server = Harness::new();
    let response = server.get("/openapi.json").await;
    assert_eq!(response.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(response.json::<Value>(), openapi());
    let operations = operations();
    let paths: BTreeSet<&String> = operations.iter().map(|o| &o.path).collect();
    for path in paths {
        for method in METHODS {
            let known = operations
                .iter()
                .any(|o| o.path == *path && o.method == method);
            let uri = path.replace("{id}", &"0".repeat(32));
            let uri = uri.replace("{number}", "1").replace("{token}", "00");
            let response = server.operator(&method.to_uppercase(), &uri, None).await;
            assert_eq!(
                response.status == 405,
                !known,
                "{method} {path}: {}",
                response.status
            );
            if !known {
                response.is_problem(405, E::MethodNotAllowed);
                assert!(response.headers.contains_key(header::ALLOW), "{path}");
            } else if response.status == 404 {
                assert_ne!(
                    response.json::<Problem>().code,
                    E::NotFound,
                    "{method} {path}"
                );
            }
        }
    }
}

/// A server with something behind every path.
struct PopulatedServer {
    server: Harness,
    study: StudyDocument,
    paths: Vec<(String, String)>,
    /// Outdated or wrong tokens, with the status they get.
    useless: Vec<(&'static str, Option<String>, u16)>,
    analyst: String,
    /// May read the estimates of another study.
    other_analyst: String,
}

impl PopulatedServer {
    async fn new() -> Self {
        let mut server = Harness::new();
        let study = server
            .study_with(json!({ "name": "the study's own name", "enrolment": "token" }))
            .await;
        let other = server.study(3).await;
        server.count_one(&other).await;
        let path = at(&study, "/tokens");
        let issued: IssueTokensResponse = server.tell(&path, json!({ "count": 1 })).await.json();
        server.estimated(&study, json!({ "k": 1 })).await;
        let mut analysts = Vec::new();
        for study in [&study, &other, &study] {
            let wanted = json!({ "name": "somebody", "study": study.id });
            let response = server.tell("/v1/tokens", wanted).await;
            analysts.push(response.json::<CreateAnalystTokenResponse>());
        }
        let revoked = analysts.pop().unwrap();
        let path = format!("/v1/tokens/{}", revoked.analyst.id);
        assert_eq!(server.remove(&path).await.status, 204);
        let old = server.token.clone();
        let response = server.order("/v1/operator-token").await;
        server.token = response.json::<RotateOperatorTokenResponse>().token;
        let bearer = |token: &str| Some(format!("Bearer {token}"));
        let paths = operations().into_iter().map(|operation| {
            let path = operation
                .path
                .replace("{id}", &study.id)
                .replace("{number}", "1")
                .replace("{token}", &analysts[0].analyst.id);
            (operation.path, path)
        });
        Self {
            paths: paths.collect(),
            useless: vec![
                ("no token", None, 401),
                ("another scheme", Some("Basic abc".into()), 401),
                ("no text", bearer(""), 403),
                ("a wrong one", bearer(&"0".repeat(64)), 403),
                ("one too long", bearer(&format!("{}0", server.token)), 403),
                ("a participant's", bearer(&issued.tokens[0]), 403),
                ("a revoked one", bearer(&revoked.token), 403),
                ("the operator's before it was rotated", bearer(&old), 403),
            ],
            analyst: analysts[0].token.clone(),
            other_analyst: analysts[1].token.clone(),
            study,
            server,
        }
    }

    async fn ask(&self, method: &str, path: &str, authorization: Option<&str>) -> Reply {
        let mut request = Request::builder()
            .method(method.to_uppercase().as_str())
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(value) = authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        let body = json!({ "name": "x", "count": 1, "k": 1, "dimension": 3, "epsilon": 1.0 });
        self.server
            .send(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    fn stored(&self) -> Vec<(String, Vec<Vec<Cell>>)> {
        let path = database_path(&self.server.config.data_dir);
        let connection = rusqlite::Connection::open(path).unwrap();
        let tables: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert!(tables.len() >= 8, "{tables:?}");
        let rows_of = |table: &String| {
            let mut statement = connection
                .prepare(&format!("SELECT * FROM {table}"))
                .unwrap();
            let columns = statement.column_count();
            let rows = statement
                .query_map([], |row| (0..columns).map(|at| row.get(at)).collect())
                .unwrap();
            (table.clone(), rows.map(Result::unwrap).collect())
        };
        tables.iter().map(rows_of).collect()
    }
}

#[tokio::test]
async fn without_the_right_token_nothing_is_shown_or_changed() {
    let full = PopulatedServer::new().await;
    let before = full.stored();
    let mut refused = 0;
    for (operation, (_, path)) in operations().iter().zip(&full.paths) {
        let mut who: Vec<(&str, Option<String>, u16)> = full.useless.clone();
        let analyst = |token: &str| Some(format!("Bearer {token}"));
        // The metrics are for analysts of all studies.
        if operation.schemes.contains("analyst") && operation.path != "/metrics" {
            let response = full
                .ask(&operation.method, path, analyst(&full.analyst).as_deref())
                .await;
            // A study of rows has no answers, which is told to those who may read them.
            let status = if path.ends_with("/answers") { 422 } else { 200 };
            assert_eq!(response.status, status, "{path}");
        } else {
            who.push(("an analyst's", analyst(&full.analyst), 403));
        }
        who.push(("another's analyst's", analyst(&full.other_analyst), 403));
        for (whose, authorization, status) in who {
            let context = format!("{} {path} with {whose}", operation.method);
            let authorization = authorization.as_deref();
            let response = full.ask(&operation.method, path, authorization).await;
            if operation.schemes.is_empty() {
                // Public; endpoints that show drafts to the operator still reject invalid tokens.
                let strict = ["/v1/studies", "/v1/studies/{id}"].contains(&operation.path.as_str());
                assert!(
                    strict || !matches!(response.status.as_u16(), 401 | 403),
                    "{context}"
                );
                continue;
            }
            refused += 1;
            let unknown = status == 401;
            let code = if unknown {
                E::Unauthorized
            } else {
                E::Forbidden
            };
            response.is_problem(status, code);
            let asked = response.headers.contains_key(header::WWW_AUTHENTICATE);
            assert_eq!(asked, unknown, "{context}");
            // The same text as for something that does not exist.
            let elsewhere = path
                .replace(&full.study.id, &"f".repeat(32))
                .replace("/estimates/1", "/estimates/99");
            let nothing = full.ask(&operation.method, &elsewhere, authorization).await;
            assert_eq!(
                (nothing.status, &nothing.body),
                (response.status, &response.body),
                "{context}"
            );
            let text = String::from_utf8(response.body).unwrap();
            let token = authorization.and_then(|a| a.split_once(' '));
            let token = token.map_or("", |(_, token)| token);
            for secret in [full.study.id.as_str(), &full.study.name, token] {
                let is_leaked = !secret.is_empty() && text.contains(secret);
                assert!(!is_leaked, "{context}: {text}");
            }
        }
    }
    assert!(refused >= 150, "{refused}");
    assert_eq!(full.stored(), before);
    // The dump of the store shows every change.
    let path = format!("/v1/studies/{}/close", full.study.id);
    assert_eq!(full.server.order(&path).await.status, 200);
    assert_ne!(full.stored(), before);
}
