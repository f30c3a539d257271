//! Ten thousand participants with a one-time token each, over a network that loses requests and answers.

use std::{path::Path, time::Duration};

use eigenveil_client::{
    Ledger, Outbox,
    http::{
        HttpSettings, RetryPolicy, StudyClient, UploadMode, UploadSettings, Uploader, send_owed,
    },
};
use eigenveil_estimation::Cancel;
use eigenveil_server::{Environment, ServerConfig, Store, StudyId};
use eigenveil_shared::{
    ErrorCode, api::ReportOutcome, enrolment::ParticipantToken, preprocess::Row,
};

use crate::{
    program::{ServerProcess, refused},
    proxy::Proxy,
};

const PARTICIPANTS: u64 = 10_000;

fn read_tokens(path: &Path) -> Vec<ParticipantToken> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| ParticipantToken::parse(line).unwrap())
        .collect()
}

fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_tokens_are_spent_once_though_answers_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = ServerProcess::start(&data);
    let id = server.create_study(&["--p", "8", "--epsilon", "4", "--enrolment", "token"]);
    let file = folder.path().join("tokens.txt");
    let made = server.cli_json(&[
        "study",
        "tokens",
        &id,
        "--json",
        "--count",
        "10000",
        "--out",
        file.to_str().unwrap(),
    ]);
    assert_eq!(made["count"], PARTICIPANTS);
    assert_eq!(mode_of(&file), 0o600);
    let tokens = read_tokens(&file);
    assert_eq!(tokens.len() as u64, PARTICIPANTS);

    let proxy = Proxy::losing(&server.url, 7).await;
    let client = StudyClient::new(&proxy.url).unwrap();
    let study = client.fetch_study(&id).await.unwrap();
    assert!(study.needs_tokens());
    let participant = study.participant();
    let mut outbox = Outbox::open(folder.path().join("outbox"), study.binding()).unwrap();
    let reports: Vec<_> = (0..PARTICIPANTS)
        .map(|number| {
            let row = (0..8).map(|j| ((number * 7 + j * 3) % 11) as f64).collect();
            (number, participant.report(&Row::new(row)).unwrap())
        })
        .collect();
    outbox
        .enqueue_batch(reports.iter().map(|(number, report)| (*number, report)))
        .unwrap();

    // Half of them one by one, the others in batches. Without tokens nothing is sent.
    let settings = |mode| UploadSettings {
        connections: 8,
        mode,
        retry: RetryPolicy {
            max_attempts: 30,
            first_delay: Duration::from_millis(1),
            max_delay: Duration::from_millis(20),
            ..RetryPolicy::patient()
        },
        ..UploadSettings::default()
    };
    let single = Uploader::new(&client, &study, settings(UploadMode::Single));
    let failure = single.drain(&mut outbox, |_| {}).await.unwrap_err();
    assert_eq!(failure.error.code(), Some(ErrorCode::TokenRequired));
    let half = (0..PARTICIPANTS / 2).zip(&tokens);
    assert_eq!(outbox.assign_tokens(half).unwrap(), 5_000);
    let failure = single.drain(&mut outbox, |_| {}).await.unwrap_err();
    assert_eq!(failure.error.code(), Some(ErrorCode::TokenRequired));
    assert_eq!(failure.summary.pending, PARTICIPANTS / 2);
    assert_eq!(
        failure.summary.accepted + failure.summary.duplicates,
        PARTICIPANTS / 2
    );
    // An answer that was lost makes a duplicate of the next attempt.
    assert!(failure.summary.duplicates > 500, "{failure:?}");
    outbox.assign_tokens((0..).zip(&tokens)).unwrap();
    let batches = UploadMode::Batch { reports: Some(37) };
    let summary = Uploader::new(&client, &study, settings(batches))
        .drain(&mut outbox, |_| {})
        .await
        .unwrap();
    assert_eq!(
        summary.accepted + summary.duplicates,
        PARTICIPANTS / 2,
        "{summary:?}"
    );
    assert_eq!((summary.pending, summary.refused), (0, 0));
    {
        let losses = proxy.losses.as_ref().unwrap().lock().unwrap();
        assert!(losses.answers > 1_000 && losses.requests > 500);
    }

    // Whoever finds a token that was used has no use for it; whoever sends his report again is told so.
    let direct = StudyClient::new(&server.url).unwrap();
    for (number, token) in tokens.iter().enumerate().step_by(100) {
        let own = reports[number].1.report();
        let again = direct
            .upload_one_with_token(&study, own, token)
            .await
            .unwrap();
        assert_eq!(again.outcome, ReportOutcome::Duplicate);
        let another = participant.report(&Row::new(vec![1.0; 8])).unwrap();
        let error = direct
            .upload_one_with_token(&study, another.report(), token)
            .await
            .unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::TokenSpent));
    }
    let counts = server.cli_json(&["study", "tokens", &id, "--json"]);
    assert_eq!(
        counts,
        serde_json::json!({ "issued": 10_000, "spent": 10_000 })
    );
    assert!(server.stop());
    let store = Store::open(&ServerConfig::new(&data), Environment::system()).unwrap();
    let study = store.study(StudyId::parse(&id).unwrap()).unwrap();
    assert_eq!(store.moment(&study, Cancel::NEVER).unwrap().n, PARTICIPANTS);
}

