//! A study of a million participants against the running program.

use std::time::{Duration, Instant};

use eigenveil_shared::{
    api::REPORT_BATCH_MEDIA_TYPE,
    codec::{self, StudyShape},
    report::ReportId,
    study::{StudyParams, from_hex},
};
use rand::{Rng as _, SeedableRng as _, rngs::ChaCha8Rng};
use tokio::task::JoinSet;

use crate::program::ServerProcess;

const REPORTS: usize = 1_000_000;
const BATCH: usize = 1_000;
const UPLOADERS: usize = 4;
/// What a page may take while reports pour in.
const PATIENCE: Duration = Duration::from_millis(200);
/// What the memory may grow from the first tenth of the reports to the last: the identifiers that wait for the index
/// (6 MiB) and what the allocator keeps of the largest batches.
const GROWTH: f64 = 48e6;

async fn memory(http: &reqwest::Client, server: &ServerProcess) -> f64 {
    let token = std::fs::read_to_string(server.token_file()).unwrap();
    let request = http.get(format!("{}/metrics", server.url));
    let answer = request.bearer_auth(token.trim()).send().await.unwrap();
    let text = answer.error_for_status().unwrap().text().await.unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("eigenveil_resident_memory_bytes "));
    line.unwrap().parse().unwrap()
}

/// One uploader's share, every report with a seed and an identifier of its own.
async fn upload(http: reqwest::Client, url: String, shape: StudyShape, seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..REPORTS / BATCH / UPLOADERS {
        let mut reports = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let (mut id, mut payload) = ([0; 16], vec![0; shape.payload_len()]);
            random.fill_bytes(&mut id);
            random.fill_bytes(&mut payload);
            reports.push((ReportId::from_parts(1_700_000_000_000, id), payload));
        }
        let reports = reports
            .iter()
            .map(|(id, payload)| (*id, payload.as_slice()));
        let body = codec::encode_batch(&shape, reports).unwrap();
        let request = http
            .post(&url)
            .header("content-type", REPORT_BATCH_MEDIA_TYPE)
            .body(body);
        let receipt: serde_json::Value = request
            .send()
            .await
            .unwrap()
            .error_for_status()
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(receipt["accepted"], BATCH, "{receipt}");
    }
}

/// Pages answer within 200 ms all the while, and the memory stays flat. Prints what it measured:
/// `cargo test --workspace --release --test system a_million -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "half a minute, and wants a quiet machine: see its comment"]
async fn a_million_participants_leave_pages_quick_and_memory_flat() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let id = server.create_study(&["--p", "40", "--k", "2", "--epsilon", "4"]);
    let shown = server.cli_json(&["study", "show", "--json", &id]);
    let canonical = from_hex(shown["canonical"].as_str().unwrap()).unwrap();
    let shape = StudyShape::new(&StudyParams::from_canonical(&canonical).unwrap());
    let http = reqwest::Client::new();
    let url = format!("{}/v1/studies/{id}/reports", server.url);
    let mut uploads = JoinSet::new();
    let started = Instant::now();
    for uploader in 0..UPLOADERS {
        uploads.spawn(upload(http.clone(), url.clone(), shape, uploader as u64));
    }
    let pages = [
        format!("{}/", server.url),
        format!("{}/studies/{id}", server.url),
        format!("{}/studies/{id}/participate", server.url),
        format!("{}/studies/{id}/arrivals.svg", server.url),
    ];
    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    while !uploads.is_empty() {
        for page in &pages {
            let asked = Instant::now();
            let answer = http.get(page).send().await.unwrap();
            assert!(answer.status().is_success(), "{page}: {}", answer.status());
            answer.bytes().await.unwrap();
            times.push(asked.elapsed());
        }
        sizes.push(memory(&http, &server).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
        while let Some(ended) = uploads.try_join_next() {
            ended.unwrap();
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    times.sort();
    let (median, last) = (times[times.len() / 2], times[times.len() - 1]);
    let early = sizes[sizes.len() / 10];
    let most = sizes.iter().copied().fold(0.0, f64::max);
    println!(
        "{REPORTS} reports in {seconds:.1} s; {} pages: median {:.1} ms, slowest {:.1} ms; memory {:.0} MB after a tenth, {:.0} MB at most",
        times.len(),
        1e3 * median.as_secs_f64(),
        1e3 * last.as_secs_f64(),
        early / 1e6,
        most / 1e6
    );
    let shown = server.cli_json(&["study", "show", "--json", &id]);
    assert_eq!(shown["reports_accepted"], REPORTS);
    assert!(
        times.len() >= 40,
        "only {} pages were asked for",
        times.len()
    );
    assert!(last < PATIENCE, "a page took {last:?}");
    assert!(
        most - early < GROWTH,
        "memory grew from {early} to {most} bytes"
    );
}
