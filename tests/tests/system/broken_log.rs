//! Nobody can be told anything any more: standard error is on the disk that is full, or its reader has gone.

use eigenveil_shared::api::REPORT_MEDIA_TYPE;
use rusqlite::Connection;

use crate::program::{ServerProcess, program};

/// What fails is logged by the thread that writes; it goes on writing.
async fn goes_on(mut server: ServerProcess) {
    let id = server.create_study(&["--p", "4", "--epsilon", "4"]);
    let client = eigenveil_client::http::StudyClient::new(&server.url).unwrap();
    let study = client.fetch_study(&id).await.unwrap();
    let row = eigenveil_shared::preprocess::Row::new(vec![0.5; 4]);
    let participant = study.participant();
    let upload = async || {
        let report = participant.report(&row).unwrap().into_report();
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
        assert_eq!(health(path).await, 200, "{path}");
    }
    assert!(server.stop());
}

/// As talkative as it can be.
fn talkative() -> std::process::Command {
    let mut program = program();
    program.env("RUST_LOG", "trace");
    program
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_log_is_on_a_full_disk_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let full = std::path::Path::new("/dev/full");
    let flags = ["--listen", "127.0.0.1:0"];
    goes_on(ServerProcess::start_logged(
        talkative,
        folder.path(),
        &flags,
        full,
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_log_nobody_reads_any_more_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--listen", "127.0.0.1:0", "--log-json"];
    let mut server = ServerProcess::start_as(talkative, folder.path(), &flags);
    server.deafen();
    goes_on(server).await;
}

/// Only a server that runs can delete what fills the disk that standard output is on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_output_is_on_a_full_disk_starts() {
    let folder = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut server = program()
        .args(["serve", "--listen", &address.to_string(), "--data"])
        .arg(folder.path().join("data"))
        .stdout(full.unwrap())
        .spawn()
        .unwrap();
    let answer = loop {
        if let Ok(answer) = reqwest::get(format!("http://{address}/readyz")).await {
            break Some(answer.status());
        }
        if server.try_wait().unwrap().is_some() {
            break None;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let _ = server.kill();
    server.wait().unwrap();
    assert_eq!(answer.map(|status| status.as_u16()), Some(200));
}
