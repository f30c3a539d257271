//! A server in this process, in a directory of its own, with one open study.

use std::cell::RefCell;

use axum::{
    Router,
    body::Body,
    http::{Method, Request, header},
};
use eigenveil_server::{AppState, Environment, ServerConfig, router};
use tower::ServiceExt;

pub struct Site {
    _directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    routes: Router,
    token: String,
    pub study: String,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let config = ServerConfig::new(directory.path().join("data"));
        let app = AppState::open(config, Environment::system()).expect("a store");
        let token = std::fs::read_to_string(app.store().token_path()).expect("its token");
        let mut site = Self {
            _directory: directory,
            runtime,
            routes: router(app),
            token: token.trim().to_owned(),
            study: String::new(),
        };
        let body = r#"{"name":"fuzz","dimension":3,"mechanism":"double-cap","epsilon":1.0}"#;
        let (status, answer) = site.ask(
            &Method::POST,
            "/v1/studies",
            true,
            "application/json",
            body.as_bytes(),
        );
        let document: serde_json::Value = serde_json::from_slice(&answer).expect("a document");
        assert!(status < 300, "{document}");
        site.study = document["id"].as_str().expect("an identifier").to_owned();
        site
    }

    /// Status and body of the answer.
    pub fn ask(
        &self,
        method: &Method,
        target: &str,
        operator: bool,
        media: &str,
        body: &[u8],
    ) -> (u16, Vec<u8>) {
        let mut request = Request::builder()
            .method(method)
            .uri(target)
            .header(header::CONTENT_TYPE, media);
        if operator {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        }
        let Ok(request) = request.body(Body::from(body.to_vec())) else {
            return (400, Vec::new());
        };
        self.runtime.block_on(async {
            let response = self
                .routes
                .clone()
                .oneshot(request)
                .await
                .expect("infallible");
            let status = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body())
                .await
                .expect("a body");
            (status, body.to_bytes().to_vec())
        })
    }
}

thread_local! {
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

/// Calls `work` with this thread's server.
pub fn with<T>(work: impl FnOnce(&Site) -> T) -> T {
    SITE.with_borrow_mut(|site| work(site.get_or_insert_with(Site::new)))
}
