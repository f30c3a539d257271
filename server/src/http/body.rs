//! Reading a body without ever holding more than its limit.

use std::time::Duration;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use eigenveil_shared::{Error, ErrorCode, Result};
use http_body_util::BodyExt;
use hyper::body::Frame;
use serde::de::DeserializeOwned;

use super::rate_limit_layer::ClientKey;
use crate::{
    app::AppState,
    config::MIN_BYTES_PER_SECOND,
    net::memory::{Reservation, SMALL},
};

/// Where memory is short, a body that brings less than [`MIN_BYTES_PER_SECOND`] over this long is cut off.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Largest JSON body in bytes, which holds 4,096 features with long names.
const MAX_JSON_BYTES: usize = 4 << 20;
/// Room made for a body that comes in pieces, at first.
const INITIAL_CAPACITY: usize = 64 << 10;

/// Reads a body of at most `limit` bytes. A body that arrives in one piece is not copied.
///
/// # Errors
/// `body-too-large` as soon as the limit is passed or a larger length is announced;
/// `too-many-requests` when too many bodies are in memory, or this one does not arrive in time.
pub(crate) async fn read(
    app: &AppState,
    parts: &Parts,
    body: Body,
    limit: usize,
) -> Result<(Bytes, Reservation)> {
    let client =
        ClientKey::from_request(app, &parts.headers, &parts.extensions).map(ClientKey::address);
    let reservation = Reservation::for_client(app.store().ingest_memory(), client);
    read_into(app, &parts.headers, body, limit, reservation).await
}

/// The same with a reservation of the caller's.
pub(crate) async fn read_into(
    app: &AppState,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    reservation: Reservation,
) -> Result<(Bytes, Reservation)> {
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = announced
        && length > limit as u64
    {
        return Err(too_large(length, limit));
    }
    let timeout = app.config().body_timeout_for(limit);
    let reading = collect(app, body, limit, announced, reservation);
    match tokio::time::timeout(timeout, reading).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(
            ErrorCode::RequestTimeout,
            format!(
                "the body did not arrive within {} s; send it again",
                timeout.as_secs_f64()
            ),
        )),
    }
}

async fn collect(
    app: &AppState,
    mut body: Body,
    limit: usize,
    announced: Option<u64>,
    mut reservation: Reservation,
) -> Result<(Bytes, Reservation)> {
    let mut min_rate = MinRate::new();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut length = 0;
    // What the reservation holds.
    let mut held = 0;
    while let Some(frame) = min_rate.next(&mut body, length, &reservation).await? {
        let frame = frame.map_err(|_| {
            Error::new(
                ErrorCode::IncompleteBody,
                format!("the body broke off after {length} bytes; send it again"),
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len();
        if length > limit {
            return Err(too_large(length as u64, limit));
        }
        if first.is_empty() {
            reservation.grow(data.len())?;
            held = data.len();
            first = data;
        } else {
            if length > rest.capacity() {
                // Room is held before it is made: twice as much each time, and never more than is announced and allowed.
                let announced = announced.map_or(limit, |n| usize::try_from(n).unwrap_or(limit));
                let room = (2 * length)
                    .max(INITIAL_CAPACITY)
                    .min(announced)
                    .max(length);
                reservation.grow(room - held)?;
                held = room;
                // Made anew: growing would take more than was held.
                let mut larger = BytesMut::with_capacity(room);
                larger.extend_from_slice(&rest);
                rest = larger;
            }
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    app.store().metrics().body_read(length);
    let bytes = if rest.is_empty() {
        first
    } else {
        rest.freeze()
    };
    Ok((bytes, reservation))
}

/// How fast a body comes.
struct MinRate {
    since: tokio::time::Instant,
    /// Bytes that had come then.
    before: usize,
}

impl MinRate {
    fn new() -> Self {
        Self {
            since: tokio::time::Instant::now(),
            before: 0,
        }
    }

    /// The next frame of a body of which `length` bytes have come.
    ///
    /// # Errors
    /// `request-timeout` where others wait for the memory and this comes too slowly.
    async fn next(
        &mut self,
        body: &mut Body,
        length: usize,
        held: &Reservation,
    ) -> Result<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            let until = self.since + RATE_WINDOW;
            if tokio::time::Instant::now() < until
                && let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await
            {
                return Ok(frame);
            }
            let wanted = RATE_WINDOW.as_secs() * MIN_BYTES_PER_SECOND;
            let slow = ((length - self.before) as u64) < wanted;
            if slow && length > SMALL && held.budget().is_under_pressure() {
                return Err(Error::new(
                    ErrorCode::RequestTimeout,
                    format!(
                        "memory is short and less than {wanted} bytes of the body came in {} s; send it again",
                        RATE_WINDOW.as_secs()
                    ),
                ));
            }
            (self.since, self.before) = (tokio::time::Instant::now(), length);
        }
    }
}

/// Reads and parses a JSON body.
pub(crate) async fn read_json<T: DeserializeOwned>(app: &AppState, request: Request) -> Result<T> {
    let (parts, body) = request.into_parts();
    let media_type = media_type(&parts.headers);
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(unsupported_media_type(media_type, "application/json"));
    }
    let (bytes, _reservation) = read(app, &parts, body, MAX_JSON_BYTES).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Error::new(
            ErrorCode::MalformedJson,
            format!("the JSON body is not what this endpoint takes: {error}"),
        )
    })
}

/// The content type as sent; empty when there is none, or none that is text.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

pub(crate) fn unsupported_media_type(sent: &str, wanted: &str) -> Error {
    // Somebody else's text: no more of it than is needed to authenticate it.
    let sent: String = sent.chars().take(80).collect();
    Error::new(
        ErrorCode::UnsupportedMediaType,
        format!("the content type is {sent:?}; this endpoint takes {wanted}"),
    )
}

fn too_large(length: u64, limit: usize) -> Error {
    Error::new(
        ErrorCode::BodyTooLarge,
        format!("the body has {length} bytes or more and the limit here is {limit}; send less"),
    )
}
