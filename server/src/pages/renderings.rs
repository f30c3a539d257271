//! Pages and pictures that anybody may ask for: made once, one at a time, and shared.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use eigenveil_shared::{Error, ErrorCode, api::StudyState};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::visitor::Visitor;
use crate::{http::estimates::blocking, store::StudyId};

/// Bytes that are kept, the last ones made.
const KEPT_BYTES: usize = 8 << 20;
/// Requests that may wait for their turn; whoever comes then is put off.
const MOST_WAITING: u64 = 1_024;
/// Least time between two answers: sending what is made takes processors too, and some hundred a second are enough
/// for people.
const PACE: Duration = Duration::from_millis(2);

/// Renderings of what a `K` says: everything that decides what is shown, and to whom, but for the numbers of reports,
/// which move.
pub(super) struct Renderings<K> {
    kept: Mutex<VecDeque<Kept<K>>>,
    /// One at a time: there are processors left for reports.
    turn: Arc<Semaphore>,
    /// Whoever has it is answered after [`PACE`].
    pace: Semaphore,
    waiting: AtomicU64,
}

struct Kept<K> {
    key: K,
    /// The number of reports, mostly; there may have been more when they were read.
    version: u64,
    begun: Instant,
    bytes: Bytes,
}

/// Which page it is, for visitors who are not logged in: what the others see is theirs alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    base: String,
    what: PageOf,
}

/// What a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageOf {
    /// A part of the list, of those that were searched for.
    Studies(usize, String),
    Study(StudyId, StudyState),
    /// With the address of the server as it was asked for, which its commands name.
    Participate(StudyId, StudyState, Option<String>),
    /// Not a page, but what moves on that of the study.
    Events(StudyId, StudyState),
}

impl Renderings<Page> {
    /// What a visitor sees of a page: shared by all who are not logged in, made anew for each of the others.
    pub(super) async fn page(
        &self,
        visitor: Visitor,
        what: PageOf,
        version: impl Fn() -> u64,
        render: impl FnOnce(&Visitor) -> Result<Bytes, Error> + Send + 'static,
    ) -> Result<Bytes, Error> {
        let shared = (!visitor.is_known()).then(|| visitor.base().to_owned());
        let render = move || render(&visitor);
        match shared {
            Some(base) => self.get(Page { base, what }, version, render).await,
            None => self.unshared(render).await,
        }
    }
}

impl<K> Default for Renderings<K> {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            turn: Arc::new(Semaphore::new(1)),
            pace: Semaphore::new(1),
            waiting: AtomicU64::new(0),
        }
    }
}

/// One that waits; not any more when dropped.
struct Waiting<'a>(&'a AtomicU64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<K: PartialEq> Renderings<K> {
    /// What `render` makes, which reads what moves after it is called; or what it made before, of the version that
    /// there is now, or begun after this was asked for: however fast reports come, all who wait are served by one
    /// rendering.
    pub(super) async fn get(
        &self,
        key: K,
        version: impl Fn() -> u64,
        render: impl FnOnce() -> Result<Bytes, Error> + Send + 'static,
    ) -> Result<Bytes, Error> {
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if others >= MOST_WAITING {
            return Err(Error::new(
                ErrorCode::TooManyRequests,
                format!("{others} requests wait for a page or a picture; ask again in a second"),
            ));
        }
        let asked = Instant::now();
        let pace = self.pace.acquire().await;
        tokio::time::sleep(PACE).await;
        drop(pace);
        let now = version();
        if let Some(kept) = self.find(&key, |kept| kept.version == now) {
            return Ok(kept);
        }
        let turn = self.turn().await;
        let (begun, now) = (Instant::now(), version());
        let by_others = |kept: &Kept<K>| kept.version == now || kept.begun >= asked;
        if let Some(kept) = self.find(&key, by_others) {
            return Ok(kept);
        }
        let (bytes, _turn) = blocking(move || Ok((render()?, turn))).await?;
        let mut kept = self.kept();
        kept.retain(|other| other.key != key);
        kept.push_back(Kept {
            key,
            version: now,
            begun,
            bytes: bytes.clone(),
        });
        let mut held: usize = kept.iter().map(|kept| kept.bytes.len()).sum();
        while held > KEPT_BYTES
            && let Some(oldest) = kept.pop_front()
        {
            held -= oldest.bytes.len();
        }
        Ok(bytes)
    }

