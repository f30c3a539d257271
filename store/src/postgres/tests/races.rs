//! What servers, operators and the database do at the wrong moment.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use eigenveil_shared::{
    ErrorCode,
    api::{CreateAnalystTokenRequest, EstimateRequest, ImportOutcome, StudyState},
};
use serde_json::json;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    Store,
    config::StoreConfig,
    contract::{
        credentials::Identity,
        decide::SubmitOutcome,
        listener::Notice,
        study::{Study, StudyId},
        token::TokenHash,
        transfer::VerifiedExport,
    },
    environment::Environment,
    postgres::{
        connection::Target,
        statements,
        testing::{SLEEPS, Servers, eventually, fleet, numbered, of_seeds, refresh, with_servers},
    },
    testing::{
        cluster::Cluster,
        fixtures::{SetClock, admissions, create, report},
    },
};

async fn analyst(
    store: &Store,
    study: Option<&Study>,
) -> eigenveil_shared::Result<(String, TokenHash)> {
    let request = CreateAnalystTokenRequest {
        name: "reader".to_owned(),
        study: study.map(|study| study.id().to_string()),
    };
    let created = store.create_analyst_token(request).await?;
    Ok((created.analyst.id, TokenHash::new(&created.token)))
}

/// Made while another server deletes its study, an analyst's token for it alone would be one for all.
#[test]
fn a_token_of_a_study_that_is_deleted_meanwhile_is_for_nothing() {
    with_servers(2, async |servers| {
        let [first, second] = [&servers.stores[0], &servers.stores[1]];
        servers.sql(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
             AS 'BEGIN PERFORM public.hold_until_waited_for(); RETURN NULL; END';
             CREATE TRIGGER slow BEFORE INSERT ON eigenveil.analysts EXECUTE FUNCTION slow()",
        );
        let study = create(first, &json!({"draft": true})).await;
        let seen = servers.everywhere(&study).await;
        let deletes = async {
            servers.until(SLEEPS, "1").await;
            second.delete_study(&seen[1]).await.unwrap();
        };
        let (made, ()) = tokio::join!(analyst(first, Some(&study)), deletes);
        let (_, hash) = made.unwrap();
        servers.sql("DROP FUNCTION slow() CASCADE");
        assert_eq!(servers.sql("SELECT count(*) FROM eigenveil.analysts"), "0");
        let of_all = analyst(first, None).await.unwrap().1;
        eventually(async || second.identify_hash(&of_all)).await;
        assert_eq!(second.identify_hash(&hash), None);
        // Nor does a row that was left read anything.
        servers.sql("UPDATE eigenveil.analysts SET study = 1000");
        eventually(async || second.identify_hash(&of_all).is_none().then_some(())).await;
    });
}

/// Whatever else of the tokens cannot be read: the first step of replacing a lost operator token removes it.
#[test]
fn a_token_that_is_removed_is_refused_whatever_is_damaged() {
    with_servers(1, async |servers| {
        let store = &servers.stores[0];
        let file = std::fs::read_to_string(store.token_path()).unwrap();
        let operator = TokenHash::new(file.trim());
        assert_eq!(store.identify_hash(&operator), Some(Identity::Operator));
        let mut analysts = Vec::new();
        for _ in 0..3 {
            analysts.push(analyst(store, None).await.unwrap());
        }
        let [(revoked, first), (damaged, second), (kept, third)] = &analysts[..] else {
            unreachable!();
        };
        let with_id = |id: &str| format!("WHERE id = decode('{id}', 'hex')");
        servers.sql(&format!(
            "UPDATE eigenveil.settings SET value = '\\x00' WHERE key = 'operator-token-sha256';
             ALTER TABLE eigenveil.analysts DROP CONSTRAINT analysts_hash_check;
             UPDATE eigenveil.analysts SET hash = '\\x00' {};
             DELETE FROM eigenveil.analysts {}",
            with_id(damaged),
            with_id(revoked)
        ));
        let refused = async |hash: &TokenHash| {
            eventually(async || store.identify_hash(hash).is_none().then_some(())).await;
        };
        for hash in [&operator, first, second] {
            refused(hash).await;
        }
        assert_eq!(store.identify_hash(third), Some(Identity::Analyst(None)));
        let says = async |what: &str| {
            let refusal = async || store.check_writable().await.err();
            eventually(async || {
                refusal()
                    .await
                    .filter(|error| error.detail().contains(what))
            })
            .await;
        };
        says("1 bytes instead of 32").await;
        servers.sql(&format!(
            "DELETE FROM eigenveil.settings WHERE key = 'operator-token-sha256';
             DELETE FROM eigenveil.analysts {}",
            with_id(kept)
        ));
        refused(third).await;
        says("migrate the store").await;
    });
}

