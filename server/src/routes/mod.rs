//! The table of routes, and the middleware around every handler.

mod openapi;

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    http::{HeaderValue, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::openapi::openapi;
use crate::{
    app::AppState,
    http::{
        client_key, drain, estimates, health, host, metrics, openapi::base_document, problem,
        rate_limit_layer, reports, response_budget, studies, tokens, trace, transfers,
    },
    pages,
};

/// No response is anything else than its media type says.
const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// Browsers use HTTPS only, for a year.
const HSTS: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// The routes of one server, to be served by [`Server`](crate::Server) or mounted in your own application.
pub fn router(app: AppState) -> Router {
    Router::from(routes())
        .merge(pages::routes(app.clone()))
        .fallback(problem::not_found)
        .method_not_allowed_fallback(problem::method_not_allowed)
        .layer(from_fn_with_state(app.clone(), with_middleware))
        .with_state(app)
}

/// The only table of API routes. Method, path and description belong to the handler, so that the OpenAPI document
/// describes what is served.
fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(base_document())
        .routes(routes!(studies::create, studies::list))
        .routes(routes!(studies::show, studies::delete))
        .routes(routes!(studies::open))
        .routes(routes!(studies::close))
        .routes(routes!(reports::submit))
        .routes(routes!(estimates::create, estimates::list))
        .routes(routes!(estimates::show, estimates::cancel))
        .routes(routes!(tokens::issue, tokens::count))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(tokens::rotate))
        .routes(routes!(transfers::export))
        .routes(routes!(transfers::merge))
        .routes(routes!(transfers::import))
        .routes(routes!(transfers::backup))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::show))
        .routes(routes!(openapi::document))
}

/// A single layer, because each one boxes a future and clones the routes beneath it.
async fn with_middleware(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("(none)", MatchedPath::as_str);
    let client = client_key(&app, request.headers(), request.extensions());
    let limited = |request| {
        rate_limit_layer::enforce_rate_limits(&app, request, |request| {
            problem::catch_panic(async {
                match host::check_host(&request) {
                    Ok(()) => next.run(request).await,
                    Err(error) => problem::ApiError::from(error).into_response(),
                }
            })
        })
    };
    let traced = |request| {
        trace::log(&app, request, path, async |request| {
            response_budget::charge_to_budget(
                &app,
                client,
                drain::drain_after(&app, request, limited).await,
            )
        })
    };
    let mut response = pages::errors_for_browsers(&app, request, traced).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    // Behind a proxy that terminates TLS this is the proxy's to promise.
    if app.config().tls_files().is_some() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HSTS);
    }
    response
}
