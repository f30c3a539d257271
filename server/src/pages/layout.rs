//! What all pages share: the frame, the numbers and the dates.

use axum::{
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use bytes::Bytes;
use eigenveil_shared::{about::Day, api::StudyState};
use maud::{DOCTYPE, Markup, html};

use super::{assets, visitor::Visitor};

/// Nothing from elsewhere, nothing inline, nobody's frame.
pub(super) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// A page that is made on the spot.
pub(super) fn page(
    visitor: &Visitor,
    status: StatusCode,
    title: &str,
    content: &Markup,
) -> Response {
    html_response(status, document(visitor, title, content))
}

/// The bytes of a page. For visitors who are not logged in they depend on nothing but what is shown and
/// [`Visitor::base`]: they are shared ([`RenderCache::page`](super::render_cache::RenderCache::page)).
pub(super) fn document(visitor: &Visitor, title: &str, content: &Markup) -> Bytes {
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
                a .skip href="#main" { "Skip to the content" }
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
                    p { "Rows stay on the participants' devices. This server gets reports that are noisy on purpose, and sums them." }
                }
            }
        }
    };
    markup.into_string().into()
}

/// The answer that is a page.
pub(super) fn html_response(status: StatusCode, document: Bytes) -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // What a page shows depends on who is logged in.
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, Html(document)).into_response()
}

/// The hidden field without which no form is taken.
pub(super) fn csrf_token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="csrf_token" value=(visitor.csrf_token()); }
}

/// To another page, after a form was taken: reloading that one sends nothing again.
pub(super) fn see_other(visitor: &Visitor, path: &str) -> Response {
    let to = [(header::LOCATION, visitor.link(path))];
    (StatusCode::SEE_OTHER, to).into_response()
}

/// The state of a study, as a word in a box.
pub(super) fn badge(state: StudyState) -> Markup {
    html! { span class={ "badge " (state.as_str()) } { (state.as_str()) } }
}

/// A number a person reads: four digits.
pub(super) fn format_number(value: f64) -> String {
    eigenveil_figures::number::rounded(value, 4)
}

/// Milliseconds since 1970-01-01 as a date and a time, UTC.
pub(super) fn format_time(ms: u64) -> String {
    let of_day = ms / 60_000 % 1_440;
    format!(
        "{} {:02}:{:02} UTC",
        Day::from_unix_ms(ms),
        of_day / 60,
        of_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
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
