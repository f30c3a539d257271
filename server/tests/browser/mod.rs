//! A browser without scripts, and checks for every page it gets.
#![allow(unreachable_pub, reason = "one test file compiles this")]

use std::collections::HashSet;

use axum::{
    body::Body,
    http::{Request, StatusCode, header},
};
use roxmltree::{Document, Node};

use super::{
    common::{Harness, Reply},
    html,
};

pub const HTML: &str = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";

/// A browser without scripts: stores a cookie, follows redirects when told to, checks every page.
pub struct Browser<'a> {
    pub server: &'a Harness,
    pub cookie: Option<String>,
}

/// A page, parsed.
pub struct Page {
    pub response: Reply,
    pub html: Document<'static>,
}

impl<'a> Browser<'a> {
    pub fn new(server: &'a Harness) -> Self {
        Self {
            server,
            cookie: None,
        }
    }

    pub async fn operator(server: &'a Harness) -> Browser<'a> {
        let mut browser = Self::new(server);
        browser.login(&server.token.clone()).await;
        browser
    }

    pub async fn login(&mut self, token: &str) {
        self.page("/login").await;
        let response = self.post("/login", &[("token", token)]).await;
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{response:?}");
    }

    pub async fn send(&mut self, request: axum::http::request::Builder, body: String) -> Reply {
        let mut request = request.header(header::ACCEPT, HTML);
        if let Some(cookie) = &self.cookie {
            request = request.header(header::COOKIE, format!("a=b; {cookie}"));
        }
        let response = self
            .server
            .send(request.body(Body::from(body)).unwrap())
            .await;
        if let Some(set) = response.headers.get(header::SET_COOKIE) {
            let set = set.to_str().unwrap();
            for attribute in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
                assert!(set.contains(attribute), "{set}");
            }
            let pair = set.split(';').next().unwrap().to_owned();
            self.cookie = (!pair.ends_with('=')).then_some(pair);
        }
        response
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.send(Request::get(path), String::new()).await
    }

    /// A page that must exist.
    pub async fn page(&mut self, path: &str) -> Page {
        let response = self.get(path).await;
        assert_eq!(response.status, StatusCode::OK, "{path}: {response:?}");
        Page::new(response)
    }

    /// Sends a form that is rejected; returns the page with the error.
    pub async fn refused(&mut self, path: &str, fields: &[(&str, &str)], status: u16) -> Page {
        let response = self.post(path, fields).await;
        assert_eq!(response.status, status, "{response:?}");
        Page::new(response)
    }

    /// A figure that must exist.
    pub async fn figure(&mut self, path: &str) -> Reply {
        let figure = self.get(path).await;
        assert_eq!(figure.status, StatusCode::OK, "{path}");
        assert_eq!(figure.headers[header::CONTENT_TYPE], "image/svg+xml");
        assert_eq!(figure.headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        figure
    }

    /// Sends a form as a page of this server would.
    pub async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let key = self.csrf_token().await;
        let mut fields = fields.to_vec();
        fields.push(("csrf_token", &key));
        self.post_raw(path, &fields).await
    }

    pub async fn post_raw(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        let request =
            Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request, body).await
    }

    /// The CSRF token of the login form, valid for all forms of this browser.
    pub async fn csrf_token(&mut self) -> String {
        self.page("/login").await.value("input[name=csrf_token]")
    }

    /// Sends a form and follows the redirect.
    pub async fn act(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let response = self.post(path, fields).await;
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{response:?}");
        let location = response.headers[header::LOCATION]
            .to_str()
            .unwrap()
            .to_owned();
        self.page(&location).await
    }
}

impl Page {
    /// Every page is well-formed HTML with security headers, and loads nothing from elsewhere.
    #[track_caller]
    pub fn new(response: Reply) -> Self {
        let text = String::from_utf8(response.body.clone()).unwrap();
        let html = html::parse(&text);
        let headers = &response.headers;
        assert_eq!(headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(
            headers[header::CONTENT_SECURITY_POLICY],
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        );
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
        assert_eq!(headers[header::CACHE_CONTROL], "no-store");
        let page = Self { response, html };
        for element in page.all("*") {
            for attribute in element.attributes() {
                let (name, value) = (attribute.name(), attribute.value());
                assert!(!name.starts_with("on") && name != "style", "{name}={value}");
                if ["src", "href", "action", "srcset"].contains(&name) {
                    // The only link that the operator chooses: the contact.
                    let contact = element.has_tag_name("a")
                        && (value.starts_with("mailto:") || value.starts_with("https://"))
                        && element.attribute("rel") == Some("noreferrer");
                    assert!(
                        value.is_empty() || value.starts_with(['/', '#']) || contact,
                        "{name}={value}"
                    );
                    assert!(!value.starts_with("//"), "{name}={value}");
                }
            }
        }
        for script in page.all("script") {
            assert!(!script.has_children(), "an inline script");
        }
        assert_eq!(page.all("style").len(), 0, "an inline style");
        // For screen readers and keyboards.
        for landmark in [
            "header",
            "main#main",
            "footer",
            "nav[aria-label]",
            "a.skip",
            "h1",
            "html[lang]",
        ] {
            assert!(!page.all(landmark).is_empty(), "{landmark} is missing");
        }
        assert_eq!(page.all("h1").len(), 1);
        for image in page.all("img") {
            assert!(!image.attribute("alt").unwrap().is_empty());
        }
        for field in page.all("input:not([type=hidden]), select, textarea") {
            let id = field.attribute("id").unwrap();
            assert_eq!(
                page.all(&format!("label[for={id}]")).len(),
                1,
                "{id} has no label"
            );
        }
        let elements = page.all("[id]");
        let ids: HashSet<_> = elements.iter().map(|e| e.attribute("id")).collect();
        assert_eq!(ids.len(), elements.len(), "an id is there twice");
        page
    }

    pub fn all(&self, selector: &str) -> Vec<Node<'_, 'static>> {
        html::select(&self.html, selector)
    }

    #[track_caller]
    pub fn text(&self, selector: &str) -> String {
        let elements = self.all(selector);
        assert!(!elements.is_empty(), "no {selector} in {}", self.body());
        html::text(elements[0])
    }

    #[track_caller]
    pub fn says(&self, selector: &str, words: &str) {
        let text = self.text(selector);
        assert!(text.contains(words), "no {words:?} in {text}");
    }

    #[track_caller]
    pub fn value(&self, selector: &str) -> String {
        let value = self.all(selector)[0].attribute("value");
        value.unwrap_or_default().to_owned()
    }

    /// Targets of links and sources of images.
    pub fn links(&self, selector: &str) -> Vec<String> {
        let link = |element: &Node<'_, '_>| {
            let mut names = ["href", "src", "srcset", "action"].into_iter();
            let link = names.find_map(|name| element.attribute(name));
            link.unwrap().to_owned()
        };
        self.all(selector).iter().map(link).collect()
    }

    pub fn body(&self) -> String {
        String::from_utf8_lossy(&self.response.body).into_owned()
    }

    pub fn has(&self, selector: &str) -> bool {
        !self.all(selector).is_empty()
    }
}
