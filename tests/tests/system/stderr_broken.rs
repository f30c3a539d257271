//! Standard error cannot be written: it is on a full disk, or its reader has gone.

use std::path::Path;

use eigenveil_shared::api::REPORT_MEDIA_TYPE;
use rusqlite::Connection;

use crate::{
    harness::{Folder, ServerProcess, program, words},
    waiting::until,
};

const LISTEN: &str = "--listen 127.0.0.1:0";

/// The writer thread logs failures; it must survive that.
async fn assert_still_serving(mut server: ServerProcess) {
    let id = server.create_study("--p 4 --epsilon 4");
    let study = server.client().fetch_study(&id).await.unwrap();
    let row = eigenveil_shared::preprocess::Row::new(vec![0.5; 4]);
    let upload = async || {
        let report = study.report(&row, 1_800_000_000_000).unwrap().into_report();
        reqwest::Client::new()
            .post(format!("{}/v1/studies/{id}/reports", server.url))
            .header("content-type", REPORT_MEDIA_TYPE)
            .body(eigenveil_shared::codec::encode_report(&report))
            .send()
            .await
            .unwrap()
            .status()
    };
    let health = async |path: &str| {
        let answer = reqwest::get(format!("{}{path}", server.url)).await;
        answer.unwrap().status()
    };
    assert_eq!(upload().await, 201);
    let outside = Connection::open(server.data.join("eigenveil.db")).unwrap();
    outside
        .execute_batch(
            "CREATE TRIGGER broken BEFORE UPDATE ON studies BEGIN SELECT RAISE(ABORT, 'injected'); END",
        )
        .unwrap();
    for _ in 0..3 {
        assert_eq!(upload().await, 503);
        assert_eq!(health("/healthz").await, 200);
    }
    outside.execute_batch("DROP TRIGGER broken").unwrap();
    assert_eq!(upload().await, 201);
    for path in ["/healthz", "/readyz"] {
        until(path, async || health(path).await == 200).await;
    }
    assert!(server.stop());
}

#[tokio::test(flavor = "multi_thread")]
async fn server_survives_a_log_on_a_full_disk() {
    let folder = Folder::new();
    let (data, full) = (folder.path().join("data"), Path::new("/dev/full"));
    assert_still_serving(ServerProcess::start_logged("trace", &data, LISTEN, full)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_survives_a_closed_stderr_pipe() {
    let folder = Folder::new();
    let talkative = || {
        let mut program = program();
        program.env("RUST_LOG", "trace");
        program
    };
    let flags = format!("{LISTEN} --log-json");
    let mut server = ServerProcess::start_as(talkative, &folder.path().join("data"), &flags);
    server.close_stderr();
    assert_still_serving(server).await;
}

/// If standard output is on the full disk the server must still start, because only it can delete studies.
#[tokio::test(flavor = "multi_thread")]
async fn server_starts_with_stdout_on_a_full_disk() {
    let folder = Folder::new();
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut server = program()
        .args(words(&format!(
            "serve {LISTEN} --data {}",
            folder.at("data")
        )))
        .stdout(full.unwrap())
        .spawn()
        .unwrap();
    // It cannot print its address, but the system knows it.
    let mut port = None;
    until("the server to listen", async || {
        assert!(server.try_wait().unwrap().is_none(), "it ended");
        port = listening_port(server.id());
        port.is_some()
    })
    .await;
    let readiness = format!("http://127.0.0.1:{}/readyz", port.unwrap());
    until("it is ready", async || {
        reqwest::get(&readiness).await.unwrap().status() == 200
    })
    .await;
    server.kill().unwrap();
    server.wait().unwrap();
}

/// The port that a process listens on, from /proc (proc(5)).
fn listening_port(process: u32) -> Option<u16> {
    let sockets = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let sockets: Vec<String> = sockets
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .map(|link| link.display().to_string())
        .collect();
    let table = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).ok()?;
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields[3] == "0A" && sockets.contains(&format!("socket:[{}]", fields[9]));
        let (_, port) = fields[1].split_once(':').filter(|_| listens)?;
        u16::from_str_radix(port, 16).ok()
    })
}
