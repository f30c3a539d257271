//! A server on a real socket: keep-alive, slow clients, graceful shutdown.

use eigenveil_shared::api::{REPORT_MEDIA_TYPE, StudyDocument};
use eigenveil_store::{NewReport, Store};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    common::{
        at, design, environment, new_id, report, study_in,
        waiting::{until, within},
    },
    running::{Running, get, post, read_response},
};

async fn new_study(server: &Running, stream: &mut TcpStream) -> StudyDocument {
    let headers = format!("{}content-type: application/json\r\n", server.operator());
    let design = design(&json!({})).to_string();
    post(stream, "/v1/studies", &headers, design.as_bytes()).await;
    let created = read_response(stream).await;
    assert_eq!(created.status, 201);
    serde_json::from_slice(&created.body).unwrap()
}

/// A connection on which the server waits for a body of this length, after 100 Continue.
async fn waiting_for_a_body(server: &Running, study: &StudyDocument, length: usize) -> TcpStream {
    let mut stream = server.connect().await;
    let head = format!(
        "POST /v1/studies/{}/reports HTTP/1.1\r\nhost: x\r\ncontent-type: {REPORT_MEDIA_TYPE}\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n",
        study.id
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut wanted = Vec::new();
    while !wanted.ends_with(b"\r\n\r\n") {
        wanted.push(stream.read_u8().await.unwrap());
    }
    assert!(wanted.starts_with(b"HTTP/1.1 100 "), "{wanted:?}");
    stream
}

/// A day: no test waits that long.
const NEVER_MS: u64 = 24 * 3_600_000;

#[tokio::test]
async fn a_request_names_exactly_one_host() {
    let server = Running::start(|_| {}).await;
    let mut stream = server.connect().await;
    for (head, status) in [
        ("GET /healthz HTTP/1.1\r\nhost: x", 200),
        ("GET /healthz HTTP/1.1\r\naccept: */*", 400),
        ("GET http://x/healthz HTTP/1.1\r\naccept: */*", 400),
        ("GET /nowhere HTTP/1.1\r\naccept: */*", 400),
        ("GET /healthz HTTP/1.1\r\nhost: x", 200),
    ] {
        let head = format!("{head}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let reply = read_response(&mut stream).await;
        assert_eq!(reply.status, status, "{head}");
        let body = String::from_utf8(reply.body).unwrap();
        assert_eq!(body.contains("malformed-request"), status == 400, "{body}");
    }
    drop(stream);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_serves_and_shuts_down_gracefully() {
    let server = Running::start(|config| {
        config.shutdown_timeout_ms = NEVER_MS;
        config.body_timeout_ms = NEVER_MS;
    })
    .await;
    // Several requests on one connection.
    let mut stream = server.connect().await;
    let study = new_study(&server, &mut stream).await;
    let path = at(&study, "/reports");
    let content = format!("content-type: {REPORT_MEDIA_TYPE}\r\n");
    let mut sent = Vec::new();
    for value in [1.0, 2.0, 3.0] {
        let body = report(&study, new_id(), value);
        post(&mut stream, &path, &content, &body).await;
        assert_eq!(read_response(&mut stream).await.status, 201);
        sent.push(body);
    }
    drop(stream);

    // The head of a request has a limit.
    let mut long = server.connect().await;
    let head = format!(
        "GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}",
        "x".repeat(80_000)
    );
    // The server may have responded and closed before all of it is sent.
    let _ = long.write_all(head.as_bytes()).await;
    assert_eq!(
        within("an answer", read_response(&mut long)).await.status,
        431
    );
    // Anything but HTTP gets an error or is closed, and the server goes on.
    let mut noise = server.connect().await;
    noise.write_all(&[0xff; 64]).await.unwrap();
    let _ = within("the cut", noise.read_to_end(&mut Vec::new())).await;

    // Stop during a request: it gets its response, then the connection is closed.
    let last = report(&study, new_id(), 4.0);
    let mut stream = waiting_for_a_body(&server, &study, last.len()).await;
    stream.write_all(&last[..20]).await.unwrap();
    let Running {
        directory: _directory,
        config,
        address,
        store,
        stop,
        ended,
        ..
    } = server;
    drop(store);
    stop.send(()).unwrap();
    // Once it accepts no more connections it has begun to stop.
    until("it stops", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    assert!(!ended.is_finished());
    stream.write_all(&last[20..]).await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 201);
    within("the end of the server", ended)
        .await
        .unwrap()
        .unwrap();

    // Everything acknowledged is there.
    sent.push(last);
    let store = Store::open(&config.of_store(), environment()).unwrap();
    let stored = study_in(&store, &study);
    assert_eq!(stored.reports_accepted(), 4);
    for body in sent {
        let again = NewReport::decode(&body.into(), &stored).unwrap();
        let outcome = store.submit(&stored, vec![again]).await.unwrap();
        assert_eq!(outcome, [eigenveil_store::SubmitOutcome::Duplicate]);
    }
}

/// A client that does not finish the head of its request is cut off, and blocks nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_head_is_cut_off() {
    let server = Running::start(|config| config.header_timeout_ms = 400).await;
    let mut slow = server.connect().await;
    slow.write_all(b"POST /v1/studies HTTP/1.1\r\nhost:")
        .await
        .unwrap();
    let _ = within("the cut", slow.read_to_end(&mut Vec::new())).await;
    server.stop().await;
}

/// A client that never sends the rest of its body is cut off at the shutdown timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_does_not_wait_for_a_body_beyond_its_timeout() {
    let server = Running::start(|config| {
        config.shutdown_timeout_ms = 300;
        config.body_timeout_ms = NEVER_MS;
    })
    .await;
    let study = new_study(&server, &mut server.connect().await).await;
    let length = report(&study, new_id(), 4.0).len();
    let mut stuck = waiting_for_a_body(&server, &study, length).await;
    server.stop().await;
    let _ = within("the cut", stuck.read_to_end(&mut Vec::new())).await;
}

/// A client that requests much and reads nothing is cut off, and its connection slot is free for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_is_cut_off() {
    let server = Running::start(|config| {
        config.max_connections = 1;
        config.body_timeout_ms = 500;
    })
    .await;
    server.fill_for_a_large_backup().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut idle = socket.connect(server.address).await.unwrap();
    get(&mut idle, "/v1/backup", &server.operator()).await;
    // The only slot is taken until the first client is cut off.
    let mut next = server.connect().await;
    get(&mut next, "/healthz", "").await;
    assert_eq!(
        within("a free place", read_response(&mut next))
            .await
            .status,
        200
    );
    let mut taken = Vec::new();
    // Reset, or ended in the middle.
    let _ = idle.read_to_end(&mut taken).await;
    assert!(taken.len() < 8_000_000, "{} bytes were taken", taken.len());
    drop(next);
    server.stop().await;
}

/// The server knows the client's address: every connection is new, and only the address counts. One request a minute,
/// so that none becomes available during the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_limits_hold_over_several_connections() {
    let server = Running::start(|config| config.address_requests_per_minute = Some(1)).await;
    let path = format!("/v1/studies/{}/reports", "ab".repeat(16));
    let (one, other) = ([127, 0, 0, 1], [127, 0, 0, 2]);
    for (from, status) in [(one, 404), (one, 429), (other, 404)] {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        post(&mut stream, &path, "", b"").await;
        assert_eq!(read_response(&mut stream).await.status, status);
    }
    server.stop().await;
}
