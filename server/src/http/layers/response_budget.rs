//! Responses held in memory until their clients have read them: limited in total, and each with a minimum transfer
//! rate.

use std::{io, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    http::header,
    response::{IntoResponse, Response},
};
use eigenveil_store::{ClientKey, MAX_SMALL_BYTES, Reservation};
use futures_util::stream;
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::{app::AppState, config::MIN_TRANSFER_BYTES_PER_SECOND, http::ApiError};

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
    if size <= MAX_SMALL_BYTES {
        return response;
    }
    let mut reservation = Reservation::for_client(app.response_memory(), client);
    if let Err(error) = reservation.grow(size) {
        return ApiError::from(error).into_response();
    }
    let (base_timeout, since) = (app.config().body_timeout(), Instant::now());
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(header::CONTENT_LENGTH, size.into());
    let chunks = stream::try_unfold(
        (body, Bytes::new(), 0_u64, reservation),
        move |(mut body, mut rest, sent, reservation)| async move {
            // The connection cuts off a client that reads nothing; this is for one that reads a byte now and then.
            let allowance = Duration::from_secs(sent / MIN_TRANSFER_BYTES_PER_SECOND);
            if since.elapsed() > base_timeout + allowance {
                let too_slow = io::Error::from(io::ErrorKind::TimedOut);
                return Err(axum::Error::new(too_slow));
            }
            while rest.is_empty() {
                let Some(frame) = body.frame().await else {
                    return Ok(None);
                };
                rest = frame?.into_data().unwrap_or_default();
            }
            // The others stay here, where they are counted.
            let chunk = rest.split_to(rest.len().min(CHUNK_BYTES));
            let sent = sent + chunk.len() as u64;
            Ok(Some((chunk, (body, rest, sent, reservation))))
        },
    );
    Response::from_parts(parts, Body::from_stream(chunks))
}
