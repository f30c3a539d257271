//! What each row of a file has spent and reported, whatever the study. (`client/tests/client/row_ledger_crash.rs` and
//! `file_lock.rs` kill whoever writes it anywhere, and run several at once.)

use std::{fs, process::Output};

use crate::harness::{
    Folder, ServerProcess, has, json_of, refused, run, run_json, stderr, succeeded,
};

const ROWS: u64 = 300;

/// A server, and a file of rows of three numbers.
struct Bench {
    folder: Folder,
    server: ServerProcess,
    rows: String,
}

impl Bench {
    fn new(rows: u64) -> Self {
        let folder = Folder::new();
        let text = (0..rows).map(|i| format!("{},{},9\n", i % 7, i % 5 + 1));
        Self {
            rows: folder.write("rows.csv", text.collect::<String>()),
            server: folder.server(),
            folder,
        }
    }

    fn study(&self, epsilon: &str) -> String {
        self.server
            .create_study(&format!("--p 3 --epsilon {epsilon}"))
    }

    fn report(&self, study: &str, more: &str) -> Output {
        let rows = &self.rows;
        self.server.cli(&format!(
            "report --header no --json --study {study} --rows {rows} {more}"
        ))
    }

    fn receipt(&self) -> serde_json::Value {
        run_json(&format!("receipt {}.ledger", self.rows))
    }
}

/// A closed study costs nothing: it is refused before a row is perturbed or a file is created.
#[test]
fn closed_studies_are_refused_before_anything_is_charged() {
    let bench = Bench::new(ROWS);
    let [closed, reported] = [(); 2].map(|()| bench.study("4"));
    json_of(&bench.report(&reported, ""));
    let before = bench.receipt();
    for study in [&closed, &reported] {
        bench.server.cli_json(&format!("study close {study}"));
    }
    let nothing = "nothing was perturbed or charged";
    for check in ["", "--check"] {
        refused(
            &bench.report(&closed, check),
            1,
            &[
                "[study-not-open]",
                &closed,
                "is closed",
                nothing,
                "never opens again",
            ],
        );
    }
    assert_eq!(bench.receipt(), before);
    // An interrupted upload can be finished, but no further row is perturbed.
    let again = json_of(&bench.report(&reported, ""));
    assert_eq!(again["acknowledged"], ROWS);
    assert_eq!(bench.receipt()["spent"], before["spent"]);
}

/// Reports that are made and not acknowledged: a check counts them, and refuses them where the upload would.
#[test]
fn a_check_says_what_is_still_to_be_sent() {
    let bench = Bench::new(ROWS);
    let flags = "--p 3 --epsilon 4 --enrolment token";
    let study = bench.server.create_study(flags);
    // Refused, as nobody made these tokens; then as if they had not been sent yet.
    let tokens: String = (0..ROWS).map(|i| format!("{i:064x}\n")).collect();
    let tokens = bench.folder.write("tokens.txt", tokens);
    let unknown = bench.report(&study, &format!("--tokens {tokens}"));
    assert!(stderr(&unknown).contains("[participant-token-unknown]"));
    // A run fails for them, too, unless it sends them again.
    let checked = bench.report(&study, "--check");
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    assert!(stderr(&checked).contains("[participant-token-unknown]"));
    let answer = serde_json::from_slice(&checked.stdout).unwrap();
    has(
        &answer,
        &format!("already_made={ROWS} pending=0 refused={ROWS}"),
    );
    let checked = json_of(&bench.report(&study, "--check --resend-refused"));
    has(&checked, &format!("pending={ROWS} refused=0"));
    rusqlite::Connection::open(format!("{}.ledger", bench.rows))
        .unwrap()
        .execute_batch("UPDATE report SET state = 0; DELETE FROM refusal")
        .unwrap();
    let checked = json_of(&bench.report(&study, "--check"));
    has(
        &checked,
        &format!("already_made={ROWS} pending={ROWS} refused=0"),
    );
    let check = format!(
        "report --header no --study {study} --rows {} --check",
        bench.rows
    );
    let printed = succeeded(&bench.server.cli(&check));
    assert!(printed.contains("300 still to be sent"), "{printed}");

    bench.server.cli_json(&format!("study close {study}"));
    for (check, unsent) in [
        ("--check", "the ledger has 300 reports still to be sent"),
        ("", "0 reports acknowledged now, 300 still to be sent"),
    ] {
        let output = bench.report(&study, check);
        let words = ["[study-not-open]", "is closed", unsent, "never opens again"];
        refused(&output, 1, &words);
        let printed = stderr(&output);
        assert!(!printed.contains("once it is open"), "{printed}");
    }
}

