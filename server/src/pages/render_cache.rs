//! A single-flight cache of pages and charts that anybody may request: each is rendered once, one at a time, and
//! shared.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use eigenveil_shared::{Error, ErrorCode, api::StudyState};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::visitor::Visitor;
use crate::{http::run_blocking, net::rate_limiter::ClientKey, store::StudyId};

const MAX_CACHED_BYTES: usize = 8 << 20;
/// Requests that may wait; further ones get 429.
const MAX_WAITING: usize = 1_024;
/// Requests of one client that may wait: everybody else waits for no more than these, however many it sends.
const MAX_WAITING_PER_CLIENT: usize = 32;
/// Minimum time between two responses: sending takes processor time too, and a few hundred a second are enough for
/// people.
const MIN_INTERVAL: Duration = Duration::from_millis(2);

/// A cache with key `K`: everything that decides what is shown and to whom, except the changing number of reports.
pub(super) struct RenderCache<K> {
    entries: Mutex<VecDeque<CacheEntry<K>>>,
    /// One rendering at a time, so that there are processors left for reports.
    turn: Arc<Semaphore>,
    /// Its holder gets a response after [`MIN_INTERVAL`].
    interval: Semaphore,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    all: usize,
    by_client: HashMap<ClientKey, usize>,
}

struct CacheEntry<K> {
    key: K,
    /// Usually the number of reports; there may have been more when they were read.
    version: u64,
    begun: Instant,
    bytes: Bytes,
}

/// A page for visitors who are not logged in. Pages of other visitors are not shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    base: String,
    what: PageKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// A page of the list of studies, and the search text.
    Studies(usize, String),
    Study(StudyId, StudyState),
    /// With the address by which the visitor reached the server, which the commands contain.
    Participate(StudyId, StudyState, Option<String>),
    /// Not a page but its event data.
    Events(StudyId, StudyState),
}

impl RenderCache<Page> {
    /// A visitor's page: shared by all who are not logged in, rendered for each of the others.
    pub(super) async fn page(
        &self,
        visitor: Visitor,
        what: PageKind,
        version: impl Fn() -> u64,
        render: impl FnOnce(&Visitor) -> Result<Bytes, Error> + Send + 'static,
    ) -> Result<Bytes, Error> {
        let shared = (!visitor.is_logged_in()).then(|| visitor.base().to_owned());
        let client = visitor.client();
        let render = move || render(&visitor);
        match shared {
            Some(base) => {
                self.get_or_render(client, Page { base, what }, version, render)
                    .await
            }
            None => self.render_uncached(render).await,
        }
    }
}

impl<K> Default for RenderCache<K> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            interval: Semaphore::new(1),
            waiting: Mutex::default(),
        }
    }
}

/// Counts one waiting request until it is dropped.
struct WaitGuard<'a> {
    waiting: &'a Mutex<Waiting>,
    client: Option<ClientKey>,
}

