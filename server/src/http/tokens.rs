//! Participant tokens, analyst tokens and the operator token.

use axum::{
    Json,
    extract::{Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use eigenveil_shared::{
    api::{
        AnalystTokenList, CreateAnalystTokenRequest, CreateAnalystTokenResponse,
        IssueTokensRequest, IssueTokensResponse, LookUpTokenRequest, RotateOperatorTokenResponse,
        SiteToken, TokenCounts,
    },
    enrolment::ParticipantToken,
};
use serde::Serialize;

use super::{
    body,
    extract::{Operator, StudyInPath, TokenInPath, hide_draft},
    openapi::ErrorResponses,
    problem::ApiError,
    run_blocking,
};
use crate::app::AppState;

/// A response with a token, which must not be cached.
fn secret(status: StatusCode, content: impl Serialize) -> Response {
    let no_store = [(header::CACHE_CONTROL, "no-store")];
    (status, no_store, Json(content)).into_response()
}

/// Create one-time participant tokens
///
/// For a study with enrolment `token`: so many, or in a study of sites one for each that is named. The text of the tokens
/// is only in this response.
#[utoipa::path(
    post, path = "/v1/studies/{id}/tokens", tag = "tokens",
    params(("id" = String, Path, description = "Identifier of the study")),
    request_body = IssueTokensRequest,
    responses((status = 201, description = "The tokens", body = IssueTokensResponse), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn issue(
    operator: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let body: IssueTokensRequest = body::read_json(&app, &operator, request).await?;
    let issued = app.store().issue(&study, body).await?;
    tracing::info!(study = %study.id(), count = issued.tokens.len(), "participant tokens created");
    Ok(secret(StatusCode::CREATED, issued))
}

/// Count the participant tokens of a study
#[utoipa::path(
    get, path = "/v1/studies/{id}/tokens", tag = "tokens",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "How many were issued and spent, and the site of each in a study of sites", body = TokenCounts), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn count(
    _: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<Json<TokenCounts>, ApiError> {
    Ok(Json(
        run_blocking(move || app.store().token_counts(&study)).await?,
    ))
}

/// Look up the site of a token
///
/// Whoever has a token of a study of sites is told for which site and for how many rows it is, before anything is sent
/// or charged. Nothing is spent.
#[utoipa::path(
    post, path = "/v1/studies/{id}/tokens/lookup", tag = "tokens",
    params(("id" = String, Path, description = "Identifier of the study")),
    request_body = LookUpTokenRequest,
    responses((status = 200, description = "The site of the token", body = SiteToken), ErrorResponses),
)]
pub(crate) async fn look_up(
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
    request: Request,
) -> Result<Json<SiteToken>, ApiError> {
    hide_draft(&study, false)?;
    study.params().sites()?;
    let form = "{\"token\": \"64 hexadecimal digits\"}";
    let LookUpTokenRequest { token } = body::read_secret_json(&app, request, form).await?;
    let token = ParticipantToken::parse(&token)?;
    let site = run_blocking(move || app.store().look_up_token(&study, &token)).await?;
    Ok(Json(site))
}

/// Create an analyst token
///
/// The token can read the estimates of one study or of all, and nothing else. Its text is only in this response.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "tokens",
    request_body = CreateAnalystTokenRequest,
    responses((status = 201, description = "The token", body = CreateAnalystTokenResponse), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn create(
    operator: Operator,
    State(app): State<AppState>,
    request: Request,
) -> Result<Response, ApiError> {
    let body: CreateAnalystTokenRequest = body::read_json(&app, &operator, request).await?;
    let created = app.store().create_analyst_token(body).await?;
    tracing::info!(id = created.analyst.id, "analyst token created");
    Ok(secret(StatusCode::CREATED, created))
}

/// List the analyst tokens
#[utoipa::path(
    get, path = "/v1/tokens", tag = "tokens",
    responses((status = 200, description = "The tokens, without their text", body = AnalystTokenList), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn list(_: Operator, State(app): State<AppState>) -> Json<AnalystTokenList> {
    let tokens = app.store().analyst_tokens();
    Json(AnalystTokenList { tokens })
}

/// Revoke an analyst token
#[utoipa::path(
    delete, path = "/v1/tokens/{token}", tag = "tokens",
    params(("token" = String, Path, description = "Identifier of the token, not its text")),
    responses((status = 204, description = "The token is revoked"), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn revoke(
    _: Operator,
    TokenInPath(id): TokenInPath,
    State(app): State<AppState>,
) -> Result<StatusCode, ApiError> {
    app.store().revoke_analyst_token(&id).await?;
    tracing::info!("analyst token revoked");
    Ok(StatusCode::NO_CONTENT)
}

/// Rotate the operator token
///
/// The old token stops working at once; the new one is in this response and in the token file of the data directory.
#[utoipa::path(
    post, path = "/v1/operator-token", tag = "tokens",
    responses((status = 200, description = "The new token", body = RotateOperatorTokenResponse), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn rotate(
    operator: Operator,
    State(app): State<AppState>,
) -> Result<Response, ApiError> {
    let rotated = app.store().rotate_operator_token(operator.token()).await?;
    tracing::info!("operator token rotated");
    Ok(secret(StatusCode::OK, rotated))
}
