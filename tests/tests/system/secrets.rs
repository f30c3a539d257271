//! No token's text, and none of its bytes, in logs at trace level, in answers or in the database.

use std::path::Path;

use axum::http::StatusCode;
use eigenveil_client::http::{AnalystClient, StudyClient, Token};
use eigenveil_shared::{
    api::CreateAnalyst,
    codec,
    enrolment::{
        ENROLLED_BATCH_MEDIA_TYPE, ENROLLED_REPORT_MEDIA_TYPE, ParticipantToken, with_token,
        with_tokens,
    },
    preprocess::Row,
    study::{from_hex, to_hex},
};

use crate::program::{self, ServerProcess};

/// The forms in which a token could be found.
struct Secret {
    whose: &'static str,
    text: String,
    bytes: Vec<u8>,
}

impl Secret {
    fn new(whose: &'static str, text: &str) -> Self {
        Self {
            whose,
            text: text.to_owned(),
            bytes: from_hex(text).unwrap(),
        }
    }

    /// Whether there is a trace of it: half of it counts.
    fn is_in(&self, haystack: &[u8]) -> bool {
        let lower = haystack.to_ascii_lowercase();
        let half = &self.text.as_bytes()[..self.text.len() / 2];
        let bytes = &self.bytes[..self.bytes.len() / 2];
        contains(&lower, half) || contains(haystack, bytes)
    }
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

/// Every file of the data directory but the operator's token.
fn files_of(data: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name != "operator.token" {
            files.push((name, std::fs::read(&path).unwrap()));
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_leave_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let traced = || {
        let mut program = program::program();
        program.env("RUST_LOG", "trace");
        program
    };
    let listen = ["--listen", "127.0.0.1:0"];
    let mut server = ServerProcess::start_logged(traced, &data, &listen, &log);
    let id = server.create_study(&["--p", "4", "--epsilon", "4", "--enrolment", "token"]);
    let first = Token::from_file(server.token_file()).unwrap();
    let operator = AnalystClient::new(&server.url, &first).unwrap();
    let tokens = operator.issue_tokens(&id, 6).await.unwrap();
    let analyst = operator
        .create_token(&CreateAnalyst {
            name: "alice".into(),
            study: None,
        })
        .await
        .unwrap();
    let study = StudyClient::new(&server.url)
        .unwrap()
        .fetch_study(&id)
        .await
        .unwrap();

    // What is right and what is wrong with reports; each answer is read too.
    let mut answers: Vec<u8> = Vec::new();
    let stranger = ParticipantToken::from_bytes([0x5a; 32]);
    let wire = || {
        let report = study.participant().report(&Row::new(vec![1.0; 4])).unwrap();
        let report = report.into_report();
        (
            report.id,
            report.payload.clone(),
            codec::encode_report(&report),
        )
    };
    let http = reqwest::Client::new();
    let url = format!("{}/v1/studies/{id}/reports", server.url);
    let (one, two) = (wire(), wire());
    let pairs = [(one.0, &one.1[..]), (two.0, &two.1[..])];
    let batch = codec::encode_batch(&codec::StudyShape::new(study.params()), pairs).unwrap();
    let posts = [
        (
            ENROLLED_REPORT_MEDIA_TYPE,
            with_token(&tokens[0], &wire().2),
            201,
        ),
        (
            ENROLLED_REPORT_MEDIA_TYPE,
            with_token(&tokens[0], &wire().2),
            409,
        ),
        (
            ENROLLED_REPORT_MEDIA_TYPE,
            with_token(&stranger, &wire().2),
            403,
        ),
        (
            ENROLLED_REPORT_MEDIA_TYPE,
            with_token(&tokens[1], &[1, 2, 3]),
            400,
        ),
        (
            ENROLLED_BATCH_MEDIA_TYPE,
            with_tokens(&[&tokens[2], &stranger], &batch),
            200,
        ),
        (
            ENROLLED_BATCH_MEDIA_TYPE,
            with_tokens(&[&tokens[3]], &batch),
            400,
        ),
        // A token where a report should be.
        (codec_media_type(), with_token(&tokens[4], &[]), 400),
        ("text/plain", tokens[5].reveal().into_bytes(), 415),
    ];
    for (media_type, body, status) in posts {
        let request = http
            .post(&url)
            .header("content-type", media_type)
            .body(body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status);
        answers.extend(response.bytes().await.unwrap());
    }
    // Tokens in the wrong place: as bearers, in JSON, in the path.
    let participant = tokens[0].reveal();
    let get = |path: &str, bearer: &str| {
        http.get(format!("{}{path}", server.url))
            .bearer_auth(bearer)
            .send()
    };
    for (path, bearer, status) in [
        ("/v1/tokens", participant.as_str(), StatusCode::FORBIDDEN),
        ("/v1/tokens", analyst.token.as_str(), StatusCode::FORBIDDEN),
        (
            &format!("/v1/studies/{id}/estimates"),
            &analyst.token,
            StatusCode::OK,
        ),
        (
            &format!("/v1/studies/{participant}"),
            "x",
            StatusCode::FORBIDDEN,
        ),
        (
            &format!("/v1/{participant}?token={participant}"),
            "x",
            StatusCode::NOT_FOUND,
        ),
    ] {
        let response = get(path, bearer).await.unwrap();
        assert_eq!(response.status(), status, "{status}");
        answers.extend(response.bytes().await.unwrap());
    }
    for path in ["/metrics", "/openapi.json", "/readyz", "/v1/studies"] {
        let response = http.get(format!("{}{path}", server.url)).send().await;
        answers.extend(response.unwrap().bytes().await.unwrap());
    }
    let listed = get("/v1/tokens", first.reveal()).await.unwrap();
    assert_eq!(listed.status(), StatusCode::OK);
    answers.extend(listed.bytes().await.unwrap());
    let revoke = format!("{}/v1/tokens/{}", server.url, analyst.token);
    let revoked = http.delete(revoke).bearer_auth(first.reveal()).send().await;
    assert_eq!(revoked.unwrap().status(), StatusCode::NOT_FOUND);
    let second = operator.rotate_token().await.unwrap();

    let mut secrets = vec![
        Secret::new("the operator's first", first.reveal()),
        Secret::new("the operator's second", second.reveal()),
        Secret::new("the analyst's", &analyst.token),
        Secret::new("a stranger's", &stranger.reveal()),
    ];
    secrets.extend(
        tokens
            .iter()
            .map(|token| Secret::new("a participant's", &token.reveal())),
    );
    // The log in use, and the database with its own log, before and after the server has stopped.
    let mut places = vec![("an answer".to_owned(), answers)];
    places.extend(files_of(&data));
    assert!(server.stop());
    places.extend(files_of(&data));
    let logged = std::fs::read(&log).unwrap();
    places.push(("the log".to_owned(), logged.clone()));
    places.push((
        "Debug".to_owned(),
        format!("{first:?} {analyst:?} {tokens:?} {operator:?} {stranger:?}").into_bytes(),
    ));
    for secret in &secrets {
        for (place, bytes) in &places {
            assert!(
                !secret.is_in(bytes),
                "the token that is {} is in {place}",
                secret.whose
            );
        }
    }
    // The search finds what is there: lines at trace level, and hashes in the database.
    let log = String::from_utf8(logged).unwrap();
    assert!(
        log.contains("DEBUG") && log.contains("/v1/studies/{id}/reports"),
        "{log}"
    );
    assert!(log.contains("operator token rotated"));
    let (name, _) = &places[1];
    assert!(places.len() >= 6, "{name}");
    let hash = Secret::new("hash", &to_hex(&tokens[0].digest()));
    assert!(places.iter().any(|(_, bytes)| hash.is_in(bytes)));
}

fn codec_media_type() -> &'static str {
    eigenveil_shared::api::REPORT_MEDIA_TYPE
}