/// The log beside the ledger that a kill left is read by a check and by a run that is refused, and applied by any other.
#[test]
fn a_check_and_a_refused_run_change_no_file() {
    let bench = Bench::new(3);
    json_of(&bench.report(&bench.study("4"), ""));
    let ledger = format!("{}.ledger", bench.rows);
    let log = format!("{ledger}-wal");
    let before = fs::read(&ledger).unwrap();
    let connection = rusqlite::Connection::open(&ledger).unwrap();
    connection
        .execute_batch(
            "PRAGMA wal_autocheckpoint = 0; BEGIN;
             UPDATE limits SET epsilon_total = 5;
             UPDATE file_state SET previous_revision = revision, revision = randomblob(16); COMMIT;",
        )
        .unwrap();
    let left = fs::read(&log).unwrap();
    drop(connection);
    fs::write(&ledger, &before).unwrap();
    fs::write(&log, &left).unwrap();
    let study = bench.study("4");
    for check in ["--check", ""] {
        refused(&bench.report(&study, check), 1, &["5 in total"]);
        assert_eq!(fs::read(&ledger).unwrap(), before);
        assert_eq!(fs::read(&log).unwrap(), left);
    }
    json_of(&bench.report(&study, "--limit-epsilon 9"));
    assert!(!fs::exists(&log).unwrap());
    // Nor is anything made or removed beside it, or beside what is no ledger.
    let notes = bench.folder.write("notes.txt", "no ledger");
    fs::write(&log, "").unwrap();
    fs::remove_file(format!("{ledger}.lock")).unwrap();
    let names = bench.folder.names("");
    json_of(&bench.report(&study, "--check"));
    for check in ["--check", ""] {
        let output = bench.report(&study, &format!("{check} --ledger {notes}"));
        refused(&output, 1, &["is not an Eigenveil ledger of rows"]);
    }
    assert_eq!(bench.folder.names(""), names);
}

#[test]
fn a_second_run_gives_no_second_report() {
    let bench = Bench::new(ROWS);
    let study = bench.study("4");
    let first = json_of(&bench.report(&study, ""));
    let charged = &first["charged"];
    assert_eq!(
        (&first["accepted"], &charged["rows"]),
        (&ROWS.into(), &ROWS.into())
    );
    // The charge is the study's true cost.
    let study_json = bench.server.cli_json(&format!("study show {study}"));
    assert_eq!(charged["epsilon"], study_json["privacy"]["true_epsilon"]);
    assert_eq!(charged["spent"]["epsilon"], charged["epsilon"]);
    assert_eq!(charged["limits"]["epsilon_total"], 16.01);
    // A symbolic link to the rows shares their ledger, and an older copy of the ledger has the same reports.
    let link = bench.folder.at("link.csv");
    std::os::unix::fs::symlink(&bench.rows, &link).unwrap();
    let copy = bench.folder.at("copy.ledger");
    fs::copy(format!("{}.ledger", bench.rows), &copy).unwrap();
    for more in [
        format!("--rows {}", bench.rows),
        format!("--rows {link}"),
        format!("--rows {} --ledger {copy}", bench.rows),
    ] {
        let line = format!("report --header no --json --study {study} {more}");
        let again = json_of(&bench.server.cli(&line));
        has(&again, &format!("acknowledged={ROWS} charged.rows=0"));
    }
    assert_eq!(bench.server.accepted(&study), ROWS);
    // Read with a header, its rows would be others.
    let words = [
        "another header, other columns, other persons",
        "the flags that were given then",
    ];
    for check in ["", "--check"] {
        let other = bench.server.cli(&format!(
            "report --header yes --study {study} --rows {} {check}",
            bench.rows
        ));
        refused(&other, 2, &words);
    }

    let receipt = bench.receipt();
    assert_eq!(
        (&receipt["spent"]["epsilon"], &receipt["studies"][0]["rows"]),
        (&charged["epsilon"], &ROWS.into())
    );
    let text = succeeded(&run(&format!("receipt {}.ledger", bench.rows)));
    assert!(text.contains("300 rows of 3 numbers"), "{text}");
    let check = format!(
        "report --header no --study {study} --rows {} --check",
        bench.rows
    );
    let printed = succeeded(&bench.server.cli(&check));
    assert!(printed.contains(&format!("in the ledger: {ROWS} reports")));
}

