//! External faults: full disks, damaged files. Errors are clear, and nothing acknowledged is lost.

use std::{
    fs::OpenOptions,
    io::{Seek, SeekFrom, Write},
};

use axum::http::{StatusCode, header};
use eigenveil_estimation::Cancel;
use eigenveil_server::{EstimateList, ServerConfig};
use eigenveil_shared::{
    ErrorCode as E,
    api::{BatchResponse, EstimateState, StudyDocument},
    mechanism::PayloadKind,
};
use eigenveil_store::{NewReport, Store, database_path};
use serde_json::json;

use crate::common::{
    Harness, at, batch_with, decoded, environment, format_of, new_id, report, report_with,
    study_in, waiting::until,
};

const BATCH: u64 = 500;

/// A batch of new reports with random seeds, or with payloads that are all ones.
fn fresh(study: &StudyDocument) -> Vec<u8> {
    let payload = match format_of(study).payload_kind().unwrap() {
        PayloadKind::Seed => vec![7; 16],
        _ => 1.0_f32
            .to_le_bytes()
            .repeat(format_of(study).payload_len() / 4),
    };
    let reports: Vec<_> = (0..BATCH).map(|_| (new_id(), &payload)).collect();
    batch_with(study, &reports)
}

#[tokio::test]
async fn a_full_store_is_reported_and_deleting_frees_space() {
    let server = Harness::with(|config| config.max_store_bytes = Some(1 << 20));
    let ballast = server.study(3).await;
    let seeds = server.seed_study(json!({})).await;
    // Half of the space is used by a study that will be deleted.
    let mut filled = 0;
    while filled < 8_000 {
        let receipt = server.receipt(&ballast, fresh(&ballast)).await;
        filled += receipt.accepted;
    }
    let mut acknowledged = 0;
    let refused = loop {
        let response = server.post_batch(&seeds, fresh(&seeds)).await;
        if response.status != StatusCode::OK {
            break response;
        }
        acknowledged += response.json::<BatchResponse>().accepted;
        assert!(acknowledged < 100_000, "the limit is not kept");
    };
    let problem = refused.is_problem(507, E::StoreFull);
    assert!(
        problem.detail.contains("max_store_bytes"),
        "{}",
        problem.detail
    );
    assert_eq!(refused.headers[header::RETRY_AFTER], "60");
    assert!(acknowledged > 0);
    // An existing entry could still be changed.
    until("it is not ready and says why", async || {
        let not_ready = server.get("/readyz").await;
        let problem = not_ready.is_problem(503, E::StoreUnavailable);
        assert_eq!(not_ready.headers[header::RETRY_AFTER], "5");
        problem.detail.contains("the store is full")
    })
    .await;
    // Nothing is lost, even after a restart.
    assert_eq!(server.accepted(&seeds).await, acknowledged);
    let server = server.restart();
    assert_eq!(server.accepted(&seeds).await, acknowledged);
    assert_eq!(server.accepted(&ballast).await, filled);
    let size = std::fs::metadata(database_path(&server.config.data_dir))
        .unwrap()
        .len();
    assert!(size <= 1 << 20, "{size} bytes");

    let path = at(&ballast, "");
    server.order(&format!("{path}/close")).await;
    let deleted = server.remove(&path).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{deleted:?}");
    until("deleting frees space", async || {
        let response = server.post_batch(&seeds, fresh(&seeds)).await;
        if response.status == StatusCode::OK {
            return true;
        }
        response.is_problem(507, E::StoreFull);
        false
    })
    .await;
    acknowledged += BATCH;
    assert_eq!(server.accepted(&seeds).await, acknowledged);
    until("ready again", async || {
        server.get("/readyz").await.status == StatusCode::OK
    })
    .await;
}

/// Pages of the database are overwritten while the server is down: it either does not start or reports the damage, with
/// a way out, when a report arrives. It acknowledges nothing it could lose.
#[tokio::test]
async fn a_damaged_store_is_reported() {
    let server = Harness::new();
    let study = server.seed_study(json!({})).await;
    for _ in 0..20 {
        server.post_batch(&study, fresh(&study)).await;
    }
    let (_directory, config) = server.stop();
    let database = database_path(&config.data_dir);
    let length = std::fs::metadata(&database).unwrap().len();
    assert!(length > 40 * 8_192);
    let whole = std::fs::read(&database).unwrap();
    // Cut within a page, by a page, within the first one.
    for left in [length - 100, length - 8_192, 512] {
        std::fs::write(&database, &whole[..left as usize]).unwrap();
        let error = Store::open(&config.of_store(), environment()).unwrap_err();
        assert_eq!(error.code(), E::StoreUnavailable, "{left}");
        for word in [database.to_str().unwrap(), "backup"] {
            assert!(error.detail().contains(word), "{left}: {error}");
        }
    }
    for (what, from) in [
        ("everything but the head", 1),
        ("the second half", length / 8_192 / 2),
    ] {
        std::fs::write(&database, &whole).unwrap();
        let mut file = OpenOptions::new().write(true).open(&database).unwrap();
        file.seek(SeekFrom::Start(from * 8_192)).unwrap();
        file.write_all(&vec![0x5a; (length - from * 8_192) as usize])
            .unwrap();
        drop(file);
        match Store::open(&config.of_store(), environment()) {
            Err(error) => {
                assert_eq!(error.code(), E::StoreUnavailable, "{what}");
                assert!(error.detail().contains("backup"), "{what}: {error}");
            }
            Ok(store) => {
                let stored = store.studies()[0].clone();
                let reports = decoded(&stored, fresh(&study));
                let error = store.submit(&stored, reports).await.unwrap_err();
                assert_eq!(error.code(), E::StoreUnavailable, "{what}");
                assert!(error.detail().contains("backup"), "{what}: {error}");
                assert!(store.bucket_sums(&stored, Cancel::NEVER).is_err(), "{what}");
            }
        }
    }
    // The backup is undamaged.
    std::fs::write(&database, &whole).unwrap();
    let store = Store::open(&config.of_store(), environment()).unwrap();
    assert_eq!(
        store
            .bucket_sums(&store.studies()[0], Cancel::NEVER)
            .unwrap()
            .n,
        20 * BATCH
    );
}

