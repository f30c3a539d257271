//! Bad input from the command line and over HTTP: a stable code and a sentence that says what to do;
//! the store unchanged, the server up.

use eigenveil_client::{Participant, http::StudyClient};
use eigenveil_shared::{codec, preprocess::Row};

use crate::program::{ServerProcess, refused, run};

#[test]
fn study_parameters_out_of_range() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let create = |mechanism: &str, p: &str, epsilon: &str, more: &[&str]| {
        let mut arguments = vec!["study", "create", "--name", "x", "--mechanism", mechanism];
        arguments.extend(["--p", p, "--epsilon", epsilon]);
        arguments.extend(more);
        server.cli(&arguments)
    };
    let mechanisms = [
        ("double-cap", "65537", "2 to 65536"),
        ("symmetric-gaussian", "4097", "2 to 4096"),
        ("isotropic-gaussian", "4097", "2 to 4096"),
        ("discrete-gaussian", "4097", "2 to 4096"),
    ];
    for (mechanism, too_large, range) in mechanisms {
        for (p, epsilon, words) in [
            ("0", "1", ["[invalid-dimension]", "0"]),
            ("1", "1", ["[invalid-dimension]", "1"]),
            (too_large, "1", ["[invalid-dimension]", range]),
            ("4", "0", ["[invalid-budget]", "epsilon is 0"]),
            ("4", "17", ["[invalid-budget]", "at most 16"]),
            ("4", "16.001", ["[invalid-budget]", "at most 16"]),
            ("4", "NaN", ["[invalid-budget]", "NaN"]),
            ("4", "inf", ["[invalid-budget]", "inf"]),
        ] {
            refused(&create(mechanism, p, epsilon, &[]), 2, &words);
        }
        refused(
            &create(mechanism, "4", "-1", &[]),
            2,
            &["[invalid-budget]", "-1"],
        );
        refused(
            &create(mechanism, "4", "1", &["--centring=1.5"]),
            2,
            &["[invalid-preprocessing]", "1.5"],
        );
        if mechanism != "double-cap" {
            for (delta, words) in [("1", "between 0 and 1"), ("0", "between 0 and 1")] {
                refused(
                    &create(mechanism, "4", "1", &["--delta", delta]),
                    2,
                    &["[invalid-budget]", words],
                );
            }
        }
    }
    refused(
        &create("double-cap", "4", "1", &["--delta", "1e-6"]),
        2,
        &["[invalid-budget]", "leave delta out"],
    );
    // With the constant of private centring the reports have one dimension more.
    refused(
        &create("double-cap", "65536", "1", &["--centring"]),
        2,
        &["[invalid-dimension]", "65537"],
    );
    refused(
        &create("double-cap", "4", "1", &["--calibration", "as-published"]),
        2,
        &["[invalid-mechanism]", "as-published"],
    );
    // So much noise that its grid would not fit the integers of a report.
    refused(
        &create("discrete-gaussian", "4096", "0.001", &[]),
        2,
        &["[invalid-budget]"],
    );
    refused(
        &server.cli(&[
            "study",
            "create",
            "--name",
            "x",
            "--p",
            "4",
            "--epsilon",
            "1",
            "--norm",
            "clip",
            "--radius",
            "0",
        ]),
        2,
        &["[invalid-preprocessing]", "radius is 0"],
    );
    let list = server.cli_json(&["study", "list", "--json"]);
    assert_eq!(
        list["studies"].as_array().unwrap().len(),
        0,
        "a refused study was stored"
    );
}

#[test]
fn rows_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let id = server.create_study(&["--p", "3", "--epsilon", "1"]);
    let id = id.as_str();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let report =
        |rows: &str| server.cli(&["report", "--header", "no", "--study", id, "--rows", rows]);
    refused(
        &report(&file("two.csv", "1,2\n")),
        2,
        &["[wrong-dimension]", "2 columns", "3 features"],
    );
    refused(&report(&file("empty.csv", "")), 2, &["no rows"]);
    refused(&report("/no/such/file.npy"), 2, &["/no/such/file.npy"]);
    refused(
        &server.cli(&[
            "report",
            "--study",
            id,
            "--rows",
            &file("bad.npy", "not numpy"),
        ]),
        2,
        &["not a .npy file"],
    );
    // A row that cannot be used is sent as zeros, whatever is in it: that it was is said here only.
    let nan = file(
        "nan.csv",
        "1,2,3\n4,NaN,0.7391\n,1e999,1e200\n4,secretvalue,6\n",
    );
    let sent = server.cli_json(&[
        "report", "--header", "no", "--json", "--study", id, "--rows", &nan,
    ]);
    assert_eq!(
        (&sent["accepted"], &sent["unusable"]),
        (&4.into(), &3.into())
    );
    let said = report(&file("word.csv", "1,2,3\n4,secretvalue,6\n"));
    assert!(said.status.success(), "{said:?}");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(text.contains("1 rows could not be used"), "{text}");
    assert!(text.contains("line 2, column 2"), "{text}");
    for said in [said.stdout, said.stderr] {
        assert!(
            !String::from_utf8_lossy(&said).contains("secretvalue"),
            "a value was shown"
        );
    }
    // A file that changed after its reports were made is not sent again as other participants.
    file("nan.csv", "1,2,3\n4,5,6\n");
    refused(&report(&nan), 2, &["has changed", "--state"]);
    assert_eq!(
        server.cli_json(&["study", "show", "--json", id])["reports_accepted"],
        6
    );
}

