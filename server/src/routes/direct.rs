//! The one request that a server gets a million times goes around the router.
//!
//! Routing boxes futures, clones routes and writes down the path's parameters: a twelfth of what a small report costs
//! (`benches/README.md`, "Last numbers"). What is done to the request is the same as in [`router`](super::router).

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{ConnectInfo, Request, State},
    http::Method,
    response::{IntoResponse, Response},
};
use hyper::body::{Body as _, Incoming};
use tower::ServiceExt;

use super::surrounded;
use crate::{
    app::AppState,
    http::{extract, problem, reports},
    memory::SMALL,
    metrics::REPORTS,
};

/// Answers a request as [`router`](super::router) would.
pub(crate) async fn answer(
    app: AppState,
    routes: Router,
    peer: SocketAddr,
    request: hyper::Request<Incoming>,
) -> Result<Response, Infallible> {
    let mut request = request.map(Body::new);
    let study = study_of_report(&request).map(|id| extract::study(&app, id));
    // Most reports need none, and extensions are on the heap.
    let small = request
        .body()
        .size_hint()
        .upper()
        .is_some_and(|bytes| bytes <= SMALL as u64);
    if study.is_none() || !small || app.limits().address.is_some() {
        request.extensions_mut().insert(ConnectInfo(peer));
    }
    let Some(study) = study else {
        return routes.oneshot(request).await;
    };
    let submit = async |request: Request| {
        let answer = async {
            match study {
                Ok(study) => reports::submit(
                    extract::StudyInPath(Arc::clone(&study)),
                    State(app.clone()),
                    request,
                )
                .await
                .into_response(),
                Err(error) => problem::ApiError(error).into_response(),
            }
        };
        problem::caught(answer).await
    };
    Ok(surrounded(&app, request, REPORTS, submit).await)
}

/// The identifier in the path of a request that brings reports.
fn study_of_report<B>(request: &hyper::Request<B>) -> Option<&str> {
    let id = request
        .uri()
        .path()
        .strip_prefix("/v1/studies/")?
        .strip_suffix("/reports")?;
    (request.method() == Method::POST && id.len() == 32 && id.is_ascii()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reports_are_taken() {
        let of = |method: &str, path: &str| {
            let request = hyper::Request::builder().method(method).uri(path).body(());
            study_of_report(&request.unwrap()).map(str::to_owned)
        };
        let id = "ab".repeat(16);
        let path = format!("/v1/studies/{id}/reports");
        assert_eq!(of("POST", &path), Some(id.clone()));
        assert_eq!(of("POST", &format!("{path}?x=1")), Some(id.clone()));
        for (method, path) in [
            ("GET", path.clone()),
            ("POST", format!("{path}/")),
            ("POST", format!("/v1/studies/{id}/estimates")),
            ("POST", "/v1/studies/ab/reports".into()),
            ("POST", format!("/v2/studies/{id}/reports")),
            ("POST", "/v1/studies/reports".into()),
        ] {
            assert_eq!(of(method, &path), None, "{method} {path}");
        }
    }
}
