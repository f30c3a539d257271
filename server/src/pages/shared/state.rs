//! State that pages keep between requests.

use std::sync::Arc;

use axum::{extract::FromRef, response::Response};
use eigenveil_figures::Figure;
use eigenveil_shared::Error;
use eigenveil_store::Study;
use tokio::sync::Semaphore;

use super::{
    images::{svg, width},
    render_cache::{ChartKind, PageKind, RenderCache},
    visitor::{Fields, Visitor},
};
use crate::{
    app::AppState,
    http::{ApiError, extract::hide_draft},
    pages::view::Views,
};

/// Maximum numbers of event streams: for visitors, analysts and the operator. Each group has its own slots.
const MAX_WATCHERS: [usize; 3] = [192, 48, 16];

#[derive(Clone)]
pub(crate) struct Pages {
    app: AppState,
    pub(crate) state: Arc<PageState>,
}

pub(crate) struct PageState {
    pub(in crate::pages) views: Views,
    pub(crate) pages: RenderCache,
    pub(crate) watchers: [Arc<Semaphore>; 3],
}

impl Pages {
    pub(crate) fn new(app: AppState) -> Self {
        Self {
            app,
            state: Arc::new(PageState {
                views: Views::default(),
                pages: RenderCache::default(),
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

/// The chart of a study that a query requests; of a draft for the operator only.
pub(crate) async fn cached_chart<F: Figure>(
    app: &Pages,
    visitor: Visitor,
    (study, kind): (Arc<Study>, ChartKind),
    fields: Fields,
    chart: impl FnOnce(Arc<Study>, &Visitor) -> Result<F, Error> + Send + 'static,
) -> Result<Response, ApiError> {
    hide_draft(&study, visitor.is_operator())?;
    let what = PageKind::Chart(study.id(), kind, fields.has("narrow"));
    let draw = move |visitor: &Visitor| {
        let chart = chart(study, visitor)?;
        Ok(chart.to_svg_of_width(width(&fields)).into())
    };
    Ok(svg(app.state.pages.page(visitor, what, draw).await?))
}
