//! Errors as problem documents (RFC 9457).

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::Poll,
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use eigenveil_shared::{
    Error, ErrorCode,
    api::{PROBLEM_MEDIA_TYPE, Problem},
    error,
};
use eigenveil_store::request_id;

use super::public_path;
use crate::app::AppState;

#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) error: Error,
    /// Seconds after which a retry may succeed.
    retry_after: Option<u64>,
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let retry_after = match error.code() {
            ErrorCode::TooManyRequests => Some(1),
            ErrorCode::StoreUnavailable | ErrorCode::ShuttingDown => Some(5),
            // Somebody has to free space first.
            ErrorCode::StoreFull => Some(60),
            _ => None,
        };
        Self { error, retry_after }
    }
}

impl ApiError {
    /// A rate limit was exceeded: of what, and how long to wait.
    pub(crate) fn rate_limited(what: &str, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        let detail = format!("there were too many {what}; retry in {seconds} s");
        Self {
            error: Error::new(ErrorCode::TooManyRequests, detail),
            retry_after: Some(seconds),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { error, retry_after } = self;
        let problem = Problem::new(&error);
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // A problem is strings and a number, so writing it cannot fail.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(PROBLEM_MEDIA_TYPE),
        );
        if error.code() == ErrorCode::Unauthorized {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"eigenveil\""),
            );
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // Turned into a page for browsers, and logged for status 5xx.
        response.extensions_mut().insert(error);
        response
    }
}

pub(crate) async fn not_found(State(app): State<AppState>, request: Request) -> ApiError {
    let prefix = public_path::prefix(&app, request.uri(), request.extensions());
    let path = request.uri().path();
    // Not served as well: a request for /pca/pca/metrics would evade a proxy's rule about /pca/metrics.
    let has_prefix = !prefix.is_empty() && path.starts_with(&format!("{prefix}/"));
    let detail = match has_prefix {
        true => format!(
            "there is no such path; the proxy must remove {prefix}, the path of public_url (in nginx, end proxy_pass with a slash)"
        ),
        false => format!("there is no such path; the API begins at {prefix}/v1/studies"),
    };
    Error::new(ErrorCode::NotFound, detail).into()
}

pub(crate) async fn method_not_allowed() -> ApiError {
    error!(
        MethodNotAllowed,
        "this path does not allow this method; the Allow header lists the methods it allows"
    )
    .into()
}

/// The response, or a problem if the handler panics: a bug. The panic message goes neither into the response nor into
/// the log. State left by the handler is dropped and not used again.
pub(crate) async fn catch_panic(mut handler: Pin<&mut impl Future<Output = Response>>) -> Response {
    poll_fn(|context| {
        catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(context)))
            .unwrap_or_else(|_| Poll::Ready(panicked()))
    })
    .await
}

fn panicked() -> Response {
    tracing::error!(request_id = request_id::current(), "a handler panicked");
    ApiError::from(error!(
        Internal,
        "the server failed on this request because of a bug; reports that were not acknowledged were not counted: retry"
    ))
    .into_response()
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_problem_without_its_message() {
        async fn broken() -> Response {
            // Not in the first poll.
            tokio::task::yield_now().await;
            panic!("secret");
        }
        let response = catch_panic(pin!(broken())).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let problem: Problem = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem.code, ErrorCode::Internal);
        assert!(!problem.detail.contains("secret"));
        let fine = catch_panic(pin!(async { StatusCode::CREATED.into_response() })).await;
        assert_eq!(fine.status(), StatusCode::CREATED);
    }
}