    /// The same for what is one visitor's alone: made in its turn and not kept.
    pub(super) async fn unshared<T: Send + 'static>(
        &self,
        render: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = self.turn().await;
        let (made, _turn) = blocking(move || Ok((render()?, turn))).await?;
        Ok(made)
    }

    /// To be held by what is made, which goes on when nobody waits for it any more.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        // Never closed; were it, it is made all the same.
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    fn find(&self, key: &K, fits: impl Fn(&Kept<K>) -> bool) -> Option<Bytes> {
        let kept = self.kept();
        let found = kept.iter().find(|kept| kept.key == *key && fits(kept));
        found.map(|kept| kept.bytes.clone())
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Kept<K>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a runtime of one thread, so that this is the one that serves.
    #[tokio::test]
    async fn it_is_made_once_and_not_by_a_thread_that_serves() {
        let (renderings, made) = (Arc::new(Renderings::default()), Arc::new(AtomicU64::new(0)));
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (renderings, made) = (Arc::clone(&renderings), Arc::clone(&made));
            let serving = std::thread::current().id();
            asked.spawn(async move {
                let render = move || {
                    assert_ne!(std::thread::current().id(), serving);
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(Bytes::from("<svg/>"))
                };
                renderings.get(7, || 5, render).await.unwrap()
            });
        }
        while let Some(rendered) = asked.join_next().await {
            assert_eq!(rendered.unwrap(), "<svg/>");
        }
        assert_eq!(made.load(Ordering::Relaxed), 1);
        let other = |text: &'static str| move || Ok(Bytes::from(text));
        assert_eq!(renderings.get(7, || 6, other("six")).await.unwrap(), "six");
        // Another one for somebody else.
        let others = renderings.get(8, || 6, other("others")).await;
        assert_eq!(others.unwrap(), "others");
        assert_eq!(renderings.get(7, || 6, other("no")).await.unwrap(), "six");
    }

    /// Each look finds another number of reports.
    #[tokio::test]
    async fn however_fast_reports_come_all_who_wait_share_a_rendering_begun_after_they_asked() {
        let renderings = Arc::new(Renderings::default());
        let (reports, made) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let (renderings, made) = (Arc::clone(&renderings), Arc::clone(&made));
            let (reports, read) = (Arc::clone(&reports), Arc::clone(&reports));
            asked.spawn(async move {
                let at_least = reports.load(Ordering::Relaxed);
                let count = move || reports.fetch_add(1, Ordering::Relaxed);
                let render = move || {
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok(Bytes::from(read.load(Ordering::Relaxed).to_string()))
                };
                let shown = renderings.get((), count, render).await.unwrap();
                let shown: u64 = std::str::from_utf8(&shown).unwrap().parse().unwrap();
                // Nobody is shown less than there was when he asked.
                assert!(shown >= at_least, "{shown} < {at_least}");
            });
        }
        while let Some(rendered) = asked.join_next().await {
            rendered.unwrap();
        }
        // All had asked when the first was begun.
        assert_eq!(made.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let renderings = Renderings::default();
        for key in 0..20 {
            let render = || Ok(Bytes::from(vec![0; 1 << 20]));
            renderings.get(key, || 1, render).await.unwrap();
        }
        let kept: usize = renderings.kept().iter().map(|kept| kept.bytes.len()).sum();
        assert!(kept <= KEPT_BYTES && kept > KEPT_BYTES / 2, "{kept}");
        // The same of more reports takes its place.
        let entries = renderings.kept().len();
        for reports in 2..5 {
            let render = || Ok(Bytes::from(vec![0; 1 << 20]));
            renderings.get(19, || reports, render).await.unwrap();
        }
        assert_eq!(renderings.kept().len(), entries);
        let refuse = || Err(Error::invalid_request("no"));
        renderings.get(99, || 1, refuse).await.unwrap_err();
        assert!(renderings.find(&99, |_| true).is_none());
        assert_eq!(renderings.waiting.load(Ordering::Relaxed), 0);
    }

    /// Sending takes processors too.
    #[tokio::test]
    async fn answers_are_paced_even_where_nothing_is_made() {
        let renderings = Arc::new(Renderings::default());
        let begun = Instant::now();
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let renderings = Arc::clone(&renderings);
            let render = || Ok(Bytes::from("page"));
            asked.spawn(async move { renderings.get((), || 1, render).await.unwrap() });
        }
        while asked.join_next().await.is_some() {}
        assert!(begun.elapsed() >= 50 * PACE);
    }

    /// Pages of one visitor alone wait for the same turn.
    #[tokio::test]
    async fn one_is_made_at_a_time_whoever_asks() {
        let renderings = Arc::new(Renderings::default());
        let at_once = Arc::new(AtomicU64::new(0));
        let mut asked = tokio::task::JoinSet::new();
        for number in 0..16_u64 {
            let (renderings, at_once) = (Arc::clone(&renderings), Arc::clone(&at_once));
            asked.spawn(async move {
                let render = move || {
                    assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                    std::thread::sleep(std::time::Duration::from_millis(2));
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    Ok(Bytes::new())
                };
                match number % 2 {
                    0 => renderings.get(number, || 1, render).await.unwrap(),
                    _ => renderings.unshared(render).await.unwrap(),
                }
            });
        }
        while let Some(rendered) = asked.join_next().await {
            rendered.unwrap();
        }
    }
}
