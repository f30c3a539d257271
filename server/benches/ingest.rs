//! Reports per second over real sockets, each acknowledged after its commit.
//!
//! ```text
//! cargo bench -p eigenveil-server --bench ingest                 # the table of this server
//! cargo bench ... --bench ingest -- P CONNECTIONS SECONDS BATCH MECHANISM
//! cargo bench ... --bench ingest -- rival PYTHON                 # ours and the rival in turn
//! cargo bench ... --bench ingest -- memory REPORTS               # resident memory as double-cap reports come in
//! ```
//!
//! The load comes from a second process on the same machine, so that the CPU time printed is the
//! server's alone. One request is one report, or with BATCH > 1 a batch of so many. The rival is
//! `benches/rivals/aiohttp_server.py`: in memory, no identifiers, nothing durable.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use eigenveil_server::{AppState, Environment, Server, ServerConfig, Study, StudyId};
use eigenveil_shared::{
    api::{CreateStudy, REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE},
    codec::{self, StudyShape},
    mechanism::PayloadForm,
    report::{Report, ReportId},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
};

const DENSE: &str = "symmetric-gaussian";
const SEEDS: &str = "double-cap";

fn main() {
    // `cargo bench` adds --bench, which is for harnesses.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let number = |i: usize, default: usize| {
        arguments
            .get(i)
            .map_or(default, |text| text.parse().unwrap())
    };
    match arguments.first().map(String::as_str) {
        Some("load") => load(&arguments[1..]),
        Some("rival") => rival(arguments.get(1).map_or("python3", String::as_str)),
        Some("memory") => memory(number(1, 10_000_000)),
        None => {
            for p in [40, 100, 400] {
                ours(p, 64, 5, 1, DENSE);
            }
            for (connections, batch) in [(64, 1), (4, 1_000), (4, 10_000)] {
                ours(40, connections, 5, batch, SEEDS);
            }
        }
        Some(_) => {
            let mechanism = arguments.get(4).map_or(DENSE, String::as_str);
            ours(
                number(0, 100),
                number(1, 64),
                number(2, 5),
                number(3, 1),
                mechanism,
            );
        }
    }
}

/// What one run came to.
struct Rate {
    reports: f64,
    seconds: f64,
    cpu: f64,
}

impl Rate {
    fn print(&self, what: &str) {
        println!(
            "{what}: {:.0} reports/s, {:.1} µs of server CPU a report, {:.0} reports a CPU second ({} reports)",
            self.reports / self.seconds,
            self.cpu * 1e6 / self.reports,
            self.reports / self.cpu,
            self.reports
        );
    }
}

/// Rival and ours in turn, so that other work on the machine meets both.
fn rival(python: &str) {
    for (p, mechanism) in [(100, DENSE), (40, SEEDS)] {
        for connections in [16, 256] {
            for _ in 0..2 {
                theirs(python, p, connections, 5);
                ours(p, connections, 5, 1, mechanism);
            }
        }
    }
    ours(40, 4, 5, 10_000, SEEDS);
}

fn ours(p: usize, connections: usize, seconds: usize, batch: usize, mechanism: &str) {
    let rate = with_server(p, mechanism, async |app, study, address| {
        let (cpu, started) = (cpu_seconds("self"), Instant::now());
        let counts = [connections, seconds, batch, usize::MAX];
        run_load(&address, &study.id().to_string(), &study, counts).await;
        let (cpu, seconds) = (cpu_seconds("self") - cpu, started.elapsed().as_secs_f64());
        let stored = app.store().study(StudyId(study.id().0)).unwrap();
        assert_eq!(
            app.store().moment(&stored).unwrap().n,
            stored.reports_accepted()
        );
        let reports = stored.reports_accepted() as f64;
        Rate {
            reports,
            seconds,
            cpu,
        }
    });
    rate.print(&format!(
        "eigenveil {mechanism} p={p} connections={connections} batch={batch}"
    ));
}

fn theirs(python: &str, p: usize, connections: usize, seconds: usize) {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../benches/rivals/aiohttp_server.py"
    );
    let mut child = Command::new(python)
        .args([script, &p.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut port)
        .unwrap();
    let address = format!("127.0.0.1:{}", port.trim());
    let pid = child.id().to_string();
    // The shape of its reports is that of ours.
    let rate = with_server(p, DENSE, async |_, study, _| {
        let (cpu, started) = (cpu_seconds(&pid), Instant::now());
        run_load(
            &address,
            "rival",
            &study,
            [connections, seconds, 1, usize::MAX],
        )
        .await;
        let (cpu, seconds) = (cpu_seconds(&pid) - cpu, started.elapsed().as_secs_f64());
        let reports = rival_count(&address).await;
        Rate {
            reports,
            seconds,
            cpu,
        }
    });
    stop(&mut child);
    rate.print(&format!("rival p={p} connections={connections}"));
}

