//! One server on a real socket: keep-alive, slow clients, graceful shutdown.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod common;

use std::time::Duration;

use common::{design, environment, new_id, report, shape};
use eigenveil_server::{Server, ServerConfig, Store, StudyId, store::NewReport};
use eigenveil_shared::api::{REPORT_MEDIA_TYPE, StudyDocument};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};

/// Reads one answer with a Content-Length.
async fn answer(stream: &mut TcpStream) -> (u16, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (status, body)
}

async fn post(stream: &mut TcpStream, path: &str, headers: &str, body: &[u8]) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_server_serves_and_stops_in_good_order() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        header_timeout_ms: 400,
        shutdown_timeout_ms: 1_500,
        ..ServerConfig::new(directory.path().join("data"))
    };
    let server = Server::bind(config.clone(), environment()).await.unwrap();
    let address = server.local_addr();
    let token = std::fs::read_to_string(server.app().store().token_path()).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        stopped.await.ok();
    }));

    // Several requests on one connection.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let operator = format!(
        "authorization: Bearer {}\r\ncontent-type: application/json\r\n",
        token.trim()
    );
    post(
        &mut stream,
        "/v1/studies",
        &operator,
        design(&json!({})).to_string().as_bytes(),
    )
    .await;
    let (status, body) = answer(&mut stream).await;
    assert_eq!(status, 201);
    let study: StudyDocument = serde_json::from_slice(&body).unwrap();
    let path = format!("/v1/studies/{}/reports", study.id);
    let content = format!("content-type: {REPORT_MEDIA_TYPE}\r\n");
    let mut sent = Vec::new();
    for value in [1.0, 2.0, 3.0] {
        let body = report(&study, new_id(), value);
        post(&mut stream, &path, &content, &body).await;
        assert_eq!(answer(&mut stream).await.0, 201);
        sent.push(body);
    }

    // Whoever does not finish the head of a request is cut off, and holds nobody up.
    let mut slow = TcpStream::connect(address).await.unwrap();
    slow.write_all(b"POST /v1/studies HTTP/1.1\r\nhost:")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let cut = tokio::time::timeout(Duration::from_secs(5), slow.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "the slow connection is still open");
    // Nor may a head be endless.
    let mut long = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /healthz HTTP/1.1\r\nhost: x\r\nx: {}",
        "x".repeat(80_000)
    );
    // The server may have answered and gone before all of it is sent.
    let _ = long.write_all(head.as_bytes()).await;
    let status = tokio::time::timeout(Duration::from_secs(5), answer(&mut long)).await;
    assert_eq!(status.expect("a long head is waited for").0, 431);
    // What is not HTTP gets an answer or is cut, and the server goes on.
    let mut noise = TcpStream::connect(address).await.unwrap();
    noise.write_all(&[0xff; 64]).await.unwrap();
    let _ = noise.read_to_end(&mut rest).await;

    // Stopping while a request is on its way: it is answered, then the connection ends.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let last = report(&study, new_id(), 4.0);
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\n{content}content-length: {}\r\n\r\n",
        last.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&last[..20]).await.unwrap();
    // One that never sends the rest is cut when the time is up.
    let mut stuck = TcpStream::connect(address).await.unwrap();
    stuck.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!running.is_finished());
    stream.write_all(&last[20..]).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 201);
    tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .unwrap()
        .unwrap();
    let cut = tokio::time::timeout(Duration::from_secs(5), stuck.read_to_end(&mut rest)).await;
    assert!(cut.is_ok(), "the stuck connection is still open");
    assert!(TcpStream::connect(address).await.is_err());

    // Everything acknowledged is there.
    sent.push(last);
    let store = Store::open(&config, environment()).unwrap();
    let stored = store.study(StudyId::parse(&study.id).unwrap()).unwrap();
    assert_eq!(stored.reports_accepted(), 4);
    for body in sent {
        let again = NewReport::decode(&body.into(), &shape(&study)).unwrap();
        let outcome = store.submit(&stored, vec![again]).await.unwrap();
        assert_eq!(outcome, [eigenveil_server::store::Stored::Duplicate]);
    }
}

/// A client that asks for much and takes nothing is cut off, and its place is free for others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_does_not_take_the_answer_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        max_connections: 1,
        body_timeout_ms: 500,
        ..ServerConfig::new(directory.path().join("data"))
    };
    let server = Server::bind(config, environment()).await.unwrap();
    let (address, store) = (server.local_addr(), server.app().store().clone());
    let token = std::fs::read_to_string(store.token_path()).unwrap();
    // A backup of some 10 MB: more than sockets hold.
    let wanted = serde_json::from_value(design(&json!({"dimension": 512}))).unwrap();
    let study = store.create_study(wanted).await.unwrap();
    for _ in 0..16 {
        let body = report(&study.document(), new_id(), 0.5).into();
        let report = NewReport::decode(&body, study.shape()).unwrap();
        store.submit(&study, vec![report]).await.unwrap();
    }
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        stopped.await.ok();
    }));
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut idle = socket.connect(address).await.unwrap();
    let head = format!(
        "GET /v1/backup HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n",
        token.trim()
    );
    idle.write_all(head.as_bytes()).await.unwrap();
    // The one place is taken until the first client is cut.
    let mut next = TcpStream::connect(address).await.unwrap();
    next.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let served = tokio::time::timeout(Duration::from_secs(20), answer(&mut next)).await;
    assert_eq!(served.expect("the place stays taken").0, 200);
    let mut taken = Vec::new();
    // Reset, or ended in the middle.
    let _ = idle.read_to_end(&mut taken).await;
    assert!(taken.len() < 8_000_000, "{} bytes were taken", taken.len());
    drop(next);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

/// The server knows who is connected, and limits those by it: on the way of reports too, which is a way of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_over_sockets_for_the_address() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        wrong_tokens_per_minute: 2,
        address_requests_per_minute: Some(5),
        ..ServerConfig::new(directory.path().join("data"))
    };
    let server = Server::bind(config, environment()).await.unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        stopped.await.ok();
    }));
    // Every connection is a new one: it is the address that counts.
    let ask = async |from: [u8; 4], path: &str, headers: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        post(&mut stream, path, headers, b"").await;
        answer(&mut stream).await.0
    };
    let guess = "authorization: Bearer guess\r\n";
    for status in [403, 403, 429] {
        assert_eq!(ask([127, 0, 0, 1], "/v1/studies", guess).await, status);
    }
    assert_eq!(ask([127, 0, 0, 2], "/v1/studies", guess).await, 403);
    let reports = format!("/v1/studies/{}/reports", "ab".repeat(16));
    for status in [404, 404, 429] {
        assert_eq!(ask([127, 0, 0, 1], &reports, "").await, status);
    }
    assert_eq!(ask([127, 0, 0, 2], &reports, "").await, 404);
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
