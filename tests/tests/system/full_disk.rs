//! The disk of a running server fills up.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

use eigenveil_client::{ReportResult, Study, http::StudyClient};
use eigenveil_estimation::accumulate::ReportSum;
use eigenveil_shared::{
    api::REPORT_BATCH_MEDIA_TYPE,
    codec::{self, ReportFormat},
    enrolment::Admission,
    report::{Report, ReportId},
};

use crate::{
    harness::{Folder, PROGRAM, ServerProcess, assert_stored, without_settings},
    waiting::until,
};

/// Files may not grow beyond 1 MiB: the database's write-ahead log hits the limit first.
const LIMIT: &str = "trap '' XFSZ; ulimit -f 2048; exec";

/// Reports of one device each, with seeds of their own: their sum identifies them.
fn reports(study: &Study, count: usize) -> Vec<Report> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let report = |_| {
        let number = u128::from(NEXT.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
        Report {
            id: ReportId::from_parts(1_700_000_000_000, number),
            fingerprint: study.fingerprint(),
            payload: number.to_vec(),
        }
    };
    (0..count).map(report).collect()
}

/// Sends a batch; how many of its reports are counted now, and how many were before.
async fn upload(
    client: &StudyClient,
    study: &Study,
    batch: &[Report],
) -> Result<(usize, usize), eigenveil_client::Error> {
    let reports: Vec<_> = batch
        .iter()
        .map(|report| (report, &Admission::Open))
        .collect();
    let request = study.upload_batch(&reports).unwrap();
    let results = client.call(&request).await.into_result()?;
    let count = |result| results.iter().filter(|found| **found == result).count();
    Ok((
        count(ReportResult::Accepted),
        count(ReportResult::Duplicate),
    ))
}

/// Sends a batch, whose reports may have been counted before, until the store has room for it.
async fn sent_once_there_is_room(client: &StudyClient, study: &Study, batch: &[Report]) {
    until("room", async || match upload(client, study, batch).await {
        Ok((accepted, duplicates)) => accepted + duplicates == batch.len(),
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            false
        }
    })
    .await;
}

fn encode(study: &Study, reports: &[Report]) -> Vec<u8> {
    let format = ReportFormat::new(study.params().rows().unwrap());
    let pairs = reports.iter().map(|r| (r.id, r.payload.as_slice()));
    codec::encode_batch(&format, pairs).unwrap()
}

fn sum(reports: &[Report], p: usize, study: &Study) -> Vec<f64> {
    let mut sum = ReportSum::new(study.params().rows().unwrap().mechanism(), p).unwrap();
    let format = ReportFormat::new(study.params().rows().unwrap());
    for report in reports {
        let payload = format.payload(&report.payload).unwrap();
        sum.add(&payload).unwrap();
    }
    sum.finish().unwrap().sum().as_slice().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_loses_no_acknowledged_report() {
    let folder = Folder::new();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let mut server = ServerProcess::start_limited(&data, LIMIT, &log, "");
    let id = server.create_study("--p 16 --epsilon 4");
    let client = server.client();
    let study = client.fetch_study(&id).await.unwrap();
    let readiness = async || {
        reqwest::get(format!("{}/readyz", server.url))
            .await
            .unwrap()
    };
    until("it is ready", async || readiness().await.status() == 200).await;
    let mut acknowledged = Vec::new();
    let mut failed = 0;
    // The server neither exits nor hangs, and keeps refusing.
    for _ in 0..200 {
        let batch = reports(&study, 200);
        match upload(&client, &study, &batch).await {
            Ok(counted) => {
                assert_eq!(counted, (200, 0));
                acknowledged.extend(batch);
            }
            Err(error) => {
                let status = error.status().unwrap();
                assert!(status == 503 || status == 507, "{error}");
                assert!(
                    error.retry_after().is_some() && error.is_retryable(),
                    "{error}"
                );
                failed += 1;
                assert_eq!(readiness().await.status(), 503, "{error}");
                if failed == 5 {
                    break;
                }
            }
        }
    }
    assert!(
        failed == 5 && !acknowledged.is_empty(),
        "the limit was never felt"
    );
    // The request id of the response is in the log line with the reason.
    let refused = reqwest::Client::new()
        .post(format!("{}/v1/studies/{id}/reports", server.url))
        .header("content-type", REPORT_BATCH_MEDIA_TYPE)
        .body(encode(&study, &reports(&study, 200)))
        .send()
        .await
        .unwrap();
    assert!(refused.status().is_server_error(), "{refused:?}");
    let number = refused.headers()["x-request-id"].to_str().unwrap();
    let log = std::fs::read_to_string(log).unwrap();
    let failures: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &serde_json::Value| line["fields"]["request_ids"] == number)
        .collect();
    assert_eq!(failures.len(), 1, "{number} in {log}");
    assert_eq!(failures[0]["level"], "ERROR");
    assert_eq!(server.accepted(&id), acknowledged.len() as u64);
    server.kill();
    // With free space again everything is there, and new reports are accepted.
    let mut server = ServerProcess::start(&data);
    let client = server.client();
    let study = client.fetch_study(&id).await.unwrap();
    let again = upload(&client, &study, &acknowledged[..200]).await;
    assert_eq!(again.unwrap(), (0, 200));
    let more = reports(&study, 200);
    assert_eq!(upload(&client, &study, &more).await.unwrap(), (200, 0));
    acknowledged.extend(more);
    assert!(server.stop());
    let expected = sum(&acknowledged, 16, &study);
    assert_stored(&data, &id, acknowledged.len() as u64, &expected);
}

