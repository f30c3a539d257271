//! The layout shared by all pages, and the formats of numbers and dates.

use axum::{
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use bytes::Bytes;
use eigenveil_shared::{about::UtcDate, api::StudyState};
use maud::{DOCTYPE, Markup, html};

use super::{assets, visitor::Visitor};

/// Only our own scripts and styles, none of them inline; no framing.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

pub(crate) fn page(
    visitor: &Visitor,
    status: StatusCode,
    title: &str,
    content: &Markup,
) -> Response {
    html_response(status, document(visitor, title, content))
}

/// The bytes of a page. For visitors who are not logged in they depend only on the content and on [`Visitor::base`], so
/// they can be shared ([`RenderCache`](super::render_cache::RenderCache)).
pub(crate) fn document(visitor: &Visitor, title: &str, content: &Markup) -> Bytes {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Eigenveil" }
                link rel="icon" href=(visitor.link(assets::ICON));
                link rel="stylesheet" href=(visitor.link(&assets::style_path()));
                script src=(visitor.link(&assets::script_path())) defer {}
            }
            body {
                a .skip href="#main" { "Skip to content" }
                header .top {
                    a .brand href=(visitor.link("/")) { "Eigenveil" }
                    nav aria-label="Main" {
                        a href=(visitor.link("/")) { "Studies" }
                        @if visitor.is_operator() {
                            a href=(visitor.link("/studies/new")) { "Create a study" }
                        }
                        @if visitor.is_logged_in() {
                            form method="post" action=(visitor.link("/logout")) {
                                (csrf_token(visitor))
                                button .plain type="submit" { "Log out" }
                            }
                        } @else {
                            a href=(visitor.link("/login")) { "Log in" }
                        }
                    }
                }
                main #main tabindex="-1" { (content) }
                footer {
                    p { "Rows stay on the participants' devices. This server receives only deliberately noisy reports, and adds them up." }
                }
            }
        }
    };
    markup.into_string().into()
}

pub(crate) fn html_response(status: StatusCode, document: Bytes) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        // Pages depend on who is logged in.
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, Html(document)).into_response()
}

pub(crate) fn csrf_token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="csrf_token" value=(visitor.csrf_token()); }
}

/// Redirects to another page after a form was processed, so that reloading does not send it again.
pub(crate) fn see_other(visitor: &Visitor, path: &str) -> Response {
    let to = [(header::LOCATION, visitor.link(path))];
    (StatusCode::SEE_OTHER, to).into_response()
}

/// A list of warnings, if there are any.
pub(crate) fn warning_list(id: Option<&str>, warnings: &[String]) -> Markup {
    html! {
        @if !warnings.is_empty() {
            ul id=[id] .cautions { @for warning in warnings { li { (warning) } } }
        }
    }
}

pub(crate) fn badge(state: StudyState) -> Markup {
    html! { span class={ "badge " (state.as_str()) } { (state.as_str()) } }
}

/// Milliseconds since 1970-01-01 as date and time, UTC.
pub(crate) fn format_time(ms: u64) -> String {
    let minute_of_day = ms / 60_000 % 1_440;
    format!(
        "{} {:02}:{:02} UTC",
        UtcDate::from_unix_ms(ms),
        minute_of_day / 60,
        minute_of_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_399, "2000-02-28 23:59 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (951_868_800, "2000-03-01 00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(format_time(seconds * 1_000), text);
        }
    }
}
