//! Attacks against a real server with 1 GiB of memory and 256 descriptors, while honest devices upload.
//!
//! `cargo test -p eigenveil-tests --test attacks -- --ignored --test-threads=1 --nocapture` prints a line for each
//! attack. Each measures the throughput of honest devices before and during the attack, in the same process, and checks
//! afterwards that every acknowledged report is counted exactly once. To add an attack write a test that calls
//! [`run_attack`].
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "a test fails by panicking"
)]

mod access;
mod connections;
#[allow(dead_code, reason = "the system tests use all of it")]
#[path = "../system/harness.rs"]
mod harness;
mod honest;
mod memory;
mod tls;
mod wire;

use std::{
    future::Future,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use eigenveil_shared::api::StudyDocument;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;

use crate::{
    harness::{Folder, ServerProcess},
    honest::Honest,
    wire::Wire,
};

/// Limits of the server's process: virtual memory in KiB, and descriptors.
const LIMITS: &str = "ulimit -v 1048576; ulimit -n 256; exec";
/// Honest devices must get at least this share of their throughput without an attack.
const MIN_SHARE: f64 = 0.9;
/// How long throughput is measured, before and during the attack.
const MEASURED_FOR: Duration = Duration::from_secs(8);
const WARM_UP: Duration = Duration::from_secs(2);
const PROBE_ADDRESS: [u8; 4] = [127, 0, 9, 9];

#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// An open study of seeds without honest devices.
    pub(crate) seeds: StudyDocument,
    /// An open study of matrices with p = 2,048, whose reports have 8 MiB each.
    pub(crate) large: StudyDocument,
    /// The operator's token: to set up an attack, not for attackers.
    pub(crate) token: String,
}

struct Measurement {
    /// Acknowledged reports per second, of each kind of devices.
    rates: [f64; 3],
    /// Slowest response of the health check.
    health: Duration,
}

/// Kinds of honest devices: seed reports (74 bytes each) over kept and over new connections, matrix reports (20 KiB each).
const KINDS: [&str; 3] = ["kept-alive", "new", "matrices"];
/// Reports of each kind per second.
const PER_SECOND: [u32; 3] = [200, 100, 40];

/// Runs an attack against a server with these limits. `attack` runs on its own thread until the end and sends on its
/// channel once it is set up.
pub(crate) fn run_attack<F>(
    name: &str,
    attack: impl FnOnce(Target, oneshot::Sender<()>) -> F + Send + 'static,
) where
    F: Future<Output = ()>,
{
    run_attack_over(None, name, attack);
}

/// Runs the attack over TLS, if there is a certificate.
pub(crate) fn run_attack_over<F>(
    certificate: Option<&tls::Certificate>,
    name: &str,
    attack: impl FnOnce(Target, oneshot::Sender<()>) -> F + Send + 'static,
) where
    F: Future<Output = ()>,
{
    let folder = Folder::new();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let mut server = ServerProcess::start_limited(&data, LIMITS, &log, "");
    let runtime = runtime();
    let document = |server: &ServerProcess, flags: &str| {
        let id = server.create_study(flags);
        runtime.block_on(study(server.listen().parse().unwrap(), &id))
    };
    let dense = "--epsilon 4 --mechanism symmetric-gaussian";
    let designs = [
        "--p 400 --epsilon 4",
        "--p 400 --epsilon 4",
        &format!("{dense} --p 100"),
    ];
    let studies = designs.map(|design| document(&server, design));
    let seeds = document(&server, "--p 400 --epsilon 4");
    let large = document(&server, &format!("{dense} --p 2048"));
    if let Some(certificate) = certificate {
        assert!(server.stop());
        let flags = certificate.write(folder.path());
        server = ServerProcess::start_limited(&data, LIMITS, &log, &flags);
    }
    let address: SocketAddr = server.listen().parse().unwrap();
    let target = Target {
        address,
        seeds,
        large,
        token: server.token(),
    };
    let connector = certificate.map(tls::Certificate::connector);
    let mut number = 0;
    let honest = studies.map(|study| {
        let (per_second, reconnects) = (PER_SECOND[number], KINDS[number] == "new");
        number += 1;
        Honest::new(study, per_second, reconnects, connector.clone())
    });
    let running = honest
        .each_ref()
        .map(|honest| runtime.spawn(Arc::clone(honest).run(address)));
    let look = async || measure(address, connector.as_ref(), &honest).await;
    let before = runtime.block_on(async {
        tokio::time::sleep(WARM_UP).await;
        look().await
    });
    let (started, begins) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let attacker = std::thread::spawn(move || {
        self::runtime().block_on(async {
            tokio::select! {
                () = attack(target, started) => {}
                _ = ended => {}
            }
        });
    });
    let under = runtime.block_on(async {
        // If the attack ended early there is nothing to measure.
        tokio::time::timeout(Duration::from_secs(120), begins)
            .await
            .unwrap()
            .unwrap();
        tokio::time::sleep(WARM_UP).await;
        look().await
    });
    let memory = peak_mib(server.id());
    let _ = end.send(());
    attacker.join().unwrap();
    for honest in &honest {
        honest.stop();
    }
    runtime.block_on(async {
        for devices in running {
            devices.await.unwrap();
        }
        for honest in &honest {
            honest.verify(address).await;
        }
    });
    assert!(server.stop(), "the server did not end well: {}", tail(&log));
    let shares = KINDS.iter().zip(before.rates).zip(under.rates);
    let shares = shares.map(|((kind, before), under)| (kind, under / before));
    let shares_text = shares
        .clone()
        .map(|(kind, share)| format!("{kind} {:.0} %", 100.0 * share));
    println!(
        "{name}: {}, slowest health check {:.0} -> {:.0} ms, peak {memory:.0} MiB",
        shares_text.collect::<Vec<_>>().join(", "),
        1e3 * before.health.as_secs_f64(),
        1e3 * under.health.as_secs_f64(),
    );
    for (kind, share) in shares {
        assert!(
            share >= MIN_SHARE,
            "{name}: {kind} fell to {share:.2}; {}",
            tail(&log)
        );
    }
}

/// One thread, so that attackers and devices leave the machine to the server.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

async fn study(address: SocketAddr, id: &str) -> StudyDocument {
    let mut wire = Wire::connect(address, PROBE_ADDRESS).await.unwrap();
    let response = wire.get(&format!("/v1/studies/{id}")).await.unwrap();
    serde_json::from_slice(&response.body).unwrap()
}

async fn measure(
    address: SocketAddr,
    tls: Option<&TlsConnector>,
    honest: &[Arc<Honest>; 3],
) -> Measurement {
    let counts = || honest.each_ref().map(|honest| honest.count());
    let (started, before) = (Instant::now(), counts());
    let mut health = Duration::ZERO;
    while started.elapsed() < MEASURED_FOR {
        let asked = Instant::now();
        let healthy = async {
            let mut wire = Wire::connect_over(tls, address, PROBE_ADDRESS).await?;
            wire.get("/healthz").await
        };
        let healthy = tokio::time::timeout(MEASURED_FOR, healthy).await;
        health = health.max(asked.elapsed());
        if let Ok(Ok(response)) = healthy {
            assert_eq!(response.status, 200);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (seconds, after) = (started.elapsed().as_secs_f64(), counts());
    let rate = |kind: usize| (after[kind] - before[kind]) as f64 / seconds;
    Measurement {
        rates: [rate(0), rate(1), rate(2)],
        health,
    }
}

fn peak_mib(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
