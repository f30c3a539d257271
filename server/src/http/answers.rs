//! Answers of a preparation.

use axum::{Json, extract::State};
use eigenveil_shared::{
    Result,
    api::{PreparationAnswers, RoundAnswers},
    study::to_hex,
};
use eigenveil_store::{Store, Study};

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
    let answers = run_blocking(move || answers(app.store(), &study)).await?;
    Ok(Json(answers))
}

/// The counts of a preparation, with those of the first round if it is a second one. Blocks.
///
/// # Errors
/// `invalid-request` for a study that is no preparation, and for a second round whose first one is not among the
/// server's studies, or twice.
pub(crate) fn answers(store: &Store, study: &Study) -> Result<PreparationAnswers> {
    let first = study.params().preparation()?.after();
    let first = first.map(|first| store.first_round(first)).transpose()?;
    let rounds = first.as_deref().into_iter().chain([study]);
    let rounds = rounds.map(|study| {
        Ok(RoundAnswers {
            study: study.id().to_string(),
            canonical_params: to_hex(&study.params().canonical_bytes()),
            counts: store.answer_counts(study)?,
        })
    });
    Ok(PreparationAnswers {
        rounds: rounds.collect::<Result<_>>()?,
    })
}