/// One bit of a stored seed or sum is flipped while the server is down: nothing is computed from it, exported or added.
#[tokio::test]
async fn a_flipped_bit_is_damage() {
    for seeds in [true, false] {
        // One bucket, to which the next report goes too.
        let server = Harness::with(|config| config.sum_cache_bytes = 8 * 6);
        let (study, stored) = match seeds {
            true => (server.seed_study(json!({})).await, vec![0xa7; 16]),
            false => (server.study(3).await, 1_f64.to_le_bytes().repeat(6)),
        };
        let body = || match seeds {
            true => report_with(&study, new_id(), vec![0xa7; 16]),
            false => report(&study, new_id(), 1.0),
        };
        server.counts(&study, body()).await;
        let (_directory, config) = server.stop();
        let database = database_path(&config.data_dir);
        let mut bytes = std::fs::read(&database).unwrap();
        let at = bytes.windows(stored.len()).position(|w| *w == stored);
        bytes[at.unwrap() + 5] ^= 0x10;
        // Opened where it was, it is not read through, unless it looks newer than its log.
        let mut file = OpenOptions::new().write(true).open(&database).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all(&bytes).unwrap();
        file.set_modified(modified).unwrap();

        let copied = tempfile::tempdir().unwrap();
        std::fs::copy(&database, database_path(copied.path())).unwrap();
        let copy = ServerConfig::new(copied.path());
        let error = Store::open(&copy.of_store(), environment()).unwrap_err();
        assert!(error.detail().contains("checksum"), "{seeds}: {error}");

        let store = || Store::open(&config.of_store(), environment()).unwrap();
        let damaged = |error: eigenveil_shared::Error| {
            assert_eq!(error.code(), E::StoreUnavailable, "{seeds}: {error}");
            for word in ["damaged", "checksum", "backup"] {
                assert!(error.detail().contains(word), "{seeds}: {error}");
            }
        };
        let opened = store();
        let study = study_in(&opened, &study);
        damaged(opened.bucket_sums(&study, Cancel::NEVER).unwrap_err());
        // The server is not ready from here on.
        damaged(opened.check_writable().await.unwrap_err());
        drop(opened);
        let opened = store();
        damaged(opened.export(&study).unwrap_err());
        damaged(opened.check_writable().await.unwrap_err());
        if !seeds {
            let reports = vec![NewReport::decode(&body().into(), &study).unwrap()];
            damaged(opened.submit(&study, reports).await.unwrap_err());
        }
    }
}

/// Finished estimates are stored as long as configured, and only so many may wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn estimates_have_limits() {
    let server = Harness::with(|config| {
        config.retain_estimates = 2;
        config.tuning.max_waiting_estimates = 1;
    });
    let study = server.study(3).await;
    server.count_one(&study).await;
    let path = at(&study, "/estimates");
    // Several at a time, until one has come while another was waiting.
    let (mut asked, mut refused) = (0, 0);
    until("one is refused", async || {
        let ask = || server.tell(&path, json!({}));
        let responses: [_; 4] = tokio::join!(ask(), ask(), ask(), ask()).into();
        for response in responses {
            if response.status == StatusCode::TOO_MANY_REQUESTS {
                response.is_problem(429, E::TooManyRequests);
                assert!(response.headers.contains_key(header::RETRY_AFTER));
                refused += 1;
                continue;
            }
            assert_eq!(response.status, StatusCode::ACCEPTED);
            asked += 1;
            let location = response.headers[header::LOCATION].to_str().unwrap();
            let number: u64 = location.rsplit('/').next().unwrap().parse().unwrap();
            assert!((1..=asked + 3).contains(&number), "{location}");
        }
        refused > 0 && asked >= 5
    })
    .await;
    let kept = async || {
        let list: EstimateList = server.read(&path).await.json();
        let kept = list.estimates.iter().map(|e| (e.number, e.state));
        kept.collect::<Vec<_>>()
    };
    let done = EstimateState::Done;
    until("the last two are kept", async || {
        kept().await == [(asked - 1, done), (asked, done)]
    })
    .await;
}
