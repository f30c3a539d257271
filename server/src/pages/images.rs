//! Pictures as images of their own, in a wide and a narrow drawing.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use eigenveil_shared::{Error, ErrorCode};
use maud::{Markup, html};
use tokio::sync::Semaphore;

use super::visitor::{Fields, Visitor};
use crate::{http::estimates::blocking, store::StudyId};

/// Bytes of drawings that are kept, the last ones asked for.
const KEPT_BYTES: usize = 8 << 20;
/// Requests that may wait for a drawing; whoever comes then is put off.
const MOST_WAITING: u64 = 256;

/// Pixels of a drawing, two of which stand side by side on a desktop.
pub(super) const WIDE: f64 = 560.0;
/// Pixels of the drawing for phones, on which it is not scaled down, so that its numbers can be read.
pub(super) const NARROW: f64 = 350.0;

/// The width that a query asks for.
pub(super) fn width(fields: &Fields) -> f64 {
    if fields.has("narrow") { NARROW } else { WIDE }
}

/// Which drawing it is: nothing else decides what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Drawing {
    pub(super) study: StudyId,
    pub(super) what: What,
    /// Reports that it shows.
    pub(super) reports: u64,
    /// The estimate that it is made from.
    pub(super) estimate: Option<u64>,
    pub(super) narrow: bool,
}

/// What a drawing of a study shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Arrivals,
    ExpectedError,
    Belief,
}

/// Drawings that anybody may ask for: each is made once, one at a time, on a thread that serves nobody.
pub(super) struct Drawings {
    kept: Mutex<VecDeque<(Drawing, Bytes)>>,
    /// One at a time: there are processors left for reports.
    turn: Semaphore,
    waiting: AtomicU64,
}

impl Default for Drawings {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            turn: Semaphore::new(1),
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

impl Drawings {
    /// The drawing, made by `draw` where it is not kept.
    ///
    /// # Errors
    /// Those of `draw`; `too-many-requests` where many wait.
    pub(super) async fn get(
        &self,
        drawing: Drawing,
        draw: impl FnOnce() -> Result<String, Error> + Send + 'static,
    ) -> Result<Bytes, Error> {
        if let Some(kept) = self.find(&drawing) {
            return Ok(kept);
        }
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if others >= MOST_WAITING {
            return Err(Error::new(
                ErrorCode::TooManyRequests,
                format!("{others} requests wait for a picture; ask again in a second"),
            ));
        }
        // Never closed; were it, the drawing is made all the same.
        let _turn = self.turn.acquire().await.ok();
        // By whoever waited before.
        if let Some(kept) = self.find(&drawing) {
            return Ok(kept);
        }
        let drawn = Bytes::from(blocking(draw).await?);
        let mut kept = self.kept();
        kept.push_back((drawing, drawn.clone()));
        let mut bytes: usize = kept.iter().map(|(_, drawn)| drawn.len()).sum();
        while bytes > KEPT_BYTES
            && let Some((_, oldest)) = kept.pop_front()
        {
            bytes -= oldest.len();
        }
        Ok(drawn)
    }

    fn find(&self, drawing: &Drawing) -> Option<Bytes> {
        let kept = self.kept();
        let found = kept.iter().find(|(kept, _)| kept == drawing);
        found.map(|(_, drawn)| drawn.clone())
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(Drawing, Bytes)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An image in the page. `path` may have a query.
pub(super) fn picture(visitor: &Visitor, path: &str, what: &str) -> Markup {
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
pub(super) fn svg(picture: Bytes) -> Response {
    let mut response = picture.into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "image/svg+xml"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn drawing(reports: u64) -> Drawing {
        Drawing {
            study: StudyId([7; 16]),
            what: What::ExpectedError,
            reports,
            estimate: None,
            narrow: false,
        }
    }

    /// On a runtime of one thread, so that this is the one that serves.
    #[tokio::test]
    async fn a_drawing_is_made_once_and_not_by_a_thread_that_serves() {
        let (drawings, made) = (Arc::new(Drawings::default()), Arc::new(AtomicU64::new(0)));
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (drawings, made) = (Arc::clone(&drawings), Arc::clone(&made));
            let serving = std::thread::current().id();
            asked.spawn(async move {
                let draw = move || {
                    assert_ne!(std::thread::current().id(), serving);
                    made.fetch_add(1, Ordering::Relaxed);
                    Ok("<svg/>".to_owned())
                };
                drawings.get(drawing(5), draw).await.unwrap()
            });
        }
        while let Some(drawn) = asked.join_next().await {
            assert_eq!(drawn.unwrap(), "<svg/>");
        }
        assert_eq!(made.load(Ordering::Relaxed), 1);
        let other = drawings.get(drawing(6), || Ok("other".to_owned())).await;
        assert_eq!(other.unwrap(), "other");
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded() {
        let drawings = Drawings::default();
        for reports in 0..20 {
            let draw = || Ok("x".repeat(1 << 20));
            drawings.get(drawing(reports), draw).await.unwrap();
        }
        let kept: usize = drawings.kept().iter().map(|(_, drawn)| drawn.len()).sum();
        assert!(kept <= KEPT_BYTES && kept > KEPT_BYTES / 2, "{kept}");
        assert!(drawings.find(&drawing(19)).is_some());
        let refuse = || Err(Error::new(ErrorCode::InvalidRequest, "no"));
        drawings.get(drawing(99), refuse).await.unwrap_err();
        assert!(drawings.find(&drawing(99)).is_none());
        assert_eq!(drawings.waiting.load(Ordering::Relaxed), 0);
    }
}
