//! Responses held in memory until their clients have read them: limited in total, and each with a minimum transfer
//! rate.

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
    config::MIN_TRANSFER_BYTES_PER_SECOND,
    net::{
        memory::{Reservation, SMALL},
        rate_limiter::ClientKey,
    },
};

/// Bytes the connection gets at a time; it asks for the next chunk once this one is being sent.
const CHUNK_BYTES: usize = 64 << 10;

/// Charges a response to the memory budget until its last byte is sent, or returns an error if there is no room.
pub(crate) fn charge_to_budget(
    app: &AppState,
    client: Option<&ClientKey>,
    response: Response,
) -> Response {
    let size = response.body().size_hint().exact().unwrap_or(0);
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    // Small ones are bounded by the number of connections; those of unknown size are streamed.
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

/// A body sent in chunks, so that unsent bytes stay here, where they are counted.
struct BudgetedBody {
    body: Body,
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
        // The connection cuts off a client that reads nothing; this is for one that reads a byte now and then.
        let allowance = Duration::from_secs(self.sent / MIN_TRANSFER_BYTES_PER_SECOND);
        if self.since.elapsed() > self.base_timeout + allowance {
            let too_slow = std::io::Error::from(std::io::ErrorKind::TimedOut);
            return Poll::Ready(Some(Err(axum::Error::new(too_slow))));
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
