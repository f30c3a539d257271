//! Reading a body without ever holding more than its limit.

use axum::{
    body::Body,
    http::{HeaderMap, header},
};
use bytes::{Bytes, BytesMut};
use eigenveil_shared::{Error, ErrorCode, Result};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::{app::AppState, memory::Reservation};

/// Reads a body of at most `limit` bytes. A body that arrives in one piece is not copied.
///
/// # Errors
/// `body-too-large` as soon as the limit is passed or a larger length is announced;
/// `too-many-requests` when too many bodies are in memory, or this one does not arrive in time.
pub(crate) async fn read(
    app: &AppState,
    headers: &HeaderMap,
    body: Body,
    limit: usize,
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
    let reading = collect(app, body, limit, announced);
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
) -> Result<(Bytes, Reservation)> {
    let mut reservation = Reservation::empty(app.store().ingest_memory());
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            Error::new(
                ErrorCode::MalformedReport,
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
        reservation.grow(data.len())?;
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                // Room for all that was announced, which the limit bounds.
                let expected = announced.map_or(0, |n| usize::try_from(n).unwrap_or(0));
                rest.reserve(expected.max(length));
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

/// Reads and parses a JSON body.
///
/// # Errors
/// `unsupported-media-type`, `malformed-json`, and those of [`read`].
pub(super) async fn read_json<T: DeserializeOwned>(
    app: &AppState,
    headers: &HeaderMap,
    body: Body,
) -> Result<T> {
    let media_type = media_type(headers);
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(unsupported_media_type(media_type, "application/json"));
    }
    let (bytes, _reservation) = read(app, headers, body, app.config().json_bytes).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Error::new(
            ErrorCode::MalformedJson,
            format!("the JSON body is not what this endpoint takes: {error}"),
        )
    })
}

/// The content type as sent; empty when there is none, or none that is text.
pub(super) fn media_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

pub(super) fn unsupported_media_type(sent: &str, wanted: &str) -> Error {
    // Somebody else's text: no more of it than is needed to recognise it.
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
