//! A study as a device fetches it: what is believed of it, and what it may ask for.

use std::time::Duration;

use eigenveil_client::http::{HttpSettings, RetryPolicy, StudyClient};
use eigenveil_shared::{ErrorCode, mechanism::MechanismKind};

use crate::{
    common::{STUDY, assert_says, params, params_of},
    server::{NEVER, Reply, Server, closed_port, document, http, ms, study_server},
};

fn client(address: &str) -> StudyClient {
    StudyClient::with_settings(address, &http()).unwrap()
}

#[tokio::test]
async fn a_study_is_checked_before_it_is_believed() {
    let honest = params_of(MechanismKind::IsotropicGaussian, 1.0);
    let fetch = |document: eigenveil_shared::api::StudyDocument| async move {
        let server = Server::start(move |_| Reply::json(200, &document)).await;
        client(&server.address).fetch_study(STUDY).await
    };
    let study = fetch(document(&honest)).await.unwrap();
    assert_eq!(study.params().rows().unwrap(), &honest);
    assert_eq!(study.fingerprint(), honest.fingerprint());
    assert_eq!((study.id(), study.name()), (STUDY, Some("A study")));

    // What only describes the parameters is worked out again.
    let mut embellished = document(&honest);
    embellished.params = params(2.0).into();
    embellished.privacy.true_delta = 0.0;
    embellished.privacy.sentence = "Perfectly safe.".to_owned();
    let study = fetch(embellished).await.unwrap();
    assert_eq!(study.params().rows().unwrap(), &honest);
    assert_eq!(study.privacy(), document(&honest).privacy);

    // (What else is wrong with a document: `exchange.rs`.)
    let mut another = document(&honest);
    another.id = "ffff".into();
    assert_says(fetch(another).await.unwrap_err(), &["another study"]);
}

#[tokio::test]
async fn a_study_is_fetched_by_its_identifier() {
    let (server, _) = study_server(&params(1.0), |_, _, _| None).await;
    let client = client(&server.address);
    let pinned = params(1.0).fingerprint();
    assert!(client.fetch_study_pinned(STUDY, pinned).await.is_ok());
    let error = client.fetch_study("0000").await.unwrap_err();
    assert_eq!(
        (error.code(), error.status()),
        (Some(ErrorCode::NotFound), Some(404))
    );
    // An identifier cannot reach another route.
    client.fetch_study("../studies/x?y#z").await.unwrap_err();
    let line = server.requests().last().unwrap().line.clone();
    assert_eq!(line, "GET /v1/studies/..%2Fstudies%2Fx%3Fy%23z HTTP/1.1");
}

#[tokio::test]
async fn answers_of_other_programs_give_a_clear_sentence() {
    type Answer = fn() -> Reply;
    let cases: [(Answer, bool, &str); 5] = [
        (
            // No length is announced: it ends with the connection.
            || {
                let mut bytes =
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n".to_vec();
                bytes.resize(3_000, b' ');
                Reply::Raw(bytes)
            },
            false,
            "larger than 2000 bytes",
        ),
        (
            || Reply::Raw(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
            true,
            "no HTTP response from",
        ),
        (|| Reply::Drop, true, "no HTTP response from"),
        (
            || Reply::json(200, &"x".repeat(3_000)),
            false,
            "larger than 2000 bytes",
        ),
        (
            || Reply::After(NEVER, Box::new(Reply::Drop)),
            true,
            "within 0.4 s",
        ),
    ];
    for (answer, retryable, says) in cases {
        let server = Server::start(move |_| answer()).await;
        let settings = HttpSettings {
            max_response_bytes: 2_000,
            // So little for the silent one alone: a busy machine may take longer over the others.
            request_timeout: if says.starts_with("within") {
                ms(400)
            } else {
                Duration::from_secs(60)
            },
            retry: RetryPolicy::never(),
            ..http()
        };
        let client = StudyClient::with_settings(&server.address, &settings).unwrap();
        let error = client.fetch_study(STUDY).await.unwrap_err();
        assert_says(&error, &[says, &server.address]);
        assert_eq!(error.is_retryable(), retryable, "{error}");
    }
    let (_socket, closed) = closed_port();
    let error = client(&closed).fetch_study(STUDY).await.unwrap_err();
    let cannot = format!("cannot connect to {closed}");
    assert_says(error, &[&cannot, "after 6 attempts"]);
}
