//! Requesting and fetching estimates.

use axum::{
    Json,
    extract::{Query, Request, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use eigenveil_estimation::statistics::MomentEstimate;
use eigenveil_shared::{
    Error,
    api::{EstimateJob, EstimateRequest, EstimateState, MAX_MOMENT_DIMENSION},
    error,
    estimate::Estimate,
    parameters::Parameters,
};
use eigenveil_store::{StoredEstimate, Study};
use serde::{Deserialize, Serialize};

use super::{
    body,
    extract::{NumberInPath, Operator, Reader, StudyInPath},
    files,
    openapi::{Binary, ErrorResponses},
    problem::ApiError,
    public_path::PublicPath,
    run_blocking,
};
use crate::app::AppState;

/// `GET /v1/studies/{id}/estimates`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EstimateList {
    /// All estimates of the study, oldest first, without their results.
    pub estimates: Vec<EstimateJob>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    Json,
    Csv,
    Npy,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowQuery {
    format: Option<Format>,
}

/// Request an estimate
#[utoipa::path(
    post, path = "/v1/studies/{id}/estimates", tag = "estimates",
    params(("id" = String, Path, description = "Identifier of the study")),
    request_body = EstimateRequest,
    responses((status = 202, description = "The job", body = EstimateJob), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn create(
    operator: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    PublicPath(public_path): PublicPath,
    request: Request,
) -> Result<Response, ApiError> {
    let body: EstimateRequest = body::read_json(&app, &operator, request).await?;
    if body.moment {
        check_moment(study.params())?;
    }
    let job = app.jobs().add(&study, body).await?;
    let location = format!("{public_path}/{}", job.number);
    let accepted = [(header::LOCATION, location)];
    Ok((StatusCode::ACCEPTED, accepted, Json(job)).into_response())
}

/// Whether an estimate of this study may have the mean report.
///
/// # Errors
/// `invalid-request` for a study whose moment has no errors, or that has too many features.
pub(crate) fn check_moment(params: &Parameters) -> Result<(), Error> {
    MomentEstimate::check_preprocessing(params.preprocessing()?)?;
    let p = params.dimension();
    if p > MAX_MOMENT_DIMENSION {
        return Err(Error::invalid_request(format!(
            "the moment is available for at most {MAX_MOMENT_DIMENSION} features, not {p}, because it has {p} × {p} numbers: ask for components instead"
        )));
    }
    Ok(())
}

/// List the estimates of a study
#[utoipa::path(
    get, path = "/v1/studies/{id}/estimates", tag = "estimates",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The jobs", body = EstimateList), ErrorResponses),
    security(("operator" = []), ("analyst" = [])),
)]
pub(crate) async fn list(
    reader: Reader,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<Json<EstimateList>, ApiError> {
    reader.hide_draft(&study)?;
    let estimates = run_blocking(move || app.store().estimates(&study)).await?;
    Ok(Json(EstimateList { estimates }))
}

/// Show an estimate
#[utoipa::path(
    get, path = "/v1/studies/{id}/estimates/{number}", tag = "estimates",
    params(
        ("id" = String, Path, description = "Identifier of the study"),
        ("number" = u64, Path, description = "Number of the estimate"),
        ("format" = Option<String>, Query, description = "The result alone: json, csv or npy"),
    ),
    responses((status = 200, description = "The job, or its result alone in the requested format", content((EstimateJob = "application/json"), (String = "text/csv; charset=utf-8"), (inline(Binary) = "application/octet-stream"))), ErrorResponses),
    security(("operator" = []), ("analyst" = [])),
)]
pub(crate) async fn show(
    reader: Reader,
    StudyInPath(study): StudyInPath,
    NumberInPath(number): NumberInPath,
    State(app): State<AppState>,
    query: Result<Query<ShowQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    reader.hide_draft(&study)?;
    let Query(ShowQuery { format }) = query.map_err(|_| {
        Error::invalid_request(
            "the query is not valid here; use format=json, format=csv or format=npy",
        )
    })?;
    run_blocking(move || match format {
        Some(format) => estimate_file(&app, &study, number, format),
        None => Ok(attachment(
            "application/json",
            job_json(app.store().stored_estimate(&study, number)?).into_bytes(),
        )),
    })
    .await
    .map_err(ApiError::from)
}

/// A job with its result as stored, so that a large one is not parsed and re-serialised.
fn job_json(StoredEstimate { document, text }: StoredEstimate) -> String {
    let job = serde_json::to_string(&document).unwrap_or_default();
    let result = format!(r#""estimate":{}"#, text.as_deref().unwrap_or("null"));
    // Within a string these quotes would be escaped.
    job.replacen(r#""estimate":null"#, &result, 1)
}

/// The result of a finished job as a file; JSON is sent as it is stored.
pub(crate) fn estimate_file(
    app: &AppState,
    study: &Study,
    number: u64,
    format: Format,
) -> Result<Response, Error> {
    let estimate = || finished_result(app.store().estimate(study, number)?);
    Ok(match format {
        Format::Json => {
            let StoredEstimate { document, text } = app.store().stored_estimate(study, number)?;
            let text = require_done(&document, text)?;
            attachment("application/json", text.into_bytes())
        }
        Format::Csv => attachment("text/csv; charset=utf-8", files::csv(&estimate()?)?),
        Format::Npy => attachment("application/octet-stream", files::npy(&estimate()?)),
    })
}

/// Cancel an estimate
#[utoipa::path(
    delete, path = "/v1/studies/{id}/estimates/{number}", tag = "estimates",
    params(
        ("id" = String, Path, description = "Identifier of the study"),
        ("number" = u64, Path, description = "Number of the estimate"),
    ),
    responses((status = 200, description = "The job", body = EstimateJob), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn cancel(
    _: Operator,
    StudyInPath(study): StudyInPath,
    NumberInPath(number): NumberInPath,
    State(app): State<AppState>,
) -> Result<Json<EstimateJob>, ApiError> {
    Ok(Json(app.jobs().cancel(&study, number).await?))
}

pub(crate) fn finished_result(mut document: EstimateJob) -> Result<Estimate, Error> {
    let estimate = document.estimate.take();
    require_done(&document, estimate)
}

/// The result of a job, in any format, if the job is done.
fn require_done<T>(document: &EstimateJob, result: Option<T>) -> Result<T, Error> {
    let number = document.number;
    let not_ready = |why: &str| Err(error!(EstimateNotReady, "estimate {number} {why}"));
    match (document.state, result) {
        (EstimateState::Done, Some(result)) => Ok(result),
        (EstimateState::Running, _) => not_ready("is not finished; retry in a moment"),
        (EstimateState::Cancelled, _) => {
            not_ready("was cancelled and has no result; request a new one")
        }
        _ => not_ready("failed and has no result; its document says why"),
    }
}

fn attachment(media_type: &'static str, bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, media_type)], bytes).into_response()
}
