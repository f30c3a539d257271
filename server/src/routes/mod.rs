//! The table of routes, and the middleware around every handler.

mod openapi;

use std::{net::SocketAddr, pin::pin};

use axum::{
    Router,
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderValue, Method, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse as _, Response},
};
use eigenveil_store::{ClientKey, StudyId};
use tower::ServiceExt as _;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use self::openapi::openapi;
use crate::{
    app::AppState,
    http::{
        answers, client_key, drain, estimates, extract, health, host, metrics,
        openapi::base_document, problem, rate_limit_layer, reports, response_budget, studies,
        tokens, trace, transfers,
    },
    metrics::REPORTS_ROUTE,
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
        .layer(from_fn_with_state(app.clone(), layer))
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
        .routes(routes!(answers::show))
        .routes(routes!(tokens::issue, tokens::count))
        .routes(routes!(tokens::look_up))
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

/// The service of a connection: the [`router`], and reports without it, since the boxes and clones of routing are a
/// tenth of what a report costs the server.
#[derive(Clone)]
pub(crate) struct Routes {
    app: AppState,
    router: Router,
}

impl Routes {
    pub(crate) fn new(app: AppState) -> Self {
        let router = router(app.clone());
        Self { app, router }
    }

    pub(crate) async fn respond(self, mut request: Request, peer: Option<SocketAddr>) -> Response {
        let Self { app, router } = self;
        let Some(id) = study_of_reports(&request) else {
            if let Some(peer) = peer {
                request.extensions_mut().insert(ConnectInfo(peer));
            }
            let Ok(response) = router.oneshot(request).await;
            return response;
        };
        let client = peer.map(|peer| rate_limit_layer::key_of(&app, request.headers(), peer));
        // Borrowed: its odd length would make the compiler copy each state that holds it.
        let client = client.as_ref();
        let submit = async |request| {
            let submitted = async {
                let study = extract::study(&app, id).await?;
                reports::store(&app, study, request, client).await
            };
            submitted.await.into_response()
        };
        with_middleware(&app, request, client, REPORTS_ROUTE, submit).await
    }
}

/// The study in the path of a request that brings reports, unless an error would be a page.
fn study_of_reports(request: &Request) -> Option<StudyId> {
    let path = request.uri().path().strip_prefix("/v1/studies/")?;
    let id = path.strip_suffix("/reports")?;
    let is_device = request.method() == Method::POST && !pages::wants_page(request.headers());
    is_device.then(|| StudyId::parse(id))?
}

/// A single layer, because each one boxes a future and clones the routes beneath it.
async fn layer(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let path = path.as_ref().map_or("(none)", MatchedPath::as_str);
    let client = client_key(&app, request.headers(), request.extensions());
    let client = client.as_ref();
    with_middleware(&app, request, client, path, |request| next.run(request)).await
}

async fn with_middleware(
    app: &AppState,
    request: Request,
    client: Option<&ClientKey>,
    path: &str,
    handler: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let limited = |request| {
        rate_limit_layer::enforce_rate_limits(app, request, client, async |request| {
            let handled = pin!(async {
                match host::check_host(&request, client.is_some()) {
                    Ok(()) => handler(request).await,
                    Err(error) => problem::ApiError::from(error).into_response(),
                }
            });
            problem::catch_panic(handled).await
        })
    };
    let traced = |request| {
        trace::log(app, request, path, async |request| {
            response_budget::charge_to_budget(
                app,
                client,
                drain::drain_after(app, request, limited).await,
            )
        })
    };
    let mut response = pages::errors_for_browsers(app, request, traced).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    // Behind a proxy that terminates TLS this is the proxy's to promise.
    if app.config().tls_files().is_some() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, HSTS);
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use eigenveil_shared::api::REPORT_MEDIA_TYPE;
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::*;
    use crate::ServerConfig;
    use eigenveil_store::{
        Environment,
        testing::fixtures::{create, report_body},
    };

    /// All that a client can tell, but for the number of the request.
    async fn response(response: Response) -> String {
        let (mut parts, body) = response.into_parts();
        assert!(parts.headers.remove("x-request-id").is_some());
        // The connection counts it anyway.
        parts.headers.remove(header::CONTENT_LENGTH);
        let body = body.collect().await.unwrap().to_bytes();
        let mut headers: Vec<_> = parts.headers.iter().collect();
        headers.sort_by_key(|(name, _)| name.as_str());
        format!("{} {headers:?} {body:?}", parts.status)
    }

    #[tokio::test]
    async fn reports_around_the_router_get_its_responses() {
        let directory = tempfile::tempdir().unwrap();
        let config = ServerConfig::new(directory.path().join("data"));
        let app = AppState::open(config, Environment::system()).unwrap();
        let study = create(app.store(), &json!({})).await;
        let (id, body) = (study.id().to_string(), report_body(&study, 1));
        let routes = Routes::new(app.clone());
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let send = async |method: &str, path: &str, media_type: &str, body: &[u8]| {
            let request = || {
                Request::builder()
                    .method(method)
                    .uri(path)
                    .header(header::CONTENT_TYPE, media_type)
                    .header(header::HOST, "localhost")
                    .body(Body::from(body.to_vec()))
                    .unwrap()
            };
            let mut connected = request();
            connected.extensions_mut().insert(ConnectInfo(peer));
            let by_router = routes.router.clone().oneshot(connected).await.unwrap();
            let around = routes.clone().respond(request(), Some(peer)).await;
            let status = around.status().as_u16();
            assert_eq!(response(around).await, response(by_router).await, "{path}");
            (status, study_of_reports(&request()).is_some())
        };
        let path = format!("/v1/studies/{id}/reports");
        // The second is a duplicate.
        let first = Request::post(&path)
            .header(header::CONTENT_TYPE, REPORT_MEDIA_TYPE)
            .header(header::HOST, "localhost");
        let first = first.body(Body::from(body.clone())).unwrap();
        assert_eq!(
            routes.clone().respond(first, Some(peer)).await.status(),
            201
        );
        let reports_path = |id: &str| format!("/v1/studies/{id}/reports");
        let escaped = format!("%{:x}{}", id.as_bytes()[0], &id[1..]);
        for (path, expected) in [
            (path.clone(), (200, true)),
            (format!("{path}?a=b"), (200, true)),
            (format!("http://localhost{path}"), (200, true)),
            (reports_path(&escaped), (200, false)),
            (reports_path(&"0".repeat(32)), (404, true)),
            (reports_path(&"0".repeat(31)), (404, false)),
            (path.to_uppercase(), (404, false)),
            (format!("{path}/"), (404, false)),
            (format!("/{path}"), (404, false)),
        ] {
            let response = send("POST", &path, REPORT_MEDIA_TYPE, &body).await;
            assert_eq!(response, expected, "{path}");
        }
        for (method, media_type, body, expected) in [
            ("POST", REPORT_MEDIA_TYPE, &body[1..], (400, true)),
            ("POST", "text/plain", &body, (415, true)),
            ("PUT", REPORT_MEDIA_TYPE, &body, (405, false)),
            ("GET", REPORT_MEDIA_TYPE, b"", (405, false)),
        ] {
            let found = send(method, &path, media_type, body).await;
            assert_eq!(found, expected, "{method} {media_type}");
        }
        // The metrics call both by one name.
        let metrics = app.metrics().render().unwrap();
        let line = format!("route=\"{REPORTS_ROUTE}\",method=\"POST\",status=\"415\"");
        let line = metrics.lines().find(|found| found.contains(&line));
        assert!(line.is_some_and(|line| line.ends_with(" 2")), "{metrics}");
    }
}