fn stop(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

async fn rival_count(address: &str) -> f64 {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /count HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.rsplit("\r\n").next().unwrap().parse().unwrap()
}

/// Resident memory of the server while this many double-cap reports come in, in batches of 10,000.
fn memory(reports: usize) {
    with_server(40, SEEDS, async |app, study, address| {
        let mut last = 0;
        for goal in [reports / 100, reports / 10, reports] {
            let (cpu, started) = (cpu_seconds("self"), Instant::now());
            let requests = (goal - last) / 10_000 / 4;
            let counts = [4, 86_400, 10_000, requests];
            run_load(&address, &study.id().to_string(), &study, counts).await;
            let seconds = started.elapsed().as_secs_f64();
            let n = app.store().studies()[0].reports_accepted();
            println!(
                "{n} reports: resident {:.0} MB, peak {:.0} MB; {:.0} reports/s, {:.0} reports a CPU second",
                status_mb("VmRSS"),
                status_mb("VmHWM"),
                (n - last as u64) as f64 / seconds,
                (n - last as u64) as f64 / (cpu_seconds("self") - cpu),
            );
            last = n as usize;
        }
    });
}

/// A server in this process with one open study.
fn with_server<T>(
    p: usize,
    mechanism: &str,
    work: impl AsyncFnOnce(AppState, std::sync::Arc<Study>, String) -> T,
) -> T {
    let directory =
        tempfile::tempdir_in(std::env::var("BENCH_DIR").unwrap_or("/tmp".into())).unwrap();
    let mut config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        ..ServerConfig::new(directory.path().join("data"))
    };
    if let Ok(delay) = std::env::var("COMMIT_DELAY_US") {
        config.commit_delay_us = delay.parse().unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let server = Server::bind(config, Environment::system()).await.unwrap();
        let wanted: CreateStudy = serde_json::from_value(json!({
            "name": "bench", "dimension": p, "mechanism": mechanism, "epsilon": 1.0,
        }))
        .unwrap();
        let app = server.app().clone();
        let study = app.store().create_study(wanted).await.unwrap();
        let address = server.local_addr().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            stopped.await.ok();
        }));
        let value = work(app, study, address).await;
        stop.send(()).unwrap();
        running.await.unwrap();
        value
    })
}

/// Runs the load generator: connections, seconds, reports to a request, requests of a connection.
async fn run_load(address: &str, target: &str, study: &Study, counts: [usize; 4]) {
    let mut generator = Command::new(std::env::current_exe().unwrap())
        .arg("load")
        .args([address, target, &study.document().canonical])
        .args(counts.map(|n| n.to_string()))
        .spawn()
        .unwrap();
    let status = tokio::task::spawn_blocking(move || generator.wait().unwrap());
    assert!(status.await.unwrap().success());
}

/// The load generator: `ADDRESS STUDY|rival CANONICAL CONNECTIONS SECONDS BATCH REQUESTS`.
fn load(arguments: &[String]) {
    let [
        address,
        target,
        canonical,
        connections,
        seconds,
        batch,
        requests,
    ] = arguments
    else {
        panic!("seven arguments");
    };
    let bytes = eigenveil_shared::study::from_hex(canonical).unwrap();
    let params = eigenveil_shared::study::StudyParams::from_canonical(&bytes).unwrap();
    let shape = StudyShape::of(&params);
    let batch: usize = batch.parse().unwrap();
    let requests: usize = requests.parse().unwrap();
    let payload = 0.5_f32.to_le_bytes().repeat(shape.payload_len / 4);
    let id = ReportId::from_parts(1 << 40, [0; 16]);
    // Where each identifier is, and how far behind it the payload.
    let (path, media_type, body, ids, behind): (_, _, _, Vec<usize>, usize) = if target == "rival" {
        (
            "/sum".to_owned(),
            "application/octet-stream",
            payload,
            vec![],
            0,
        )
    } else if batch == 1 {
        let report = Report {
            id,
            fingerprint: shape.fingerprint,
            payload,
        };
        let body = codec::encode_report(&report);
        (study_path(target), REPORT_MEDIA_TYPE, body, vec![34], 24)
    } else {
        let reports = (0..batch).map(|_| (id, payload.as_slice()));
        let body = codec::encode_batch(&shape, reports).unwrap();
        let first = body.len() - batch * (16 + payload.len());
        let ids = (0..batch)
            .map(|i| first + i * (16 + payload.len()))
            .collect();
        (study_path(target), REPORT_BATCH_MEDIA_TYPE, body, ids, 16)
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), &body].concat();
    let deadline = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
    // Another run on the same study has other identifiers.
    let run = u64::from(std::process::id());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for connection in 0..connections.parse().unwrap() {
            let (mut request, ids, head, address) =
                (request.clone(), ids.clone(), head.len(), address.clone());
            tasks.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut answer = vec![0; 4_096];
                let mut count = 0_u64;
                let mut sent = 0;
                while sent < requests && Instant::now() < deadline {
                    sent += 1;
                    for id in &ids {
                        count += 1;
                        // Time-ordered as devices make them: the time in front, the rest unlike the others'.
                        let mut random = [0; 16];
                        let mixed = (run << 40 ^ count).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        random[..8].copy_from_slice(&mixed.to_le_bytes());
                        random[8..].copy_from_slice(&(connection << 40 | count).to_be_bytes());
                        let report = ReportId::from_parts(1_700_000_000_000 + count, random);
                        request[head + id..head + id + 16].copy_from_slice(&report.0);
                        if shape.payload_form == PayloadForm::Seed {
                            let seed = head + id + behind;
                            request[seed..seed + 8].copy_from_slice(&mixed.to_be_bytes());
                        }
                    }
                    stream.write_all(&request).await.unwrap();
                    let length = stream.read(&mut answer).await.unwrap();
                    let answer = std::str::from_utf8(&answer[..length]).unwrap();
                    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    });
}

fn study_path(study: &str) -> String {
    format!("/v1/studies/{study}/reports")
}

/// User and system time of a process.
fn cpu_seconds(process: &str) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return f64::NAN;
    };
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: f64 = [11, 12]
        .iter()
        .map(|&i| fields[i].parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}

/// A line of `/proc/self/status`, in megabytes.
fn status_mb(key: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(key));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kilobytes.map_or(f64::NAN, |kilobytes| kilobytes / 1e3)
}
