//! Web pages: complete without a script, live with one.
//!
//! One file a page, with its handler and its markup. Nothing inline and nothing from other hosts: the policy in
//! [`layout`] applies to all of them. The pages are not part of the API and not in its OpenAPI document.

mod about;
mod actions;
mod create;
mod design;
mod events;
mod login;
mod participate;
mod planner;
mod population;
mod preparation;
mod shared;
mod sites;
mod studies;
mod study;
mod view;

use axum::{
    Router,
    extract::Request,
    http::{Method, header},
    response::Response,
    routing::{get, post},
};
use eigenveil_shared::Error;

pub(crate) use self::error::wants_page;
use self::{
    shared::{assets, error, images, layout, render_cache, state, visitor},
    state::Pages,
    visitor::Visitor,
};
use crate::app::AppState;

pub(crate) fn routes(app: AppState) -> Router<AppState> {
    Router::new()
        .route("/", get(studies::show))
        .route("/login", get(login::show).post(login::submit))
        .route("/logout", post(login::logout))
        .route("/studies/new", get(create::show).post(create::submit))
        .route("/studies/new/plan", post(create::preview))
        .route("/studies/new/curve.svg", get(create::curve))
        .route("/studies/{id}", get(study::show))
        .route("/studies/{id}/events", get(events::stream))
        .route("/studies/{id}/arrivals.svg", get(study::arrivals))
        .route(
            "/studies/{id}/expected-error.svg",
            get(study::expected_error),
        )
        .route("/studies/{id}/participate", get(participate::show))
        .route("/studies/{id}/belief.svg", get(participate::belief))
        .route("/studies/{id}/report.svg", get(participate::report))
        .route("/studies/{id}/open", post(actions::open))
        .route("/studies/{id}/close", post(actions::close))
        .route("/studies/{id}/estimates", post(actions::request_estimate))
        .route("/studies/{id}/estimates/{number}", get(study::estimate))
        .route(
            "/studies/{id}/estimates/{number}/{file}",
            get(actions::file),
        )
        .route("/assets/style.css", get(assets::style))
        .route("/assets/live.js", get(assets::script))
        .route(assets::ICON, get(assets::icon))
        .with_state(Pages::new(app))
}

/// Turns error responses into pages for clients that prefer pages.
pub(crate) async fn errors_for_browsers(
    app: &AppState,
    request: Request,
    handler: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    if !wants_page(request.headers()) {
        return handler(request).await;
    }
    let visitor =
        Visitor::from_request(app, request.uri(), request.headers(), request.extensions());
    let head = request.method() == Method::HEAD;
    let mut response = handler(request).await;
    let Some(error) = response.extensions_mut().remove::<Error>() else {
        return response;
    };
    let id = response.headers().get("x-request-id").cloned();
    let mut page = error::page(&visitor, &error, &response);
    if let Some(id) = id {
        page.headers_mut().insert("x-request-id", id);
    }
    if head {
        *page.body_mut() = axum::body::Body::empty();
        page.headers_mut().remove(header::CONTENT_LENGTH);
    }
    page
}
