//! Identifiers of large commits: logged first, indexed later, known all the time.

use axum::http::StatusCode;
use eigenveil_server::store::database_path;
use eigenveil_shared::{
    api::{BatchReceipt, StudyDocument},
    codec,
    report::ReportId,
};
use rusqlite::Connection;
use serde_json::json;

use crate::common::{Harness, patience::until, shape};

const BATCH: u64 = 10_000;
const BATCHES: u64 = 16;

/// Identifiers of one minute, as devices draw them: in no order.
fn batch(study: &StudyDocument, number: u64) -> Vec<u8> {
    let reports: Vec<(ReportId, [u8; 16])> = (number * BATCH..(number + 1) * BATCH)
        .map(|at| {
            let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            let mut random = [0; 16];
            random[4..12].copy_from_slice(&mixed);
            random[12..].copy_from_slice(&(at as u32).to_be_bytes());
            let seed = (u128::from(at) << 64).to_le_bytes();
            (ReportId::from_parts(1_700_000_000_000, random), seed)
        })
        .collect();
    let pairs = reports.iter().map(|(id, seed)| (*id, seed.as_slice()));
    codec::encode_batch(&shape(study), pairs).unwrap()
}

async fn send(server: &Harness, study: &StudyDocument, number: u64) -> (u64, u64) {
    let answer = server.post_batch(study, batch(study, number)).await;
    let receipt: BatchReceipt = answer.json();
    assert!(receipt.refused.is_empty());
    (receipt.accepted, receipt.duplicates)
}

/// Identifiers that are in the index, in the log, and in its sorted pieces.
fn places(server: &Harness) -> (u64, u64, u64) {
    Connection::open(database_path(&server.config.data_dir))
        .unwrap()
        .query_row(
            "SELECT (SELECT count(*) FROM report_ids),
                    (SELECT total(length(ids)) / 16 FROM recent_ids WHERE NOT sorted),
                    (SELECT total(length(ids)) / 16 FROM recent_ids WHERE sorted)",
            [],
            |row| {
                let number = |at| row.get(at).map(|x: f64| x as u64);
                Ok((row.get(0)?, number(1)?, number(2)?))
            },
        )
        .unwrap()
}

/// More reports than the log holds, every batch sent again later, the server killed in between: each is counted once
/// wherever its identifier lies, and an export has them all.
#[tokio::test]
async fn reports_are_counted_once_wherever_their_identifiers_lie() {
    let mut server = Harness::new();
    let study = server
        .study_with(
            json!({"mechanism": "double-cap", "delta": null, "epsilon": 4.0, "dimension": 5}),
        )
        .await;
    let (mut logged, mut sorted) = (0, 0);
    for number in 0..BATCHES {
        assert_eq!(send(&server, &study, number).await, (BATCH, 0));
        if number % 5 == 4 {
            server = server.restart();
        }
        assert_eq!(send(&server, &study, number / 2).await, (0, BATCH));
        let (in_index, in_log, in_pieces) = places(&server);
        assert_eq!(in_index + in_log + in_pieces, (number + 1) * BATCH);
        logged = logged.max(in_log);
        sorted = sorted.max(in_pieces);
    }
    assert!(logged > 50_000 && sorted > 50_000, "{logged} {sorted}");
    assert!(logged + sorted < 150_000, "{logged} {sorted}");

    // What is exported is everything: in another store nothing of it is new.
    let export = server
        .operator("GET", &format!("/v1/studies/{}/export", study.id), None)
        .await;
    assert_eq!(export.status, StatusCode::OK);
    let other = Harness::new();
    let file = export.body.clone();
    let imported = other.import(None, file).await;
    assert_eq!(imported.status, StatusCode::CREATED, "{imported:?}");
    assert_eq!(other.accepted(&study).await, BATCHES * BATCH);
    for number in 0..BATCHES {
        assert_eq!(send(&other, &study, number).await, (0, BATCH));
        assert_eq!(send(&server, &study, number).await, (0, BATCH));
    }
    // Merging it back would count it twice.
    let again = server.import(None, export.body).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert_eq!(server.accepted(&study).await, BATCHES * BATCH);

    // Soon after the study is closed nothing shows any more which identifiers came together.
    server
        .operator("POST", &format!("/v1/studies/{}/close", study.id), None)
        .await;
    let all = (BATCHES * BATCH, 0, 0);
    until("only single reports are left", async || {
        places(&server) == all
    })
    .await;
    assert_eq!(send(&server, &study, 3).await, (0, BATCH));
}