#[test]
fn rows_are_reported_with_tokens_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut server = ServerProcess::start(&folder.path().join("data"));
    let id = server.create_study(&["--p", "2", "--epsilon", "4", "--enrolment", "token"]);
    std::fs::write(path("rows.csv"), "1,2\n3,4\n5,6\n").unwrap();
    let rows = path("rows.csv");
    let report = |more: &[&str]| {
        let mut arguments = vec![
            "report", "--header", "no", "--json", "--study", &id, "--rows", &rows,
        ];
        arguments.extend(more);
        server.cli(&arguments)
    };
    refused(
        &report(&[]),
        1,
        &["[token-required]", "has none", "--tokens FILE"],
    );
    std::fs::write(path("few.txt"), format!("{}\n", "ab".repeat(32))).unwrap();
    refused(
        &report(&["--tokens", &path("few.txt")]),
        2,
        &["1 tokens for 3 rows"],
    );
    std::fs::write(path("bad.txt"), "not-a-token\n").unwrap();
    let bad = report(&["--tokens", &path("bad.txt")]);
    refused(&bad, 2, &["token 1", "64 hexadecimal digits"]);
    assert!(!String::from_utf8_lossy(&bad.stderr).contains("not-a-token"));
    // Tokens of another study are refused, and the right ones make it good.
    let other = server.create_study(&["--p", "2", "--epsilon", "4", "--enrolment", "token"]);
    for (study, out) in [(&other, "other.txt"), (&id, "tokens.txt")] {
        server.cli_json(&[
            "study",
            "tokens",
            study,
            "--json",
            "--count",
            "4",
            "--out",
            &path(out),
        ]);
    }
    refused_with_json(&report(&["--tokens", &path("other.txt")]), "token-unknown");
    let output = report(&["--tokens", &path("tokens.txt")]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Again, without naming the tokens.
    assert!(report(&[]).status.success());
    let counts = server.cli_json(&["study", "tokens", &id, "--json"]);
    assert_eq!(counts, serde_json::json!({ "issued": 4, "spent": 3 }));
    assert!(server.stop());
}

