//! Figures as image files, each in a wide and a narrow version.

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
use crate::{
    http::{ApiError, ClientKey},
    store::StudyId,
};

/// Width in pixels; two of them fit side by side on a desktop.
pub(super) const WIDE: f64 = 560.0;
/// Width in pixels for phones, where the figure is not scaled down, so that its numbers are readable.
pub(super) const NARROW: f64 = 350.0;

pub(super) fn width(fields: &Fields) -> f64 {
    if fields.has("narrow") { NARROW } else { WIDE }
}

/// Identifies a chart: apart from this, only the number of reports decides what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChartKey {
    pub(super) study: StudyId,
    pub(super) kind: ChartKind,
    /// The estimate it is made from.
    pub(super) estimate: Option<u64>,
    pub(super) narrow: bool,
}

/// The chart of a study that a query requests, rendered again if `version` has changed.
pub(super) async fn cached_chart(
    app: &Pages,
    client: Option<ClientKey>,
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
        .get_or_render(client, key, version, draw)
        .await?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChartKind {
    Arrivals,
    ExpectedError,
    Belief,
}

/// A figure in a page. `path` may have a query.
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

/// An SVG response. It has its own styles, and may load nothing else.
pub(super) fn svg(image: Bytes) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "image/svg+xml"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, image).into_response()
}
