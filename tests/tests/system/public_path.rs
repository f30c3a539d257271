//! A server under a path of its host, behind a proxy that removes the path.

use std::collections::{HashMap, VecDeque};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use roxmltree::Document;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    documentation::as_typed,
    harness::{Folder, ServerProcess, json_of, program, refused, run, succeeded},
    html,
    waiting::until,
};

/// Attributes that a browser, or the script of the pages, makes requests to.
const LINKS: [&str; 6] = [
    "href",
    "src",
    "srcset",
    "action",
    "data-events",
    "data-preview",
];

/// A proxy that serves one server under `/pca`, and nothing else.
#[derive(Clone)]
struct PathProxy {
    server: String,
    client: reqwest::Client,
}

impl PathProxy {
    async fn pass(
        State(proxy): State<Self>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let path = uri.path_and_query().unwrap().as_str();
        let Some(path) = path.strip_prefix("/pca/") else {
            return (StatusCode::NOT_FOUND, "another program").into_response();
        };
        let url = format!("{}/{path}", proxy.server);
        let response = forward(&proxy.client, url, method, headers, body).await;
        response.unwrap()
    }
}

/// Passes a request on to this address, and its response back.
async fn forward(
    client: &reqwest::Client,
    url: String,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> reqwest::Result<Response> {
    let request = client.request(method, url).headers(headers);
    let mut response = request.body(body).send().await?;
    let (status, mut headers) = (response.status(), response.headers().clone());
    headers.remove(header::TRANSFER_ENCODING);
    let is_events = |kind: &HeaderValue| kind == "text/event-stream";
    let body = match headers.get(header::CONTENT_TYPE).is_some_and(is_events) {
        // A stream of events does not end.
        true => response.chunk().await?.unwrap_or_default(),
        false => response.bytes().await?,
    };
    Ok((status, headers, body).into_response())
}

/// A server process with `public_url`, whose commands go through the proxy.
async fn behind_a_proxy(folder: &Folder) -> ServerProcess {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let public = format!("http://{}/pca", listener.local_addr().unwrap());
    let config = folder.write("eigenveil.toml", format!("public_url = \"{public}/\"\n"));
    let flags = format!("--listen 127.0.0.1:0 --config {config}");
    let mut server = ServerProcess::start_as(program, &folder.path().join("data"), &flags);
    let proxy = PathProxy {
        server: std::mem::replace(&mut server.url, public),
        client: client(),
    };
    let routes = Router::new().fallback(PathProxy::pass).with_state(proxy);
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    server
}

fn client() -> reqwest::Client {
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    builder.build().unwrap()
}

/// A browser without scripts, at the host of this server.
struct Browser {
    client: reqwest::Client,
    host: String,
    cookie: Option<String>,
}

struct Reply {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Browser {
    fn new(server: &ServerProcess) -> Self {
        Self {
            client: client(),
            host: server.url.trim_end_matches("/pca").to_owned(),
            cookie: None,
        }
    }

    /// Every redirect and cookie is checked.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.host))
            .header(header::ACCEPT, "text/html");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let response = request.body(body.to_owned()).send().await.unwrap();
        if let Some(location) = response.headers().get(header::LOCATION) {
            let location = location.to_str().unwrap();
            assert!(location.starts_with("/pca/"), "{path}: {location}");
        }
        for set in response.headers().get_all(header::SET_COOKIE) {
            let set = set.to_str().unwrap();
            assert!(set.contains("; Path=/pca/;"), "{path}: {set}");
            let pair = set.split(';').next().unwrap();
            self.cookie = (!pair.ends_with('=')).then(|| pair.to_owned());
        }
        Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned(),
        }
    }

    async fn get(&mut self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    async fn page(&mut self, path: &str) -> Document<'static> {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text);
        html::parse(&reply.text)
    }

    /// Sends the form of a page with these fields, and follows the redirect.
    async fn submit(&mut self, page: &str, action: &str, fields: &str) {
        let page = self.page(page).await;
        let form = format!("form[action={action}]");
        let token = html::select(&page, &format!("{form} input[name=csrf_token]"));
        let token = token[0].attribute("value").unwrap();
        let body = format!("csrf_token={token}&{fields}");
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        let reply = self.send(Method::POST, action, &kind, &body).await;
        assert_eq!(reply.status, 303, "{action}: {}", reply.text);
        self.page(reply.headers[header::LOCATION].to_str().unwrap())
            .await;
    }

    /// Follows every link of every page that can be reached: all are under the path, and are there. Returns what was
    /// found, with its content type.
    async fn crawl(&mut self) -> HashMap<String, String> {
        let mut pages = HashMap::new();
        let mut waiting = VecDeque::from([("/pca/".to_owned(), false)]);
        while let Some((path, is_form)) = waiting.pop_front() {
            if pages.contains_key(&path) {
                continue;
            }
            let reply = self.get(&path).await;
            // A form that can only be sent is not shown, but is there.
            let expected = if is_form { [200, 405] } else { [200, 200] };
            assert!(expected.contains(&reply.status), "{path}: {}", reply.status);
            let kind = reply.headers[header::CONTENT_TYPE].to_str().unwrap();
            pages.insert(path.clone(), kind.to_owned());
            if !kind.starts_with("text/html") {
                continue;
            }
            let page = html::parse(&reply.text);
            for element in html::select(&page, "*") {
                for name in LINKS {
                    let Some(link) = element.attribute(name) else {
                        continue;
                    };
                    if !link.starts_with('#') {
                        assert!(link.starts_with("/pca/"), "{path}: {name}={link}");
                        let posts = ["action", "data-preview"].contains(&name);
                        waiting.push_back((link.to_owned(), posts));
                    }
                }
            }
        }
        pages
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_under_a_path() {
    let folder = Folder::new();
    let server = behind_a_proxy(&folder).await;
    let study = server.create_study("--p 2 --epsilon 4");
    let path = format!("/pca/studies/{study}");
    let mut visitor = Browser::new(&server);

    // The printed command works as it is.
    let page = visitor.page(&format!("{path}/participate")).await;
    let command = html::text(html::select(&page, "#report-command")[0]);
    let address = format!("--server {} --study {study}", server.url);
    assert!(command.contains(&address), "{command}");
    folder.write("ROWS.csv", "a,b\n1,2\n2,1\n1,1\n");
    succeeded(&as_typed(&folder, &command).output().unwrap());
    assert_eq!(server.accepted(&study), 3);

    // Forms, redirects and cookies.
    let mut operator = Browser::new(&server);
    let login = format!("next=/studies/new&token={}", server.token());
    operator.submit("/pca/login", "/pca/login", &login).await;
    let estimates = format!("{path}/estimates");
    // From the second on they are listed.
    for k in ["k=1", "k=2"] {
        operator.submit(&path, &estimates, k).await;
    }
    let estimate = format!("{estimates}/2");
    until("the estimate", async || {
        let page = operator.get(&estimate).await.text;
        page.contains("components.csv")
    })
    .await;

    let seen = visitor.crawl().await;
    let all = operator.crawl().await;
    for (path, kind) in [
        ("/pca/studies/new", "text/html"),
        (&estimate, "text/html"),
        (&format!("{estimate}/components.csv"), "text/csv"),
        (&format!("{path}/events"), "text/event-stream"),
        (&format!("{path}/arrivals.svg?narrow=1"), "image/svg+xml"),
        ("/pca/assets/icon.svg", "image/svg+xml"),
    ] {
        assert!(all[path].starts_with(kind), "{path}: {}", all[path]);
    }
    assert!(seen.len() > 10 && all.len() > seen.len() + 10, "{all:#?}");
    for start in ["/pca/assets/style.css?v=", "/pca/assets/live.js?v="] {
        assert!(seen.keys().any(|path| path.starts_with(start)), "{seen:#?}");
    }
    operator.submit("/pca/", "/pca/logout", "").await;
    assert_eq!(operator.cookie, None);
    let lost = visitor.get("/pca/nothing").await;
    assert!(lost.status == 404 && lost.text.contains("href=\"/pca/login\""));
    // As from a proxy that keeps the path.
    let login_page = visitor.get("/pca/pca/login").await;
    assert!(login_page.status == 404 && login_page.text.contains("proxy must remove /pca"));

    // The API.
    server.create_study("--p 2 --epsilon 4");
    let token = format!("Bearer {}", server.token());
    let api = [
        ("authorization", &*token),
        ("content-type", "application/json"),
    ];
    let path = format!("/pca/v1/studies/{study}/estimates");
    let reply = visitor.send(Method::POST, &path, &api, "{}").await;
    assert_eq!(reply.headers[header::LOCATION], format!("{path}/3"));
    let list = visitor.get("/pca/v1/studies?limit=1").await;
    let link = list.headers[header::LINK].to_str().unwrap();
    assert!(link.starts_with("</pca/v1/studies?after="), "{link}");
    let document = visitor.get("/pca/openapi.json").await.text;
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["servers"], json!([{ "url": server.url }]));
}

/// A stranger's headers are not in the pages that others get.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_do_not_change_links() {
    let folder = Folder::new();
    let server = behind_a_proxy(&folder).await;
    let study = server.create_study("--p 2 --epsilon 4");
    let mut browser = Browser::new(&server);
    let headers = [
        ("host", "evil.example"),
        ("forwarded", "host=evil.example;proto=https"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-prefix", "/evil"),
        ("x-forwarded-proto", "https"),
        ("x-script-name", "/evil"),
        ("x-original-url", "/evil"),
    ];
    for page in ["", "/participate"] {
        let path = format!("/pca/studies/{study}{page}");
        let changed = browser.send(Method::GET, &path, &headers, "").await.text;
        assert!(!changed.contains("evil"), "{changed}");
        assert_eq!(changed, browser.get(&path).await.text);
    }
}

#[test]
fn a_public_address_is_checked_and_shown() {
    let folder = Folder::new();
    let data = folder.at("data");
    let check = |url: &str| {
        let config = folder.write("eigenveil.toml", format!("public_url = {url:?}\n"));
        run(&format!(
            "serve --data {data} --listen 127.0.0.1:0 --config {config} --check-config --json"
        ))
    };
    let url = "https://study.example/pca";
    assert_eq!(json_of(&check(url))["public_url"], url);
    for wrong in ["study.example/pca", "https://study.example/pca?x=1"] {
        refused(&check(wrong), 2, &["eigenveil.toml", wrong, url]);
    }
}
