//! Reports: which bodies are rejected. (Which reports are counted: the scenarios.)

use axum::{
    body::Body,
    http::{Request, StatusCode, header},
};
use bytes::Bytes;
use eigenveil_shared::{
    ErrorCode as E,
    api::REPORT_MEDIA_TYPE,
    codec::{self, batch_len},
    report::Report,
    study::Fingerprint,
};
use futures_util::stream;

use crate::common::{Harness, at, batch, format_of, new_id, payload, report, report_with};

/// One for each code. (All malformed reports: `shared/tests/shared/codec_vectors.rs`.)
#[tokio::test]
async fn bad_bodies_are_rejected_and_change_nothing() {
    let server = Harness::new();
    let study = server.study(3).await;
    let other = server.study(4).await;
    server.count_one(&study).await;
    let good = report(&study, new_id(), 1.0);
    let wire = |payload| report_with(&study, new_id(), payload);
    let malformed = (400, E::MalformedReport);
    let large = (413, E::BodyTooLarge);
    let length = (422, E::WrongPayloadLength);
    let unfinite = (422, E::PayloadNotFinite);
    let foreign = (422, E::WrongFingerprint);
    let implausible = (422, E::ImplausibleReport);
    let other_version = [&[2], &good[1..]].concat();
    let of_nobody = codec::encode_report(&Report {
        id: new_id(),
        fingerprint: Fingerprint([7; 32]),
        payload: payload(&study, 1.0),
    });
    for (what, body, (status, code)) in [
        ("nothing", vec![], malformed),
        ("version 2", other_version, (400, E::UnsupportedVersion)),
        ("one byte more", [&good[..], &[0]].concat(), large),
        ("another fingerprint", of_nobody, foreign),
        ("short payload", wire(vec![0; 20]), length),
        ("NaN", wire(payload(&study, f32::NAN)), unfinite),
        ("too long", wire(payload(&study, 1e20)), implausible),
    ] {
        let response = server.post_report(&study, body).await;
        let problem = response.is_problem(status, code);
        assert!(problem.detail.len() < 400, "{what}: {}", problem.detail);
    }
    let most = batch_len(format_of(&study).payload_len(), study.max_batch_reports);
    for (what, body, (status, code)) in [
        ("a single report", good.clone(), malformed),
        (
            "another study's batch",
            batch(&other, &[(new_id(), 1.0)]),
            foreign,
        ),
        ("over the limit", vec![0; most + 1], large),
    ] {
        let response = server.post_batch(&study, body).await;
        let problem = response.is_problem(status, code);
        assert!(problem.detail.len() < 400, "{what}: {}", problem.detail);
    }
    let path = at(&study, "/reports");
    for media_type in [
        "",
        "application/json",
        "application/octet-stream",
        "text/plain",
    ] {
        let response = server.post(&path, media_type, good.clone()).await;
        response.is_problem(415, E::UnsupportedMediaType);
    }
    let encoded = Request::post(&path)
        .header(header::CONTENT_TYPE, REPORT_MEDIA_TYPE)
        .header(header::CONTENT_ENCODING, "gzip")
        .body(Body::from(good.clone()))
        .unwrap();
    let response = server.send(encoded).await;
    let problem = response.is_problem(415, E::UnsupportedMediaType);
    assert!(problem.detail.contains("gzip"), "{}", problem.detail);
    let nobody = format!("/v1/studies/{}/reports", "0".repeat(32));
    let response = server.post(&nobody, REPORT_MEDIA_TYPE, good.clone()).await;
    response.is_problem(404, E::StudyNotFound);

    assert_eq!(server.accepted(&study).await, 1);
    assert_eq!(server.total(&study), [1.0; 6]);
    // The server still works.
    server.counts(&study, good).await;
}

/// (One without an end: `drain.rs`.)
#[tokio::test]
async fn a_body_in_pieces_is_a_report_if_none_is_missing() {
    let server = Harness::new();
    let study = server.study(3).await;
    let good = report(&study, new_id(), 2.0);
    let pieces: Vec<_> = good
        .chunks(7)
        .map(|c| Ok::<_, std::io::Error>(Bytes::copy_from_slice(c)))
        .collect();
    let response = server
        .post_report(&study, Body::from_stream(stream::iter(pieces)))
        .await;
    assert_eq!(response.status, StatusCode::CREATED);
    // A body that breaks off is not a report.
    let broken = good
        .chunks(7)
        .take(2)
        .map(|c| Ok(Bytes::copy_from_slice(c)));
    let broken: Vec<_> = broken.chain([Err(std::io::Error::other("gone"))]).collect();
    let response = server
        .post_report(&study, Body::from_stream(stream::iter(broken)))
        .await;
    response.is_problem(400, E::IncompleteBody);
    assert_eq!(server.total(&study), [2.0; 6]);
}

#[tokio::test]
async fn slow_bodies_time_out_and_full_memory_is_reported() {
    let server = Harness::with(|config| {
        config.body_timeout_ms = 50;
        config.max_ingest_bytes = 1;
    });
    let study = server.study(3).await;
    let never = stream::pending::<std::io::Result<Bytes>>();
    let response = server.post_report(&study, Body::from_stream(never)).await;
    response.is_problem(408, E::RequestTimeout);
    assert_eq!(response.headers[header::CONNECTION], "close");
    // Alone, a report larger than the memory limit still succeeds.
    server.count_one(&study).await;
}
