//! Exports, imports, merges and backups: nothing is lost, nothing counted twice.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    http::StatusCode,
};
use eigenveil_estimation::Cancel;
use eigenveil_server::ServerConfig;
use eigenveil_shared::{
    ErrorCode as E,
    api::{ImportOutcome, ImportResponse, StudyDocument},
    mechanism::PayloadKind,
    report::ReportId,
};
use eigenveil_store::{Store, StoreConfig, database_path};
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::common::{
    Harness, at, batch_with, data, environment, format_of, new_id, params, refused, study_in,
};

/// A study of each kind of payload with some reports in several commits, and the bodies of its reports.
async fn studies(server: &Harness) -> Vec<(StudyDocument, Vec<Vec<u8>>)> {
    let mut studies = Vec::new();
    for mechanism in ["symmetric-gaussian", "discrete-gaussian", "double-cap"] {
        let delta = (mechanism != "double-cap").then_some(1e-6);
        let changes = json!({
            "mechanism": mechanism, "delta": delta, "name": mechanism, "default_k": 2, "epsilon": 4.0,
        });
        let study = server.study_with(changes).await;
        let mut bodies = Vec::new();
        for commit in 0_u8..7 {
            let body = some_reports(&study, 5, commit);
            assert_eq!(server.receipt(&study, body.clone()).await.accepted, 5);
            bodies.push(body);
        }
        studies.push((study, bodies));
    }
    studies
}

/// A batch with recognisable payloads.
pub(crate) fn some_reports(study: &StudyDocument, count: u8, salt: u8) -> Vec<u8> {
    let payloads: Vec<(ReportId, Vec<u8>)> = (0..count)
        .map(|number| {
            let (a, b) = (f32::from(salt) / 100.0, f32::from(number) / 9.0);
            let entries = format_of(study).payload_len() / 4;
            let payload = match format_of(study).payload_kind().unwrap() {
                PayloadKind::Seed => [salt, number].repeat(8),
                PayloadKind::Floats => (0..entries)
                    .flat_map(|at| (a - b * at as f32).to_le_bytes())
                    .collect(),
                _ => (0..entries as i32)
                    .flat_map(|at| {
                        (100 * at + 10 * i32::from(salt) + i32::from(number)).to_le_bytes()
                    })
                    .collect(),
            };
            (new_id(), payload)
        })
        .collect();
    batch_with(study, &payloads)
}

#[tokio::test]
async fn a_study_moves_to_another_server_unchanged() {
    let (from, to) = (Harness::new(), Harness::new());
    for (study, bodies) in studies(&from).await {
        let file = from.export(&study).await;
        let response = to.import(None, file.clone()).await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
        let receipt: ImportResponse = response.json();
        assert_eq!(
            (receipt.outcome, receipt.reports),
            (ImportOutcome::Created, 35)
        );
        let mut expected: StudyDocument = from.get(&at(&study, "")).await.json();
        assert_eq!(receipt.study, expected);
        // The same sums, bucket by bucket and bit by bit.
        assert_eq!(to.bucket_sums(&study), from.bucket_sums(&study));
        // The same identifiers: reports sent again are duplicates.
        for body in bodies {
            let again = to.receipt(&study, body).await;
            assert_eq!((again.accepted, again.duplicates), (0, 5));
        }
        // It continues: new reports are counted on top.
        let more = to.receipt(&study, some_reports(&study, 3, 99)).await;
        assert_eq!(more.accepted, 3);
        expected.reports_accepted += 3;
        assert_eq!(to.accepted(&study).await, expected.reports_accepted);
        // The same file again changes nothing.
        let again: ImportResponse = to.import(None, file).await.json();
        assert_eq!(
            (again.outcome, again.reports),
            (ImportOutcome::AlreadyImported, 0)
        );
        assert_eq!(again.study.reports_accepted, expected.reports_accepted);
    }
    let to = to.restart();
    assert_eq!(to.app.store().studies().len(), 3);
    for study in to.app.store().studies() {
        assert_eq!(study.reports_accepted(), 38);
        assert_eq!(
            to.app.store().bucket_sums(&study, Cancel::NEVER).unwrap().n,
            38
        );
    }
}

/// By a clock that moves only while everybody waits.
#[tokio::test(start_paused = true)]
async fn an_import_that_trickles_in_is_cut_off() {
    let server = Harness::new();
    let trickle = stream::repeat(()).then(|()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok::<_, std::io::Error>(Bytes::from_static(&[0; 1_024]))
    });
    let trickle = Body::from_stream(trickle.take(600));
    refused(server.import(None, trickle), 408, E::RequestTimeout).await;
}

