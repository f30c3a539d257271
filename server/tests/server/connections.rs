//! Who gets a connection when they are short, and what the kernel holds for clients that do not read.

use std::time::{Duration, Instant};

use eigenveil_server::ServerConfig;
use eigenveil_shared::{ErrorCode, api::Problem};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::{
    common::waiting::{until, within},
    running::{Reply, Running, get, read_response},
};

const HALF_A_HEAD: &[u8] = b"GET /healthz HTTP/1.1\r\nhost:";

pub(crate) async fn connect_from(server: &Running, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(server.address).await.unwrap()
}

async fn half_a_head_from(server: &Running, last: u8) -> TcpStream {
    let mut stream = connect_from(server, last).await;
    stream.write_all(HALF_A_HEAD).await.unwrap();
    stream
}

async fn ask(stream: &mut TcpStream) -> Reply {
    get(stream, "/healthz", "").await;
    within("a response", read_response(stream)).await
}

/// Whether the connection was reset: nothing is left of it in the kernel.
async fn is_reset(stream: &mut TcpStream) -> bool {
    let read = within("the end", stream.read_u8()).await;
    matches!(read, Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}

/// A request that is busy until the test is over: its body does not come.
async fn busy_from(server: &Running, last: u8) -> TcpStream {
    let mut stream = connect_from(server, last).await;
    let head = "POST /v1/studies HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: 10\r\n";
    let request = format!("{head}{}\r\n", server.operator());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 25];
    within("100 Continue", stream.read_exact(&mut answer))
        .await
        .unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 100 "));
    stream
}

fn never(config: &mut ServerConfig) {
    const DAY_MS: u64 = 24 * 3_600_000;
    config.header_timeout_ms = DAY_MS;
    config.body_timeout_ms = DAY_MS;
    config.shutdown_timeout_ms = 100;
}

/// Half heads from one address take its share only, and the oldest of them end, by a reset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_heads_keep_nobody_out() {
    let server = Running::start(|config| {
        never(config);
        config.max_connections = 8;
    })
    .await;
    let mut held = connect_from(&server, 1).await;
    assert_eq!(ask(&mut held).await.status, 200);
    let mut halves = Vec::new();
    for _ in 0..6 {
        halves.push(half_a_head_from(&server, 2).await);
    }
    for half in &mut halves[..4] {
        assert!(is_reset(half).await);
    }
    // The share of an address is 2 of 8, also for the honest; nobody else's connection has ended.
    let mut new = half_a_head_from(&server, 2).await;
    new.write_all(b" x\r\n\r\n").await.unwrap();
    assert_eq!(
        within("a response", read_response(&mut new)).await.status,
        200
    );
    assert_eq!(ask(&mut held).await.status, 200);
    server.stop().await;
}

/// Half heads from many addresses: each is within its share, so the connection that has waited longest ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_connections_are_short_the_oldest_waiting_one_ends() {
    let server = Running::start(|config| {
        never(config);
        config.max_connections = 4;
    })
    .await;
    let mut busy = busy_from(&server, 9).await;
    let mut halves = Vec::new();
    for last in 1..=6 {
        halves.push(half_a_head_from(&server, last).await);
    }
    for half in &mut halves[..3] {
        assert!(is_reset(half).await);
    }
    assert_eq!(ask(&mut connect_from(&server, 7).await).await.status, 200);
    // A request in progress is never the one that ends.
    busy.write_all(&[b'x'; 10]).await.unwrap();
    let refused = within("a response", read_response(&mut busy)).await;
    assert_eq!(refused.status, 400);
    server.stop().await;
}

/// Among connections without a request, those of the address that has waited longest in all are closed, not a slow
/// client's. Nor is a response cut that is still being read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_that_waits_most_pays() {
    let server = Running::start(|config| {
        never(config);
        config.max_connections = 8;
        config.max_connections_per_address = Some(7);
    })
    .await;
    let begun = Instant::now();
    let mut slow = half_a_head_from(&server, 1).await;
    let mut halves = Vec::new();
    for _ in 0..6 {
        halves.push(half_a_head_from(&server, 3).await);
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.bind(([127, 0, 0, 2], 0).into()).unwrap();
    let mut reader = socket.connect(server.address).await.unwrap();
    get(&mut reader, "/openapi.json", "").await;
    // Connections are accepted in order: those before have been, too. Four of them have to wait longer than the slow one.
    let response = within("a response", reader.peek(&mut [0])).await;
    assert_eq!(response.unwrap(), 1);
    tokio::time::sleep(Duration::from_millis(500) + begun.elapsed()).await;
    for last in 4..7 {
        halves.push(half_a_head_from(&server, last).await);
    }
    for half in &mut halves[..3] {
        assert!(is_reset(half).await);
    }
    slow.write_all(b" x\r\n\r\n").await.unwrap();
    let response = within("a response", read_response(&mut slow)).await;
    assert_eq!(response.status, 200);
    let document = within("a response", read_response(&mut reader)).await;
    serde_json::from_slice::<serde_json::Value>(&document.body).unwrap();
    server.stop().await;
}

/// An address whose connections are all busy is told so, with the way out; a trusted proxy has no share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_with_its_share_busy_is_told_so() {
    let server = Running::start(|config| {
        never(config);
        config.max_connections_per_address = Some(2);
        config.trusted_proxies = vec!["127.0.0.9".parse().unwrap()];
    })
    .await;
    for (last, status) in [(1, 429), (9, 200)] {
        let _busy = [
            busy_from(&server, last).await,
            busy_from(&server, last).await,
        ];
        let response = ask(&mut connect_from(&server, last).await).await;
        assert_eq!(response.status, status, "{last}");
        if status == 429 {
            assert!(response.closes);
            let problem: Problem = serde_json::from_slice(&response.body).unwrap();
            assert_eq!(problem.code, ErrorCode::TooManyRequests);
            for words in ["holds 2 connections", "max_connections_per_address"] {
                assert!(problem.detail.contains(words), "{}", problem.detail);
            }
        }
    }
    server.stop().await;
}

/// The kernel takes little of a response that nobody reads, and nothing is left of it once the client is cut off.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_that_nobody_reads_do_not_pile_up_in_the_kernel() {
    let server = Running::start(|config| config.body_timeout_ms = 2_000).await;
    server.fill_for_a_large_backup().await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut idle = socket.connect(server.address).await.unwrap();
    let ports = [server.address.port(), idle.local_addr().unwrap().port()];
    get(&mut idle, "/v1/backup", &server.operator()).await;
    let mut most = 0;
    until("the client is cut off", async || {
        let held = send_queue(ports);
        most = most.max(held.unwrap_or(0));
        most > 0 && held.is_none()
    })
    .await;
    assert!((1..=256 << 10).contains(&most), "{most} bytes");
    server.stop().await;
}

/// Bytes that the kernel holds for sending from one port to another; `None` if there is no such connection.
fn send_queue([from, to]: [u16; 2]) -> Option<u64> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is = |field: usize, port: u16| fields[field].ends_with(&format!(":{port:04X}"));
        let (queued, _) = fields.get(4)?.split_once(':')?;
        (is(1, from) && is(2, to)).then(|| u64::from_str_radix(queued, 16).unwrap())
    })
}
