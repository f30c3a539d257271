//! The data directory: who may use it, and what is in it.

use std::fs;

use eigenveil_server::{Entropy, Environment, ServerConfig};
use eigenveil_shared::{Error, ErrorCode as E};
use eigenveil_store::{Store, StoreConfig, database_path};
use rusqlite::Connection;
use serde_json::json;
use std::sync::Arc;

use crate::common::{Harness, data, environment};

fn refused(config: &ServerConfig, words: &[&str]) {
    let error = Store::open(&config.of_store(), environment()).unwrap_err();
    assert_eq!(error.code(), E::StoreUnavailable);
    for word in words {
        assert!(error.detail().contains(word), "{word:?} is not in: {error}");
    }
}

#[test]
fn the_directory_is_readable_by_its_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let config = ServerConfig::new(directory.path().join("a/b"));
    let store = Store::open(&config.of_store(), environment()).unwrap();
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
    // The database does not contain the token, and a restart does not change it.
    drop(store);
    let database = fs::read(database_path(&config.data_dir)).unwrap();
    assert!(!database.windows(64).any(|w| w == token.trim().as_bytes()));
    let store = Store::open(&config.of_store(), environment()).unwrap();
    assert_eq!(fs::read_to_string(store.token_path()).unwrap(), token);
}

#[test]
fn foreign_directories_and_files_are_rejected() {
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

    // A crash before the database was created, or a new volume, is accepted.
    let half = directory.path().join("half");
    fs::create_dir_all(half.join("lost+found")).unwrap();
    Store::open(&StoreConfig::new(&half), environment()).unwrap();
    // A token without its database is not.
    let gone = directory.path().join("gone");
    fs::create_dir(&gone).unwrap();
    fs::write(gone.join("operator.token"), "x").unwrap();
    refused(&ServerConfig::new(gone), &["operator.token"]);
}

#[test]
fn foreign_databases_are_rejected_and_not_changed() {
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

    // A crash before the first commit leaves an empty file.
    let empty = prepare("empty", &|path| fs::write(path, "").unwrap());
    drop(Store::open(&empty.of_store(), environment()).unwrap());

    let path = database_path(&empty.data_dir);
    Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA user_version = 99")
        .unwrap();
    refused(&empty, &["version 99", "newer program"]);
}

#[tokio::test]
async fn damaged_studies_are_detected_at_the_start() {
    let server = Harness::new();
    server.study(3).await;
    let (_directory, config) = server.stop();
    let connection = Connection::open(database_path(&config.data_dir)).unwrap();
    let change = |column: &str| {
        let change = format!("UPDATE studies SET {column}");
        connection.execute(&change, []).unwrap();
        // A closed database has no log.
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        connection.query_row(checkpoint, [], |_| Ok(())).unwrap();
    };
    change("fingerprint = zeroblob(32)");
    refused(&config, &["fingerprint", "backup"]);
    change("canonical = x'00'");
    refused(&config, &["damaged"]);
}

#[test]
fn a_start_needs_randomness() {
    struct FailingEntropy;
    impl Entropy for FailingEntropy {
        fn fill(&self, _: &mut [u8]) -> eigenveil_shared::Result<()> {
            Err(Error::new(E::RandomnessUnavailable, "dry"))
        }
    }
    let (_directory, config) = data();
    let dry = Environment {
        entropy: Arc::new(FailingEntropy),
        ..environment()
    };
    let error = Store::open(&config.of_store(), dry.clone()).unwrap_err();
    assert_eq!(error.code(), E::RandomnessUnavailable);
    // An interrupted first start is repaired; later starts need randomness for the bucket key.
    drop(Store::open(&config.of_store(), environment()).unwrap());
    let error = Store::open(&config.of_store(), dry).unwrap_err();
    assert_eq!(error.code(), E::RandomnessUnavailable);
}

#[tokio::test]
async fn buckets_are_fixed_at_creation() {
    let mut server = Harness::with(|config| config.sum_cache_bytes = 8 * 6 * 3);
    let study = server.study(3).await;
    assert_eq!(server.stored(&study).buckets(), 3);
    for _ in 0..40 {
        server.count_one(&study).await;
    }
    let moment = server.bucket_sums(&study);
    let filled: Vec<u32> = moment.buckets.iter().map(|(bucket, _)| *bucket).collect();
    assert_eq!((moment.n, filled), (40, vec![0, 1, 2]));
    // A server with more memory keeps the number fixed at creation.
    server.config.sum_cache_bytes = 1 << 30;
    let server = server.restart();
    assert_eq!(server.stored(&study).buckets(), 3);
}

#[test]
fn configuration_is_checked() {
    for (key, setting) in [
        ("data_dir", json!("")),
        ("max_ingest_bytes", json!(0)),
        ("max_connections", json!(0)),
        ("max_connections", json!(1_u64 << 40)),
        ("max_store_bytes", json!(1_000)),
        ("header_timeout_ms", json!(0)),
        ("header_timeout_ms", json!(86_400_001)),
        ("body_timeout_ms", json!(0)),
        ("body_timeout_ms", json!(1_u64 << 31)),
        ("shutdown_timeout_ms", json!(86_400_001)),
    ] {
        let mut config = json!({"data_dir": "/x"});
        config[key] = setting;
        let config: ServerConfig = serde_json::from_value(config).unwrap();
        let error = config.check().unwrap_err();
        assert!(error.detail().contains(key), "{error}");
    }
}
