//! Pages for people: complete without a script, live with one.
//!
//! One file a page, its handler beside its markup. Nothing inline, nothing from elsewhere: the policy in
//! [`layout`] holds for all of them. They are not part of the interface for programs, and not in its OpenAPI document.

mod about;
mod actions;
mod assets;
mod create;
mod design;
mod error;
mod events;
mod images;
mod layout;
mod login;
mod participate;
mod planner;
mod renderings;
mod session;
mod studies;
mod study;
mod view;
mod visitor;

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    http::{Method, header},
    response::Response,
    routing::{get, post},
};
use eigenveil_shared::Error;
use tokio::sync::Semaphore;

pub(crate) use self::visitor::session_token;
use self::{
    images::Drawing,
    renderings::{Page, Renderings},
    session::Sessions,
    view::Views,
    visitor::Visitor,
};
use crate::app::AppState;

/// Browsers that may watch studies at once: those of anybody, of analysts, of the operator. Each has places that the
/// others cannot take.
const MOST_WATCHERS: [usize; 3] = [192, 48, 16];

/// What pages keep between requests.
pub(crate) struct PageState {
    sessions: Sessions,
    views: Views,
    rendered: Renderings<Page>,
    drawings: Renderings<Drawing>,
    watchers: [Arc<Semaphore>; 3],
}

impl Default for PageState {
    fn default() -> Self {
        Self {
            sessions: Sessions::default(),
            views: Views::default(),
            rendered: Renderings::default(),
            drawings: Renderings::default(),
            watchers: MOST_WATCHERS.map(|places| Arc::new(Semaphore::new(places))),
        }
    }
}

/// The routes of the pages.
pub(crate) fn routes() -> Router<AppState> {
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
        .route("/studies/{id}/open", post(actions::open))
        .route("/studies/{id}/close", post(actions::close))
        .route("/studies/{id}/estimates", post(actions::ask))
        .route("/studies/{id}/estimates/{number}", get(study::estimate))
        .route(
            "/studies/{id}/estimates/{number}/{file}",
            get(actions::file),
        )
        .route("/assets/style.css", get(assets::style))
        .route("/assets/live.js", get(assets::script))
        .route(assets::ICON, get(assets::icon))
}

/// Turns the errors of a request whose sender wants pages into pages.
pub(crate) async fn errors_for_browsers(
    app: &AppState,
    request: Request,
    handler: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    if !error::wants_page(request.headers()) {
        return handler(request).await;
    }
    let visitor = Visitor::of(app, request.uri(), request.headers(), request.extensions());
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
