//! Requests with a body that the server does not want: the client gets the response anyway.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    common::waiting::within,
    running::{Running, get, read_response},
};

async fn end_well(server: Running) {
    let mut stream = server.connect().await;
    get(&mut stream, "/healthz", "").await;
    assert_eq!(read_response(&mut stream).await.status, 200);
    drop(stream);
    server.stop().await;
}

fn head(path: &str, extra: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\n{extra}\r\n").into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_and_unwanted_bodies_leave_the_connection_usable() {
    let server = Running::start(|_| {}).await;
    let mut stream = server.connect().await;
    let nobody = format!("/v1/studies/{}/reports", "0".repeat(32));
    for round in 0..50 {
        for (path, size, status) in [
            // Rejected for lack of a token, a study or a path; nobody reads the body.
            ("/v1/studies", 100_000, 401),
            (nobody.as_str(), 5_000_000, 404),
            ("/healthz", 100_000, 405),
            ("/nowhere", 20, 404),
        ] {
            let mut request = head(path, &format!("content-length: {size}\r\n"));
            request.resize(request.len() + size, b'x');
            stream.write_all(&request).await.unwrap();
            let response = read_response(&mut stream).await;
            assert_eq!(
                (response.status, response.closes),
                (status, false),
                "{round}"
            );
        }
    }
    // With chunked encoding the length is unknown.
    let mut request = head("/nowhere", "transfer-encoding: chunked\r\n");
    request.extend(b"10000\r\n");
    request.resize(request.len() + 0x10000, b'x');
    request.extend(b"\r\n0\r\n\r\n");
    for _ in 0..5 {
        stream.write_all(&request).await.unwrap();
        let response = read_response(&mut stream).await;
        assert_eq!((response.status, response.closes), (404, false));
    }
    drop(stream);
    end_well(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_beyond_the_limit_gets_a_response_and_is_cut_off() {
    let server = Running::start(|_| {}).await;
    // Announced length: responds before reading any of it.
    let mut stream = server.connect().await;
    let announced = head("/nowhere", "content-length: 20000000\r\n");
    stream.write_all(&announced).await.unwrap();
    let refused = read_response(&mut stream).await;
    assert_eq!((refused.status, refused.closes), (404, true));
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 0);
    // Unknown length: the client writes until it is cut off.
    let mut stream = server.connect().await;
    let endless = head("/nowhere", "transfer-encoding: chunked\r\n");
    stream.write_all(&endless).await.unwrap();
    let mut chunk = b"100000\r\n".to_vec();
    chunk.resize(chunk.len() + 0x10_0000, b'x');
    chunk.extend(b"\r\n");
    let mut written = 0;
    while stream.write_all(&chunk).await.is_ok() {
        written += chunk.len();
        assert!(written < 200_000_000, "nobody stops this client");
    }
    assert!(written > 14_000_000, "cut off after {written} bytes");
    end_well(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expect_continue_is_refused_without_100() {
    let server = Running::start(|_| {}).await;
    let mut stream = server.connect().await;
    let request = head(
        "/nowhere",
        "content-length: 5000000\r\nexpect: 100-continue\r\n",
    );
    stream.write_all(&request).await.unwrap();
    let refused = read_response(&mut stream).await;
    assert_eq!((refused.status, refused.closes), (404, true));
    end_well(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_is_cut_off_at_the_timeout() {
    let server = Running::start(|config| config.body_timeout_ms = 300).await;
    let mut stream = server.connect().await;
    let started = Instant::now();
    let mut request = head("/nowhere", "content-length: 100000\r\n");
    request.extend(b"0123456789");
    stream.write_all(&request).await.unwrap();
    let refused = read_response(&mut stream).await;
    assert_eq!((refused.status, refused.closes), (404, true));
    let mut rest = Vec::new();
    // Either end of file or reset.
    let _ = within("the cut", stream.read_to_end(&mut rest)).await;
    assert!(started.elapsed() > Duration::from_millis(250));
    end_well(server).await;
}