#[test]
fn studies_that_cannot_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let rows = folder.path().join("rows.csv");
    std::fs::write(&rows, "1,2\n3,4\n").unwrap();
    let rows = rows.to_str().unwrap();
    let create =
        |extra: &[&str]| server.create_study(&[&["--p", "2", "--epsilon", "1"], extra].concat());
    let unknown = "0123456789abcdef0123456789abcdef";
    refused(
        &server.cli(&[
            "report", "--header", "no", "--study", unknown, "--rows", rows,
        ]),
        1,
        &["[study-not-found]"],
    );
    refused(
        &server.cli(&["study", "show", "no-id"]),
        2,
        &["\"no-id\"", "eigenveil study list"],
    );
    refused(
        &server.cli(&["study", "show", unknown]),
        1,
        &["[study-not-found]", "eigenveil study list"],
    );
    let draft = create(&["--draft"]);
    refused(
        &server.cli(&[
            "report", "--header", "no", "--study", &draft, "--rows", rows,
        ]),
        1,
        &["[study-not-found]"],
    );
    let closed = create(&[]);
    server.cli_json(&["study", "close", "--json", &closed]);
    let state = folder.path().join("closed-state");
    let refusal = server.cli(&[
        "report",
        "--header",
        "no",
        "--study",
        &closed,
        "--rows",
        rows,
        "--state",
        state.to_str().unwrap(),
    ]);
    refused(&refusal, 1, &["[study-not-open]"]);
    refused(
        &server.cli(&["study", "open", &closed]),
        1,
        &["[invalid-transition]"],
    );
    let open = create(&[]);
    let pinned = "00".repeat(32);
    refused(
        &server.cli(&[
            "report",
            "--header",
            "no",
            "--study",
            &open,
            "--rows",
            rows,
            "--fingerprint",
            &pinned,
        ]),
        1,
        &["[wrong-fingerprint]", "do not take part"],
    );
    // The outbox of one study takes no reports for another.
    let other = create(&[]);
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    server.cli_json(&[
        "report", "--json", "--header", "no", "--study", &other, "--rows", rows, "--state", state,
    ]);
    refused(
        &server.cli(&[
            "report", "--header", "no", "--study", &open, "--rows", rows, "--state", state,
        ]),
        1,
        &["study"],
    );
    for id in [&draft, &closed, &open] {
        assert_eq!(
            server.cli_json(&["study", "show", "--json", id])["reports_accepted"],
            0
        );
    }
    refused(
        &server.cli(&[
            "estimate",
            "--study",
            &open,
            "--wait",
            "--out",
            folder.path().join("e").to_str().unwrap(),
        ]),
        1,
        &["[estimate-failed]"],
    );
    refused(
        &server.cli(&["estimate", "--study", &open, "--k", "0"]),
        2,
        &["whole number"],
    );
    refused(
        &server.cli(&["estimate", "--study", &open, "--k", "3"]),
        2,
        &["[invalid-request]"],
    );
}

#[test]
fn tokens_and_directories() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = ServerProcess::start(&data);
    let wrong = folder.path().join("wrong.token");
    std::fs::write(&wrong, "00".repeat(32)).unwrap();
    let as_stranger = run(&[
        "study",
        "create",
        "--server",
        &server.url,
        "--token-file",
        wrong.to_str().unwrap(),
        "--name",
        "x",
        "--p",
        "2",
        "--epsilon",
        "1",
    ]);
    refused(&as_stranger, 1, &["[forbidden]"]);
    refused(
        &run(&["study", "list", "--server", &server.url]),
        2,
        &["EIGENVEIL_TOKEN"],
    );
    // A directory in use, a directory of somebody else, a file.
    let serve = |dir: &str| run(&["serve", "--listen", "127.0.0.1:0", "--data", dir]);
    refused(
        &serve(data.to_str().unwrap()),
        1,
        &["[store-unavailable]", "another server"],
    );
    let used = folder.path().join("used");
    std::fs::create_dir(&used).unwrap();
    std::fs::write(used.join("thesis.tex"), "x").unwrap();
    refused(&serve(used.to_str().unwrap()), 1, &["[store-unavailable]"]);
    assert_eq!(
        std::fs::read_dir(&used).unwrap().count(),
        1,
        "somebody else's directory was touched"
    );
    refused(&serve(wrong.to_str().unwrap()), 1, &["[store-unavailable]"]);
    refused(
        &run(&[
            "study",
            "list",
            "--server",
            "http://127.0.0.1:1",
            "--token-file",
            wrong.to_str().unwrap(),
        ]),
        1,
        &["127.0.0.1:1"],
    );
    // The token is readable by its owner only, and is not in the database.
    use std::os::unix::fs::PermissionsExt as _;
    let token = std::fs::read_to_string(server.token_file()).unwrap();
    assert_eq!(
        std::fs::metadata(server.token_file())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        if path != server.token_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                !bytes
                    .windows(token.trim().len())
                    .any(|w| w == token.trim().as_bytes()),
                "{} holds the token",
                path.display()
            );
        }
    }
}

