//! The metrics endpoint.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use eigenveil_shared::{Error, error};

use super::{extract::MetricsReader, openapi::ErrorResponses, problem::ApiError, run_blocking};
use crate::app::AppState;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Metrics for Prometheus
///
/// With the operator token or an analyst token for all studies, or for everybody if `metrics_without_token` is set.
#[utoipa::path(
    get, path = "/metrics", tag = "service",
    security(("operator" = []), ("analyst" = [])),
    responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text"), ErrorResponses),
)]
pub(crate) async fn show(
    _: MetricsReader,
    State(app): State<AppState>,
) -> Result<Response, ApiError> {
    let (store, metrics) = (app.store().clone(), Arc::clone(app.metrics()));
    let rendered = run_blocking(move || {
        metrics.measure(&store)?;
        metrics.render().map_err(|_| render_error())
    });
    let text = rendered.await?;
    Ok(([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

fn render_error() -> Error {
    error!(
        Internal,
        "the metrics could not be written because of a bug; please report this"
    )
}
