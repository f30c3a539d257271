//! A proxy between client and server that records every report, and can lose or hold requests.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use eigenveil_shared::codec::{self, ReportFormat};
use rand::{RngExt, SeedableRng, rngs::ChaCha8Rng};
use tokio::sync::Semaphore;

pub(crate) struct ProxyState {
    server: String,
    client: reqwest::Client,
    report_format: Option<ReportFormat>,
    pub(crate) seen: Mutex<HashMap<[u8; 16], Vec<Vec<u8>>>>,
    pub(crate) losses: Option<Mutex<RandomLosses>>,
    gate: Option<Gate>,
}

/// Lets a number of requests with reports through; the next ones wait, alternately before and after the server has
/// received them.
struct Gate {
    passes: Semaphore,
    turn: AtomicUsize,
    waiting: AtomicUsize,
}

impl Gate {
    async fn wait(&self) {
        struct WaitGuard<'a>(&'a AtomicUsize);
        impl Drop for WaitGuard<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if let Ok(pass) = self.passes.try_acquire() {
            return pass.forget();
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Counted until it passes or its client has gone.
        let _guard = WaitGuard(&self.waiting);
        self.passes.acquire().await.unwrap().forget();
    }
}

/// Random losses, and how many there were.
pub(crate) struct RandomLosses {
    rng: ChaCha8Rng,
    pub(crate) requests: u32,
    pub(crate) responses: u32,
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    pub(crate) state: Arc<ProxyState>,
}

impl Proxy {
    /// Lets nothing through until [`Self::let_through`]; records batches of reports with this format.
    pub(crate) async fn gated(server: &str, report_format: Option<ReportFormat>) -> Self {
        let gate = Gate {
            passes: Semaphore::new(0),
            turn: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        };
        Self::serve(server, report_format, None, Some(gate)).await
    }

    /// Loses one in ten requests with reports, and the responses of two in ten.
    pub(crate) async fn losing(server: &str, seed: u64) -> Self {
        let losses = RandomLosses {
            rng: ChaCha8Rng::seed_from_u64(seed),
            requests: 0,
            responses: 0,
        };
        Self::serve(server, None, Some(Mutex::new(losses)), None).await
    }

    async fn serve(
        server: &str,
        report_format: Option<ReportFormat>,
        losses: Option<Mutex<RandomLosses>>,
        gate: Option<Gate>,
    ) -> Self {
        let state = Arc::new(ProxyState {
            server: server.to_owned(),
            client: reqwest::Client::new(),
            report_format,
            seen: Mutex::default(),
            losses,
            gate,
        });
        let routes = Router::new()
            .fallback(pass)
            .layer(axum::extract::DefaultBodyLimit::max(64 << 20))
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { url, state }
    }

    fn gate(&self) -> &Gate {
        self.state.gate.as_ref().unwrap()
    }

    /// Lets this many more requests with reports through.
    pub(crate) fn let_through(&self, requests: usize) {
        self.gate().passes.add_permits(requests);
    }

    /// Whether a request is held.
    pub(crate) fn is_holding(&self) -> bool {
        self.gate().waiting.load(Ordering::Relaxed) > 0
    }
}

async fn pass(
    State(state): State<Arc<ProxyState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let reports = method == Method::POST && uri.path().ends_with("/reports");
    let mut response_is_lost = false;
    if reports && let Some(losses) = &state.losses {
        let mut losses = losses.lock().unwrap();
        match losses.rng.random_range(0..10) {
            0 => {
                losses.requests += 1;
                return StatusCode::BAD_GATEWAY.into_response();
            }
            1 | 2 => {
                losses.responses += 1;
                response_is_lost = true;
            }
            _ => {}
        }
    }
    if reports && let Some(report_format) = &state.report_format {
        let mut seen = state.seen.lock().unwrap();
        for report in codec::decode_batch(&body, report_format).unwrap() {
            let report = report.unwrap();
            seen.entry(report.id().0)
                .or_default()
                .push(report.payload().as_bytes().to_vec());
        }
    }
    let gate = state.gate.as_ref().filter(|_| reports);
    let before = gate.is_some_and(|gate| gate.turn.fetch_add(1, Ordering::Relaxed) % 2 == 0);
    if let Some(gate) = gate
        && before
    {
        gate.wait().await;
    }
    let url = format!("{}{uri}", state.server);
    let response = forward(&state.client, url, method, headers, body).await;
    if let Some(gate) = gate
        && !before
    {
        gate.wait().await;
    }
    match response {
        Ok(response) if !response_is_lost => response,
        _ => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Passes a request on to this address, and its response back.
pub(crate) async fn forward(
    client: &reqwest::Client,
    url: String,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> reqwest::Result<Response> {
    let request = client.request(method, url).headers(headers);
    let mut response = request.body(body).send().await?;
    let (status, mut headers) = (response.status(), response.headers().clone());
    headers.remove(header::TRANSFER_ENCODING);
    let is_events = |kind: &HeaderValue| kind == "text/event-stream";
    let body = match headers.get(header::CONTENT_TYPE).is_some_and(is_events) {
        // A stream of events does not end.
        true => response.chunk().await?.unwrap_or_default(),
        false => response.bytes().await?,
    };
    Ok((status, headers, body).into_response())
}
