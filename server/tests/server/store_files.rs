//! The files of the embedded store, as operators move, copy, restore and remove them.

use std::{fs, path::Path};

use eigenveil_server::ServerConfig;
use eigenveil_shared::{ErrorCode as E, api::StudyDocument};
use eigenveil_store::{Store, StoreConfig};
use serde_json::json;

use crate::{
    common::{Harness, at, environment, refused, study_in},
    transfers::some_reports,
};

const MAIN: &str = "eigenveil.db";
const LOG: &str = "eigenveil.db-wal";

fn accepted(config: &ServerConfig, study: &StudyDocument) -> u64 {
    let store = Store::open(&config.of_store(), environment()).unwrap();
    study_in(&store, study).reports_accepted()
}

fn start_error(config: &ServerConfig) -> String {
    let error = Store::open(&config.of_store(), environment()).unwrap_err();
    error.detail().to_owned()
}

/// Writes to files that were moved away, or that others write to, are lost: they are not acknowledged.
#[tokio::test]
async fn replaced_files_are_noticed_before_anything_is_acknowledged() {
    for (replaced, how) in [
        (MAIN, "removed"),
        (MAIN, "another file"),
        (MAIN, "copied over"),
        (LOG, "removed"),
        (LOG, "another file"),
    ] {
        let server = Harness::new();
        let study = server.study_with(json!({"epsilon": 4.0})).await;
        let path = server.config.data_dir.join(replaced);
        let copy = server.config.data_dir.join("copy");
        fs::copy(&path, &copy).unwrap();
        server.post_batch(&study, some_reports(&study, 5, 1)).await;
        match how {
            "removed" => fs::remove_file(&path).unwrap(),
            "another file" => fs::rename(&copy, &path).unwrap(),
            // The same inode.
            _ => drop(fs::copy(&copy, &path).unwrap()),
        }
        let last = some_reports(&study, 5, 2);
        let response = server.post_batch(&study, last.clone()).await;
        response.is_problem(503, E::StoreUnavailable);
        refused(server.get("/readyz"), 503, E::StoreUnavailable).await;
        refused(server.get("/healthz"), 503, E::StoreUnavailable).await;
        assert_eq!(server.stored(&study).reports_accepted(), 5, "{how}");
        if replaced == MAIN {
            continue;
        }
        // What the log had went to the main file first; what was not acknowledged may have.
        let (directory, config) = server.stop();
        if how == "another file" {
            assert!(start_error(&config).contains("move the log away"));
            fs::remove_file(&path).unwrap();
        }
        let server = Harness::start(directory, config);
        server.receipt(&study, last).await;
        assert_eq!(server.accepted(&study).await, 10);
    }
}

/// Commits fill the log beyond the size at which it is copied into the main file. The server goes on; once an older copy
/// of the main file stands in its place it stops, and the next start finds that the rest of the log does not fit it.
#[tokio::test]
async fn a_checkpoint_is_not_taken_for_a_replaced_file_and_an_old_copy_does_not_fit_the_log() {
    let server = Harness::new();
    let design = json!({"dimension": 600, "mechanism": "isotropic-gaussian", "delta": 1e-6});
    let study = server.study_with(design).await;
    let path = server.config.data_dir.join(MAIN);
    let copy = server.config.data_dir.join("copy");
    let modified = || fs::metadata(&path).unwrap().modified().unwrap();
    let mut first = None;
    let (mut seed, mut checkpoints, mut last) = (0, 0, modified());
    while checkpoints < 2 {
        seed += 1;
        assert!(seed < 100, "no checkpoint");
        server
            .post_batch(&study, some_reports(&study, 1, seed))
            .await;
        if modified() != last {
            checkpoints += 1;
            last = modified();
            first.get_or_insert_with(|| fs::copy(&path, &copy).unwrap());
        }
    }
    // The log starts over, so that it no longer has what the copy lacks.
    seed += 1;
    server
        .post_batch(&study, some_reports(&study, 1, seed))
        .await;
    assert_eq!(server.stored(&study).reports_accepted(), u64::from(seed));
    fs::copy(&copy, &path).unwrap();
    let response = server.post_batch(&study, some_reports(&study, 1, 0)).await;
    response.is_problem(503, E::StoreUnavailable);
    let (_directory, config) = server.stop();
    assert!(start_error(&config).contains("restore"));
}

/// SQLite would apply the log of the running server to the backup, and a start would go on without what it lacks.
#[tokio::test]
async fn after_a_restore_over_a_running_server_a_start_wants_the_acknowledged_reports() {
    let server = Harness::new();
    let study = server.study_with(json!({"epsilon": 4.0})).await;
    let main = server.config.data_dir.join(MAIN);
    let log = server.config.data_dir.join(LOG);
    let notice = server.config.data_dir.join("eigenveil.overwritten");
    server.post_batch(&study, some_reports(&study, 3, 1)).await;
    let backup = server.read("/v1/backup").await.body;
    server.post_batch(&study, some_reports(&study, 5, 2)).await;
    fs::write(&main, &backup).unwrap();
    let response = server.post_batch(&study, some_reports(&study, 5, 3)).await;
    response.is_problem(503, E::StoreUnavailable);
    let (_directory, config) = server.stop();
    let before = fs::read(&log).unwrap();
    for _ in 0..2 {
        let error = start_error(&config);
        assert!(error.contains("is not that of"), "{error}");
    }
    assert!(fs::read(&main).unwrap() == backup && fs::read(&log).unwrap() == before);
    fs::remove_file(&log).unwrap();
    for _ in 0..2 {
        let error = start_error(&config);
        assert!(error.contains("has 3 of 8 reports"), "{error}");
    }
    // One that a full disk has cut off.
    fs::write(&notice, "").unwrap();
    assert!(start_error(&config).contains("could not be written down"));
    fs::remove_file(&notice).unwrap();
    assert_eq!(accepted(&config, &study), 3);
}

