//! One-time participant tokens over HTTP, and what the store has of them. (Which report a token admits:
//! `store/src/contract/decide.rs`.)

use std::collections::HashSet;

use axum::http::StatusCode;
use eigenveil_shared::{
    ErrorCode as E,
    api::{BatchResponse, IssueTokensResponse, StudyDocument, TokenCounts},
    enrolment::{
        ENROLLED_BATCH_MEDIA_TYPE, ENROLLED_REPORT_MEDIA_TYPE, Enrolment, ParticipantToken,
    },
    report::ReportId,
};
use rand::{SeedableRng, rngs::ChaCha8Rng, seq::SliceRandom};
use serde_json::json;

use crate::common::{
    Harness, Reply, at, batch, new_id, report, waiting::until, with_token, with_tokens,
};

async fn token_study(server: &Harness) -> StudyDocument {
    let study = server.study_with(json!({ "enrolment": "token" })).await;
    assert_eq!(study.enrolment, Enrolment::Token);
    study
}

async fn issue(server: &Harness, study: &StudyDocument, count: usize) -> Vec<ParticipantToken> {
    let path = at(study, "/tokens");
    let response = server.tell(&path, json!({ "count": count })).await;
    assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
    assert_eq!(response.headers["cache-control"], "no-store");
    let issued: IssueTokensResponse = response.json();
    assert!(!format!("{issued:?}").contains(&issued.tokens[0]));
    issued
        .tokens
        .iter()
        .map(|text| ParticipantToken::parse(text).unwrap())
        .collect()
}

async fn counts(server: &Harness, study: &StudyDocument) -> (u64, u64) {
    let path = at(study, "/tokens");
    let counts: TokenCounts = server.read(&path).await.json();
    (counts.issued, counts.spent)
}

async fn send(
    server: &Harness,
    study: &StudyDocument,
    id: ReportId,
    token: &ParticipantToken,
) -> Reply {
    let path = at(study, "/reports");
    let body = with_token(token, report(study, id, 1.0));
    server.post(&path, ENROLLED_REPORT_MEDIA_TYPE, body).await
}

#[tokio::test]
async fn a_batch_needs_a_token_for_each_report() {
    let server = Harness::new();
    let study = token_study(&server).await;
    let tokens = issue(&server, &study, 3).await;
    let path = at(&study, "/reports");
    let ids: Vec<ReportId> = (0..5).map(|_| new_id()).collect();
    let unknown = ParticipantToken::from_bytes([9; 32]);
    let reports = [
        (ids[0], 1.0),
        (ids[1], f32::NAN),
        (ids[2], 1.0),
        (ids[3], 1.0),
        (ids[0], 1.0),
        (ids[4], 1.0),
    ];
    // The second token stays with its malformed report; the first is tried twice.
    let with = [
        &tokens[0], &tokens[1], &tokens[0], &unknown, &tokens[0], &tokens[2],
    ];
    let body = with_tokens(&with, batch(&study, &reports));
    let response = server.post(&path, ENROLLED_BATCH_MEDIA_TYPE, body).await;
    let receipt: BatchResponse = response.json();
    assert_eq!((receipt.accepted, receipt.duplicates), (2, 1));
    let refused: Vec<_> = receipt.refused.iter().map(|r| (r.index, r.code)).collect();
    assert_eq!(
        refused,
        [
            (1, E::PayloadNotFinite),
            (2, E::TokenSpent),
            (3, E::ParticipantTokenUnknown)
        ]
    );
    assert_eq!(counts(&server, &study).await, (3, 2));
    // One token too few, one too many, and half a token.
    let one = batch(&study, &[(ids[1], 1.0)]);
    for tokens in [&[][..], &[&tokens[1], &tokens[2]]] {
        let response = server
            .post(
                &path,
                ENROLLED_BATCH_MEDIA_TYPE,
                with_tokens(tokens, one.clone()),
            )
            .await;
        response.is_problem(400, E::MalformedReport);
    }
    server
        .post(&path, ENROLLED_REPORT_MEDIA_TYPE, vec![1; 31])
        .await
        .is_problem(400, E::MalformedReport);
    assert_eq!(server.accepted(&study).await, 2);
    assert_eq!(counts(&server, &study).await, (3, 2));
}

