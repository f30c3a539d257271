//! Any path, query string and body at the whole router: an answer, never a 5xx.
#![no_main]

use std::cell::RefCell;

use axum::{
    Router,
    body::Body,
    http::{Method, Request, header},
};
use eigenveil_server::{AppState, Environment, ServerConfig, router};
use libfuzzer_sys::fuzz_target;
use tower::ServiceExt;

struct Site {
    _directory: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    routes: Router,
    token: String,
    study: String,
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
        let (status, answer) = site.ask(&Method::POST, "/v1/studies", true, "application/json", body.as_bytes());
        let document: serde_json::Value = serde_json::from_slice(&answer).expect("a document");
        assert!(status < 300, "{document}");
        site.study = document["id"].as_str().expect("an identifier").to_owned();
        site
    }

    fn ask(&self, method: &Method, target: &str, operator: bool, media: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let mut request = Request::builder().method(method).uri(target).header(header::CONTENT_TYPE, media);
        if operator {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        }
        let Ok(request) = request.body(Body::from(body.to_vec())) else {
            return (400, Vec::new());
        };
        self.runtime.block_on(async {
            let response = self.routes.clone().oneshot(request).await.expect("infallible");
            let status = response.status().as_u16();
            let body = http_body_util::BodyExt::collect(response.into_body()).await.expect("a body");
            (status, body.to_bytes().to_vec())
        })
    }
}

thread_local! {
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    let Some((&[first, second], data)) = data.split_first_chunk::<2>() else {
        return;
    };
    let (target, body) = match data.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &data[data.len()..]),
    };
    let Ok(target) = std::str::from_utf8(target) else {
        return;
    };
    SITE.with_borrow_mut(|site| {
        let site = site.get_or_insert_with(Site::new);
        let study = format!("/v1/studies/{}", site.study);
        let target = match first % 6 {
            0 => format!("/{target}"),
            1 => format!("{study}/{target}"),
            2 => format!("{study}/estimates/1?{target}"),
            3 => format!("{study}/reports?{target}"),
            4 => format!("/v1/studies?{target}"),
            _ => format!("{study}/estimates?{target}"),
        };
        let method = [Method::GET, Method::POST, Method::DELETE, Method::PUT][usize::from(second & 3)].clone();
        let media = [
            "application/json",
            "application/vnd.eigenveil.report",
            "application/vnd.eigenveil.report-batch",
            "text/plain",
        ][usize::from((second >> 2) & 3)];
        let operator = second & 0x80 != 0;
        let (status, answer) = site.ask(&method, &target, operator, media, body);
        assert!(status < 500, "{method} {target}: {status} {}", String::from_utf8_lossy(&answer));
    });
});
