//! Liveness and readiness.

use std::time::Duration;

use axum::{Json, extract::State};
use eigenveil_shared::{Error, ErrorCode, error};
use serde_json::{Value, json};

use super::{openapi::ErrorResponses, problem::ApiError};
use crate::app::{AppState, Phase};

/// Time the writer may take to respond before the server counts as not ready.
const WRITER_TIMEOUT: Duration = Duration::from_secs(5);

/// Liveness: whether the process runs and can continue
#[utoipa::path(
    get, path = "/healthz", tag = "service",
    responses((status = 200, description = "Up", body = Object), ErrorResponses),
)]
pub(crate) async fn live(State(app): State<AppState>) -> Result<Json<Value>, ApiError> {
    // During a graceful shutdown the process is alive until it exits.
    if app.phase() < Phase::Stopping {
        app.store().check_running()?;
    }
    Ok(Json(json!({"status": "up"})))
}

/// Readiness: whether reports can be stored
#[utoipa::path(
    get, path = "/readyz", tag = "service",
    responses((status = 200, description = "Ready", body = Object), ErrorResponses),
)]
pub(crate) async fn ready(State(app): State<AppState>) -> Result<Json<Value>, ApiError> {
    if app.phase() > Phase::Serving {
        return Err(error!(
            ShuttingDown,
            "the server is stopping; use another one, or retry when it is back"
        )
        .into());
    }
    let not_ready = |why: String| Err(Error::new(ErrorCode::StoreUnavailable, why).into());
    let bodies = app.store().ingest_memory();
    if bodies.is_exhausted() {
        return not_ready(format!(
            "{} bytes of bodies are in memory (max_ingest_bytes) and further ones were rejected",
            bodies.used()
        ));
    }
    match tokio::time::timeout(WRITER_TIMEOUT, app.store().check_writable()).await {
        Ok(Ok(())) => Ok(Json(json!({"status": "ready"}))),
        // Also if it is only busy.
        Ok(Err(error)) => not_ready(error.detail().to_owned()),
        Err(_) => not_ready(format!(
            "the store did not respond within {} s",
            WRITER_TIMEOUT.as_secs()
        )),
    }
}
