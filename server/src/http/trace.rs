//! One log line per request: no addresses, no user agents, no bodies, no identifiers from the path.

use std::time::Instant;

use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue},
    response::Response,
};

use crate::app::AppState;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Ends of paths that are asked for too often to be told each time.
const FREQUENT: &[&str] = &["/reports", "/healthz", "/readyz"];

/// Numbers the request, times it and logs it. Reports and probes are logged at debug level, so
/// that a busy study does not fill the disk.
pub(super) async fn log(
    app: &AppState,
    request: Request,
    path: &str,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let id = app.next_request_id();
    let started = Instant::now();
    let method = request.method().clone();
    let mut response = next(request).await;
    response
        .headers_mut()
        .insert(REQUEST_ID, HeaderValue::from(id));
    let status = response.status().as_u16();
    let microseconds = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    if status >= 500 {
        tracing::warn!(id, %method, path, status, microseconds, "request");
    } else if FREQUENT.iter().any(|end| path.ends_with(end)) {
        tracing::debug!(id, %method, path, status, microseconds, "request");
    } else {
        tracing::info!(id, %method, path, status, microseconds, "request");
    }
    response
}
