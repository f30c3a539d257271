//! Reading request bodies within their limits.

use std::time::Duration;

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use eigenveil_shared::{Error, Result, error};
use eigenveil_store::{MAX_SMALL_BYTES, Reservation};
use http_body_util::BodyExt;
use hyper::body::Frame;
use serde::de::DeserializeOwned;

use super::{extract::Operator, rate_limit_layer::client_key};
use crate::{app::AppState, config::MIN_TRANSFER_BYTES_PER_SECOND};

/// Period over which the transfer rate is measured: when memory is short, a body that delivers less than
/// [`MIN_TRANSFER_BYTES_PER_SECOND`] is cut off.
const RATE_WINDOW: Duration = Duration::from_secs(5);
/// Largest JSON body in bytes: 4,096 features with long names fit.
const MAX_JSON_BYTES: usize = 4 << 20;
/// Initial capacity of the buffer for a body that arrives in several frames.
const INITIAL_CAPACITY: usize = 64 << 10;

/// Reads a body of at most `limit` bytes. A body that arrives in one frame is not copied.
///
/// # Errors
/// `body-too-large` as soon as the limit is exceeded or a larger length is announced; `too-many-requests` if too many
/// bodies are in memory; `request-timeout`; `incomplete-body` if the connection closed early.
pub(crate) async fn read(
    app: &AppState,
    parts: &Parts,
    body: Body,
    limit: usize,
) -> Result<(Bytes, Reservation)> {
    let client = client_key(app, &parts.headers, &parts.extensions);
    let reservation = Reservation::for_client(app.store().ingest_memory(), client.as_ref());
    read_into(app, &parts.headers, body, limit, reservation).await
}

pub(crate) async fn read_into(
    app: &AppState,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    reservation: Reservation,
) -> Result<(Bytes, Reservation)> {
    check_not_encoded(headers)?;
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
        Err(_) => Err(error!(
            RequestTimeout,
            "the body did not arrive within {} s; retry",
            timeout.as_secs_f64()
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
    let mut rate_floor = RateFloor::new();
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut length = 0;
    // Bytes reserved so far.
    let mut reserved = 0;
    while let Some(frame) = rate_floor.next(&mut body, length, &reservation).await? {
        let frame = frame.map_err(|_| {
            error!(
                IncompleteBody,
                "the body broke off after {length} bytes; retry"
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
            reserved = data.len();
            first = data;
        } else {
            if length > rest.capacity() {
                // Reserve before allocating: double each time, but never more than announced and allowed.
                let announced = announced.map_or(limit, |n| usize::try_from(n).unwrap_or(limit));
                let capacity = (2 * length)
                    .max(INITIAL_CAPACITY)
                    .min(announced)
                    .max(length);
                reservation.grow(capacity - reserved)?;
                reserved = capacity;
                // A new buffer: growing the old one would take more than was reserved.
                let mut larger = BytesMut::with_capacity(capacity);
                larger.extend_from_slice(&rest);
                rest = larger;
            }
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    app.metrics().body_bytes.inc_by(length as u64);
    let bytes = if rest.is_empty() {
        first
    } else {
        rest.freeze()
    };
    Ok((bytes, reservation))
}

struct RateFloor {
    since: tokio::time::Instant,
    bytes_at_start: usize,
}

impl RateFloor {
    fn new() -> Self {
        Self {
            since: tokio::time::Instant::now(),
            bytes_at_start: 0,
        }
    }

    /// The next frame of a body of which `length` bytes were received.
    async fn next(
        &mut self,
        body: &mut Body,
        length: usize,
        reservation: &Reservation,
    ) -> Result<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            let until = self.since + RATE_WINDOW;
            if tokio::time::Instant::now() < until
                && let Ok(frame) = tokio::time::timeout_at(until, body.frame()).await
            {
                return Ok(frame);
            }
            let min_bytes = RATE_WINDOW.as_secs() * MIN_TRANSFER_BYTES_PER_SECOND;
            let slow = ((length - self.bytes_at_start) as u64) < min_bytes;
            if slow && length > MAX_SMALL_BYTES && reservation.budget().is_under_pressure() {
                return Err(error!(
                    RequestTimeout,
                    "memory is short and less than {min_bytes} bytes of the body arrived in {} s; retry",
                    RATE_WINDOW.as_secs()
                ));
            }
            (self.since, self.bytes_at_start) = (tokio::time::Instant::now(), length);
        }
    }
}

/// Reads the operator's JSON body; fails if the token was revoked while it arrived.
pub(crate) async fn read_json<T: DeserializeOwned>(
    app: &AppState,
    operator: &Operator,
    request: Request,
) -> Result<T> {
    let (bytes, _reservation) = read_json_bytes(app, request, MAX_JSON_BYTES).await?;
    operator.check_still_valid(app)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        error!(
            MalformedJson,
            "the JSON body does not fit this endpoint: {error}"
        )
    })
}

/// Reads anybody's short JSON body, of the form that the error tells: it does not echo what was sent, which may be a
/// token.
pub(crate) async fn read_secret_json<T: DeserializeOwned>(
    app: &AppState,
    request: Request,
    form: &str,
) -> Result<T> {
    let (bytes, _reservation) = read_json_bytes(app, request, MAX_SMALL_BYTES).await?;
    serde_json::from_slice(&bytes)
        .map_err(|_| error!(MalformedJson, "the JSON body is not of the form {form}"))
}

async fn read_json_bytes(
    app: &AppState,
    request: Request,
    limit: usize,
) -> Result<(Bytes, Reservation)> {
    let (parts, body) = request.into_parts();
    let media_type = media_type(&parts.headers);
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(unsupported_media_type(media_type, "application/json"));
    }
    read(app, &parts, body, limit).await
}

/// The content type as sent; empty if there is none, or if it is not text.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

pub(crate) fn unsupported_media_type(sent: &str, expected: &str) -> Error {
    unsupported("type", sent, &format!("this endpoint accepts {expected}"))
}

/// Echoes at most 80 characters of the client's header.
fn unsupported(header_kind: &str, sent: &str, way_out: &str) -> Error {
    let sent: String = sent.chars().take(80).collect();
    error!(
        UnsupportedMediaType,
        "the content {header_kind} is {sent:?}; {way_out}"
    )
}

/// Rejects compressed bodies explicitly; otherwise they would only look malformed.
///
/// # Errors
/// `unsupported-media-type`.
pub(crate) fn check_not_encoded(headers: &HeaderMap) -> Result<()> {
    let encodings = headers.get_all(header::CONTENT_ENCODING);
    let mut encodings = encodings.iter().map(HeaderValue::as_bytes);
    let Some(sent) = encodings.find(|sent| !sent.eq_ignore_ascii_case(b"identity")) else {
        return Ok(());
    };
    Err(unsupported(
        "encoding",
        &String::from_utf8_lossy(sent),
        "send the body as it is, without Content-Encoding",
    ))
}

fn too_large(length: u64, limit: usize) -> Error {
    error!(
        BodyTooLarge,
        "the body has {length} bytes or more and the limit here is {limit}; send a smaller one"
    )
}