impl<'a> WaitGuard<'a> {
    /// Fails if too many wait already. Without a client's address only the number of all is limited.
    fn new(waiting: &'a Mutex<Waiting>, client: Option<ClientKey>) -> Result<Self, Error> {
        let mut now = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let own = client.and_then(|client| now.by_client.get(&client).copied());
        let who = match own {
            Some(own) if own >= MAX_WAITING_PER_CLIENT => {
                format!("{own} requests from this address")
            }
            _ if now.all >= MAX_WAITING => format!("{} requests", now.all),
            _ => {
                now.all += 1;
                if let Some(client) = client {
                    *now.by_client.entry(client).or_default() += 1;
                }
                drop(now);
                return Ok(Self { waiting, client });
            }
        };
        Err(Error::new(
            ErrorCode::TooManyRequests,
            format!("{who} wait for a page or a figure; retry in a second"),
        ))
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut now = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        now.all -= 1;
        if let Some(client) = self.client
            && let Entry::Occupied(mut own) = now.by_client.entry(client)
        {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

impl<K: PartialEq> RenderCache<K> {
    /// Returns a cached rendering if it has the current version or was begun after this call, else makes one. `render`
    /// must read changing data only when called. However fast reports come, all who wait share one rendering.
    pub(super) async fn get_or_render(
        &self,
        client: Option<ClientKey>,
        key: K,
        version: impl Fn() -> u64,
        render: impl FnOnce() -> Result<Bytes, Error> + Send + 'static,
    ) -> Result<Bytes, Error> {
        let _guard = WaitGuard::new(&self.waiting, client)?;
        let requested_at = Instant::now();
        let interval = self.interval.acquire().await;
        tokio::time::sleep(MIN_INTERVAL).await;
        drop(interval);
        let now = version();
        if let Some(found) = self.find(&key, |entry| entry.version == now) {
            return Ok(found);
        }
        let turn = self.turn().await;
        let (begun, now) = (Instant::now(), version());
        let is_current =
            |entry: &CacheEntry<K>| entry.version == now || entry.begun >= requested_at;
        if let Some(found) = self.find(&key, is_current) {
            return Ok(found);
        }
        let (bytes, _turn) = run_blocking(move || Ok((render()?, turn))).await?;
        let mut entries = self.entries();
        entries.retain(|other| other.key != key);
        entries.push_back(CacheEntry {
            key,
            version: now,
            begun,
            bytes: bytes.clone(),
        });
        let mut total: usize = entries.iter().map(|entry| entry.bytes.len()).sum();
        while total > MAX_CACHED_BYTES
            && let Some(oldest) = entries.pop_front()
        {
            total -= oldest.bytes.len();
        }
        Ok(bytes)
    }

    /// Renders for one visitor only: in turn, but not cached.
    pub(super) async fn render_uncached<T: Send + 'static>(
        &self,
        render: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = self.turn().await;
        let (made, _turn) = run_blocking(move || Ok((render()?, turn))).await?;
        Ok(made)
    }

    /// Held during the rendering, which continues if nobody waits for it any more.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed; if it were, rendering would go on without a permit.
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    fn find(&self, key: &K, fits: impl Fn(&CacheEntry<K>) -> bool) -> Option<Bytes> {
        let entries = self.entries();
        let found = entries
            .iter()
            .find(|entry| entry.key == *key && fits(entry));
        found.map(|entry| entry.bytes.clone())
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<CacheEntry<K>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// On a single-threaded runtime, so this thread is the serving one.
    #[tokio::test]
    async fn a_rendering_is_made_once_and_not_on_a_serving_thread() {
        let cache = Arc::new(RenderCache::default());
        let made = Arc::new(AtomicU64::new(0));
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (cache, made) = (Arc::clone(&cache), Arc::clone(&made));
            let serving = std::thread::current().id();
            requests.spawn(async move {
                let render = move || {
                    assert_ne!(std::thread::current().id(), serving);
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(Bytes::from("<svg/>"))
                };
                cache.get_or_render(None, 7, || 5, render).await.unwrap()
            });
        }
        while let Some(rendered) = requests.join_next().await {
            assert_eq!(rendered.unwrap(), "<svg/>");
        }
        assert_eq!(made.load(Ordering::Relaxed), 1);
        // Another key has its own entry.
        for (key, text, wanted) in [(7, "six", "six"), (8, "other", "other"), (7, "no", "six")] {
            let render = move || Ok(Bytes::from(text));
            let shown = cache.get_or_render(None, key, || 6, render).await;
            assert_eq!(shown.unwrap(), wanted);
        }
    }

    /// Every call finds another number of reports.
    #[tokio::test]
    async fn waiting_requests_share_a_rendering_however_fast_reports_come() {
        let cache = Arc::new(RenderCache::default());
        let (reports, made) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let (cache, made) = (Arc::clone(&cache), Arc::clone(&made));
            let (reports, read) = (Arc::clone(&reports), Arc::clone(&reports));
            requests.spawn(async move {
                let at_least = reports.load(Ordering::Relaxed);
                let count = move || reports.fetch_add(1, Ordering::Relaxed);
                let render = move || {
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(Bytes::from(read.load(Ordering::Relaxed).to_string()))
                };
                let shown = cache.get_or_render(None, (), count, render).await.unwrap();
                let shown: u64 = std::str::from_utf8(&shown).unwrap().parse().unwrap();
                // Nobody sees fewer reports than there were at the request.
                assert!(shown >= at_least, "{shown} < {at_least}");
            });
        }
        while let Some(rendered) = requests.join_next().await {
            rendered.unwrap();
        }
        // All requests came before the first rendering began.
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn the_cache_is_bounded() {
        let cache = RenderCache::default();
        for key in 0..20 {
            let render = || Ok(Bytes::from(vec![0; 1 << 20]));
            cache.get_or_render(None, key, || 1, render).await.unwrap();
        }
        let entries: usize = cache.entries().iter().map(|entry| entry.bytes.len()).sum();
        assert!(
            entries <= MAX_CACHED_BYTES && entries > MAX_CACHED_BYTES / 2,
            "{entries}"
        );
        // A rendering of more reports replaces the entry.
        let entries = cache.entries().len();
        for reports in 2..5 {
            let render = || Ok(Bytes::from(vec![0; 1 << 20]));
            let shown = cache.get_or_render(None, 19, || reports, render).await;
            shown.unwrap();
        }
        assert_eq!(cache.entries().len(), entries);
        let fail = || Err(Error::invalid_request("no"));
        cache.get_or_render(None, 99, || 1, fail).await.unwrap_err();
        assert!(cache.find(&99, |_| true).is_none());
        assert_eq!(cache.waiting.lock().unwrap().all, 0);
    }

    /// One client sends a thousand searches while a page is being rendered: the next visitor waits for a few of them.
    #[tokio::test]
    async fn a_client_with_a_thousand_requests_leaves_the_queue_to_others() {
        let cache = Arc::new(RenderCache::default());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let mut requests = tokio::task::JoinSet::new();
        let mut request = |client: u8, key: u32, wait: Option<std::sync::mpsc::Receiver<()>>| {
            let cache = Arc::clone(&cache);
            requests.spawn(async move {
                let render = move || {
                    if let Some(held) = wait {
                        let _ = held.recv();
                    }
                    Ok(Bytes::from("page"))
                };
                let made = cache.get_or_render(Some([client; 16]), key, || 1, render);
                (client, made.await.map_err(|error| error.code()))
            });
        };
        request(0, 0, Some(held));
        (1..=1_000).for_each(|key| request(1, key, None));
        request(2, 2_000, None);
        let mut refused = 0;
        // Those beyond the limit do not wait.
        while refused < 1_000 - MAX_WAITING_PER_CLIENT {
            let (client, made) = requests.join_next().await.unwrap().unwrap();
            assert_eq!((client, made), (1, Err(ErrorCode::TooManyRequests)));
            refused += 1;
        }
        release.send(()).unwrap();
        while let Some(ended) = requests.join_next().await {
            let (client, made) = ended.unwrap();
            assert!(made.is_ok(), "{client}");
        }
        let waiting = cache.waiting.lock().unwrap();
        assert!(waiting.all == 0 && waiting.by_client.is_empty());
    }

    /// Sending takes processor time too.
    #[tokio::test]
    async fn responses_have_a_minimum_interval_even_from_the_cache() {
        let cache = Arc::new(RenderCache::default());
        let begun = Instant::now();
        let mut requests = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let cache = Arc::clone(&cache);
            let render = || Ok(Bytes::from("page"));
            requests
                .spawn(async move { cache.get_or_render(None, (), || 1, render).await.unwrap() });
        }
        while requests.join_next().await.is_some() {}
        assert!(begun.elapsed() >= 50 * MIN_INTERVAL);
    }

    /// Pages that are not shared wait for the same permit.
    #[tokio::test]
    async fn renderings_run_one_at_a_time() {
        let cache = Arc::new(RenderCache::default());
        let at_once = Arc::new(AtomicU64::new(0));
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..16_u64 {
            let (cache, at_once) = (Arc::clone(&cache), Arc::clone(&at_once));
            requests.spawn(async move {
                let render = move || {
                    assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    Ok(Bytes::new())
                };
                let rendered = match number % 2 {
                    0 => cache.get_or_render(None, number, || 1, render).await,
                    _ => cache.render_uncached(render).await,
                };
                rendered.unwrap();
            });
        }
        while let Some(rendered) = requests.join_next().await {
            rendered.unwrap();
        }
    }
}
