//! The data directory: whose it is, who may use it, and what is in it.

use std::fs;

use axum::http::StatusCode;
use eigenveil_estimation::Cancel;
use eigenveil_server::{
    Entropy, Environment, ServerConfig, Store, StudyId,
    store::{NewReport, Stored, database_path},
};
use eigenveil_shared::{Error, ErrorCode as E, api::StudyState};
use rusqlite::Connection;
use serde_json::json;
use std::sync::Arc;

use crate::common::{Harness, environment, new_id, report};

fn refused(config: &ServerConfig, words: &[&str]) {
    let error = Store::open(config, environment()).unwrap_err();
    assert_eq!(error.code(), E::StoreUnavailable);
    for word in words {
        assert!(error.detail().contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn the_directory_is_made_for_its_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig::new(directory.path().join("a/b"));
    let store = Store::open(&config, environment()).unwrap();
    let token = fs::read_to_string(store.token_path()).unwrap();
    assert!(token.trim().len() == 64 && token.trim().bytes().all(|b| b.is_ascii_hexdigit()));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode =
            |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&config.data_dir), 0o700);
        assert_eq!(mode(&store.token_path()), 0o600);
        assert_eq!(mode(&database_path(&config.data_dir)), 0o600);
    }
    // The database does not hold the token, and a restart does not change it.
    drop(store);
    let database = fs::read(database_path(&config.data_dir)).unwrap();
    assert!(!database.windows(64).any(|w| w == token.trim().as_bytes()));
    let store = Store::open(&config, environment()).unwrap();
    assert_eq!(fs::read_to_string(store.token_path()).unwrap(), token);
}

#[test]
fn a_directory_has_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig::new(directory.path().join("data"));
    let store = Store::open(&config, environment()).unwrap();
    refused(&config, &["another server", "data"]);
    drop(store);
    Store::open(&config, environment()).unwrap();
}

#[test]
fn directories_and_files_of_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig::new(directory.path());
    fs::write(directory.path().join("thesis.tex"), "x").unwrap();
    refused(&config, &["thesis.tex", "empty directory"]);
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        1,
        "nothing was written"
    );

    let file = ServerConfig::new(directory.path().join("thesis.tex"));
    refused(&file, &["thesis.tex"]);

    // A crash before the database was made, or a fresh volume, is no reason.
    let half = directory.path().join("half");
    fs::create_dir_all(half.join("lost+found")).unwrap();
    fs::write(half.join("eigenveil.lock"), "").unwrap();
    Store::open(&ServerConfig::new(&half), environment()).unwrap();
    // But a token without its database is.
    let gone = directory.path().join("gone");
    fs::create_dir(&gone).unwrap();
    fs::write(gone.join("operator.token"), "x").unwrap();
    refused(&ServerConfig::new(gone), &["operator.token"]);
}

#[test]
fn databases_that_are_not_ours_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let config = |name: &str| ServerConfig::new(directory.path().join(name));
    let prepare = |name: &str, content: &dyn Fn(&std::path::Path)| {
        let config = config(name);
        fs::create_dir(&config.data_dir).unwrap();
        content(&database_path(&config.data_dir));
        config
    };
    let noise = prepare("noise", &|path| fs::write(path, [0x5a; 9_000]).unwrap());
    refused(&noise, &["not a database", "backup"]);
    assert_eq!(
        fs::read(database_path(&noise.data_dir)).unwrap(),
        [0x5a; 9_000]
    );

    let other = prepare("other", &|path| {
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch("CREATE TABLE mine (x); PRAGMA application_id = 7")
            .unwrap();
    });
    refused(&other, &["another program"]);

    // An empty file is what a crash leaves before the first commit.
    let empty = prepare("empty", &|path| fs::write(path, "").unwrap());
    drop(Store::open(&empty, environment()).unwrap());

    let path = database_path(&empty.data_dir);
    Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA user_version = 99")
        .unwrap();
    refused(&empty, &["version 99", "newer program"]);

    // Half a database is not one.
    let cut = config("cut");
    drop(Store::open(&cut, environment()).unwrap());
    let path = database_path(&cut.data_dir);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = Store::open(&cut, environment()).unwrap_err();
    assert_eq!(error.code(), E::StoreUnavailable);
}

