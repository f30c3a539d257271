//! Studies and stores as files: nothing is lost on the way, nothing counted twice.

use axum::{
    body::Body,
    http::{Request, StatusCode, header},
};
use eigenveil_estimation::Cancel;
use eigenveil_server::{
    ServerConfig, Store,
    store::{SubmitOutcome, database_path},
};
use eigenveil_shared::{
    ErrorCode as E,
    api::{
        ImportOutcome, ImportReceipt, REPORT_BATCH_MEDIA_TYPE, STUDY_EXPORT_MEDIA_TYPE,
        StudyDocument, StudyState,
    },
    mechanism::PayloadForm,
    report::ReportId,
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::common::{
    Harness, at, batch_with, data, decoded, environment, new_id, refused, shape, study_in,
    waiting::until,
};

/// A study of each kind of payload with some reports, in several commits; a name, identifiers, bodies.
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

/// A batch with payloads that say which they are.
fn some_reports(study: &StudyDocument, count: u8, salt: u8) -> Vec<u8> {
    let payloads: Vec<(ReportId, Vec<u8>)> = (0..count)
        .map(|number| {
            let (a, b) = (f32::from(salt) / 100.0, f32::from(number) / 9.0);
            let entries = shape(study).payload_len() / 4;
            let payload = match shape(study).payload_form() {
                PayloadForm::Seed => [salt, number].repeat(8),
                PayloadForm::Floats => (0..entries)
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
async fn a_study_moves_to_another_server_bit_by_bit() {
    let (from, to) = (Harness::new(), Harness::new());
    for (study, bodies) in studies(&from).await {
        let file = from.export(&study).await;
        let answer = to.import(None, file.clone()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        let receipt: ImportReceipt = answer.json();
        assert_eq!(
            (receipt.outcome, receipt.reports),
            (ImportOutcome::Created, 35)
        );
        let mut expected: StudyDocument = from.get(&at(&study, "")).await.json();
        assert_eq!(receipt.study, expected);
        // The same sums, bucket by bucket and bit by bit.
        assert_eq!(to.bucket_sums(&study), from.bucket_sums(&study));
        // The same identifiers: whoever sends again is told that it is counted.
        for body in bodies {
            let again = to.receipt(&study, body).await;
            assert_eq!((again.accepted, again.duplicates), (0, 5));
        }
        // It lives on: new reports are counted on top.
        let more = to.receipt(&study, some_reports(&study, 3, 99)).await;
        assert_eq!(more.accepted, 3);
        expected.reports_accepted += 3;
        assert_eq!(to.accepted(&study).await, expected.reports_accepted);
        // The same file again changes nothing.
        let again: ImportReceipt = to.import(None, file).await.json();
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

/// A time that the store cannot hold is a fault of the file, not of the store.
#[tokio::test]
async fn a_time_that_cannot_be_is_a_fault_of_the_file() {
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
async fn files_that_do_not_fit_are_refused_and_change_nothing() {
    let server = Harness::new();
    let all = studies(&server).await;
    let other = server.study_with(json!({"epsilon": 2.0})).await;
    for (study, _) in &all {
        let file = server.export(study).await;
        let answer = server.import(Some(&other.id), file.clone()).await;
        answer.is_problem(422, E::WrongFingerprint);
        let missing = "0".repeat(32);
        let answer = server.import(Some(&missing), file.clone()).await;
        answer.is_problem(404, E::StudyNotFound);

        // Every byte counts: changed anywhere, cut anywhere, or longer.
        let to = Harness::new();
        let step = (file.len() / 120).max(1);
        for at in (0..file.len()).step_by(step).chain([file.len() - 1]) {
            let mut changed = file.clone();
            changed[at] ^= 1;
            let answer = to.import(None, changed).await;
            assert!(
                [400, 422].contains(&answer.status.as_u16()),
                "byte {at} of {}: {answer:?}",
                file.len()
            );
            let answer = to.import(None, file[..at].to_vec()).await;
            answer.is_problem(400, E::MalformedExport);
        }
        let longer = [file.as_slice(), &[0]].concat();
        refused(to.import(None, longer), 400, E::MalformedExport).await;
        assert!(to.app.store().studies().is_empty());
    }
    // Only the operator, only this media type.
    let file = server.export(&all[0].0).await;
    let request = |media_type: &str, token: Option<&str>| {
        let mut request = Request::post("/v1/imports").header(header::CONTENT_TYPE, media_type);
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request.body(Body::from(file.clone())).unwrap()
    };
    let anybody = request(STUDY_EXPORT_MEDIA_TYPE, None);
    refused(server.send(anybody), 401, E::Unauthorized).await;
    let typed = request("application/json", Some(&server.token));
    refused(server.send(typed), 415, E::UnsupportedMediaType).await;
    for path in [
        "/v1/backup".to_owned(),
        format!("/v1/studies/{}/export", all[0].0.id),
    ] {
        refused(server.get(&path), 401, E::Unauthorized).await;
    }
}

#[tokio::test]
async fn a_backup_is_a_store() {
    let server = Harness::new();
    let all = studies(&server).await;
    let answer = server.read("/v1/backup").await;
    assert_eq!(answer.status, StatusCode::OK);
    // Acknowledged after the backup: not in it.
    server
        .post_batch(&all[0].0, some_reports(&all[0].0, 4, 77))
        .await;

    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("eigenveil.db"), &answer.body).unwrap();
    let restored = Harness::over(directory, &server.token);
    for (study, bodies) in &all {
        assert_eq!(restored.accepted(study).await, 35);
        let again = restored.receipt(study, bodies[0].clone()).await;
        assert_eq!(again.duplicates, 5);
        if study.id != all[0].0.id {
            assert_eq!(restored.bucket_sums(study), server.bucket_sums(study));
        }
        // The operator's token is the same.
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

/// What a crash in the middle of a backup leaves is gone after the next start.
#[test]
fn leftovers_are_removed_at_the_start() {
    let (_directory, config) = data();
    drop(Store::open(&config, environment()).unwrap());
    let left = config.data_dir.join(".eigenveil-x7Ks");
    std::fs::write(&left, "half a backup").unwrap();
    drop(Store::open(&config, environment()).unwrap());
    assert!(!left.exists());
}

#[tokio::test]
async fn deleted_studies_are_gone_and_their_rows_never_come_back() {
    let server = Harness::new();
    let all = studies(&server).await;
    let (last, bodies) = all.last().unwrap();
    let path = at(last, "");
    refused(server.remove(&path), 409, E::InvalidTransition).await;
    let stale = server.stored(last);
    let file = server.export(last).await;
    server.order(&format!("{path}/close")).await;
    server.get(&path).await;
    let anybody = Request::delete(&path).body(Body::empty()).unwrap();
    refused(server.send(anybody), 401, E::Unauthorized).await;
    assert_eq!(server.remove(&path).await.status, StatusCode::NO_CONTENT);
    refused(server.get(&path), 404, E::StudyNotFound).await;
    refused(server.remove(&path), 404, E::StudyNotFound).await;
    let reports = format!("{path}/reports");
    let answer = server
        .post(&reports, REPORT_BATCH_MEDIA_TYPE, bodies[0].clone())
        .await;
    answer.is_problem(404, E::StudyNotFound);

    // A request that found the study before it was deleted does not reach the one that comes next.
    let next = server
        .study_with(json!({"mechanism": "double-cap", "delta": null, "epsilon": 4.0}))
        .await;
    let submitted = decoded(&stale, some_reports(&next, 1, 5));
    let kept = server.stored(&all[0].0);
    let counted = decoded(&kept, some_reports(&all[0].0, 1, 6));
    let store = server.app.store();
    // In one group, which disturbs no other study.
    let (gone, counted) = tokio::join!(
        store.submit(&stale, submitted),
        store.submit(&kept, counted)
    );
    assert_eq!(gone.unwrap(), [SubmitOutcome::StudyDeleted]);
    assert_eq!(counted.unwrap(), [SubmitOutcome::Accepted]);
    assert_eq!(server.accepted(&next).await, 0);
    assert!(
        server
            .app
            .store()
            .bucket_sums(&stale, Cancel::NEVER)
            .is_err()
    );

    // Others are untouched, also after the rows are cleared away; and what was exported can come back.
    let rows = || server.column::<u64>("SELECT count(*) FROM studies")[0];
    until("the rows are cleared away", async || rows() <= 3).await;
    let server = server.restart();
    for ((study, _), reports) in all.iter().zip([36, 35]) {
        assert_eq!(server.accepted(study).await, reports);
    }
    let back: ImportReceipt = server.import(None, file).await.json();
    assert_eq!((back.outcome, back.reports), (ImportOutcome::Created, 35));
    assert_eq!(back.study.state, StudyState::Open);
    assert_eq!(server.accepted(last).await, 35);
}

/// An export with another sum in its first bucket, and the checksum that fits.
fn with_sum(export: &[u8], reports: u64, entry: f64) -> Vec<u8> {
    let header = usize::try_from(u64::from_le_bytes(export[8..16].try_into().unwrap())).unwrap();
    // Identifiers, then bucket, number and length of the first section.
    let at = 16 + header + 16 * usize::try_from(reports).unwrap() + 20;
    let mut changed = export[..export.len() - 32].to_vec();
    changed[at..at + 8].copy_from_slice(&entry.to_le_bytes());
    sealed(changed)
}

/// With the checksum that fits.
fn sealed(mut export: Vec<u8>) -> Vec<u8> {
    let sha256 = Sha256::digest(&export);
    export.extend_from_slice(&sha256);
    export
}

/// Numbers that no reports add up to: alone they only spoil the study, twice they are not finite, and nothing can be
/// added to that.
#[tokio::test]
async fn sums_that_so_many_reports_cannot_have_are_refused() {
    let server = Harness::new();
    for mechanism in [
        "symmetric-gaussian",
        "isotropic-gaussian",
        "discrete-gaussian",
    ] {
        let study = server
            .study_with(json!({"mechanism": mechanism, "epsilon": 4.0}))
            .await;
        let bound = study.params.mechanism().norm_bound(3).unwrap();
        server.post_batch(&study, some_reports(&study, 5, 1)).await;
        let file = server.export(&study).await;
        let to = Harness::new();
        for entry in [1.5e308, -1.5e308, 5.01 * bound.limit()] {
            let answer = to.import(None, with_sum(&file, 5, entry)).await;
            answer.is_problem(422, E::ImplausibleReport);
        }
        assert!(to.app.store().studies().is_empty());
        // What five reports can have, however unlikely, is taken.
        let answer = to
            .import(None, with_sum(&file, 5, 0.9 * bound.limit()))
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        assert_eq!(to.accepted(&study).await, 5);
    }
}

/// Many send the same export at once: one makes the study, and all are told that it is there.
#[tokio::test]
async fn imports_at_the_same_time_are_one_import() {
    let (from, to) = (Harness::new(), Harness::new());
    let (study, _) = studies(&from).await.swap_remove(0);
    let file = from.export(&study).await;
    let imports = (0..24).map(|_| to.import(None, file.clone()));
    let answers = futures_util::future::join_all(imports).await;
    let count = |status: StatusCode| answers.iter().filter(|a| a.status == status).count();
    let made = (count(StatusCode::CREATED), count(StatusCode::OK));
    assert_eq!(made, (1, 23), "{answers:?}");
    assert_eq!(to.accepted(&study).await, 35);
}

/// A copy of the main file alone, made while the server was running, lacks what only the log has. It is not opened as
/// if nothing were missing; with its log it is.
#[tokio::test]
async fn a_copy_without_its_log_is_refused() {
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
        (Store::open(&config, environment()), directory)
    };
    let (alone, directory) = copy(&[&main]);
    let error = alone.unwrap_err();
    assert_eq!(error.code(), E::StoreUnavailable);
    assert!(
        error.detail().contains("eigenveil.db-wal is missing"),
        "{error}"
    );
    // Again: looking at it has not made a log that would do.
    let config = ServerConfig::new(directory.path());
    assert!(Store::open(&config, environment()).is_err());
    // The way out that is named.
    std::fs::write(directory.path().join("eigenveil.db-wal"), "").unwrap();
    Store::open(&config, environment()).unwrap();

    let (both, _directory) = copy(&[&main, &log]);
    let both = both.unwrap();
    let copied = study_in(&both, &study);
    assert_eq!(both.bucket_sums(&copied, Cancel::NEVER).unwrap().n, 35);

    // One that was stopped needs no log.
    let (_directory, _) = server.stop();
    let (stopped, _directory) = copy(&[&main]);
    assert_eq!(stopped.unwrap().studies().len(), 3);
}

/// A copy that is torn is found, wherever it is opened.
#[tokio::test]
async fn a_copy_that_lacks_reports_is_refused() {
    let server = Harness::new();
    let (study, _) = studies(&server).await.swap_remove(0);
    let answer = server.read("/v1/backup").await;
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("eigenveil.db");
    std::fs::write(&database, &answer.body).unwrap();
    let connection = rusqlite::Connection::open(&database).unwrap();
    connection
        .execute(
            "UPDATE studies SET reports_accepted = 36 WHERE name = ?",
            [&study.name],
        )
        .unwrap();
    drop(connection);
    let error = Store::open(&ServerConfig::new(directory.path()), environment()).unwrap_err();
    assert!(error.detail().contains("36 reports"), "{error}");
}

/// Somebody removes the lock file, and a second server comes in: the first one ends, and what the two were sent is
/// counted once each.
#[tokio::test]
async fn without_its_lock_file_a_directory_still_has_one_server_that_counts() {
    let first = Harness::new();
    let study = first.study_with(json!({"epsilon": 4.0})).await;
    first.post_batch(&study, some_reports(&study, 5, 1)).await;
    std::fs::remove_file(first.config.data_dir.join("eigenveil.lock")).unwrap();
    let second = Store::open(&first.config, environment()).unwrap();
    // In the memory of the first, which would add to the sum as it was.
    let body = some_reports(&study, 5, 2);
    let answer = first.post_batch(&study, body.clone()).await;
    answer.is_problem(503, E::StoreUnavailable);
    refused(first.get("/readyz"), 503, E::StoreUnavailable).await;
    let stored = study_in(&second, &study);
    let reports = decoded(&stored, body);
    second.submit(&stored, reports).await.unwrap();
    assert_eq!(second.bucket_sums(&stored, Cancel::NEVER).unwrap().n, 10);
    // The first ends without a word about a database that is not its own.
    first.app.close();
    assert_eq!(second.bucket_sums(&stored, Cancel::NEVER).unwrap().n, 10);
}
