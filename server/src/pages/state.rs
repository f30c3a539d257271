//! State that pages keep between requests.

use std::sync::Arc;

use axum::extract::FromRef;
use tokio::sync::Semaphore;

use super::{
    images::ChartKey,
    render_cache::{Page, RenderCache},
    view::Views,
};
use crate::app::AppState;

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
