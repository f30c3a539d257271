//! Creating, showing, opening and closing studies.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Query, Request, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use eigenveil_shared::{
    Error,
    api::{CreateStudyRequest, StudyDocument, StudyList, StudyState},
};
use eigenveil_store::Study;
use hyper::body::{Frame, SizeHint};
use serde::Deserialize;

use super::{
    body,
    extract::{MaybeOperator, Operator, StudyInPath, hide_draft},
    openapi::ErrorResponses,
    problem::ApiError,
    public_path::PublicPath,
};
use crate::app::AppState;

const DEFAULT_PAGE_SIZE: usize = 100;
/// Maximum number of studies on a page: about half a megabyte.
const MAX_PAGE_SIZE: usize = 1_000;

/// Which part of the list.
#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    after: Option<i64>,
    limit: Option<usize>,
}

/// Create a study
#[utoipa::path(
    post, path = "/v1/studies", tag = "studies",
    request_body = CreateStudyRequest,
    responses((status = 201, description = "The study", body = StudyDocument), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn create(
    operator: Operator,
    State(app): State<AppState>,
    PublicPath(here): PublicPath,
    request: Request,
) -> Result<Response, ApiError> {
    let body: CreateStudyRequest = body::read_json(&app, &operator, request).await?;
    let study = app.store().create_study(body).await?;
    tracing::info!(study = %study.id(), "study created");
    let location = format!("{here}/{}", study.id());
    let created = [(header::LOCATION, location)];
    Ok((StatusCode::CREATED, created, Json(study.document())).into_response())
}

/// List the studies
///
/// Oldest first, one page at a time, continued with `after`. Drafts are listed for the operator only.
#[utoipa::path(
    get, path = "/v1/studies", tag = "studies",
    params(
        ("after" = Option<String>, Query, description = "The `next` of the previous page; without it, from the oldest study on"),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 1_000, description = "Studies on a page, 1 to 1,000; without it, 100"),
    ),
    responses((status = 200, description = "The studies; `Link` points to the next page", body = StudyList), ErrorResponses),
)]
pub(crate) async fn list(
    MaybeOperator(operator): MaybeOperator,
    State(app): State<AppState>,
    PublicPath(here): PublicPath,
    query: Result<Query<Page>, QueryRejection>,
) -> Result<Response, ApiError> {
    let page = query.ok().map(|Query(page)| {
        (
            page.after.unwrap_or(0),
            page.limit.unwrap_or(DEFAULT_PAGE_SIZE),
        )
    });
    let (after, limit) = page
        .filter(|(after, limit)| *after >= 0 && (1..=MAX_PAGE_SIZE).contains(limit))
        .ok_or_else(|| {
            Error::invalid_request(format!(
                "after is the `next` of the previous page, and limit a whole number from 1 to {MAX_PAGE_SIZE}"
            ))
        })?;
    let visible = |study: &Study| operator || study.state() != StudyState::Draft;
    let (studies, next) = app.store().studies_after(after, limit, visible);
    // As serde would write a `StudyList`.
    let mut parts = vec![Bytes::from_static(b"{\"studies\":[")];
    for (at, study) in studies.iter().enumerate() {
        parts.extend((at > 0).then_some(Bytes::from_static(b",")));
        parts.extend(study.summary_json());
    }
    parts.push(match next {
        Some(position) => format!("],\"next\":\"{position}\"}}").into(),
        None => Bytes::from_static(b"]}"),
    });
    let link = |next| format!("<{here}?after={next}&limit={limit}>; rel=\"next\"");
    let link = next.map(|next| [(header::LINK, link(next))]);
    Ok((link, json_in_parts([parts.concat().into()])).into_response())
}

/// Show a study
///
/// A draft is for the operator only.
#[utoipa::path(
    get, path = "/v1/studies/{id}", tag = "studies",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The study", body = StudyDocument), ErrorResponses),
)]
pub(crate) async fn show(
    MaybeOperator(operator): MaybeOperator,
    StudyInPath(study): StudyInPath,
) -> Result<Response, ApiError> {
    hide_draft(&study, operator)?;
    Ok(json_in_parts(study.document_json()))
}

/// A response of JSON whose parts are sent without being copied together.
fn json_in_parts<const N: usize>(parts: [Bytes; N]) -> Response {
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    (content_type, Body::new(Parts(parts.into()))).into_response()
}

struct Parts(VecDeque<Bytes>);

impl hyper::body::Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}

/// Open a study
#[utoipa::path(
    post, path = "/v1/studies/{id}/open", tag = "studies",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The study", body = StudyDocument), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn open(
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
    responses((status = 204, description = "The study is deleted"), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn delete(
    _: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<StatusCode, ApiError> {
    app.store().delete_study(&study).await?;
    tracing::info!(study = %study.id(), "study deleted");
    Ok(StatusCode::NO_CONTENT)
}

/// Close a study
#[utoipa::path(
    post, path = "/v1/studies/{id}/close", tag = "studies",
    params(("id" = String, Path, description = "Identifier of the study")),
    responses((status = 200, description = "The study", body = StudyDocument), ErrorResponses),
    security(("operator" = [])),
)]
pub(crate) async fn close(
    _: Operator,
    StudyInPath(study): StudyInPath,
    State(app): State<AppState>,
) -> Result<Json<StudyDocument>, ApiError> {
    app.store().set_state(&study, StudyState::Closed).await?;
    Ok(Json(study.document()))
}
