//! Making, showing, opening and closing studies.

use axum::{
    Json,
    extract::{OriginalUri, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use eigenveil_shared::api::{CreateStudy, StudyDocument, StudyList, StudyState};

use super::{
    body,
    extract::{MaybeOperator, Operator, StudyInPath, hide_draft},
    openapi::Refusals,
    problem::ApiError,
};
use crate::app::AppState;

/// Create a study
#[utoipa::path(
    post, path = "/v1/studies", tag = "studies",
    request_body = CreateStudy,
    responses((status = 201, description = "The study", body = StudyDocument), Refusals),
    security(("operator" = [])),
)]
pub(super) async fn create(
    _: Operator,
    State(app): State<AppState>,
    OriginalUri(here): OriginalUri,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, content) = request.into_parts();
    let wanted: CreateStudy = body::read_json(&app, &parts.headers, content).await?;
    let study = app.store().create_study(wanted).await?;
    tracing::info!(study = %study.id(), "study created");
    // Where the routes are mounted is the application's choice.
    let location = format!("{}/{}", here.path(), study.id());
    let created = [(header::LOCATION, location)];
    Ok((StatusCode::CREATED, created, Json(study.document())).into_response())
}

/// List the studies
///
/// Drafts are for the operator only.
#[utoipa::path(
    get, path = "/v1/studies", tag = "studies",
    responses((status = 200, description = "The studies", body = StudyList), Refusals),
)]
pub(super) async fn list(
    MaybeOperator(operator): MaybeOperator,
    State(app): State<AppState>,
) -> Json<StudyList> {
    let studies = app
        .store()
        .studies()
        .iter()
        .filter(|study| operator || study.state() != StudyState::Draft)
        .map(|study| study.document())
        .collect();
    Json(StudyList { studies })
}

/// Show a study
///
/// A draft is for the operator only.
#[utoipa::path(
    get, path = "/v1/studies/{id}", tag = "studies",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The study", body = StudyDocument), Refusals),
)]
pub(super) async fn show(
    MaybeOperator(operator): MaybeOperator,
    StudyInPath(study): StudyInPath,
) -> Result<Json<StudyDocument>, ApiError> {
    hide_draft(&study, operator)?;
    Ok(Json(study.document()))
}

/// Open a study
#[utoipa::path(
    post, path = "/v1/studies/{id}/open", tag = "studies",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The study", body = StudyDocument), Refusals),
    security(("operator" = [])),
)]
pub(super) async fn open(
    _: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<Json<StudyDocument>, ApiError> {
    app.store().set_state(&study, StudyState::Open).await?;
    Ok(Json(study.document()))
}

/// Delete a study that is not open
#[utoipa::path(
    delete, path = "/v1/studies/{id}", tag = "studies",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 204, description = "It is gone"), Refusals),
    security(("operator" = [])),
)]
pub(super) async fn delete(
    _: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<StatusCode, ApiError> {
    app.store().delete_study(&study).await?;
    tracing::info!(study = %study.id(), "study deleted");
    app.jobs().wake();
    Ok(StatusCode::NO_CONTENT)
}

/// Close a study
#[utoipa::path(
    post, path = "/v1/studies/{id}/close", tag = "studies",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The study", body = StudyDocument), Refusals),
    security(("operator" = [])),
)]
pub(super) async fn close(
    _: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<Json<StudyDocument>, ApiError> {
    app.store().set_state(&study, StudyState::Closed).await?;
    app.jobs().wake();
    Ok(Json(study.document()))
}