#[test]
fn studies_add_up_and_limits_are_enforced_before_perturbing() {
    let bench = Bench::new(ROWS);
    for _ in 0..2 {
        let sent = json_of(&bench.report(&bench.study("8"), ""));
        assert_eq!(sent["accepted"], ROWS);
    }
    let third = bench.study("4");
    for check in ["", "--check"] {
        refused(
            &bench.report(&third, check),
            1,
            &[
                "[budget-exceeded]",
                "rows 1 to 300",
                "on top of 16.0000",
                "16.01 in total",
                "--limit-epsilon",
            ],
        );
    }
    // A check tries the given limits as a run does, but stores none.
    let checked = json_of(&bench.report(&third, "--check --limit-epsilon 20.01"));
    assert_eq!(checked["already_made"], 0);
    for (flag, limit) in [
        ("--limit-epsilon 19", "19 in total"),
        (
            "--limit-epsilon 20.01 --limit-epsilon-per-study 3",
            "on one study",
        ),
    ] {
        let output = bench.report(&third, &format!("--check {flag}"));
        refused(&output, 1, &["[budget-exceeded]", limit]);
    }
    assert_eq!(bench.receipt()["limits"]["epsilon_total"], 16.01);
    // A ledger that is not there yet has limits, too, and is not made for what is refused or only checked.
    let large = bench.study("10");
    let none = format!("--ledger {}", bench.folder.at("none"));
    let names = bench.folder.names("");
    for check in ["", "--check"] {
        let plain = format!("{none} {check}");
        refused(&bench.report(&large, &plain), 1, &["on one study"]);
        let lowered = format!("{plain} --limit-epsilon 3");
        refused(&bench.report(&third, &lowered), 1, &["3 in total"]);
    }
    let raised = format!("{none} --check --limit-epsilon-per-study 11");
    json_of(&bench.report(&large, &raised));
    assert_eq!(bench.folder.names(""), names);
    let reports = rusqlite::Connection::open(format!("{}.ledger", bench.rows))
        .unwrap()
        .query_row("SELECT count(*) FROM report", [], |row| {
            row.get::<_, u64>(0)
        });
    assert_eq!(reports.unwrap(), 2 * ROWS, "something was perturbed");
    // Whoever is responsible for the rows can change the limit, and it is stored.
    let sent = json_of(&bench.report(&third, "--limit-epsilon 20.01"));
    assert_eq!(sent["charged"]["limits"]["epsilon_total"], 20.01);
    let output = bench.report(&bench.study("1"), "");
    refused(&output, 1, &["[budget-exceeded]", "20.01 in total"]);
}

/// Without a server; and whatever is asked for later, nothing of it is sent.
#[test]
fn reports_are_given_up_in_either_ledger() {
    let mut bench = Bench::new(ROWS);
    let study = bench
        .server
        .create_study("--p 3 --epsilon 4 --enrolment token --purpose sleep");
    let tokens = bench.folder.at("tokens.txt");
    let make = format!("study tokens {study} --count {ROWS} --out {tokens}");
    bench.server.cli_json(&make);
    let others = (0..ROWS).map(|number| format!("{number:064x}\n"));
    let others = bench.folder.write("others.txt", others.collect::<String>());
    let refused_all = bench.report(&study, &format!("--tokens {others}"));
    assert!(stderr(&refused_all).contains("the server refused 300 reports"));
    // A device, whose report waits for its token.
    let device = bench.folder.at("device.ledger");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fetched = runtime.block_on(bench.server.client().fetch_study(&study));
    let row = eigenveil_shared::preprocess::Row::new(vec![1.0, 2.0, 9.0]);
    let mut ledger = eigenveil_client::Ledger::open(&device).unwrap();
    ledger.participate(&fetched.unwrap(), &row).unwrap();
    drop(ledger);
    let listen = bench.server.listen().to_owned();
    assert!(bench.server.stop());

    let give_up = "report --give-up --study 'under test'";
    let both = [
        (format!("--rows {}", bench.rows), "given_up=300"),
        (format!("--ledger {device}"), "given_up=1"),
    ];
    for (ledger, given_up) in &both {
        let done = run_json(&format!("{give_up} {ledger}"));
        has(&done, &format!("study={study} acknowledged=0 {given_up}"));
        let text = succeeded(&run(&format!("{give_up} {ledger}")));
        assert!(text.contains("may have one already"), "{text}");
    }
    let unknown = run("report --give-up --study nothing --ledger none.ledger");
    refused(&unknown, 1, &["there is no such file"]);
    let unknown = run(&format!(
        "report --give-up --study nothing --ledger {device}"
    ));
    refused(&unknown, 2, &["\"nothing\"", "eigenveil receipt"]);
    refused(&run("report --give-up --study x"), 2, &["--ledger FILE"]);

    bench.server = ServerProcess::start_on(&bench.server.data, &listen);
    for more in [String::new(), format!("--resend-refused --tokens {tokens}")] {
        let sent = json_of(&bench.report(&study, &more));
        has(
            &sent,
            "accepted=0 pending=0 refused=0 given_up=300 charged.rows=0",
        );
    }
    let checked = json_of(&bench.report(&study, "--check"));
    has(&checked, "already_made=300 pending=0 given_up=300");
    assert_eq!(bench.server.accepted(&study), 0);
    let receipt = succeeded(&run(&format!("receipt {}.ledger", bench.rows)));
    assert!(receipt.contains("given up: 300 reports"), "{receipt}");
    assert!(bench.receipt()["spent"]["epsilon"].as_f64() > Some(4.0));
}