/// A time that the store cannot represent is an error of the file, not of the store.
#[tokio::test]
async fn an_invalid_time_is_an_error_of_the_file() {
    let server = Harness::new();
    let study = server.study(3).await;
    let file = server.export(&study).await;
    let length = u64::from_le_bytes(file[8..16].try_into().unwrap()) as usize;
    let mut head: serde_json::Value = serde_json::from_slice(&file[16..16 + length]).unwrap();
    head["created_at_ms"] = json!(u64::MAX);
    let head = serde_json::to_vec(&head).unwrap();
    let mut forged = file[..8].to_vec();
    forged.extend((head.len() as u64).to_le_bytes());
    forged.extend(head);
    forged.extend(&file[16 + length..file.len() - 32]);
    let to = Harness::new();
    refused(to.import(None, sealed(forged)), 400, E::MalformedExport).await;
}

#[tokio::test]
async fn invalid_exports_are_rejected_and_change_nothing() {
    let server = Harness::new();
    let all = studies(&server).await;
    let other = server.study_with(json!({"epsilon": 2.0})).await;
    for (study, _) in &all {
        let file = server.export(study).await;
        let response = server.import(Some(&other.id), file.clone()).await;
        response.is_problem(422, E::WrongFingerprint);
        let missing = "0".repeat(32);
        let response = server.import(Some(&missing), file.clone()).await;
        response.is_problem(404, E::StudyNotFound);

        // Every byte counts: changed anywhere, cut anywhere, or longer.
        let to = Harness::new();
        let step = (file.len() / 120).max(1);
        for at in (0..file.len()).step_by(step).chain([file.len() - 1]) {
            let mut changed = file.clone();
            changed[at] ^= 1;
            let response = to.import(None, changed).await;
            assert!(
                [400, 422].contains(&response.status.as_u16()),
                "byte {at} of {}: {response:?}",
                file.len()
            );
            let response = to.import(None, file[..at].to_vec()).await;
            response.is_problem(400, E::MalformedExport);
        }
        let longer = [file.as_slice(), &[0]].concat();
        refused(to.import(None, longer), 400, E::MalformedExport).await;
        assert!(to.app.store().studies().is_empty());
    }
    // Only this media type.
    let typed = server.tell("/v1/imports", json!({}));
    refused(typed, 415, E::UnsupportedMediaType).await;
}

#[tokio::test]
async fn a_backup_is_a_store() {
    let server = Harness::new();
    let all = studies(&server).await;
    let response = server.read("/v1/backup").await;
    assert_eq!(response.status, StatusCode::OK);
    // Acknowledged after the backup, so not in it.
    server
        .post_batch(&all[0].0, some_reports(&all[0].0, 4, 77))
        .await;

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("eigenveil.db"), &response.body).unwrap();
    let restored = Harness::over(directory, &server.token);
    for (study, bodies) in &all {
        assert_eq!(restored.accepted(study).await, 35);
        let again = restored.receipt(study, bodies[0].clone()).await;
        assert_eq!(again.duplicates, 5);
        if study.id != all[0].0.id {
            assert_eq!(restored.bucket_sums(study), server.bucket_sums(study));
        }
        // The operator token is the same.
        let path = at(study, "/close");
        assert_eq!(restored.order(&path).await.status, StatusCode::OK);
    }
    // Nothing is left beside the database.
    let names: Vec<_> = std::fs::read_dir(&server.config.data_dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(names, [""; 0]);
}

/// Leftovers of a crash during a backup are removed at the next start.
#[test]
fn leftovers_are_removed_at_the_start() {
    let (_directory, config) = data();
    drop(Store::open(&config.of_store(), environment()).unwrap());
    let left = config.data_dir.join(".eigenveil-x7Ks");
    std::fs::write(&left, "half a backup").unwrap();
    drop(Store::open(&config.of_store(), environment()).unwrap());
    assert!(!left.exists());
}

/// An export with another sum in its first bucket, and a matching checksum.
fn with_sum(export: &[u8], reports: u64, entry: f64) -> Vec<u8> {
    let header = usize::try_from(u64::from_le_bytes(export[8..16].try_into().unwrap())).unwrap();
    // Identifiers, then bucket, number and length of the first section.
    let at = 16 + header + 16 * usize::try_from(reports).unwrap() + 20;
    let mut changed = export[..export.len() - 32].to_vec();
    changed[at..at + 8].copy_from_slice(&entry.to_le_bytes());
    sealed(changed)
}

