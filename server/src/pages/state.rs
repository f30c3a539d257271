//! What pages keep between requests.

use std::sync::Arc;

use axum::extract::FromRef;
use tokio::sync::Semaphore;

use super::{
    images::Drawing,
    renderings::{Page, Renderings},
    view::Views,
};
use crate::app::AppState;

/// Browsers that may watch studies at once: those of anybody, of analysts, of the operator. Each has places that the
/// others cannot take.
const MOST_WATCHERS: [usize; 3] = [192, 48, 16];

/// The server, and what its pages keep between requests. Clones share it.
#[derive(Clone)]
pub(super) struct Pages {
    app: AppState,
    pub(super) kept: Arc<Kept>,
}

/// What is kept.
pub(super) struct Kept {
    pub(super) views: Views,
    pub(super) rendered: Renderings<Page>,
    pub(super) drawings: Renderings<Drawing>,
    pub(super) watchers: [Arc<Semaphore>; 3],
}

impl Pages {
    pub(super) fn new(app: AppState) -> Self {
        Self {
            app,
            kept: Arc::new(Kept {
                views: Views::default(),
                rendered: Renderings::default(),
                drawings: Renderings::default(),
                watchers: MOST_WATCHERS.map(|places| Arc::new(Semaphore::new(places))),
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
