//! What servers, operators and the database do at the wrong moment.

use std::{sync::Arc, time::Duration};

use eigenveil_shared::{
    ErrorCode,
    api::{CreateAnalystRequest, EstimateRequest, EstimateState},
};
use serde_json::json;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    Fleet, append,
    connection::Target,
    tests::{Servers, eventually, numbered, of_seeds, postgres::Cluster},
};
use crate::{
    Environment, ServerConfig,
    jobs::EstimateQueue,
    store::{
        Store, Study, SubmitOutcome, TokenHash, VerifiedExport,
        engine::Engine,
        fixtures::{SetClock, create, report},
    },
};

fn fleet(store: &Store) -> &Fleet {
    let Engine::Fleet(fleet) = &store.shared.engine else {
        panic!("another engine");
    };
    fleet
}

async fn analyst(
    store: &Store,
    study: Option<&Study>,
) -> eigenveil_shared::Result<(String, TokenHash)> {
    let request = CreateAnalystRequest {
        name: "reader".to_owned(),
        study: study.map(|study| study.id().to_string()),
    };
    let made = store.create_analyst_token(request).await?;
    Ok((made.analyst.id, TokenHash::new(&made.token)))
}

/// Made while another server deletes its study, an analyst's token for it alone would be one for all.
#[test]
fn a_token_of_a_study_that_is_deleted_meanwhile_is_for_nothing() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let servers = Servers::start(&cluster, 2);
    let [first, second] = [&servers.stores[0], &servers.stores[1]];
    servers.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NULL; END';
         CREATE TRIGGER slow BEFORE INSERT ON eigenveil.analysts EXECUTE FUNCTION slow()",
    );
    Runtime::new().unwrap().block_on(async {
        let study = create(first, &json!({"draft": true})).await;
        let seen = servers.everywhere(&study).await;
        let deletes = async {
            let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
            eventually(async || (servers.sql(sleeps) == "1").then_some(())).await;
            second.delete_study(&seen[1]).await.unwrap();
        };
        let (made, ()) = tokio::join!(analyst(first, Some(&study)), deletes);
        let (_, hash) = made.unwrap();
        assert_eq!(servers.sql("SELECT count(*) FROM eigenveil.analysts"), "0");
        let of_all = analyst(first, None).await.unwrap().1;
        eventually(async || second.identify_hash(&of_all)).await;
        assert_eq!(second.identify_hash(&hash), None);
        // Nor does a row that was left read anything.
        servers.sql("UPDATE eigenveil.analysts SET study = 1000");
        eventually(async || second.identify_hash(&of_all).is_none().then_some(())).await;
    });
}

/// As many imports as the pool has places wait for the registry; whoever holds it gets a connection.
#[test]
fn imports_do_not_lock_out_whoever_they_wait_for() {
    let Some(cluster) = Cluster::shared() else {
        return;
    };
    let servers = Servers::start(&cluster, 1);
    let store = &servers.stores[0];
    Runtime::new().unwrap().block_on(async {
        let from = create(store, &json!({})).await;
        store.submit(&from, vec![report(&from, 1)]).await.unwrap();
        let mut into = Vec::new();
        for _ in 0..8 {
            into.push(create(store, &json!({})).await);
        }
        let shown = fleet(store).inner.registry.lock().await;
        let mut imports = JoinSet::new();
        for study in into {
            let export = VerifiedExport::read(store.export(&from).unwrap()).unwrap();
            let store = store.clone();
            imports.spawn(async move { store.import(export, Some(study)).await.unwrap().reports });
        }
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                       AND state = 'idle in transaction' AND query LIKE 'SELECT sum(n)%'";
        eventually(async || (servers.sql(waiting) == "8").then_some(())).await;
        let place = timeout(Duration::from_secs(5), fleet(store).inner.pool.begin()).await;
        assert!(place.is_ok(), "it waits for those who wait for it");
        drop((place, shown));
        assert_eq!(imports.join_all().await, [1; 8]);
    });
}
