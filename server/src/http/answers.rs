//! Answers of a preparation.

use axum::{Json, extract::State};
use eigenveil_shared::api::PreparationAnswers;

use super::{
    extract::{Reader, StudyInPath},
    openapi::ErrorResponses,
    problem::ApiError,
    run_blocking,
};
use crate::app::AppState;

/// Show how often each answer to a preparation was given
///
/// Of a second round with those of the first one, whose fingerprint it names. Centers and scales are estimated from
/// these counts by whoever reads them.
#[utoipa::path(
    get, path = "/v1/studies/{id}/answers", tag = "estimates",
    params(("id" = String, Path, description = "Identifier of the preparation")),
    responses((status = 200, description = "The counts of one or two rounds", body = PreparationAnswers), ErrorResponses),
    security(("operator" = []), ("analyst" = [])),
)]
pub(crate) async fn show(
    reader: Reader,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<Json<PreparationAnswers>, ApiError> {
    reader.hide_draft(&study)?;
    let answers = run_blocking(move || app.store().preparation_answers(&study)).await?;
    Ok(Json(answers))
}
