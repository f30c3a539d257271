//! What handlers need of a request's head, with problems for rejections.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::{header, request::Parts},
};
use eigenveil_shared::{Error, ErrorCode};

use super::problem::ApiError;
use crate::{
    app::AppState,
    store::{Study, StudyId},
};

/// Proof that the request carries the operator's token.
pub(super) struct Operator;

impl FromRequestParts<AppState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        match MaybeOperator::from_request_parts(parts, app).await? {
            MaybeOperator(true) => Ok(Operator),
            MaybeOperator(false) => Err(Error::new(
                ErrorCode::Unauthorized,
                "this needs the operator's token: Authorization: Bearer TOKEN",
            )
            .into()),
        }
    }
}

/// Proof that the request may read the metrics.
pub(super) struct MetricsReader;

impl FromRequestParts<AppState> for MetricsReader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        if app.config().metrics_without_token {
            return Ok(Self);
        }
        Operator::from_request_parts(parts, app).await?;
        Ok(Self)
    }
}

/// Whether the request carries the operator's token; a wrong one is an error all the same.
pub(super) struct MaybeOperator(pub(super) bool);

impl FromRequestParts<AppState> for MaybeOperator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        let Some(value) = parts.headers.get(header::AUTHORIZATION) else {
            return Ok(Self(false));
        };
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then_some(token.trim())
        });
        match token {
            None => Err(Error::new(
                ErrorCode::Unauthorized,
                "the Authorization header is not of the form: Bearer TOKEN",
            )
            .into()),
            Some(token) if app.store().token_hash().admits(token) => Ok(Self(true)),
            Some(_) => Err(Error::new(
                ErrorCode::Forbidden,
                "this is not the operator's token; it is in operator.token in the data directory",
            )
            .into()),
        }
    }
}

/// The study named in the path.
pub(super) struct StudyInPath(pub(super) Arc<Study>);

impl FromRequestParts<AppState> for StudyInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        let params = path_params(parts, app).await?;
        Ok(Self(study(app, param(&params, "id"))?))
    }
}

/// The study with this identifier.
pub(super) fn study(app: &AppState, id: &str) -> Result<Arc<Study>, Error> {
    let id = StudyId::parse(id).ok_or_else(|| {
        Error::new(
            ErrorCode::StudyNotFound,
            "there is no study of that identifier, which is not 32 hexadecimal digits; list them with GET /v1/studies",
        )
    })?;
    app.store().study(id)
}

/// The number of an estimate in the path.
pub(super) struct NumberInPath(pub(super) u64);

impl FromRequestParts<AppState> for NumberInPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        let params = path_params(parts, app).await?;
        // Numbers are stored as signed integers.
        let number = param(&params, "number")
            .parse()
            .ok()
            .filter(|number| i64::try_from(*number).is_ok());
        number.map(Self).ok_or_else(|| {
            Error::new(
                ErrorCode::EstimateNotFound,
                "there is no estimate of that number; estimates are numbered from 1",
            )
            .into()
        })
    }
}

async fn path_params(parts: &mut Parts, app: &AppState) -> Result<RawPathParams, ApiError> {
    RawPathParams::from_request_parts(parts, app)
        .await
        .map_err(|_| {
            Error::new(
                ErrorCode::NotFound,
                "the path holds an escape that is not UTF-8; there is nothing here",
            )
            .into()
        })
}

fn param<'a>(params: &'a RawPathParams, wanted: &str) -> &'a str {
    params
        .iter()
        .find(|(name, _)| *name == wanted)
        .map_or("", |(_, value)| value)
}
