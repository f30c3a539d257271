//! The HTTP interface (`docs/protocol.md`).

mod body;
pub(crate) mod direct;
mod drain;
mod estimates;
mod extract;
mod files;
mod health;
mod limit;
mod metrics;
mod problem;
mod reports;
mod studies;
mod trace;
mod transfers;

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{Next, from_fn_with_state},
    response::Response,
    routing::{get, post},
};

pub(crate) use self::direct::REPORTS;
pub use self::{estimates::EstimateList, problem::status_of};
use crate::app::AppState;

/// The routes of one server, to be served by [`Server`](crate::Server) or mounted in an application of
/// your own.
pub fn router(app: AppState) -> Router {
    Router::new()
        .route("/v1/studies", post(studies::create).get(studies::list))
        .route(
            "/v1/studies/{id}",
            get(studies::show).delete(studies::delete),
        )
        .route("/v1/studies/{id}/export", get(transfers::export))
        .route("/v1/studies/{id}/import", post(transfers::merge))
        .route("/v1/imports", post(transfers::import))
        .route("/v1/backup", get(transfers::backup))
        .route("/v1/studies/{id}/open", post(studies::open))
        .route("/v1/studies/{id}/close", post(studies::close))
        .route(direct::REPORTS, post(reports::submit))
        .route(
            "/v1/studies/{id}/estimates",
            post(estimates::create).get(estimates::list),
        )
        .route(
            "/v1/studies/{id}/estimates/{number}",
            get(estimates::show).delete(estimates::cancel),
        )
        .route("/healthz", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::show))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(from_fn_with_state(app.clone(), around))
        .with_state(app)
}

/// One layer, because each boxes a future and clones the routes beneath it.
async fn around(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("(none)", MatchedPath::as_str);
    surrounded(&app, request, path, |request| {
        problem::caught(next.run(request))
    })
    .await
}

/// What is done around every handler.
async fn surrounded(
    app: &AppState,
    request: Request,
    path: &str,
    handler: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    trace::log(app, request, path, |request| {
        drain::unread(app, request, |request| limit::within(app, request, handler))
    })
    .await
}
