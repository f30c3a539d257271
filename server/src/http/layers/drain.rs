//! Reading what a handler left of a request's body, so that the client gets the response.
//!
//! A handler may respond before it has read the body: 413 because of the announced length, 404, 415. If the connection
//! were closed then, the client, still writing, would see a reset instead of the response, and the next request on the
//! connection would fail. The rest is therefore read and discarded; if it is too long the response says `Connection:
//! close`.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderValue, header},
    response::Response,
};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, timeout_at};

use crate::app::AppState;

const MAX_DRAINED_BYTES: u64 = 16 << 20;

/// Sends the response after the whole body was read, within [`MAX_DRAINED_BYTES`] and the time a client may take to
/// send a body, counted from the head of the request.
pub(crate) async fn drain_after(
    app: &AppState,
    request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    if request.body().is_end_stream() {
        return next(request).await;
    }
    let deadline = Instant::now() + app.config().body_timeout();
    // Such a client sends nothing before the first read asks for it.
    let expects_continue = request.headers().contains_key(header::EXPECT);
    let slot = BodySlot::default();
    let request = request.map(|body| {
        Body::new(TrackedBody {
            body,
            touched: false,
            slot: Arc::clone(&slot),
        })
    });
    let mut response = next(request).await;
    let rest = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((body, touched)) = rest {
        let untouched = expects_continue && !touched;
        if untouched || !matches!(timeout_at(deadline, drain(body)).await, Ok(true)) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }
    response
}

async fn drain(mut body: Body) -> bool {
    if body.size_hint().lower() > MAX_DRAINED_BYTES {
        return false;
    }
    let mut drained = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        drained += frame.data_ref().map_or(0, |data| data.len() as u64);
        if drained > MAX_DRAINED_BYTES {
            return false;
        }
    }
    true
}

/// Where a [`TrackedBody`] puts the rest of its body, with whether any of it was read.
type BodySlot = Arc<Mutex<Option<(Body, bool)>>>;

/// The body that a handler gets. If it is dropped before its end, the rest goes to the slot.
struct TrackedBody {
    /// Empty after the end or an error.
    body: Body,
    touched: bool,
    slot: BodySlot,
}

impl hyper::body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.touched = true;
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = Body::empty();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        if !self.body.is_end_stream() {
            let body = std::mem::take(&mut self.body);
            let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
            *slot = Some((body, self.touched));
        }
    }
}
