//! Errors as problem documents (RFC 9457): the one place that knows which code is which status.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use eigenveil_shared::{
    Error, ErrorCode,
    api::{PROBLEM_MEDIA_TYPE, Problem},
};

use crate::{request_id, status::status_of};

/// An error on its way to the client.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) Error);

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = status_of(self.0.code());
        let problem = Problem::new(status.as_u16(), &self.0);
        // A problem is strings and a number: writing it cannot fail.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(PROBLEM_MEDIA_TYPE),
        );
        let code = self.0.code();
        match code {
            ErrorCode::Unauthorized => {
                headers.insert(
                    header::WWW_AUTHENTICATE,
                    HeaderValue::from_static("Bearer realm=\"eigenveil\""),
                );
            }
            ErrorCode::TooManyRequests => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            ErrorCode::StoreUnavailable | ErrorCode::ShuttingDown => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
            }
            // Somebody has to make room first.
            ErrorCode::StoreFull => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
            }
            _ => {}
        }
        // For browsers this becomes a page; the log says it of faults.
        response.extensions_mut().insert(self.0);
        response
    }
}

/// No route of that name.
pub(crate) async fn not_found() -> ApiError {
    ApiError(Error::new(
        ErrorCode::NotFound,
        "there is no such path; the interface begins at /v1/studies",
    ))
}

/// A route, but not with this method.
pub(crate) async fn method_not_allowed() -> ApiError {
    ApiError(Error::new(
        ErrorCode::MethodNotAllowed,
        "this path does not take this method; the Allow header names those it takes",
    ))
}

/// The answer, or a problem when the handler panics: a fault of ours. The message stays out of the answer and
/// the log. What the handler leaves behind is dropped, and nothing else sees it.
pub(crate) async fn caught(answer: impl Future<Output = Response>) -> Response {
    let mut answer = pin!(answer);
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)))
            .unwrap_or_else(|_| Poll::Ready(panicked()))
    })
    .await
}

fn panicked() -> Response {
    tracing::error!(request_id = request_id::current(), "a handler panicked");
    ApiError(Error::new(
        ErrorCode::Internal,
        "the server failed on this request through a fault of its own; what was not acknowledged was not counted: send it again",
    ))
    .into_response()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_a_problem_that_tells_nothing() {
        async fn broken() -> Response {
            // Not only in the first poll.
            tokio::task::yield_now().await;
            panic!("secret");
        }
        let response = caught(broken()).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.code, ErrorCode::Internal);
        assert!(!problem.detail.contains("secret"));
        let fine = caught(async { StatusCode::CREATED.into_response() }).await;
        assert_eq!(fine.status(), StatusCode::CREATED);
    }
}