#[test]
fn a_changed_file_needs_confirmation() {
    let bench = Bench::new(ROWS);
    json_of(&bench.report(&bench.study("4"), ""));
    let text = fs::read_to_string(&bench.rows).unwrap();
    // The same rows in another order, plus one.
    let mut lines: Vec<&str> = text.lines().rev().collect();
    lines.push("9,9,9");
    fs::write(&bench.rows, lines.join("\n") + "\n").unwrap();
    let second = bench.study("8");
    for check in ["", "--check"] {
        let output = bench.report(&second, check);
        refused(&output, 1, &["row number", "--same-participants"]);
    }
    json_of(&bench.report(&second, "--same-participants --check"));
    let sent = json_of(&bench.report(&second, "--same-participants"));
    assert_eq!(sent["accepted"], ROWS + 1);
}

/// Its name means another study then, whose reports would be charged, too.
#[test]
fn a_study_made_again_under_its_name_is_taken_by_its_identifier_only() {
    let bench = Bench::new(3);
    let server = &bench.server;
    let create = || {
        let study = server.cli_json("study create --name again --p 3 --epsilon 4");
        study["id"].as_str().unwrap().to_owned()
    };
    let first = create();
    assert_eq!(json_of(&bench.report("again", ""))["accepted"], 3);
    assert_eq!(json_of(&bench.report(&first[..8], ""))["accepted"], 0);
    server.cli_json(&format!("study close {first}"));
    succeeded(&server.cli(&format!("study delete {first} --yes")));
    let second = create();
    for more in ["", "--check"] {
        let output = bench.report("again", more);
        let words = ["[already-participated]", "\"again\"", &first, &second];
        refused(&output, 1, &words);
    }
    assert_eq!(bench.receipt()["studies"].as_array().unwrap().len(), 1);
    assert_eq!(json_of(&bench.report(&second, ""))["accepted"], 3);
    assert_eq!(json_of(&bench.report("again", ""))["accepted"], 0);
}

/// One server under two names, both alive: nobody is counted twice, and a new perturbation is refused.
#[test]
fn a_study_that_moved_gets_the_same_reports() {
    let folder = Folder::new();
    let server = folder.server();
    let study = server.create_study("--p 2 --epsilon 1");
    let rows = folder.write("rows.csv", "1,2\n3,4\n5,6\n");
    let report = format!("report --json --header no --study {study} --rows {rows}");
    let moved = format!(
        "{report} --server {}",
        server.url.replace("127.0.0.1", "localhost")
    );
    assert_eq!(json_of(&server.cli(&report))["accepted"], 3);
    for check in ["", "--check"] {
        refused(
            &server.cli(&format!("{moved} {check}")),
            2,
            &["--moved", "localhost", "127.0.0.1"],
        );
    }
    let receipt = || succeeded(&run(&format!("receipt {rows}.ledger")));
    let checked = json_of(&server.cli(&format!("{moved} --moved --check")));
    assert_eq!(checked["already_made"], 3);
    // What is refused or only checked moves nothing.
    assert!(!receipt().contains("moved to"));
    for line in [format!("{moved} --moved"), moved] {
        let sent = json_of(&server.cli(&line));
        has(&sent, "accepted=0 acknowledged=3");
    }
    assert_eq!(server.accepted(&study), 3);
    let text = receipt();
    assert!(text.contains("moved to http://localhost"), "{text}");
}