fn sealed(mut export: Vec<u8>) -> Vec<u8> {
    let sha256 = Sha256::digest(&export);
    export.extend_from_slice(&sha256);
    export
}

/// Numbers that no reports add up to: one of them only spoils the study, two add up to infinity, and nothing can be
/// added to that.
#[tokio::test]
async fn impossible_sums_are_rejected() {
    let server = Harness::new();
    for mechanism in [
        "symmetric-gaussian",
        "isotropic-gaussian",
        "discrete-gaussian",
    ] {
        let study = server
            .study_with(json!({"mechanism": mechanism, "epsilon": 4.0}))
            .await;
        let bound = params(&study).mechanism().norm_bound(3).unwrap();
        server.post_batch(&study, some_reports(&study, 5, 1)).await;
        let file = server.export(&study).await;
        let to = Harness::new();
        for entry in [1.5e308, -1.5e308, 5.01 * bound.limit()] {
            let response = to.import(None, with_sum(&file, 5, entry)).await;
            response.is_problem(422, E::ImplausibleReport);
        }
        assert!(to.app.store().studies().is_empty());
        // What five reports can add up to, however unlikely, is accepted.
        let response = to
            .import(None, with_sum(&file, 5, 0.9 * bound.limit()))
            .await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
        assert_eq!(to.accepted(&study).await, 5);
    }
}

/// Many send the same export at once: one request creates the study, and all learn that it is there.
#[tokio::test]
async fn concurrent_imports_of_one_export_are_one_import() {
    let (from, to) = (Harness::new(), Harness::new());
    let (study, _) = studies(&from).await.swap_remove(0);
    let file = from.export(&study).await;
    let imports = (0..24).map(|_| to.import(None, file.clone()));
    let responses = futures_util::future::join_all(imports).await;
    let count = |status: StatusCode| responses.iter().filter(|a| a.status == status).count();
    let outcomes = (count(StatusCode::CREATED), count(StatusCode::OK));
    assert_eq!(outcomes, (1, 23), "{responses:?}");
    assert_eq!(to.accepted(&study).await, 35);
}

/// A copy of the main file alone, made while the server was running, lacks what only the log has. It is not opened as
/// if nothing were missing; with its log it is.
#[tokio::test]
async fn a_copy_without_its_write_ahead_log_is_rejected() {
    let server = Harness::new();
    let (study, _) = studies(&server).await.swap_remove(0);
    let main = database_path(&server.config.data_dir);
    let log = main.with_file_name("eigenveil.db-wal");
    let copy = |files: &[&std::path::Path]| {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::copy(file, directory.path().join(file.file_name().unwrap())).unwrap();
        }
        let config = ServerConfig::new(directory.path());
        (Store::open(&config.of_store(), environment()), directory)
    };
    let (alone, directory) = copy(&[&main]);
    let error = alone.unwrap_err();
    assert_eq!(error.code(), E::StoreUnavailable);
    assert!(
        error.detail().contains("eigenveil.db-wal is missing"),
        "{error}"
    );
    // Again: the first attempt has not created a log that would do.
    let config = ServerConfig::new(directory.path());
    assert!(Store::open(&config.of_store(), environment()).is_err());
    // The way out in the error message.
    std::fs::write(directory.path().join("eigenveil.db-wal"), "").unwrap();
    Store::open(&config.of_store(), environment()).unwrap();

    let (both, _directory) = copy(&[&main, &log]);
    let both = both.unwrap();
    let copied = study_in(&both, &study);
    assert_eq!(both.bucket_sums(&copied, Cancel::NEVER).unwrap().n, 35);

    // A stopped one needs no log.
    let (_directory, _) = server.stop();
    let (stopped, _directory) = copy(&[&main]);
    assert_eq!(stopped.unwrap().studies().len(), 3);
}

/// An inconsistent copy is detected wherever it is opened.
#[tokio::test]
async fn an_inconsistent_copy_is_rejected() {
    let server = Harness::new();
    let (study, _) = studies(&server).await.swap_remove(0);
    let response = server.read("/v1/backup").await;
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("eigenveil.db");
    std::fs::write(&database, &response.body).unwrap();
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute(
            "UPDATE studies SET reports_accepted = 36 WHERE name = ?",
            [&study.name],
        )
        .unwrap();
    drop(connection);
    let error = Store::open(&StoreConfig::new(directory.path()), environment()).unwrap_err();
    assert!(error.detail().contains("36 reports"), "{error}");
}
