//! Attacks on access: guessed tokens from the operator's own address, connections that take every descriptor, a full
//! disk.

use std::{
    io::Write as _,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use eigenveil_shared::{
    api::{REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, StudyDocument},
    codec::{self, ReportFormat},
    report::ReportId,
};
use tokio::task::JoinSet;

use crate::{
    Target,
    harness::{Folder, ServerProcess},
    honest, run_attack,
    wire::Wire,
};

/// The address of honest devices, operator and attacker alike: they share a proxy.
const HONEST_ADDRESS: [u8; 4] = [127, 0, 0, 1];

/// Thousands of wrong tokens, spelt in every way, from the operator's address: the operator always gets in.
#[test]
#[ignore = "half a minute of two processors"]
fn guessed_tokens_do_not_lock_out_the_operator() {
    run_attack("wrong tokens", |target: Target, started| async move {
        let mut guessers = JoinSet::new();
        for guesser in 0..8 {
            let server = target.address;
            guessers.spawn(async move {
                let mut wire = Wire::connect(server, HONEST_ADDRESS).await.unwrap();
                for guess in 0_u64.. {
                    let scheme = ["Bearer", "bearer", "BEARER "][guess as usize % 3];
                    let head = format!("authorization: {scheme} {guesser}-{guess}\r\n");
                    let response = wire.send("GET", "/v1/tokens", &head, b"").await.unwrap();
                    assert!([403, 429].contains(&response.status), "{response:?}");
                }
            });
        }
        let mut operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
        let head = format!("authorization: Bearer {}\r\n", target.token);
        let mut started = Some(started);
        for asked in 0_u64.. {
            let response = operator.send("GET", "/v1/tokens", &head, b"").await;
            assert_eq!(response.unwrap().status, 200);
            if asked == 100 {
                started.take().unwrap().send(()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// More connections than descriptors: the store can still open its files, and an estimate completes.
#[test]
#[ignore = "half a minute of two processors"]
fn connections_do_not_starve_the_store_of_descriptors() {
    run_attack("300 connections", |target: Target, started| async move {
        let mut operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
        let path = format!("/v1/studies/{}", target.seeds.id);
        let id = ReportId::from_parts(1_700_000_000_000, [7; 16]);
        let report = honest::report(&target.seeds, id);
        let head = format!("content-type: {REPORT_MEDIA_TYPE}\r\n");
        let sent = operator
            .send("POST", &format!("{path}/reports"), &head, &report)
            .await;
        assert_eq!(sent.unwrap().status, 201);
        let mut connections = Vec::new();
        for number in 0..300_u16 {
            let from = [127, 0, 2, u8::try_from(number % 250).unwrap() + 1];
            connections.push(Wire::connect(target.address, from).await.unwrap());
        }
        started.send(()).unwrap();
        let token = format!("authorization: Bearer {}\r\n", target.token);
        let head = format!("{token}content-type: application/json\r\n");
        // Connections that wait are closed: the operator's are new ones.
        operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
        let asked = operator
            .send("POST", &format!("{path}/estimates"), &head, b"{}")
            .await;
        assert_eq!(asked.unwrap().status, 202);
        loop {
            let mut operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
            let response = operator
                .send("GET", &format!("{path}/estimates/1"), &token, b"")
                .await
                .unwrap();
            let document: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            match document["state"].as_str().unwrap() {
                "running" => tokio::time::sleep(Duration::from_millis(100)).await,
                state => {
                    assert_eq!(state, "done", "{document}");
                    break;
                }
            }
        }
        // Hold them until the end.
        std::future::pending::<()>().await;
        drop(connections);
    });
}

/// A separate file system of 40 MiB, in a mount namespace that lives as long as this value.
struct Disk {
    holder: Child,
    path: PathBuf,
}

impl Disk {
    fn new(path: PathBuf) -> Self {
        std::fs::create_dir(&path).unwrap();
        let mount = format!(
            "mount -t tmpfs -o size=40m none {} && echo mounted && exec sleep 1000",
            path.display()
        );
        let mut holder = Command::new("unshare")
            .args(["-rm", "sh", "-c", &mount])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut message = [0; 7];
        let out = holder.stdout.as_mut().unwrap();
        std::io::Read::read_exact(out, &mut message).unwrap();
        assert_eq!(&message, b"mounted");
        Self { holder, path }
    }

    /// The shell command that lets the program see the disk.
    fn enter_command(&self) -> String {
        let holder = self.holder.id();
        format!("exec nsenter --preserve-credentials -U -m -t {holder}")
    }

    fn outside_path(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{}/root{}",
            self.holder.id(),
            self.path.display()
        ))
    }

    fn fill(&self, name: &str) {
        let mut ballast = std::fs::File::create(self.outside_path().join(name)).unwrap();
        while ballast.write(&[1; 4_096]).is_ok_and(|written| written > 0) {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Stopped on a full disk without ballast: the next start says what to do, and afterwards everything is there.
#[test]
#[ignore = "needs user namespaces (unshare -rm)"]
fn start_on_a_full_disk_says_what_to_do() {
    let folder = Folder::new();
    let disk = Disk::new(folder.path().join("disk"));
    let (data, log) = (disk.path.join("data"), folder.path().join("log"));
    let start = || {
        let mut server = ServerProcess::start_limited(&data, &disk.enter_command(), &log, "");
        server.data = disk.outside_path().join("data");
        server
    };
    let mut server = start();
    let runtime = crate::runtime();
    let id = server.create_study("--p 16 --epsilon 4");
    let address = server.listen().parse().unwrap();
    let study = runtime.block_on(crate::study(address, &id));
    for number in 0..40 {
        let sent = runtime.block_on(send_thousand(address, &study, number));
        assert_eq!(sent, 200);
    }
    assert!(server.stop());
    // As after an earlier deletion.
    std::fs::remove_file(disk.outside_path().join("data/eigenveil.reserve")).unwrap();
    disk.fill("ballast");
    let failed = std::panic::catch_unwind(start);
    assert!(failed.is_err(), "it started on a full disk");
    let message = std::fs::read_to_string(&log).unwrap();
    for word in ["[store-full]", "eigenveil.db is full", "start again"] {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
    std::fs::remove_file(disk.outside_path().join("ballast")).unwrap();
    let mut server = start();
    assert_eq!(server.accepted(&id), 40_000);
    server.cli_json(&format!("study close {id}"));
    server.cli_json(&format!("study delete {id} --yes"));
    assert!(server.stop());
}

/// Sends a batch of a thousand reports and returns the status of the response.
async fn send_thousand(server: SocketAddr, study: &StudyDocument, number: u64) -> u16 {
    let reports: Vec<_> = (0..1_000)
        .map(|i| {
            let random = [[0; 8], (1_000 * number + i).to_be_bytes()].concat();
            ReportId::from_parts(1_700_000_000_000, random.try_into().unwrap())
        })
        .collect();
    let pairs = reports.iter().map(|id| (*id, id.0.as_slice()));
    let body = codec::encode_batch(&ReportFormat::new(&study.params), pairs).unwrap();
    let path = format!("/v1/studies/{}/reports", study.id);
    let head = format!("content-type: {REPORT_BATCH_MEDIA_TYPE}\r\n");
    let mut wire = Wire::connect(server, HONEST_ADDRESS).await.unwrap();
    wire.send("POST", &path, &head, &body).await.unwrap().status
}
