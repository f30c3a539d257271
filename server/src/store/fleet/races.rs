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