/// Only the running server still has it, and is told to stop before it has anything to commit.
#[tokio::test]
async fn a_log_removed_before_a_stop_is_not_lost() {
    let server = Harness::new();
    let [kept, deleted] = [
        server.study_with(json!({"epsilon": 4.0})).await,
        server.study(3).await,
    ];
    for study in [&kept, &deleted] {
        server.post_batch(study, some_reports(study, 5, 1)).await;
    }
    server.close(&deleted).await;
    server.remove(&at(&deleted, "")).await;
    fs::remove_file(server.config.data_dir.join(LOG)).unwrap();
    let notice = server.config.data_dir.join("eigenveil.overwritten");
    let (_directory, config) = server.stop();
    // As if the deletion had been committed and not been known: what was deleted is not missing.
    let text = fs::read_to_string(&notice).unwrap();
    fs::write(&notice, format!("{} 5\n{text}", deleted.id)).unwrap();
    assert_eq!(accepted(&config, &kept), 5);
    assert!(!notice.exists());
}

/// SQLite applies any log that fits itself.
#[tokio::test]
async fn a_log_of_an_earlier_time_is_refused() {
    let server = Harness::new();
    let study = server.study_with(json!({"epsilon": 4.0})).await;
    let [main, log] = [MAIN, LOG].map(|name| server.config.data_dir.join(name));
    server.post_batch(&study, some_reports(&study, 3, 1)).await;
    let earlier = fs::read(&log).unwrap();
    server.post_batch(&study, some_reports(&study, 5, 2)).await;
    let (_directory, config) = server.stop();
    fs::write(&log, &earlier).unwrap();
    let before = fs::read(&main).unwrap();
    let error = start_error(&config);
    assert!(error.contains("is not that of"), "{error}");
    assert!(fs::read(&main).unwrap() == before && fs::read(&log).unwrap() == earlier);
    // The way out.
    fs::remove_file(&log).unwrap();
    assert_eq!(accepted(&config, &study), 8);
}

/// A program that ends after the start was refused moves the log, with the mark, into the database.
#[tokio::test]
async fn a_start_beside_a_reader_succeeds_once_the_reader_has_ended() {
    let server = Harness::new();
    let study = server.study_with(json!({"epsilon": 4.0})).await;
    let (_directory, config) = server.stop();
    let reader = rusqlite::Connection::open(config.data_dir.join(MAIN)).unwrap();
    reader
        .execute_batch("BEGIN; SELECT * FROM settings")
        .unwrap();
    let error = start_error(&config);
    assert!(error.contains("another program is reading"), "{error}");
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    assert!(!config.data_dir.join(LOG).exists());
    assert_eq!(accepted(&config, &study), 0);
}

/// The database of a second directory leads to that of the first.
#[cfg(unix)]
#[tokio::test]
async fn a_database_in_use_is_refused_by_another_name() {
    let server = Harness::new();
    let second = tempfile::tempdir().unwrap();
    let link = |from: &Path| {
        std::os::unix::fs::symlink(from.join(MAIN), second.path().join(MAIN)).unwrap();
    };
    link(&server.config.data_dir);
    let config = ServerConfig::new(second.path());
    let error = start_error(&config);
    assert!(error.contains("another server is using"), "{error}");
    let (_directory, _) = server.stop();
    drop(Store::open(&config.of_store(), environment()).unwrap());
}

/// SQLite would take an empty file for a new database, and delete the log that still has the reports.
#[tokio::test]
async fn an_emptied_database_is_not_taken_for_a_new_one() {
    let server = Harness::new();
    let study = server.study_with(json!({"epsilon": 4.0})).await;
    server.post_batch(&study, some_reports(&study, 5, 1)).await;
    let data = server.config.data_dir.clone();
    let files = ["eigenveil.db", "eigenveil.db-wal", "operator.token"];
    let content = || files.map(|file| fs::read(data.join(file)).unwrap_or_default());
    let copy = |without: &[&str]| {
        let directory = tempfile::tempdir().unwrap();
        for (file, content) in files.iter().zip(content()) {
            let content = if without.contains(file) {
                vec![]
            } else {
                content
            };
            fs::write(directory.path().join(file), content).unwrap();
        }
        directory
    };
    for without in [&files[..1], &files[..2]] {
        let directory = copy(without);
        let read = || files.map(|file| fs::read(directory.path().join(file)).unwrap());
        let before = read();
        let config = ServerConfig::new(directory.path());
        let error = Store::open(&config.of_store(), environment()).unwrap_err();
        assert!(error.detail().contains("is empty although"), "{error}");
        assert_eq!(read(), before);
        // The way out: the file.
        let [main, log, _] = content();
        fs::write(directory.path().join("eigenveil.db"), main).unwrap();
        fs::write(directory.path().join("eigenveil.db-wal"), log).unwrap();
        let store = Store::open(&config.of_store(), environment()).unwrap();
        assert_eq!(study_in(&store, &study).reports_accepted(), 5);
    }
    // SQLite takes one byte for none.
    let directory = copy(&files[..1]);
    fs::write(directory.path().join("eigenveil.db"), "x").unwrap();
    let error = Store::open(&StoreConfig::new(directory.path()), environment()).unwrap_err();
    assert!(error.detail().contains("is empty although"), "{error}");
    // A first start that ended early.
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("eigenveil.db"), "").unwrap();
    fs::write(directory.path().join("eigenveil.db-wal"), "").unwrap();
    Store::open(&StoreConfig::new(directory.path()), environment()).unwrap();
}
