//! Pages and charts that anybody may request: one at a time, each rendered at most once a second, and shared.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use eigenveil_shared::{Error, api::StudyState};
use eigenveil_store::StudyId;
use tokio::{sync::Semaphore, time::Instant};

use super::visitor::Visitor;
use crate::http::run_blocking;

/// A younger rendering is shared.
const MAX_AGE: Duration = Duration::from_secs(1);
const MAX_CACHED_BYTES: usize = 8 << 20;
/// Before each response: sending takes processor time too, and a few hundred a second are enough for people.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) struct RenderCache {
    /// In the order in which they were begun.
    entries: Mutex<Vec<Rendering>>,
    /// The permit to render, for one request at a time, so that processors are left for reports.
    turn: Arc<Semaphore>,
}

struct Rendering {
    /// The prefix of its links, and what it shows.
    key: (String, PageKind),
    begun: Instant,
    bytes: Bytes,
}

/// A page for visitors who are not logged in, without numbers that change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageKind {
    /// A page of the list of studies, and the search text.
    Studies(usize, String),
    Study(StudyId, StudyState),
    /// With the address the visitor used, which the commands repeat.
    Participate(StudyId, StudyState, Option<String>),
    /// Not a page but its event data.
    Events(StudyId, StudyState),
    /// Not a page but a chart of it, and whether it is narrow.
    Chart(StudyId, ChartKind, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChartKind {
    Arrivals,
    ExpectedError,
    Belief,
    Report,
}

impl Default for RenderCache {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

impl RenderCache {
    /// The page for this visitor: shared by all who are not logged in, rendered at once for each of the others.
    pub(crate) async fn page(
        &self,
        visitor: Visitor,
        what: PageKind,
        render: impl FnOnce(&Visitor) -> Result<Bytes, Error> + Send + 'static,
    ) -> Result<Bytes, Error> {
        if visitor.is_logged_in() {
            return run_blocking(move || render(&visitor)).await;
        }
        let key = (visitor.base().to_owned(), what);
        let requested = Instant::now();
        // The semaphore is never closed, so `ok()` is always `Some`.
        let turn = Arc::clone(&self.turn).acquire_owned().await.ok();
        tokio::time::sleep(PAUSE).await;
        let cached = self.entries().iter().find_map(|entry| {
            let fits = entry.begun >= requested || entry.begun.elapsed() < MAX_AGE;
            (fits && entry.key == key).then(|| entry.bytes.clone())
        });
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let begun = Instant::now();
        // The turn lasts as long as the rendering, which goes on if nobody waits for it any more.
        let (bytes, _turn) = run_blocking(move || Ok((render(&visitor)?, turn))).await?;
        let mut entries = self.entries();
        entries.retain(|entry| entry.key != key && entry.begun.elapsed() < MAX_AGE);
        entries.push(Rendering {
            key,
            begun,
            bytes: bytes.clone(),
        });
        while entries.iter().map(|entry| entry.bytes.len()).sum::<usize>() > MAX_CACHED_BYTES {
            entries.remove(0);
        }
        Ok(bytes)
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Rendering>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A page of these bytes is asked for.
    async fn ask(cache: &RenderCache, page: usize, bytes: impl Into<Bytes>) -> Bytes {
        let (what, bytes) = (PageKind::Studies(page, String::new()), bytes.into());
        let made = cache.page(Visitor::default(), what, move |_| Ok(bytes));
        made.await.unwrap()
    }

    /// On a single-threaded runtime, so this thread is the serving one.
    #[tokio::test(start_paused = true)]
    async fn a_page_is_rendered_once_a_second_and_not_on_a_serving_thread() {
        let cache = Arc::new(RenderCache::default());
        let renderings = Arc::new(AtomicU64::new(0));
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (cache, renderings) = (Arc::clone(&cache), Arc::clone(&renderings));
            let serving = std::thread::current().id();
            requests.spawn(async move {
                let render = move |_: &Visitor| {
                    assert_ne!(std::thread::current().id(), serving);
                    renderings.fetch_add(1, Ordering::Relaxed);
                    Ok(Bytes::from("one"))
                };
                let kind = PageKind::Studies(1, String::new());
                let page = cache.page(Visitor::default(), kind, render).await;
                assert_eq!(page.unwrap(), "one");
            });
        }
        while let Some(ended) = requests.join_next().await {
            ended.unwrap();
        }
        assert_eq!(renderings.load(Ordering::Relaxed), 1);
        assert_eq!(ask(&cache, 2, "another").await, "another");
        assert_eq!(ask(&cache, 1, "two").await, "one");
        tokio::time::advance(MAX_AGE).await;
        assert_eq!(ask(&cache, 1, "two").await, "two");
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let cache = RenderCache::default();
        for page in 0..20 {
            ask(&cache, page, vec![0; 1 << 20]).await;
        }
        assert!(cache.entries().len() <= MAX_CACHED_BYTES >> 20);
    }

    /// While another page is rendered.
    #[tokio::test]
    async fn who_is_logged_in_does_not_wait_for_a_turn() {
        let cache = RenderCache::default();
        let turn = cache.turn.acquire().await;
        let kind = PageKind::Studies(1, String::new());
        let own = cache.page(Visitor::operator(), kind, |_| Ok(Bytes::from("own")));
        assert_eq!(own.await.unwrap(), "own");
        drop(turn);
        assert!(cache.entries().is_empty());
        assert_eq!(ask(&cache, 1, "shared").await, "shared");
    }
}