#[tokio::test]
async fn damaged_studies_are_found_at_the_start() {
    let server = Harness::new();
    server.study(3).await;
    server.app.close();
    let config = server.config.clone();
    drop(server.routes);
    drop(server.app);
    let connection = Connection::open(database_path(&config.data_dir)).unwrap();
    connection
        .execute("UPDATE studies SET fingerprint = zeroblob(32)", [])
        .unwrap();
    refused(&config, &["fingerprint", "backup"]);
    connection
        .execute("UPDATE studies SET canonical = x'00'", [])
        .unwrap();
    refused(&config, &["damaged"]);
}

/// A study whose constants an older version allowed: the others are served, and it is left as it is.
#[tokio::test]
async fn a_study_beyond_the_bounds_does_not_stop_the_others() {
    use sha2::{Digest, Sha256};
    let server = Harness::new();
    let kept = server.study(3).await;
    let clip = json!({"norm": {"kind": "clip", "radius": 7.25}});
    server.study_with(clip).await;
    server.app.close();
    let config = server.config.clone();
    drop(server.routes);
    drop(server.app);
    let connection = Connection::open(database_path(&config.data_dir)).unwrap();
    let (row, mut canonical): (i64, Vec<u8>) = connection
        .query_row(
            "SELECT study, canonical FROM studies ORDER BY study DESC LIMIT 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    let radius = 7.25_f64.to_le_bytes();
    let at = canonical.windows(8).position(|w| w == radius).unwrap();
    canonical[at..at + 8].copy_from_slice(&1e-40_f64.to_le_bytes());
    let fingerprint: [u8; 32] = Sha256::digest(&canonical).into();
    connection
        .execute(
            "UPDATE studies SET canonical = ?, fingerprint = ? WHERE study = ?",
            (&canonical, fingerprint, row),
        )
        .unwrap();
    let store = Store::open(&config, environment()).unwrap();
    let served: Vec<_> = store.studies().iter().map(|s| s.id().to_string()).collect();
    assert_eq!(served, [kept.id]);
    // Changed without its fingerprint it is damage as before.
    drop(store);
    connection
        .execute("UPDATE studies SET fingerprint = zeroblob(32)", [])
        .unwrap();
    refused(&config, &["damaged"]);
}

#[test]
fn a_start_needs_randomness() {
    struct Dry;
    impl Entropy for Dry {
        fn fill(&self, _: &mut [u8]) -> eigenveil_shared::Result<()> {
            Err(Error::new(E::RandomnessUnavailable, "dry"))
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig::new(directory.path().join("data"));
    let dry = Environment {
        entropy: Arc::new(Dry),
        ..environment()
    };
    let error = Store::open(&config, dry.clone()).unwrap_err();
    assert_eq!(error.code(), E::RandomnessUnavailable);
    // An interrupted first start is made good; later ones need it for the key of the buckets.
    drop(Store::open(&config, environment()).unwrap());
    let error = Store::open(&config, dry).unwrap_err();
    assert_eq!(error.code(), E::RandomnessUnavailable);
}

/// A close is a barrier: everything acknowledged before it is in, nothing after it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_close_is_a_barrier() {
    let server = Harness::new();
    let study = server.study(3).await;
    let store = server.app.store().clone();
    let stored = store.study(StudyId::parse(&study.id).unwrap()).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, stored, study) = (store.clone(), Arc::clone(&stored), study.clone());
        tasks.spawn(async move {
            let mut accepted = 0_u64;
            loop {
                let body = report(&study, new_id(), 1.0).into();
                let report = NewReport::decode(&body, &stored).unwrap();
                match store.submit(&stored, vec![report]).await.unwrap()[0] {
                    Stored::Accepted => accepted += 1,
                    Stored::NotOpen => return accepted,
                    other => panic!("a fresh identifier is {other:?}"),
                }
            }
        });
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    store.set_state(&stored, StudyState::Closed).await.unwrap();
    let at_close = store.moment(&stored, Cancel::NEVER).unwrap().n;
    let mut acknowledged = 0;
    while let Some(accepted) = tasks.join_next().await {
        acknowledged += accepted.unwrap();
    }
    assert_eq!(server.accepted(&study).await, acknowledged);
    assert_eq!(at_close, acknowledged);
}

#[tokio::test]
async fn a_full_queue_is_said() {
    let server = Harness::with(|config| ServerConfig {
        queue_requests: 2,
        ..config
    });
    let study = server.study(3).await;
    let store = server.app.store().clone();
    let stored = store.study(StudyId::parse(&study.id).unwrap()).unwrap();
    // Another process holds the database for a moment, so that the writer waits.
    let outside = Connection::open(database_path(&server.config.data_dir)).unwrap();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let (store, stored) = (store.clone(), Arc::clone(&stored));
        let body = report(&study, new_id(), 1.0).into();
        let report = NewReport::decode(&body, &stored).unwrap();
        tasks.spawn(async move { store.submit(&stored, vec![report]).await });
    }
    // The queue has two places; requests beyond it and the group being written come back at once. The group itself comes back
    // when the writer has waited for the database as long as it does.
    let (mut accepted, mut refused) = (0, 0);
    while let Some(result) = tasks.join_next().await {
        match result.unwrap() {
            Ok(stored) => accepted += u64::from(stored == [Stored::Accepted]),
            Err(error) if error.code() == E::TooManyRequests => refused += 1,
            Err(error) => assert_eq!(error.code(), E::StoreUnavailable),
        }
        if refused == 1 && !outside.is_autocommit() {
            outside.execute_batch("ROLLBACK").unwrap();
        }
    }
    assert!(refused >= 1);
    assert_eq!(server.accepted(&study).await, accepted);
    let answer = server
        .post_report(&study, report(&study, new_id(), 1.0))
        .await;
    assert_eq!(answer.status, StatusCode::CREATED);
}

