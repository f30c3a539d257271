//! Figures as image files, each in a wide and a narrow version.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use maud::{Markup, html};

use super::visitor::{Fields, Visitor};

/// Width in pixels; two of them fit side by side on a desktop.
pub(crate) const WIDE: f64 = 560.0;
/// Width in pixels for phones, where the figure is not scaled down, so that its numbers are readable.
pub(crate) const NARROW: f64 = 350.0;

pub(crate) fn width(fields: &Fields) -> f64 {
    if fields.has("narrow") { NARROW } else { WIDE }
}

/// A figure in a page. `path` may have a query.
pub(crate) fn figure(visitor: &Visitor, path: &str, what: &str) -> Markup {
    let path = visitor.link(path);
    let narrow = format!(
        "{path}{}narrow=1",
        if path.contains('?') { '&' } else { '?' }
    );
    html! {
        figure {
            picture {
                source media="(max-width: 38rem)" srcset=(narrow);
                img src=(path) alt=(what);
            }
        }
    }
}

pub(crate) fn svg(image: Bytes) -> Response {
    file("image/svg+xml", "no-store", image)
}

/// A response that may have its own styles, and load nothing else.
pub(crate) fn file(media_type: &str, cached: &str, content: impl IntoResponse) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, cached),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ];
    (headers, content).into_response()
}
