//! SIGKILL of the server at random times under load, and how long recovery takes.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use eigenveil_client::{Study, http::StudyClient};
use eigenveil_shared::{
    enrolment::Admission,
    packed::packed_len,
    report::{Report, ReportId},
};
use eigenveil_store::database_path;
use rand::{Rng, RngExt, SeedableRng, rngs::ChaCha8Rng};

use crate::{
    harness::{Folder, ServerProcess, stored_sum},
    identifiable,
    waiting::until,
};

/// Dimension of the study of numbers: 820 entries with 26 digits each encode 21,320 reports that can be read back from
/// a sum.
const P: usize = 40;

/// Devices whose reports can be recognised individually in the store; each is sent until it is acknowledged.
struct Devices {
    study: Study,
    reports: Vec<Report>,
    next: AtomicUsize,
    acknowledged: Vec<AtomicBool>,
}

impl Devices {
    fn new(study: Study, payloads: impl Iterator<Item = Vec<u8>>, rng: &mut impl Rng) -> Self {
        let reports: Vec<Report> = payloads
            .map(|payload| Report {
                id: ReportId::from_parts(1_700_000_000_000, rng.random()),
                fingerprint: study.fingerprint(),
                payload,
            })
            .collect();
        Self {
            study,
            next: AtomicUsize::new(0),
            acknowledged: reports.iter().map(|_| AtomicBool::new(false)).collect(),
            reports,
        }
    }

    /// Sends the next `count` reports and retries until they are acknowledged; `false` if there are none left.
    async fn send(&self, client: &StudyClient, count: usize, stop: &AtomicBool) -> bool {
        let first = self.next.fetch_add(count, Ordering::Relaxed);
        let Some(reports) = self.reports.get(first..first + count) else {
            return false;
        };
        while !stop.load(Ordering::Relaxed) {
            let request = match reports {
                [report] => self.study.upload_one(report, &Admission::Open),
                reports => {
                    let reports: Vec<_> = reports
                        .iter()
                        .map(|report| (report, &Admission::Open))
                        .collect();
                    self.study.upload_batch(&reports)
                }
            };
            match client.call(&request.unwrap()).await.into_result() {
                Ok(_) => {
                    for flag in &self.acknowledged[first..first + count] {
                        flag.store(true, Ordering::Relaxed);
                    }
                    return true;
                }
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        false
    }

    fn sent(&self) -> usize {
        self.next.load(Ordering::Relaxed).min(self.reports.len())
    }

    /// Checks that every acknowledged report is stored exactly once and no report twice; returns the number stored.
    fn check(&self, counted: &[u32]) -> u64 {
        for (number, (&times, flag)) in counted.iter().zip(&self.acknowledged).enumerate() {
            assert!(times <= 1, "report {number} is counted {times} times");
            let acknowledged = flag.load(Ordering::Relaxed);
            assert!(
                times == 1 || !acknowledged,
                "report {number} was acknowledged and is lost"
            );
        }
        counted.iter().map(|&times| u64::from(times)).sum()
    }
}

fn seeds_on_disk(data: &Path, devices: &Devices) -> Vec<u32> {
    let connection = rusqlite::Connection::open(database_path(data)).unwrap();
    let mut statement = connection.prepare("SELECT seeds FROM seeds").unwrap();
    let runs = statement.query_map([], |row| row.get(0)).unwrap();
    let runs: Vec<Vec<u8>> = runs.map(Result::unwrap).collect();
    let seeds = devices
        .reports
        .iter()
        .map(|report| report.payload.as_slice());
    identifiable::in_runs(seeds, &runs).unwrap()
}

/// Kills the server `kills` times, each 20 to 400 ms after its start, while four devices send numbers one by one and
/// four send seeds in batches.
async fn kill_repeatedly(kills: usize, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let folder = Folder::new();
    let data = folder.path().join("data");
    let mut server = folder.server();
    let dense = server.create_study("--p 40 --epsilon 4 --mechanism symmetric-gaussian");
    let seeds = server.create_study("--p 40 --epsilon 4");
    let listen = server.listen().to_owned();
    let client = server.client();
    let numbers = Arc::new(Devices::new(
        client.fetch_study(&dense).await.unwrap(),
        (0..identifiable::capacity(packed_len(P)))
            .map(|number| identifiable::payload(packed_len(P), number)),
        &mut rng,
    ));
    let mut random = ChaCha8Rng::seed_from_u64(seed + 1_000);
    let drawn = Arc::new(Devices::new(
        client.fetch_study(&seeds).await.unwrap(),
        (0..300_000 + 30_000 * kills).map(|_| random.random::<[u8; 16]>().to_vec()),
        &mut rng,
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let (devices, count) = match task % 2 {
            0 => (Arc::clone(&numbers), 1),
            _ => (Arc::clone(&drawn), 50),
        };
        let (client, stop) = (client.clone(), Arc::clone(&stop));
        tasks.spawn(async move {
            while devices.send(&client, count, &stop).await {
                // Enough reports that the load lasts until the last kill.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    let mut longest = Duration::ZERO;
    for kill in 0..=kills {
        let before = (numbers.sent(), drawn.sent());
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..400))).await;
        // Every second kill comes at a random moment; the others, and the last one, come under load.
        if kill % 2 == 0 || kill == kills {
            until("reports of both kinds", async || {
                numbers.sent() > before.0 && drawn.sent() > before.1
            })
            .await;
        }
        server.kill();
        if kill < kills {
            let started = Instant::now();
            server = tokio::task::block_in_place(|| ServerProcess::start_on(&data, &listen));
            longest = longest.max(started.elapsed());
        }
    }
    assert!(numbers.sent() < numbers.reports.len() && drawn.sent() < drawn.reports.len());
    stop.store(true, Ordering::Relaxed);
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    let (of_numbers, of_seeds) = (
        numbers.check(&identifiable::in_sums(&stored_sum(&data, &dense).1).unwrap()),
        drawn.check(&seeds_on_disk(&data, &drawn)),
    );
    assert!(of_numbers > kills as u64 / 2 && of_seeds > 25 * kills as u64);
    println!(
        "{} kills: {of_numbers} numbers and {of_seeds} seeds counted once each, nothing acknowledged lost; back within {:.0} ms",
        kills + 1,
        longest.as_secs_f64() * 1e3
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_kills_under_load() {
    kill_repeatedly(10, 1).await;
}

/// `cargo test --workspace --test system fifty_kills -- --ignored --nocapture`
#[tokio::test(flavor = "multi_thread")]
#[ignore = "about a minute"]
async fn fifty_kills_under_load() {
    kill_repeatedly(50, 2).await;
}
