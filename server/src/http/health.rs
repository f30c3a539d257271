//! Whether the process lives, and whether it can store reports.

use std::time::Duration;

use axum::{Json, extract::State};
use eigenveil_shared::{Error, ErrorCode};
use serde_json::{Value, json};

use super::{openapi::ErrorResponses, problem::ApiError};
use crate::app::AppState;

/// How long the writer may take to answer before the server counts as not ready.
const WRITER_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether the process lives and can go on
#[utoipa::path(
    get, path = "/healthz", tag = "service",
    responses((status = 200, description = "Up", body = Object), ErrorResponses),
)]
pub(crate) async fn live(State(app): State<AppState>) -> Result<Json<Value>, ApiError> {
    // A server that stops in good order lives until it is gone.
    if !app.is_stopping() {
        app.store().check_writer()?;
    }
    Ok(Json(json!({"status": "up"})))
}

/// Whether reports can be stored
#[utoipa::path(
    get, path = "/readyz", tag = "service",
    responses((status = 200, description = "Ready", body = Object), ErrorResponses),
)]
pub(crate) async fn ready(State(app): State<AppState>) -> Result<Json<Value>, ApiError> {
    if app.is_stopping() {
        return Err(Error::new(
            ErrorCode::ShuttingDown,
            "the server is stopping; use another one, or wait until it is back",
        )
        .into());
    }
    let not_ready = |why: String| Err(Error::new(ErrorCode::StoreUnavailable, why).into());
    let bodies = app.store().ingest_memory();
    if bodies.is_exhausted() {
        return not_ready(format!(
            "{} bytes of bodies are in memory (max_ingest_bytes) and further ones were refused",
            bodies.used()
        ));
    }
    match tokio::time::timeout(WRITER_TIMEOUT, app.store().check_writable()).await {
        Ok(Ok(())) => Ok(Json(json!({"status": "ready"}))),
        // However busy it is: not ready.
        Ok(Err(error)) => not_ready(error.detail().to_owned()),
        Err(_) => not_ready(format!(
            "the store did not answer within {} s",
            WRITER_TIMEOUT.as_secs()
        )),
    }
}
