//! Pictures as images of their own, in a wide and a narrow drawing.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use eigenveil_figures::{Figure, LineChart};
use eigenveil_shared::Error;
use maud::{Markup, html};

use super::{
    state::Pages,
    visitor::{Fields, Visitor},
};
use crate::{http::ApiError, store::StudyId};

/// Pixels of a drawing, two of which stand side by side on a desktop.
pub(super) const WIDE: f64 = 560.0;
/// Pixels of the drawing for phones, on which it is not scaled down, so that its numbers can be read.
pub(super) const NARROW: f64 = 350.0;

/// The width that a query asks for.
pub(super) fn width(fields: &Fields) -> f64 {
    if fields.has("narrow") { NARROW } else { WIDE }
}

/// Which drawing it is: nothing else but the number of reports decides what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChartKey {
    pub(super) study: StudyId,
    pub(super) kind: ChartKind,
    /// The estimate that it is made from.
    pub(super) estimate: Option<u64>,
    pub(super) narrow: bool,
}

/// The picture of a study that a query asks for, drawn anew where `version` is another one.
pub(super) async fn cached_chart(
    app: &Pages,
    (study, kind, estimate): (StudyId, ChartKind, Option<u64>),
    query: Option<String>,
    version: impl Fn() -> u64,
    chart: impl FnOnce() -> Result<LineChart, Error> + Send + 'static,
) -> Result<Response, ApiError> {
    let fields = Fields::parse(query.unwrap_or_default().as_bytes());
    let key = ChartKey {
        study,
        kind,
        estimate,
        narrow: fields.has("narrow"),
    };
    let draw = move || {
        let mut chart = chart()?;
        chart.width = width(&fields);
        Ok(chart.to_svg().into())
    };
    Ok(svg(app
        .state
        .charts
        .get_or_render(key, version, draw)
        .await?))
}

/// What a drawing of a study shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChartKind {
    Arrivals,
    ExpectedError,
    Belief,
}

/// An image in the page. `path` may have a query.
pub(super) fn figure(visitor: &Visitor, path: &str, what: &str) -> Markup {
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

/// The answer that is a picture. It has its own style inside, and may hold nothing else.
pub(super) fn svg(image: Bytes) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "image/svg+xml"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, image).into_response()
}