/// A script that may mount file systems, which only it sees.
fn unshared(script: &str) -> Command {
    let mut command = without_settings(Command::new("unshare"));
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command
}

/// A file system of its own, in a mount namespace that lives as long as this value.
struct Disk {
    holder: Child,
    path: PathBuf,
    log: PathBuf,
}

impl Disk {
    /// A disk of this size, such as `12m`; `None` where no file system can be mounted.
    fn new(folder: &Folder, size: &str) -> Option<Self> {
        let path = folder.path().join("disk");
        fs::create_dir(&path).unwrap();
        let mut mount = unshared(
            "mount -t tmpfs -o size=$SIZE none \"$DISK\" && echo mounted && exec sleep 1000",
        );
        mount.env("DISK", &path).env("SIZE", size);
        let mounted = mount.stdout(Stdio::piped()).spawn().ok();
        let mounted = mounted.and_then(|mut holder| {
            let mut line = String::new();
            let mut printed = BufReader::new(holder.stdout.as_mut()?);
            printed.read_line(&mut line).ok()?;
            (line == "mounted\n").then_some(holder)
        });
        let Some(holder) = mounted else {
            println!("SKIPPED: no file system can be mounted here");
            return None;
        };
        let log = folder.path().join("log");
        Some(Self { holder, path, log })
    }

    /// A file of it, as it is reached from outside the namespace.
    fn outside(&self, name: &str) -> PathBuf {
        let root = format!("/proc/{}/root{}", self.holder.id(), self.path.display());
        PathBuf::from(root).join(name)
    }

    fn server(&self) -> ServerProcess {
        let holder = self.holder.id();
        let enter = format!("exec nsenter --preserve-credentials -U -m -t {holder}");
        let data = self.path.join("data");
        let mut server = ServerProcess::start_limited(&data, &enter, &self.log, "");
        server.data = self.outside("data");
        server
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// The write-ahead log must not fill a small disk before anything is in the database: then nothing can be deleted, and
/// freed space is of no use.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_disk_serves_again_once_it_is_freed() {
    for by_deleting in [true, false] {
        let folder = Folder::new();
        let Some(disk) = Disk::new(&folder, "12m") else {
            return;
        };
        let mut server = disk.server();
        let ballast = disk.outside("ballast");
        if !by_deleting {
            fs::write(&ballast, vec![0; 6 << 20]).unwrap();
        }
        let client = server.client();
        let [large, small, spare] = [(); 3].map(|()| server.create_study("--p 16 --epsilon 4"));
        let study = client.fetch_study(&large).await.unwrap();
        let mut acknowledged = 0;
        let refused = loop {
            match upload(&client, &study, &reports(&study, 1_000)).await {
                Ok((accepted, _)) => acknowledged += accepted as u64,
                Err(error) => break error,
            }
            assert!(acknowledged < 1_000_000, "the disk is larger than 12 MB");
        };
        assert_eq!(refused.status(), Some(507), "{refused}");
        // Most of the disk has been used for reports: 16 bytes each, and as much for their identifiers.
        let free = if by_deleting { 12 } else { 6 };
        assert!(
            32 * acknowledged > (free << 20) / 4,
            "{acknowledged} reports"
        );
        assert_eq!(server.accepted(&large), acknowledged);
        let token = fs::read_to_string(server.data.join("operator.token")).unwrap();
        let export = reqwest::Client::new()
            .get(format!("{}/v1/studies/{large}/export", server.url))
            .bearer_auth(token.trim());
        assert_eq!(export.send().await.unwrap().status(), 507);
        // Reports leave to later deletions what the first one released.
        server.cli_json(&format!("study close {spare}"));
        server.cli_json(&format!("study delete {spare} --yes"));
        while upload(&client, &study, &reports(&study, 1_000))
            .await
            .is_ok()
        {}
        if by_deleting {
            server.cli_json(&format!("study close {large}"));
            server.cli_json(&format!("study delete {large} --yes"));
        } else {
            fs::remove_file(&ballast).unwrap();
        }
        let study = client.fetch_study(&small).await.unwrap();
        let batch = reports(&study, 200);
        sent_once_there_is_room(&client, &study, &batch).await;
        assert_eq!(server.accepted(&small), 200);
        assert!(server.stop());
    }
}

/// The database has free pages, the disk has none: the log is moved into them, and does not wait for the next minute.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_grow_takes_reports() {
    let folder = Folder::new();
    let Some(disk) = Disk::new(&folder, "24m") else {
        return;
    };
    let mut server = disk.server();
    let [large, small] = [(); 2].map(|()| server.create_study("--p 16 --epsilon 4"));
    let client = server.client();
    let study = client.fetch_study(&large).await.unwrap();
    for _ in 0..100 {
        let batch = reports(&study, 1_000);
        assert_eq!(upload(&client, &study, &batch).await.unwrap(), (1_000, 0));
    }
    server.cli_json(&format!("study close {large}"));
    server.cli_json(&format!("study delete {large} --yes"));
    // A stop empties the log.
    until("the pages of the deleted study are free", async || {
        assert!(server.stop());
        let header = fs::read(disk.outside("data/eigenveil.db")).unwrap();
        server = disk.server();
        u32::from_be_bytes([header[36], header[37], header[38], header[39]]) > 300
    })
    .await;
    let client = server.client();
    let study = client.fetch_study(&small).await.unwrap();
    let mut ballast = fs::File::create(disk.outside("ballast")).unwrap();
    while ballast.write(&[1; 4_096]).is_ok_and(|written| written > 0) {}
    // A few commits. After four times as much the log would be moved anyway.
    let filled = ballast.metadata().unwrap().len();
    ballast.set_len(filled - (400 << 10)).unwrap();
    let mut refused = 0;
    for _ in 0..60 {
        let sent = upload(&client, &study, &reports(&study, 200)).await;
        refused += u32::from(sent.is_err());
    }
    // While somebody reads the log, it is not moved.
    assert!(refused < 10, "{refused} of 60 were refused");
}

