//! State that pages keep between requests.

use std::sync::Arc;

use axum::{extract::FromRef, response::Response};
use eigenveil_figures::{Figure as _, LineChart};
use eigenveil_shared::Error;
use tokio::sync::Semaphore;

use super::{
    images::{svg, width},
    render_cache::{Page, RenderCache},
    view::Views,
    visitor::Fields,
};
use crate::{app::AppState, http::ApiError, net::rate_limiter::ClientKey, store::StudyId};

/// Maximum numbers of event streams: for visitors, analysts and the operator. Each group has its own slots.
const MAX_WATCHERS: [usize; 3] = [192, 48, 16];

#[derive(Clone)]
pub(super) struct Pages {
    app: AppState,
    pub(super) state: Arc<PageState>,
}

pub(super) struct PageState {
    pub(super) views: Views,
    pub(super) pages: RenderCache<Page>,
    pub(super) charts: RenderCache<ChartKey>,
    pub(super) watchers: [Arc<Semaphore>; 3],
}

impl Pages {
    pub(super) fn new(app: AppState) -> Self {
        Self {
            app,
            state: Arc::new(PageState {
                views: Views::default(),
                pages: RenderCache::default(),
                charts: RenderCache::default(),
                watchers: MAX_WATCHERS.map(|places| Arc::new(Semaphore::new(places))),
            }),
        }
    }
}

impl FromRef<Pages> for AppState {
    fn from_ref(pages: &Pages) -> Self {
        pages.app.clone()
    }
}

impl std::ops::Deref for Pages {
    type Target = AppState;

    fn deref(&self) -> &AppState {
        &self.app
    }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChartKind {
    Arrivals,
    ExpectedError,
    Belief,
}

/// The chart of a study that a query requests, rendered again if `version` has changed.
pub(super) async fn cached_chart(
    app: &Pages,
    client: Option<ClientKey>,
    (study, kind, estimate): (StudyId, ChartKind, Option<u64>),
    fields: Fields,
    version: impl Fn() -> u64,
    chart: impl FnOnce() -> Result<LineChart, Error> + Send + 'static,
) -> Result<Response, ApiError> {
    let key = ChartKey {
        study,
        kind,
        estimate,
        narrow: fields.has("narrow"),
    };
    let draw = move || Ok(chart()?.to_svg_of_width(width(&fields)).into());
    Ok(svg(app
        .state
        .charts
        .get_or_render(client, key, version, draw)
        .await?))
}
