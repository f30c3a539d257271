//! What the server counts of itself, as Prometheus reads it.

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use eigenveil_shared::{Error, ErrorCode};

use super::{extract::MetricsReader, problem::ApiError};
use crate::app::AppState;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn show(
    _: MetricsReader,
    State(app): State<AppState>,
) -> Result<Response, ApiError> {
    let store = app.store().clone();
    let rendered = tokio::task::spawn_blocking(move || {
        let snapshot = store.snapshot()?;
        store.metrics().render(&snapshot).map_err(|_| broken())
    });
    let text = rendered.await.unwrap_or_else(|_| Err(broken()))?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

fn broken() -> Error {
    Error::new(
        ErrorCode::Internal,
        "the metrics could not be written by a fault of the server; please report this",
    )
}