/// Stopped on a full disk without its reserve: the next start says what to do, and afterwards everything is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_on_a_full_disk_says_what_to_do() {
    let folder = Folder::new();
    let Some(disk) = Disk::new(&folder, "40m") else {
        return;
    };
    let mut server = disk.server();
    let id = server.create_study("--p 16 --epsilon 4");
    let client = server.client();
    let study = client.fetch_study(&id).await.unwrap();
    for _ in 0..40 {
        let batch = reports(&study, 1_000);
        assert_eq!(upload(&client, &study, &batch).await.unwrap(), (1_000, 0));
    }
    assert!(server.stop());
    // As after an earlier deletion.
    fs::remove_file(disk.outside("data/eigenveil.reserve")).unwrap();
    let mut ballast = fs::File::create(disk.outside("ballast")).unwrap();
    while ballast.write(&[1; 4_096]).is_ok_and(|written| written > 0) {}
    drop(ballast);
    let failed = std::panic::catch_unwind(|| disk.server());
    assert!(failed.is_err(), "it started on a full disk");
    let message = fs::read_to_string(&disk.log).unwrap();
    for word in ["[store-full]", "eigenveil.db is full", "start again"] {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
    fs::remove_file(disk.outside("ballast")).unwrap();
    let mut server = disk.server();
    assert_eq!(server.accepted(&id), 40_000);
    server.cli_json(&format!("study close {id}"));
    server.cli_json(&format!("study delete {id} --yes"));
    assert!(server.stop());
}

/// Numbers of one estimate beside figures of another would mislead.
#[test]
fn a_full_disk_leaves_the_result_that_was_there() {
    let folder = Folder::new();
    let mut script = unshared(
        "mount -t tmpfs -o size=4m none \"$DISK\" || { echo SKIPPED; exit; }
         cd \"$DISK\" && $PROGRAM demo --n 200 --out out >/dev/null && cksum out/* > before || exit 3
         truncate -s 0 ballast; cat out/estimate.json out/estimate.json > room; cat /dev/zero > ballast; rm room
         $PROGRAM demo --n 300 --out out --overwrite && exit 4
         cksum out/* | cmp - before && ls",
    );
    script.env("DISK", folder.path()).env("PROGRAM", PROGRAM);
    let output = script.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && printed.is_empty() || printed.contains("SKIPPED") {
        println!("SKIPPED: no file system can be mounted here");
        return;
    }
    assert_eq!(printed, "ballast\nbefore\nout\n", "{output:?}");
}
