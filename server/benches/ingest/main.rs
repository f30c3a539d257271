//! Reports per second over real sockets, each acknowledged after its commit.
//!
//! ```text
//! cargo bench --workspace --bench ingest                                        a few settings
//! cargo bench --workspace --bench ingest -- P CONNECTIONS SECONDS BATCH MECHANISM
//! cargo bench --workspace --bench ingest -- rival                               beside both of benches/rivals/aiohttp_server.py
//! cargo bench --workspace --bench ingest -- postgres                            servers on one PostgreSQL, beside its COPY
//! cargo bench --workspace --bench ingest -- memory [REPORTS]                    peak memory over 10⁷ reports
//! ```
//!
//! The load comes from a second process on the same machine, so that the CPU time printed is the server's only. One
//! request is one report or, with BATCH > 1, a batch of that size.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]

#[cfg(feature = "postgres")]
mod fleet;
mod load;
mod process;

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    str::FromStr,
    time::Instant,
};

use eigenveil_server::{Environment, Server, ServerConfig};
use eigenveil_shared::{api::CreateStudyRequest, mechanism::MechanismKind};
use eigenveil_store::StudyId;
use process::Process;
use serde_json::json;
use tokio::sync::oneshot;

/// The allocator of the `eigenveil` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DENSE: &str = "symmetric-gaussian";
const SEEDS: &str = "double-cap";

fn main() {
    // `cargo bench` adds --bench, which is for test harnesses.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let number = |i: usize, default: u64| {
        arguments
            .get(i)
            .map_or(default, |text| text.parse().unwrap())
    };
    match arguments.first().map(String::as_str) {
        Some("load") => load::run(&arguments[1..]),
        Some("rival") => beside_the_rivals(),
        #[cfg(feature = "postgres")]
        Some("postgres") => fleet::beside_copy(),
        #[cfg(feature = "postgres")]
        Some("serve") => fleet::serve(&arguments[1..]),
        Some("memory") => memory(number(1, 10_000_000)),
        None => {
            for p in [40, 100, 400] {
                Load::singles(p, DENSE, 64).print();
            }
            for (connections, batch) in [(64, 1), (4, 1_000), (4, 10_000)] {
                Load {
                    batch,
                    ..Load::singles(40, SEEDS, connections)
                }
                .print();
            }
        }
        Some(_) => Load {
            seconds: number(2, 5),
            batch: number(3, 1),
            ..Load::singles(number(0, 100), mechanism(arguments.get(4)), number(1, 64))
        }
        .print(),
    }
}

fn mechanism(argument: Option<&String>) -> &'static str {
    argument.map_or(DENSE, |name| {
        MechanismKind::from_str(name).unwrap().as_str()
    })
}

#[derive(Clone, Copy, Debug)]
struct Load {
    p: u64,
    mechanism: &'static str,
    connections: u64,
    seconds: u64,
    batch: u64,
    /// Stop after this many reports; 0: only when the time is up.
    reports: u64,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    reports: u64,
    rate: f64,
    /// Microseconds of server CPU per report.
    cpu: f64,
}

impl Load {
    fn singles(p: u64, mechanism: &'static str, connections: u64) -> Self {
        Self {
            p,
            mechanism,
            connections,
            seconds: 5,
            batch: 1,
            reports: 0,
        }
    }

    fn print(self) {
        let Outcome { reports, rate, cpu } = self.at_eigenveil();
        println!(
            "{} p={} connections={} batch={}: {rate:.0} reports/s, {cpu:.1} µs of server CPU a report ({reports} reports)",
            self.mechanism, self.p, self.connections, self.batch
        );
    }

