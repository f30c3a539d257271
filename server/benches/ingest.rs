//! Reports per second over real sockets, each acknowledged after its commit.
//!
//! `cargo bench -p eigenveil-server --bench ingest [-- P CONNECTIONS SECONDS BATCH MECHANISM]`
//!
//! The load comes from a second process on the same machine, so that the CPU time printed is the
//! server's alone. One request is one report, or with BATCH > 1 a batch of so many.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark fails by panicking"
)]

use std::{
    process::Command,
    time::{Duration, Instant},
};

use eigenveil_server::{Environment, Server, ServerConfig, StudyId};
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

fn main() {
    // `cargo bench` adds --bench, which is for harnesses.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if arguments.first().is_some_and(|a| a == "load") {
        return load(&arguments[1..]);
    }
    let number = |i: usize, default: usize| {
        arguments
            .get(i)
            .map_or(default, |text| text.parse().unwrap())
    };
    let (dense, seeds) = ("symmetric-gaussian", "double-cap");
    if arguments.is_empty() {
        for p in [40, 100, 400] {
            serve(p, 64, 5, 1, dense);
        }
        for (connections, batch) in [(64, 1), (4, 1_000), (4, 10_000)] {
            serve(40, connections, 5, batch, seeds);
        }
    } else {
        let mechanism = arguments.get(4).map_or(dense, String::as_str);
        serve(
            number(0, 100),
            number(1, 64),
            number(2, 5),
            number(3, 1),
            mechanism,
        );
    }
}

fn serve(p: usize, connections: usize, seconds: usize, batch: usize, mechanism: &str) {
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
        let address = server.local_addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            stopped.await.ok();
        }));
        let (cpu, started) = (cpu_seconds(), Instant::now());
        let mut generator = Command::new(std::env::current_exe().unwrap())
            .arg("load")
            .args([address.to_string(), study.id().to_string()])
            .args([study.document().canonical])
            .args([connections, seconds, batch].map(|n| n.to_string()))
            .spawn()
            .unwrap();
        let status = tokio::task::spawn_blocking(move || generator.wait().unwrap());
        assert!(status.await.unwrap().success());
        let (cpu, elapsed) = (cpu_seconds() - cpu, started.elapsed().as_secs_f64());
        let stored = app.store().study(StudyId(study.id().0)).unwrap();
        let n = stored.reports_accepted() as f64;
        assert_eq!(app.store().moment(&stored).unwrap().n, stored.reports_accepted());
        println!(
            "{mechanism} p={p} connections={connections} batch={batch}: {:.0} reports/s, {:.1} µs of server CPU a report ({n} reports)",
            n / elapsed,
            cpu * 1e6 / n
        );
        stop.send(()).unwrap();
        running.await.unwrap();
    });
}

/// The load generator: `ADDRESS STUDY CANONICAL CONNECTIONS SECONDS BATCH`.
fn load(arguments: &[String]) {
    let [address, study, canonical, connections, seconds, batch] = arguments else {
        panic!("six arguments");
    };
    let bytes = eigenveil_shared::study::from_hex(canonical).unwrap();
    let params = eigenveil_shared::study::StudyParams::from_canonical(&bytes).unwrap();
    let shape = StudyShape::of(&params);
    let batch: usize = batch.parse().unwrap();
    let payload = 0.5_f32.to_le_bytes().repeat(shape.payload_len / 4);
    let id = ReportId::from_parts(1 << 40, [0; 16]);
    // Where each identifier is, and how far behind it the payload.
    let (media_type, body, ids, behind): (_, _, Vec<usize>, usize) = if batch == 1 {
        let report = Report {
            id,
            fingerprint: shape.fingerprint,
            payload,
        };
        (
            REPORT_MEDIA_TYPE,
            codec::encode_report(&report),
            vec![34],
            24,
        )
    } else {
        let reports = (0..batch).map(|_| (id, payload.as_slice()));
        let body = codec::encode_batch(&shape, reports).unwrap();
        let first = body.len() - batch * (16 + payload.len());
        let ids = (0..batch)
            .map(|i| first + i * (16 + payload.len()))
            .collect();
        (REPORT_BATCH_MEDIA_TYPE, body, ids, 16)
    };
    let head = format!(
        "POST /v1/studies/{study}/reports HTTP/1.1\r\nhost: x\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), &body].concat();
    let deadline = Instant::now() + Duration::from_secs(seconds.parse().unwrap());
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
                while Instant::now() < deadline {
                    for id in &ids {
                        count += 1;
                        // Time-ordered as devices make them: the time in front, the rest unlike the others'.
                        let mut random = [0; 16];
                        let mixed = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
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

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return f64::NAN;
    };
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: f64 = [11, 12]
        .iter()
        .map(|&i| fields[i].parse::<f64>().unwrap())
        .sum();
    ticks / 100.0
}