/// A device whose acknowledgement was lost sends the same report with the same token, and is told it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_keeps_its_token_with_its_report() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(&folder.path().join("data"));
    let id = server.create_study(&["--p", "2", "--epsilon", "1", "--enrolment", "token"]);
    let file = folder.path().join("tokens.txt");
    server.cli_json(&[
        "study",
        "tokens",
        &id,
        "--json",
        "--count",
        "2",
        "--out",
        file.to_str().unwrap(),
    ]);
    let tokens = read_tokens(&file);
    let study = StudyClient::new(&server.url)
        .unwrap()
        .fetch_study(&id)
        .await
        .unwrap();
    let row = Row::new(vec![1.0, 2.0]);
    let path = folder.path().join("device.ledger");
    let mut ledger = Ledger::open(&path).unwrap();
    ledger
        .take_part(&study.participant(), study.binding(), &row)
        .unwrap();
    // Without a token the report is still owed; the token of nobody is refused; the right one is taken.
    let settings = HttpSettings::default();
    let (sent, failures) = send_owed(&mut ledger, &settings).await.unwrap();
    assert_eq!((sent.pending, sent.refused), (1, 0));
    assert_eq!(failures[0].error.code(), Some(ErrorCode::TokenRequired));
    let nobodys = ParticipantToken::from_bytes([3; 32]);
    assert!(ledger.keep_token(&id, &nobodys).unwrap());
    let (sent, _) = send_owed(&mut ledger, &settings).await.unwrap();
    assert_eq!((sent.pending, sent.refused), (0, 1));
    assert!(ledger.keep_token(&id, &tokens[0]).unwrap());
    // As before the answer arrived.
    let owed = ledger.owed().unwrap().remove(0);
    let direct = StudyClient::new(&server.url).unwrap();
    direct
        .upload_one_with_token(&study, &owed.report, owed.token.as_ref().unwrap())
        .await
        .unwrap();
    let (sent, _) = send_owed(&mut ledger, &settings).await.unwrap();
    assert_eq!((sent.accepted, sent.duplicates, sent.pending), (0, 1, 0));
    let counts = server.cli_json(&["study", "tokens", &id, "--json"]);
    assert_eq!(counts, serde_json::json!({ "issued": 2, "spent": 1 }));
    assert!(server.stop());
}

#[track_caller]
fn refused_with_json(output: &std::process::Output, code: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(code), "{stderr}");
}

#[test]
fn analysts_and_rotation_from_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let data = folder.path().join("data");
    let mut server = ServerProcess::start(&data);
    let id = server.create_study(&["--p", "2", "--epsilon", "4"]);
    std::fs::write(path("rows.csv"), "1,2\n3,4\n5,6\n").unwrap();
    server.cli_json(&[
        "report",
        "--header",
        "no",
        "--json",
        "--study",
        &id,
        "--rows",
        &path("rows.csv"),
    ]);
    server.cli_json(&[
        "estimate",
        "--json",
        "--study",
        &id,
        "--k",
        "1",
        "--wait",
        "--out",
        &path("mine"),
    ]);
    let made = server.cli_json(&[
        "token",
        "create",
        "--json",
        "--name",
        "alice",
        "--study",
        &id,
        "--out",
        &path("alice"),
    ]);
    assert_eq!(mode_of(Path::new(&path("alice"))), 0o600);
    let listed = server.cli_json(&["token", "list", "--json"]);
    assert_eq!(listed["tokens"][0]["name"], "alice");
    assert_eq!(listed["tokens"][0]["study"], id.as_str());
    let alice = path("alice");
    let fetch = |server: &ServerProcess, out: &str| {
        server.cli(&[
            "estimate",
            "--json",
            "--study",
            &id,
            "--number",
            "1",
            "--wait",
            "--token-file",
            &alice,
            "--out",
            out,
        ])
    };
    assert!(fetch(&server, &path("hers")).status.success());
    let ask = [
        "estimate",
        "--study",
        &id,
        "--k",
        "1",
        "--token-file",
        &alice,
        "--out",
        "x",
    ];
    refused(&server.cli(&ask), 1, &["[forbidden]"]);
    let token = made["id"].as_str().unwrap();
    server.cli_json(&["token", "revoke", "--json", token]);
    refused(&fetch(&server, &path("more")), 1, &["[forbidden]"]);

    let old = std::fs::read_to_string(server.token_file()).unwrap();
    server.cli_json(&["token", "rotate", "--json", "--out", &path("operator")]);
    let new = std::fs::read_to_string(server.token_file()).unwrap();
    assert_ne!(old, new);
    assert_eq!(std::fs::read_to_string(path("operator")).unwrap(), new);
    assert_eq!(mode_of(&server.token_file()), 0o600);
    std::fs::write(path("old"), old).unwrap();
    refused(
        &server.cli(&["token", "list", "--token-file", &path("old")]),
        1,
        &["[forbidden]"],
    );
    let offline = [
        "token",
        "rotate",
        "--json",
        "--data",
        data.to_str().unwrap(),
    ];
    refused(&server.cli(&offline), 1, &["another server"]);
    assert!(server.stop());
    let rotated = crate::program::run_json(&offline);
    assert_eq!(rotated["token_file"], server.token_file().to_str().unwrap());
    let mut server = ServerProcess::start(&data);
    assert!(server.cli(&["token", "list"]).status.success());
    assert!(server.stop());
}
