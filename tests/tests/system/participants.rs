//! Somebody is asked to take part: opens the study's page, does what it prints, and reads the receipt.

use std::{
    path::Path,
    process::{Command, Output},
};

use scraper::{Html, Selector};

use crate::program::{ServerProcess, refused};

const LONG_NAME: &str =
    "od280/od315 of diluted wines, written out whole to the last of its many words";
const TOLD: [(&str, &str); 4] = [
    (
        "--purpose",
        "What makes wines differ, in a <sentence> & a half",
    ),
    ("--responsible", "Institute of Wine"),
    ("--contact", "wine@example.org"),
    ("--ends", "2099-12-31"),
];

/// The page that a study's participants open, over HTTP.
async fn page(server: &ServerProcess, id: &str) -> Html {
    let url = format!("{}/studies/{id}/participate", server.url);
    let answer = reqwest::get(url).await.unwrap().error_for_status().unwrap();
    Html::parse_document(&answer.text().await.unwrap())
}

fn text(page: &Html, selector: &str) -> String {
    let selector = Selector::parse(selector).unwrap();
    let found = page.select(&selector).next();
    let text: String = found
        .unwrap_or_else(|| panic!("no {selector:?}"))
        .text()
        .collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs a printed command as it is printed, as a participant without the operator's token.
fn as_printed(folder: &Path, command: &str) -> Output {
    let bin = folder.join("bin");
    if !bin.exists() {
        std::fs::create_dir(&bin).unwrap();
        let program = env!("CARGO_BIN_EXE_eigenveil-under-test");
        std::os::unix::fs::symlink(program, bin.join("eigenveil")).unwrap();
    }
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .env("PATH", path)
        .env_remove("EIGENVEIL_TOKEN")
        .env_remove("EIGENVEIL_SERVER")
        .output()
        .unwrap()
}

#[track_caller]
fn said(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_prints_commands_that_work_and_the_receipt_says_all() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let constants = folder.path().join("constants.csv");
    let lines = format!("name,center,scale\nalcohol,13,0.8125\n\"{LONG_NAME}\",2.6,0.75\n");
    std::fs::write(&constants, lines).unwrap();
    let mut flags = vec!["--features", constants.to_str().unwrap(), "--epsilon", "4"];
    flags.extend(TOLD.iter().flat_map(|(flag, value)| [*flag, *value]));
    let id = server.create_study(&flags);
    let shown = server.cli_json(&["study", "show", "--json", &id]);
    assert_eq!(shown["about"]["contact"], "wine@example.org");
    assert_eq!(shown["about"]["ends"], "2099-12-31");
    let shown = said(&server.cli(&["study", "show", &id]));

    let page = page(&server, &id).await;
    let told = text(&page, "#about");
    let features = text(&page, "#features");
    assert!(features.contains("alcohol") && features.contains(LONG_NAME));
    // The columns in another order, and one that is no feature.
    let table = format!("\"{LONG_NAME}\",alcohol\n2.5,13.2\n3.1,12.9\n1.8,14.0\n");
    std::fs::write(folder.path().join("mine.csv"), table).unwrap();
    let report = text(&page, "#report-command").replace("ROWS.csv", "mine.csv");
    let reported = as_printed(folder.path(), &report);
    let asked = String::from_utf8_lossy(&reported.stderr).into_owned();
    let printed = said(&reported);
    assert!(printed.contains("3 of 3 rows acknowledged"), "{printed}");
    let receipt = text(&page, "#receipt-command").replace("ROWS.csv", "mine.csv");
    let receipt = said(&as_printed(folder.path(), &receipt));
    for (_, value) in TOLD {
        for place in [&told, &asked, &receipt, &shown] {
            assert!(place.contains(value), "{value:?} is not in {place}");
        }
    }
    for constant in [
        "alcohol: center 13, scale 0.8125",
        LONG_NAME,
        "center 2.6, scale 0.75",
    ] {
        for place in [&receipt, &shown] {
            assert!(place.contains(constant), "{constant:?} is not in {place}");
        }
    }
    for word in [
        "under test",
        "double-cap",
        "normalize",
        "epsilon 4",
        &id,
        &text(&page, "#parameters code"),
    ] {
        assert!(receipt.contains(word), "{word:?} is not in {receipt}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_participant_with_a_token_is_told_what_to_do_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let id = server.create_study(&["--p", "3", "--epsilon", "4", "--enrolment", "token"]);
    let tokens = folder.path().join("mine.txt");
    server.cli_json(&[
        "study",
        "tokens",
        &id,
        "--json",
        "--count",
        "2",
        "--out",
        tokens.to_str().unwrap(),
    ]);
    std::fs::write(folder.path().join("mine.csv"), "a,b,c\n1,2,3\n3,2,1\n").unwrap();
    let page = page(&server, &id).await;
    assert!(text(&page, "#tokens").contains("one-time token"));
    let report = text(&page, "#report-command").replace("ROWS.csv", "mine.csv");
    assert!(report.ends_with(" --tokens TOKENS.txt"), "{report}");
    // Without the token nothing arrives, and the way out is named.
    let without = report.replace(" --tokens TOKENS.txt", "");
    refused(
        &as_printed(folder.path(), &without),
        1,
        &["token-required", "--tokens"],
    );
    let with = report.replace("TOKENS.txt", "mine.txt");
    let printed = said(&as_printed(folder.path(), &with));
    assert!(printed.contains("2 of 2 rows acknowledged"), "{printed}");
    let counts = server.cli_json(&["study", "tokens", &id, "--json"]);
    assert_eq!(
        (&counts["issued"], &counts["spent"]),
        (&2.into(), &2.into())
    );
}

#[test]
fn what_is_not_stated_is_pointed_out_and_what_is_no_contact_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let create = |flags: &[&str]| {
        let command = [
            "study",
            "create",
            "--name",
            "x",
            "--p",
            "3",
            "--epsilon",
            "4",
        ];
        server.cli(&[&command[..], flags].concat())
    };
    let silent = create(&["--purpose", "To see"]);
    let said = String::from_utf8_lossy(&silent.stderr).into_owned();
    assert!(silent.status.success(), "{said}");
    assert!(
        said.contains("not stated") && said.contains("responsible party, contact, last day"),
        "{said}"
    );
    for (flags, words) in [
        (
            ["--contact", "javascript:alert(1)"],
            ["the contact is", "https://"],
        ),
        (["--purpose", ""], ["the purpose has 0 bytes", "1 to 1000"]),
        (["--ends", "31.03.2027"], ["2027-03-31", "--ends"]),
        (["--ends", "2020-01-01"], ["2020-01-01", "is over"]),
    ] {
        refused(&create(&flags), 2, &words);
    }
}

/// What was prepared for one purpose is not sent for another without a word.
#[test]
fn a_purpose_that_changed_is_told_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = ServerProcess::start(&data);
    let flags = ["--p", "2", "--epsilon", "4", "--enrolment", "token"];
    let id = server.create_study(&[&flags[..], &["--purpose", "sleep"]].concat());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (rows, tokens) = (path("rows.csv"), path("tokens.txt"));
    std::fs::write(&rows, "1,2\n3,4\n").unwrap();
    server.cli_json(&[
        "study", "tokens", &id, "--json", "--count", "2", "--out", &tokens,
    ]);
    let report = |server: &ServerProcess, more: &[&str]| {
        let command = ["report", "--header", "no", "--study", &id, "--rows", &rows];
        server.cli(&[&command[..], more].concat())
    };
    // Prepared and charged, and not sent for want of tokens.
    refused(&report(&server, &[]), 1, &["[token-required]"]);
    let listen = server.listen().to_owned();
    assert!(server.stop());
    rusqlite::Connection::open(eigenveil_server::store::database_path(&data))
        .unwrap()
        .execute("UPDATE studies SET purpose = 'sales'", [])
        .unwrap();
    let server = ServerProcess::start_on(&data, &listen);
    let refusal = report(&server, &["--tokens", &tokens]);
    refused(
        &refusal,
        2,
        &[
            "\"sleep\"",
            "\"sales\" now",
            "nothing was sent",
            "--accept-changes",
        ],
    );
    let shown = server.cli_json(&["study", "show", "--json", &id]);
    assert_eq!(shown["reports_accepted"], 0);
    let agreed = said(&report(&server, &["--tokens", &tokens, "--accept-changes"]));
    assert!(agreed.contains("2 of 2 rows acknowledged"), "{agreed}");
}
