//! Extractors for handlers; rejections are problem documents.

use std::sync::Arc;

use axum::{
    extract::{FromRef, FromRequestParts, RawPathParams},
    http::request::Parts,
};
use eigenveil_shared::{Error, api::StudyState, error};
use eigenveil_store::{
    Identity, Study, StudyId, TokenHash, invalid_study_id, study_not_found, token_replaced,
};

use super::{
    problem::ApiError,
    rate_limit_layer::{authenticate, bearer, client_key},
};
use crate::app::AppState;

/// Proof that the head of the request carries the operator token.
pub(crate) struct Operator(TokenHash);

impl Operator {
    pub(crate) fn token(&self) -> &TokenHash {
        &self.0
    }

    /// Once more, after a body has come: whoever holds it back must not outlast the token.
    pub(crate) fn check_still_valid(&self, app: &AppState) -> Result<(), Error> {
        match app.store().identify_hash(&self.0) {
            Some(Identity::Operator) => Ok(()),
            _ => Err(token_replaced()),
        }
    }
}

impl FromRequestParts<AppState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        match identity(parts, app).await? {
            Some((token, Identity::Operator)) => Ok(Operator(token)),
            Some((_, Identity::Analyst(_))) => Err(error!(
                Forbidden,
                "an analyst token can only read estimates; this needs the operator token"
            )
            .into()),
            None => Err(missing("the operator token").into()),
        }
    }
}

/// Proof that the request may read the estimates of the study in its path: it carries the operator token, or an analyst
/// token for this study.
pub(crate) struct Reader {
    is_operator: bool,
}

impl Reader {
    /// Estimates of a draft are as unknown as the draft.
    pub(crate) fn hide_draft(&self, study: &Study) -> Result<(), Error> {
        hide_draft(study, self.is_operator)
    }
}

impl FromRequestParts<AppState> for Reader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        match identity(parts, app).await? {
            Some((_, Identity::Operator)) => Ok(Self { is_operator: true }),
            Some((_, Identity::Analyst(None))) => Ok(Self { is_operator: false }),
            Some((_, Identity::Analyst(Some(study)))) => {
                let params = path_params(parts, app).await?;
                if StudyId::parse(param(&params, "id")) == Some(study) {
                    return Ok(Self { is_operator: false });
                }
                Err(error!(
                    Forbidden,
                    "this analyst token is for the estimates of another study"
                )
                .into())
            }
            None => Err(missing("the operator token or an analyst token").into()),
        }
    }
}

/// Proof that the request may read the metrics, which are of all studies together.
pub(crate) struct MetricsReader;

impl FromRequestParts<AppState> for MetricsReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        if app.config().metrics_without_token {
            return Ok(Self);
        }
        match identity(parts, app).await? {
            Some((_, Identity::Operator | Identity::Analyst(None))) => Ok(Self),
            Some((_, Identity::Analyst(Some(_)))) => Err(error!(
                Forbidden,
                "this analyst token is for the estimates of one study, and the metrics are those of the whole server; this needs the operator token or an analyst token for all studies"
            )
            .into()),
            None => Err(missing("the operator token or an analyst token for all studies").into()),
        }
    }
}

/// Whether the request carries the operator token; a wrong token is an error all the same.
pub(crate) struct MaybeOperator(pub(crate) bool);

impl FromRequestParts<AppState> for MaybeOperator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        let identity = identity(parts, app).await?;
        Ok(Self(matches!(identity, Some((_, Identity::Operator)))))
    }
}

async fn identity(
    parts: &Parts,
    app: &AppState,
) -> Result<Option<(TokenHash, Identity)>, ApiError> {
    let Some(token) = bearer(&parts.headers) else {
        return Ok(None);
    };
    let Some(token) = token else {
        return Err(error!(
            Unauthorized,
            "the Authorization header is not of the form: Bearer TOKEN"
        )
        .into());
    };
    let client = client_key(app, &parts.headers, &parts.extensions);
    let token = TokenHash::new(token);
    match authenticate(app, &token, client).await? {
        Some(identity) => Ok(Some((token, identity))),
        None => Err(error!(
            Forbidden,
            "this token is unknown or was revoked; the operator token is in operator.token in the data directory"
        )
        .into()),
    }
}

fn missing(what: &str) -> Error {
    error!(
        Unauthorized,
        "this needs {what}: Authorization: Bearer TOKEN"
    )
}

pub(crate) struct StudyInPath(pub(crate) Arc<Study>);

impl<S: Send + Sync> FromRequestParts<S> for StudyInPath
where
    AppState: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = path_params(parts, state).await?;
        let id = StudyId::parse(param(&params, "id")).ok_or_else(invalid_study_id)?;
        study(&AppState::from_ref(state), id).await.map(Self)
    }
}

pub(crate) async fn study(app: &AppState, id: StudyId) -> Result<Arc<Study>, ApiError> {
    match app.store().study(id) {
        Ok(study) if study.state() != StudyState::Draft => return Ok(study),
        // Perhaps another server has just created or opened it.
        _ => app.store().look_again().await?,
    }
    Ok(app.store().study(id)?)
}

pub(crate) fn hide_draft(study: &Study, operator: bool) -> Result<(), Error> {
    if study.state() == StudyState::Draft && !operator {
        return Err(study_not_found(study.id()));
    }
    Ok(())
}

pub(crate) struct NumberInPath(pub(crate) u64);

impl<S: Send + Sync> FromRequestParts<S> for NumberInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = path_params(parts, state).await?;
        // Numbers are stored as signed integers.
        let number = param(&params, "number")
            .parse()
            .ok()
            .filter(|number| i64::try_from(*number).is_ok());
        number.map(Self).ok_or_else(|| {
            error!(
                EstimateNotFound,
                "there is no estimate with this number; estimates are numbered from 1"
            )
            .into()
        })
    }
}

pub(crate) struct TokenInPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for TokenInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = path_params(parts, state).await?;
        Ok(Self(param(&params, "token").to_owned()))
    }
}

async fn path_params<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<RawPathParams, ApiError> {
    RawPathParams::from_request_parts(parts, state)
        .await
        .map_err(|_| {
            error!(
                NotFound,
                "the path has an escape that is not UTF-8; there is nothing here"
            )
            .into()
        })
}

fn param<'a>(params: &'a RawPathParams, key: &str) -> &'a str {
    params
        .iter()
        .find(|(name, _)| *name == key)
        .map_or("", |(_, value)| value)
}