#[tokio::test]
async fn tokens_are_issued_only_for_studies_that_use_them() {
    let server = Harness::new();
    let open = server.study(3).await;
    let path = at(&open, "/tokens");
    let response = server.tell(&path, json!({ "count": 1 })).await;
    response.is_problem(409, E::InvalidTransition);
    let study = token_study(&server).await;
    let path = at(&study, "/tokens");
    for count in [0, 100_001] {
        let asked = Some(json!({ "count": count }));
        let response = server.operator("POST", &path, asked).await;
        response.is_problem(422, E::InvalidRequest);
    }
    assert_eq!(counts(&server, &study).await, (0, 0));
    let tokens = issue(&server, &study, 1_000).await;
    let distinct: HashSet<String> = tokens.iter().map(ParticipantToken::reveal).collect();
    assert_eq!(distinct.len(), 1_000);
    server.close(&study).await;
    let response = server.tell(&path, json!({ "count": 1 })).await;
    response.is_problem(409, E::InvalidTransition);
}

/// An exported study keeps its enrolment, without its tokens.
#[tokio::test]
async fn exports_omit_participant_tokens() {
    let server = Harness::new();
    let study = token_study(&server).await;
    let tokens = issue(&server, &study, 2).await;
    let id = new_id();
    assert_eq!(send(&server, &study, id, &tokens[0]).await.status, 201);
    let export = server.export(&study).await;
    // Whoever sent reports to an open study may have sent several.
    let open = server.study(3).await;
    let of_anybody = server.export(&open).await;
    let merged = server.import(Some(&study.id), of_anybody).await;
    merged.is_problem(409, E::InvalidTransition);
    let other = Harness::new();
    assert_eq!(other.import(None, export).await.status, 201);
    let there: StudyDocument = other.get(&at(&study, "")).await.json();
    assert_eq!(there.enrolment, Enrolment::Token);
    assert_eq!(counts(&other, &study).await, (0, 0));
    assert_eq!(send(&other, &study, id, &tokens[0]).await.status, 200);
    let response = send(&other, &study, new_id(), &tokens[1]).await;
    response.is_problem(403, E::ParticipantTokenUnknown);
    let new = issue(&other, &study, 1).await;
    assert_eq!(send(&other, &study, new_id(), &new[0]).await.status, 201);
}

#[tokio::test]
async fn deleting_a_study_deletes_its_tokens() {
    let server = Harness::new();
    let study = token_study(&server).await;
    issue(&server, &study, 20).await;
    server.close(&study).await;
    let path = at(&study, "");
    assert_eq!(server.remove(&path).await.status, 204);
    let left = || server.column::<u64>("SELECT count(*) FROM participant_tokens");
    until("the tokens are gone", async || left() == [0]).await;
}

/// The stored tokens do not depend on which report came with which token.
#[tokio::test]
async fn nothing_stored_links_a_token_to_a_report() {
    const PARTICIPANTS: usize = 64;
    let server = Harness::new();
    let study = token_study(&server).await;
    let tokens = issue(&server, &study, 2 * PARTICIPANTS).await;
    let mut used: Vec<&ParticipantToken> = tokens.iter().take(PARTICIPANTS).collect();
    used.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
    for token in &used {
        assert_eq!(send(&server, &study, new_id(), token).await.status, 201);
    }
    let connection = server.database();
    let columns: Vec<String> =
        server.column("SELECT name FROM pragma_table_info('participant_tokens')");
    assert_eq!(columns, ["study_pk", "hash", "spent", "site", "max_rows"]);
    // Not even a hidden row id.
    assert!(
        connection
            .prepare("SELECT rowid FROM participant_tokens")
            .is_err()
    );
    // As stored: ordered by hash, with a bit.
    let stored: Vec<([u8; 32], bool)> = connection
        .prepare("SELECT hash, spent FROM participant_tokens")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut expected: Vec<([u8; 32], bool)> = tokens
        .iter()
        .map(|token| (token.digest(), used.contains(&token)))
        .collect();
    expected.sort_unstable();
    assert_eq!(stored, expected);
}