#[tokio::test]
async fn bodies_that_are_no_reports() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let mechanism = "symmetric-gaussian";
    let create =
        |p: &str| server.create_study(&["--p", p, "--epsilon", "1", "--mechanism", mechanism]);
    let (id, other) = (create("3"), create("4"));
    let study = StudyClient::new(&server.url)
        .unwrap()
        .fetch_study(&id)
        .await
        .unwrap();
    let row = Row::new(vec![1.0, 2.0, 3.0]);
    let prepared = Participant::new(study.params().clone())
        .report(&row)
        .unwrap();
    let good = codec::encode_report(prepared.report());
    let with = |at: usize, new: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + new.len()].copy_from_slice(new);
        bytes
    };
    let one = "application/vnd.eigenveil.report";
    let batch = "application/vnd.eigenveil.report-batch";
    let random: Vec<u8> = (0..good.len()).map(|i| (i * 197 % 251) as u8).collect();
    let cases = [
        (
            "random bytes",
            id.as_str(),
            one,
            random,
            400,
            "unsupported-version",
        ),
        (
            "nothing",
            id.as_str(),
            one,
            Vec::new(),
            400,
            "malformed-report",
        ),
        (
            "cut short",
            id.as_str(),
            one,
            good[..good.len() - 1].to_vec(),
            400,
            "malformed-report",
        ),
        (
            "NaN",
            id.as_str(),
            one,
            with(58, &f32::NAN.to_le_bytes()),
            422,
            "payload-not-finite",
        ),
        (
            "infinity",
            id.as_str(),
            one,
            with(62, &f32::INFINITY.to_le_bytes()),
            422,
            "payload-not-finite",
        ),
        (
            "huge length prefix",
            id.as_str(),
            one,
            with(50, &u64::MAX.to_le_bytes()),
            400,
            "malformed-report",
        ),
        (
            "version 9",
            id.as_str(),
            one,
            with(0, &[9]),
            400,
            "unsupported-version",
        ),
        (
            "another fingerprint",
            other.as_str(),
            one,
            good.clone(),
            422,
            "wrong-fingerprint",
        ),
        (
            "oversized",
            id.as_str(),
            one,
            vec![1; 100_000],
            413,
            "body-too-large",
        ),
        (
            "a report as a batch",
            id.as_str(),
            batch,
            good.clone(),
            400,
            "malformed-report",
        ),
        (
            "an unknown type",
            id.as_str(),
            "text/plain",
            good.clone(),
            415,
            "unsupported-media-type",
        ),
        (
            "no such study",
            "00000000000000000000000000000000",
            one,
            good.clone(),
            404,
            "study-not-found",
        ),
    ];
    let client = reqwest::Client::new();
    for (name, study, kind, body, status, code) in cases {
        let answer = client
            .post(format!("{}/v1/studies/{study}/reports", server.url))
            .header("content-type", kind)
            .body(body)
            .send()
            .await
            .unwrap();
        assert_eq!(
            answer.headers()["content-type"],
            "application/problem+json",
            "{name}"
        );
        let got = answer.status().as_u16();
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], code, "{name}: {problem}");
        assert_eq!(
            (got, problem["status"].as_u64()),
            (status, Some(status.into())),
            "{name}: {problem}"
        );
        assert!(
            problem["detail"].as_str().unwrap().len() > 15,
            "{name}: {problem}"
        );
    }
    for id in [&id, &other] {
        assert_eq!(
            server.cli_json(&["study", "show", "--json", id])["reports_accepted"],
            0
        );
    }
    // The server is up and takes the good one.
    let answer = client
        .post(format!("{}/v1/studies/{id}/reports", server.url))
        .header("content-type", one)
        .body(good)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 201);
}
