//! Answers wait in memory until their clients take them: all together under a budget, each with a lowest pace.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    response::{IntoResponse, Response},
};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::problem::ApiError;
use crate::{
    app::AppState,
    config::MIN_BYTES_PER_SECOND,
    net::memory::{Reservation, SMALL},
};

/// What the connection gets at a time. It asks for the next chunk when this one is on its way.
const CHUNK_BYTES: usize = 64 << 10;

/// The answer, which holds its bytes of the budget until the last of them is taken; or a refusal.
pub(crate) fn charge_to_budget(
    app: &AppState,
    client: Option<[u8; 16]>,
    response: Response,
) -> Response {
    let size = response.body().size_hint().exact().unwrap_or(0);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    // Small ones are bounded by the number of connections; those of no known size are made as their clients take them.
    if size <= SMALL {
        return response;
    }
    let mut reservation = Reservation::for_client(app.response_memory(), client);
    if let Err(error) = reservation.grow(size) {
        return ApiError::from(error).into_response();
    }
    let base_timeout = app.config().body_timeout();
    response.map(|body| {
        Body::new(BudgetedBody {
            body,
            rest: Bytes::new(),
            sent: 0,
            since: Instant::now(),
            base_timeout,
            _reservation: reservation,
        })
    })
}

/// A body in pieces, so that what is not taken stays here, where it is counted.
struct BudgetedBody {
    body: Body,
    /// What was read of it and not sent on.
    rest: Bytes,
    sent: u64,
    since: Instant,
    base_timeout: Duration,
    _reservation: Reservation,
}

impl hyper::body::Body for BudgetedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // Whoever takes nothing is cut off by the connection; this is for whoever takes a byte now and then.
        let taken = Duration::from_secs(self.sent / MIN_BYTES_PER_SECOND);
        if self.since.elapsed() > self.base_timeout + taken {
            let slow = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Poll::Ready(Some(Err(axum::Error::new(slow))));
        }
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return Poll::Ready(other),
            }
        }
        let length = self.rest.len().min(CHUNK_BYTES);
        let chunk = self.rest.split_to(length);
        self.sent += length as u64;
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let of_body = self.body.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