    /// Sends it to `what` at `address`, and prints what it cost `server`.
    fn send(
        self,
        server: &Process,
        address: &str,
        path: &str,
        what: &str,
        tokens: Option<&Path>,
    ) -> Outcome {
        let (cpu, started) = (server.cpu_seconds(), Instant::now());
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["load", address, path, what])
            .args([self.connections, self.seconds, self.batch, self.reports].map(|n| n.to_string()))
            .args(tokens)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success());
        let (cpu, elapsed) = (server.cpu_seconds() - cpu, started.elapsed().as_secs_f64());
        let reports: u64 = String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        Outcome {
            reports,
            rate: reports as f64 / elapsed,
            cpu: cpu * 1e6 / reports as f64,
        }
    }

    /// Our durable server in this process; it stores what it acknowledges.
    fn at_eigenveil(self) -> Outcome {
        let directory = directory();
        let config = ServerConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            ..ServerConfig::new(directory.path().join("data"))
        };
        let wanted: CreateStudyRequest = serde_json::from_value(json!({
            "name": "bench", "dimension": self.p, "mechanism": self.mechanism, "epsilon": 1.0,
        }))
        .unwrap();
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            let server = Server::bind(config, Environment::system()).await.unwrap();
            let app = server.app().clone();
            let study = app.store().create_study(wanted).await.unwrap();
            let address = server.local_addr().to_string();
            let id = study.id().to_string();
            let path = format!("/v1/studies/{id}/reports");
            let canonical = study.document().canonical_params;
            let (stop, stopped) = oneshot::channel::<()>();
            let running = tokio::spawn(server.run(async {
                stopped.await.ok();
            }));
            let outcome = tokio::task::spawn_blocking(move || {
                self.send(&Process::this(), &address, &path, &canonical, None)
            })
            .await
            .unwrap();
            let stored = app.store().study(StudyId(study.id().0)).unwrap();
            assert_eq!(stored.reports_accepted(), outcome.reports);
            stop.send(()).unwrap();
            running.await.unwrap().unwrap();
            outcome
        })
    }

    /// Sends dense reports of the same p to the server in Python: in memory, or as durable as ours.
    fn at_the_rival(self, is_durable: bool) -> Outcome {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/rivals/aiohttp_server.py");
        let directory = directory();
        let file = directory.path().join("reports.sqlite3");
        let mut rival = Command::new("python3")
            .arg(script)
            .arg(self.p.to_string())
            .args(is_durable.then_some(file))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(rival.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        assert!(
            !port.is_empty(),
            "the rival does not start: pip install -r benches/rivals/requirements.txt"
        );
        let address = format!("127.0.0.1:{}", port.trim());
        let process = Process::child(rival.id());
        let outcome = self.send(
            &process,
            &address,
            "/reports",
            &format!("raw:{}", self.p),
            None,
        );
        rival.kill().unwrap();
        rival.wait().unwrap();
        outcome
    }

    /// Reports a second that the disk alone allows: one page of 4 KiB, written and synchronised, holds a report of each
    /// connection, since none sends another one before that.
    fn floor(self) -> f64 {
        let directory = directory();
        let mut file = std::fs::File::create(directory.path().join("log")).unwrap();
        let (started, mut commits) = (Instant::now(), 0_u32);
        while started.elapsed().as_secs() < 1 {
            file.write_all(&[1; 4_096]).unwrap();
            file.sync_data().unwrap();
            commits += 1;
        }
        f64::from(commits) * self.connections as f64 / started.elapsed().as_secs_f64()
    }
}

/// A new directory on the disk that is measured.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or("/tmp".into())).unwrap()
}

/// `8,910 (8,700–9,120)`: median and range.
fn median_and_range(values: impl Iterator<Item = f64>, decimals: usize) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let [first, .., last] = values[..] else {
        panic!("two runs or more");
    };
    format!(
        "{:.decimals$} ({first:.decimals$}–{last:.decimals$})",
        values[values.len() / 2]
    )
}

/// Ours (durable, each counted once) beside the rival in memory, the rival in SQLite (durable, each counted once) and
/// the disk's floor, alternating, three times each.
fn beside_the_rivals() {
    println!(
        "| load | connections | floor | ours: reports/s | µs CPU | in memory: reports/s | µs CPU | in SQLite: reports/s | µs CPU | ours / in memory | ours / in SQLite | floor / ours |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (p, mechanism) in [(100, DENSE), (40, SEEDS)] {
        for connections in [16, 64, 256] {
            let load = Load::singles(p, mechanism, connections);
            let runs: Vec<(f64, [Outcome; 3])> = (0..3)
                .map(|_| {
                    let rivals = [false, true].map(|is_durable| load.at_the_rival(is_durable));
                    (load.floor(), [load.at_eigenveil(), rivals[0], rivals[1]])
                })
                .collect();
            let mut cells = vec![
                format!("{mechanism} p={p} singles"),
                connections.to_string(),
                median_and_range(runs.iter().map(|run| run.0), 0),
            ];
            for i in 0..3 {
                cells.push(median_and_range(runs.iter().map(|run| run.1[i].rate), 0));
                cells.push(median_and_range(runs.iter().map(|run| run.1[i].cpu), 0));
            }
            for i in [1, 2] {
                let ratios = runs.iter().map(|run| run.1[0].rate / run.1[i].rate);
                cells.push(median_and_range(ratios, 2));
            }
            let ratios = runs.iter().map(|run| run.0 / run.1[0].rate);
            cells.push(median_and_range(ratios, 2));
            println!("| {} |", cells.join(" | "));
        }
    }
    let batches = Load {
        batch: 1_000,
        ..Load::singles(40, SEEDS, 4)
    };
    let runs: Vec<Outcome> = (0..3).map(|_| batches.at_eigenveil()).collect();
    println!(
        "double-cap p=40 in batches of 1,000, 4 connections: {} reports/s, {} reports per CPU-second of the server",
        median_and_range(runs.iter().map(|run| run.rate), 0),
        median_and_range(runs.iter().map(|run| 1e6 / run.cpu), 0)
    );
}

/// Peak memory of the server while reports come in.
fn memory(reports: u64) {
    let before = Process::this().peak_mib();
    println!("before the first report: peak {before:.0} MiB");
    for share in [100, 10, 1] {
        let load = Load {
            seconds: 3_600,
            batch: 1_000,
            reports: reports / share,
            ..Load::singles(40, SEEDS, 4)
        };
        let outcome = load.at_eigenveil();
        println!(
            "{} reports: peak {:.0} MiB, {:.0} reports/s",
            outcome.reports,
            Process::this().peak_mib(),
            outcome.rate
        );
    }
}