/// The new token is in a file that the answer names, and where it belongs once the database is asked again.
#[test]
fn a_rotation_in_doubt_does_not_lose_the_token() {
    with_servers(1, async |servers| {
        let store = &servers.stores[0];
        let file = store.token_path();
        let token = || TokenHash::new(std::fs::read_to_string(&file).unwrap().trim());
        let old = token();
        servers.sql(
            "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE WARNING ''for the test''; RETURN NULL; END';
             CREATE CONSTRAINT TRIGGER warn AFTER UPDATE ON eigenveil.settings DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW EXECUTE FUNCTION warn()",
        );
        let error = store
            .rotate_operator_token(&old)
            .await
            .map(drop)
            .unwrap_err();
        let staged = file.with_file_name("operator.token.new");
        for path in [&file, &staged] {
            assert!(error.detail().contains(path.to_str().unwrap()), "{error}");
        }
        eventually(async || store.identify_hash(&old).is_none().then_some(())).await;
        eventually(async || (!staged.exists()).then_some(())).await;
        assert_eq!(store.identify_hash(&token()), Some(Identity::Operator));
    });
}

/// Imports fill all places of the pool, and the first waits for the registry: whoever holds it gets a connection. One
/// into a study does not wait for who holds it and waits for the study.
#[test]
fn imports_do_not_lock_out_whoever_they_wait_for() {
    with_servers(1, async |servers| {
        let store = &servers.stores[0];
        let from = create(store, &json!({})).await;
        store.submit(&from, vec![report(&from, 1)]).await.unwrap();
        let export = || VerifiedExport::read(store.export(&from).unwrap()).unwrap();
        let registry = fleet(store).inner.registry.lock().await;
        let mut imports = JoinSet::new();
        for number in 0..8 {
            let (mut export, store) = (export(), store.clone());
            export.id = StudyId([number; 16]);
            imports.spawn(async move { store.import(export, None).await.unwrap().reports });
        }
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                       AND state = 'idle in transaction' AND query LIKE 'SELECT sum(n)%'";
        servers.until(waiting, "1").await;
        let session = timeout(Duration::from_secs(30), fleet(store).inner.pool.begin()).await;
        assert!(session.is_ok(), "it waits for those who wait for it");
        drop((session, registry));
        assert_eq!(imports.join_all().await, [1; 8]);
        servers.sql(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql
             AS 'BEGIN PERFORM public.hold_until_waited_for(); RETURN NULL; END';
             CREATE TRIGGER slow BEFORE INSERT ON eigenveil.identifiers EXECUTE FUNCTION slow()",
        );
        let into = create(store, &json!({})).await;
        let closes = async {
            servers.until(SLEEPS, "1").await;
            store.set_state(&into, StudyState::Closed).await
        };
        let (imported, closed) =
            tokio::join!(store.import(export(), Some(Arc::clone(&into))), closes);
        assert_eq!((imported.unwrap().reports, closed), (1, Ok(())));
    });
}

