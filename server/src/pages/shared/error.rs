//! Error pages for browsers.

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use eigenveil_shared::{Error, ErrorCode};
use maud::html;

use super::{layout, visitor::Visitor};

pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(','))
        .any(|kind| {
            kind.split(';')
                .next()
                .is_some_and(|kind| kind.trim() == "text/html")
        })
}

/// The page of an error, with the relevant headers of its problem document.
pub(crate) fn page(visitor: &Visitor, error: &Error, problem: &Response) -> Response {
    let status = problem.status();
    let content = html! {
        h1 { (error.code().title()) }
        p #error role="alert" { (sentence(error.detail())) }
        p .muted { "Code " code { (error.code().as_str()) } ", status " (status.as_u16()) "." }
        @if error.code() == ErrorCode::Unauthorized || status == StatusCode::FORBIDDEN {
            p { a .button href=(visitor.link("/login")) { "Log in" } }
        }
        p { a href=(visitor.link("/")) { "All studies" } }
    };
    let mut response = layout::page(visitor, status, error.code().title(), &content);
    for name in [header::RETRY_AFTER, header::ALLOW, header::CONNECTION] {
        if let Some(value) = problem.headers().get(&name) {
            response.headers_mut().insert(name, value.clone());
        }
    }
    response
}

/// With a capital letter and a full stop.
pub(crate) fn sentence(detail: &str) -> String {
    let mut letters = detail.chars();
    let first: String = letters
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    let stop = if detail.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_are_recognized_by_their_accept_header() {
        let accepts_page = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, value.parse().unwrap());
            wants_page(&headers)
        };
        assert!(accepts_page(
            "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
        ));
        assert!(accepts_page("application/json, text/html;q=0.1"));
        assert!(
            !accepts_page("*/*")
                && !accepts_page("application/json")
                && !wants_page(&HeaderMap::new())
        );
    }
}
