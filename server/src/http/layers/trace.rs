//! One log line per request: no addresses, no user agents, no bodies, no identifiers from the path.

use std::{pin::pin, time::Instant};

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    response::Response,
};

use eigenveil_shared::Error;
use eigenveil_store::request_id;

use crate::app::AppState;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Endings of frequently requested paths, which are logged at debug level only.
const FREQUENT: &[&str] = &["/reports", "/healthz", "/readyz", "/metrics"];

/// Numbers, times and logs the request. Uploads and health checks are logged at debug level, so that a busy study does
/// not fill the disk.
pub(crate) async fn log(
    app: &AppState,
    request: Request,
    path: &str,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let id = app.next_request_id();
    let started = Instant::now();
    let method = request.method().clone();
    let mut response = request_id::scope(id, pin!(next(request))).await;
    response
        .headers_mut()
        .insert(REQUEST_ID, HeaderValue::from(id));
    app.metrics().request(path, &method, response.status());
    let status = response.status().as_u16();
    let microseconds = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    if status >= 500 {
        // The error is also in the client's response.
        let (code, detail) = response
            .extensions()
            .get::<Error>()
            .map(|error| (error.code().as_str(), error.detail()))
            .unzip();
        tracing::warn!(request_id = id, %method, path, status, code, detail, microseconds, "request");
    } else if FREQUENT.iter().any(|end| path.ends_with(end)) {
        tracing::debug!(request_id = id, %method, path, status, microseconds, "request");
    } else {
        tracing::info!(request_id = id, %method, path, status, microseconds, "request");
    }
    response
}