/// One file comes many times at once, more often than a server has connections: one import waits for the other, longer
/// than anything else waits for a lock.
#[test]
fn an_import_waits_for_the_same_one() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let servers = Servers::start(&cluster, 2);
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig::new(directory.path().join("data"));
    let embedded = Store::open(&config, Environment::system()).unwrap();
    Runtime::new().unwrap().block_on(async {
        let from = create(&embedded, &json!({})).await;
        embedded.submit(&from, vec![report(&from, 1)]).await.unwrap();
        let into = create(&servers.stores[0], &json!({})).await;
        let into = servers.everywhere(&into).await;
        servers.sql(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(6); RETURN NULL; END';
             CREATE TRIGGER slow BEFORE INSERT ON eigenveil.identifiers EXECUTE FUNCTION slow()",
        );
        let (mut new, mut merged) = (JoinSet::new(), JoinSet::new());
        for (store, into) in servers.stores.iter().zip(into) {
            for (imports, into, times) in [(&mut new, None, 9), (&mut merged, Some(into), 1)] {
                for _ in 0..times {
                    let export = VerifiedExport::read(embedded.export(&from).unwrap()).unwrap();
                    let (store, into) = (store.clone(), into.clone());
                    imports.spawn(async move { store.import(export, into).await.unwrap().outcome });
                }
            }
        }
        use ImportOutcome::{AlreadyImported, Created, Merged};
        for (imports, one) in [(new, Created), (merged, Merged)] {
            let mut outcomes = imports.join_all().await;
            outcomes.retain(|outcome| *outcome != AlreadyImported);
            assert_eq!(outcomes, [one]);
        }
    });
}

/// A server is told what another one creates; and what that deletes, this one imports at once, whatever it remembers.
#[test]
fn a_study_that_one_server_deletes_another_imports_at_once() {
    with_servers(2, async |servers| {
        let [first, second] = [&servers.stores[0], &servers.stores[1]];
        let (told, heard) = std::sync::mpsc::channel();
        second.listen(move |notice| told.send(notice).unwrap());
        let study = create(first, &json!({"draft": true})).await;
        servers.everywhere(&study).await;
        assert_eq!(heard.recv(), Ok(Notice::StudiesChanged));
        let export = VerifiedExport::read(first.export(&study).unwrap()).unwrap();
        first.delete_study(&study).await.unwrap();
        let again = second.import(export, None).await.unwrap();
        assert_eq!(again.outcome, ImportOutcome::Created);
        refresh(second);
        assert_eq!(second.study(study.id()).unwrap().key, again.study.key);
    });
}

/// Beside a newer program: its jobs are left to it, and while one of its studies cannot be read, revoked tokens are
/// refused all the same.
#[test]
fn what_a_newer_program_stores_holds_nothing_up() {
    with_servers(2, async |servers| {
        let [first, second] = [&servers.stores[0], &servers.stores[1]];
        let study = create(first, &json!({})).await;
        for _ in 0..2 {
            first
                .add_job(&study, EstimateRequest::default())
                .await
                .unwrap();
        }
        servers
            .sql("UPDATE eigenveil.estimates SET request = '{\"unheard_of\": 1}' WHERE number = 1");
        let (_, job) = first.claim_job().unwrap().unwrap();
        let number = servers.sql(&format!(
            "SELECT number FROM eigenveil.estimates WHERE job = {}",
            job.id
        ));
        assert_eq!(number, "2");
        assert!(first.claim_job().unwrap().is_none());
        assert!(first.estimates(&study).is_err() && !first.is_damaged());

        let (id, hash) = analyst(first, None).await.unwrap();
        eventually(async || second.identify_hash(&hash)).await;
        servers.sql(
            "INSERT INTO eigenveil.studies (id, name, state, canonical, fingerprint, buckets, enrolment, created_at_ms)
             VALUES (decode(repeat('ab', 16), 'hex'), 'newer', 'open', '\x0102', decode(repeat('00', 32), 'hex'), 1, 'open', 0)",
        );
        eventually(async || second.check_writable().await.err()).await;
        first.revoke_analyst_token(&id).await.unwrap();
        eventually(async || second.identify_hash(&hash).is_none().then_some(())).await;
    });
}