#[tokio::test]
async fn buckets_are_fixed_at_creation() {
    let server = Harness::with(|config| ServerConfig {
        memory_bytes: 8 * 6 * 3,
        ..config
    });
    let study = server.study(3).await;
    let id = StudyId::parse(&study.id).unwrap();
    assert_eq!(server.app.store().study(id).unwrap().buckets(), 3);
    for _ in 0..40 {
        server
            .post_report(&study, report(&study, new_id(), 1.0))
            .await;
    }
    let store = server.app.store();
    let moment = store
        .moment(&store.study(id).unwrap(), Cancel::NEVER)
        .unwrap();
    let counts: Vec<_> = moment
        .buckets
        .iter()
        .map(|(b, sums)| (*b, sums.count()))
        .collect();
    assert_eq!(
        counts.iter().map(|(b, _)| *b).collect::<Vec<_>>(),
        [0, 1, 2],
        "{counts:?}"
    );
    assert_eq!(moment.n, 40);
    // A server with more memory keeps to what was fixed.
    let Harness {
        directory,
        mut config,
        app,
        routes,
        ..
    } = server;
    drop(routes);
    app.close();
    drop(app);
    config.memory_bytes = 1 << 30;
    let store = Store::open(&config, environment()).unwrap();
    assert_eq!(store.study(id).unwrap().buckets(), 3);
    drop(directory);
}

#[test]
fn configuration_is_checked_and_unknown_keys_are_refused() {
    let config: ServerConfig = serde_json::from_value(json!({"data_dir": "/x"})).unwrap();
    assert_eq!(config, ServerConfig::new("/x"));
    assert!(serde_json::from_value::<ServerConfig>(json!({"data_dir": "/x", "color": 1})).is_err());
    for change in [
        json!({"data_dir": ""}),
        json!({"ingest_bytes": 0}),
        json!({"queue_requests": 0}),
        json!({"queue_requests": 1_u64 << 40}),
        json!({"commit_reports": 0}),
        json!({"commit_delay_us": 2_000_000}),
        json!({"max_connections": 0}),
        json!({"header_timeout_ms": 0}),
        json!({"body_timeout_ms": 0}),
    ] {
        let mut value = json!({"data_dir": "/x"});
        for (key, setting) in change.as_object().unwrap() {
            value[key] = setting.clone();
        }
        let config: ServerConfig = serde_json::from_value(value).unwrap();
        let error = config.check().unwrap_err();
        let (key, _) = change.as_object().unwrap().iter().next().unwrap();
        assert!(error.detail().contains(key.as_str()), "{error}");
    }
}
