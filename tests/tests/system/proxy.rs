//! A proxy between client and server that writes down every report that passes, or loses some.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use eigenveil_shared::codec::{self, StudyShape};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};

/// Every body each identifier was seen with.
pub(crate) type Seen = Arc<Mutex<HashMap<[u8; 16], Vec<Vec<u8>>>>>;

#[derive(Clone)]
struct Shared {
    server: String,
    client: reqwest::Client,
    shape: Arc<Mutex<Option<StudyShape>>>,
    seen: Seen,
    losses: Option<Arc<Mutex<Losses>>>,
}

/// What is lost, drawn from a seed, and how often it was.
pub(crate) struct Losses {
    rng: ChaCha8Rng,
    pub(crate) requests: u32,
    pub(crate) answers: u32,
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    pub(crate) seen: Seen,
    pub(crate) losses: Option<Arc<Mutex<Losses>>>,
    shape: Arc<Mutex<Option<StudyShape>>>,
}

impl Proxy {
    pub(crate) async fn before(server: &str) -> Self {
        Self::serve(server, None).await
    }

    /// Of the requests with reports one in ten is lost, and the answers of two in ten.
    pub(crate) async fn losing(server: &str, seed: u64) -> Self {
        let losses = Losses {
            rng: ChaCha8Rng::seed_from_u64(seed),
            requests: 0,
            answers: 0,
        };
        Self::serve(server, Some(Arc::new(Mutex::new(losses)))).await
    }

    async fn serve(server: &str, losses: Option<Arc<Mutex<Losses>>>) -> Self {
        let seen = Seen::default();
        let shape = Arc::new(Mutex::new(None));
        let shared = Shared {
            server: server.to_owned(),
            client: reqwest::Client::new(),
            shape: Arc::clone(&shape),
            seen: Arc::clone(&seen),
            losses: losses.clone(),
        };
        let routes = Router::new()
            .fallback(pass)
            .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
            .with_state(shared);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self {
            url,
            seen,
            losses,
            shape,
        }
    }

    /// From now on batches of this study are written down.
    pub(crate) fn record(&self, shape: StudyShape) {
        *self.shape.lock().unwrap() = Some(shape);
    }
}

async fn pass(
    State(shared): State<Shared>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let reports = method == Method::POST && uri.path().ends_with("/reports");
    let mut answer_is_lost = false;
    if reports && let Some(losses) = &shared.losses {
        let mut losses = losses.lock().unwrap();
        match losses.rng.random_range(0..10) {
            0 => {
                losses.requests += 1;
                return StatusCode::BAD_GATEWAY.into_response();
            }
            1 | 2 => {
                losses.answers += 1;
                answer_is_lost = true;
            }
            _ => {}
        }
    }
    let shape = *shared.shape.lock().unwrap();
    if reports && let Some(shape) = shape {
        let mut seen = shared.seen.lock().unwrap();
        for report in codec::decode_batch(&body, &shape).unwrap() {
            let report = report.unwrap();
            seen.entry(report.id().0)
                .or_default()
                .push(report.payload().as_bytes().to_vec());
        }
    }
    let mut request = shared
        .client
        .request(method, format!("{}{}", shared.server, uri))
        .body(body);
    for name in ["content-type", "authorization"] {
        if let Some(value) = headers.get(name) {
            request = request.header(name, value);
        }
    }
    match request.send().await {
        Ok(_) if answer_is_lost => StatusCode::BAD_GATEWAY.into_response(),
        Ok(answer) => {
            let status = answer.status();
            let kind = answer.headers().get("content-type").cloned();
            let mut response = (status, answer.bytes().await.unwrap_or_default()).into_response();
            if let Some(kind) = kind {
                response.headers_mut().insert("content-type", kind);
            }
            response
        }
        Err(_) => StatusCode::BAD_GATEWAY.into_response(),
    }
}