/// The database's clock decides, also before a report reaches it.
#[test]
fn a_server_whose_clock_is_wrong_asks_the_databases() {
    with_servers(0, async |servers| {
        let environment = Environment {
            clock: SetClock::new(),
            ..Environment::system()
        };
        let store = Store::open(&servers.config, environment).unwrap();
        let design = json!({
            "name": "test", "dimension": 3, "epsilon": 1.0, "about": {"last_day": "2023-12-31"},
        });
        let design = serde_json::from_value(design).unwrap();
        let refused = store.create_study(design).await.unwrap_err();
        assert_eq!(refused.code(), ErrorCode::InvalidNotice);
    });
}

/// A server that gets no connection for reports is not ready, though it has one for all else.
#[test]
fn without_connections_for_reports_it_is_not_ready() {
    with_servers(0, async |servers| {
        servers.sql(
            "CREATE ROLE few LOGIN; GRANT USAGE ON SCHEMA eigenveil TO few; GRANT ALL ON ALL TABLES IN SCHEMA eigenveil TO few",
        );
        let url = servers.url().replace("postgres@", "few@");
        let config = StoreConfig {
            database: Some(url.parse().unwrap()),
            ..servers.config.clone()
        };
        let store = Store::open(&config, Environment::system()).unwrap();
        let study = create(&store, &of_seeds()).await;
        servers.sql("ALTER ROLE few CONNECTION LIMIT 1");
        let send = || store.submit(&study, vec![report(&study, 1)]);
        assert_eq!(
            send().await.unwrap_err().code(),
            ErrorCode::StoreUnavailable
        );
        for _ in 0..30 {
            assert!(store.check_writable().await.is_err());
            sleep(Duration::from_millis(100)).await;
        }
        servers.sql("ALTER ROLE few CONNECTION LIMIT -1");
        eventually(async || store.check_writable().await.ok()).await;
        assert_eq!(send().await.unwrap(), [SubmitOutcome::Accepted]);
        drop(store);
        servers.sql("DROP OWNED BY few; DROP ROLE few");
    });
}

/// A client that has stopped reads no answer; its transaction ends all the same.
#[test]
fn a_stopped_client_holds_no_identifiers() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let servers = Servers::start(&cluster, 0);
    let target = Target::new(&servers.url().parse().unwrap()).unwrap();
    // Of one thread: what it does not wait for stands still.
    let stopped = Builder::new_current_thread().enable_all().build().unwrap();
    let ids: Vec<Vec<u8>> = (0..50_000_u128)
        .map(|id| id.to_be_bytes().to_vec())
        .collect();
    let mut unread = None;
    stopped.block_on(async {
        let client = target.connect_to_commit().await.unwrap();
        let take = client.prepare(statements::TAKE).await.unwrap();
        client.batch_execute("BEGIN").await.unwrap();
        let studies = vec![1_i64; ids.len()];
        let mut query = Box::pin(async move { client.query(&take, &[&studies, &ids]).await.map(drop) });
        // Until all of it is sent.
        let inserts = "SELECT count(*) FROM pg_locks JOIN pg_class c ON relation = c.oid JOIN pg_database d ON database = d.oid
                       WHERE relname = 'identifiers' AND mode = 'RowExclusiveLock' AND datname = current_database()";
        while servers.sql(inserts) == "0" {
            let _ = timeout(Duration::from_millis(5), &mut query).await;
        }
        unread = Some(query);
    });
    let held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL
                AND pid != pg_backend_pid()";
    Runtime::new().unwrap().block_on(servers.until(held, "0"));
    drop(unread);
}

/// A copy that comes after the last day, while its original waits for the standby, is not told that it came too late.
#[test]
fn a_copy_after_the_last_day_waits_for_its_original() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    let servers = Servers::start(&cluster, 1);
    let store = &servers.stores[0];
    let set = |standbys: &str| cluster.set("synchronous_standby_names", standbys);
    Runtime::new().unwrap().block_on(async {
        let study = create(store, &of_seeds()).await;
        servers.sql("UPDATE eigenveil.buckets SET until = '2100-01-01'");
        set("nobody");
        let send = || {
            let (store, study) = (store.clone(), Arc::clone(&study));
            tokio::spawn(async move { store.submit(&study, vec![report(&study, 1)]).await })
        };
        let original = send();
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        servers.until(waiting, "1").await;
        servers.sql(
            "SET synchronous_commit = local; CREATE OR REPLACE FUNCTION eigenveil.moment() RETURNS timestamptz
             LANGUAGE sql VOLATILE AS 'SELECT timestamptz ''2100-01-02'''",
        );
        let copy = send();
        sleep(Duration::from_millis(500)).await;
        assert!(!copy.is_finished());
        set("");
        assert_eq!(original.await.unwrap().unwrap(), [SubmitOutcome::Accepted]);
        assert_eq!(copy.await.unwrap().unwrap(), [SubmitOutcome::Duplicate]);
    });
}

/// A device believes for ever that its token is spent: that is told of what was seen, also where it was waited for.
#[test]
fn a_token_that_was_waited_for_is_looked_up_again() {
    with_servers(1, async |servers| {
        let store = &servers.stores[0];
        let study = create(store, &json!({"enrolment": "token"})).await;
        let tokens = admissions(store, &study, 1).await;
        let send = || store.submit(&study, vec![numbered(&study, 1).admitted_by(&tokens[0])]);
        let set = |spent: u8| format!("UPDATE eigenveil.tokens SET spent = {spent}");
        let held_by = async |ends: &str| {
            let held = servers
                .hold(&format!(
                    "BEGIN; {}; SELECT hold_until_waited_for(); {ends}",
                    set(1)
                ))
                .await;
            let sent = send().await;
            held.await.unwrap();
            sent
        };
        let spent = SubmitOutcome::NotAdmitted(ErrorCode::TokenSpent);
        assert_eq!(held_by("COMMIT").await.unwrap(), [spent]);
        servers.sql(&set(0));
        // Of a study that was deleted meanwhile, say.
        let gone = servers.sql("SELECT key FROM eigenveil.tokens");
        let sent = held_by("DELETE FROM eigenveil.tokens; COMMIT").await;
        assert_eq!(sent.unwrap_err().code(), ErrorCode::StoreUnavailable);
        servers.sql(&format!(
            "INSERT INTO eigenveil.tokens VALUES ({}, '{gone}')",
            study.key.0
        ));
        // It is not written, and nobody says so.
        servers.sql(
            "CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
             CREATE TRIGGER skip BEFORE UPDATE ON eigenveil.tokens FOR EACH ROW EXECUTE FUNCTION skip()",
        );
        assert_eq!(
            send().await.unwrap_err().code(),
            ErrorCode::StoreUnavailable
        );
        servers.sql("DROP FUNCTION skip() CASCADE");
        eventually(async || store.check_writable().await.ok()).await;
        let sent = held_by(&format!("{}; COMMIT", set(0))).await;
        assert_eq!(sent.unwrap(), [SubmitOutcome::Accepted]);
    });
}

/// An alert about a database that is away needs metrics that say so.
#[test]
fn metrics_are_read_while_the_database_is_away() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    let servers = Servers::start(&cluster, 1);
    let store = &servers.stores[0];
    store.measure().unwrap();
    assert_eq!(store.counters().store_healthy.get(), 1);
    cluster.kill();
    // The child processes notice within moments, and answer until then.
    let begun = Instant::now();
    while store.counters().store_healthy.get() == 1 {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
        store.measure().unwrap();
    }
}
