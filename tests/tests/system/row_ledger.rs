//! What each row of a file has spent, whatever the outbox, the study and the time of a crash.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::{
    harness::{Folder, ServerProcess, has, json_of, refused, run, run_json, stderr, succeeded},
    proxy::Proxy,
    waiting::until,
};

const ROWS: u64 = 300;

/// A server, a file of rows of three numbers, and a folder for outboxes.
struct Bench {
    folder: Folder,
    server: ServerProcess,
    rows: String,
}

impl Bench {
    fn new(rows: u64) -> Self {
        let folder = Folder::new();
        let text = (0..rows).map(|i| format!("{},{},1\n", i % 7, i % 5 + 1));
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

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `report` with this outbox, and more flags.
    fn command(&self, study: &str, state: &str, more: &str) -> Command {
        let (rows, state) = (&self.rows, self.folder.at(state));
        self.server.command(&format!(
            "report --header no --json --study {study} --rows {rows} --outbox {state} {more}"
        ))
    }

    fn report(&self, study: &str, state: &str, more: &str) -> Output {
        self.command(study, state, more).output().unwrap()
    }

    fn receipt(&self) -> serde_json::Value {
        run_json(&format!("receipt {}.ledger", self.rows))
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// A closed study costs nothing: it is refused before a row is perturbed or a file is created.
#[test]
fn closed_studies_are_refused_before_anything_is_charged() {
    let bench = Bench::new(ROWS);
    let [closed, reported] = [(); 2].map(|()| bench.study("4"));
    json_of(&bench.report(&reported, "reported", ""));
    let before = bench.receipt();
    for study in [&closed, &reported] {
        bench.server.cli_json(&format!("study close {study}"));
    }
    let output = bench.report(&closed, "state", "");
    let nothing = "nothing was perturbed or charged";
    refused(
        &output,
        1,
        &["[study-not-open]", &closed, "is closed", nothing],
    );
    assert!(!bench.at("state").exists());
    // An interrupted upload can be finished, but no further row is perturbed.
    let again = json_of(&bench.report(&reported, "reported", ""));
    assert_eq!(again["acknowledged"], ROWS);
    assert_eq!(bench.receipt()["spent"], before["spent"]);
}

#[test]
fn several_outboxes_give_one_report_a_row() {
    let bench = Bench::new(ROWS);
    let study = bench.study("4");
    let first = json_of(&bench.report(&study, "state-1", ""));
    let charged = &first["charged"];
    assert_eq!(
        (&first["accepted"], &charged["rows"]),
        (&ROWS.into(), &ROWS.into())
    );
    // The charge is the study's true cost.
    let shown = bench.server.cli_json(&format!("study show {study}"));
    assert_eq!(charged["epsilon"], shown["privacy"]["true_epsilon"]);
    assert_eq!(charged["spent"]["epsilon"], charged["epsilon"]);
    assert_eq!(charged["limits"]["epsilon_total"], 16.01);
    for state in ["state-2", "state-3"] {
        let output = bench.report(&study, state, "");
        let words = ["[already-participated]", "rows 1 to 300", "--outbox"];
        refused(&output, 1, &words);
    }
    // The outbox with the reports, and a copy of it, send nothing new.
    copy_folder(&bench.at("state-1"), &bench.at("copy"));
    for state in ["state-1", "copy"] {
        let again = json_of(&bench.report(&study, state, ""));
        has(&again, &format!("acknowledged={ROWS} charged.rows=0"));
    }
    assert_eq!(bench.server.accepted(&study), ROWS);
    // A symbolic link to the rows shares their ledger.
    let link = bench.folder.at("link.csv");
    std::os::unix::fs::symlink(&bench.rows, &link).unwrap();
    let output = bench
        .server
        .cli(&format!("report --header no --study {study} --rows {link}"));
    refused(&output, 1, &["[already-participated]"]);

    let receipt = bench.receipt();
    assert_eq!(
        (&receipt["spent"]["epsilon"], &receipt["studies"][0]["rows"]),
        (&charged["epsilon"], &ROWS.into())
    );
    let text = succeeded(&run(&format!("receipt {}.ledger", bench.rows)));
    assert!(text.contains("300 rows of 3 numbers"), "{text}");
}

#[test]
fn studies_add_up_and_limits_are_enforced_before_perturbing() {
    let bench = Bench::new(ROWS);
    for state in ["state-1", "state-2"] {
        let sent = json_of(&bench.report(&bench.study("8"), state, ""));
        assert_eq!(sent["accepted"], ROWS);
    }
    let third = bench.study("4");
    refused(
        &bench.report(&third, "state-3", ""),
        1,
        &[
            "[budget-exceeded]",
            "rows 1 to 300",
            "on top of 16.0000",
            "16.01 in total",
            "--limit-epsilon",
        ],
    );
    let made = rusqlite::Connection::open(bench.at("state-3/outbox.db"))
        .unwrap()
        .query_row("SELECT count(*) FROM report", [], |row| {
            row.get::<_, i64>(0)
        });
    assert_eq!(made.unwrap(), 0, "something was perturbed");
    // Whoever is responsible for the rows can change the limit, and it is stored.
    let sent = json_of(&bench.report(&third, "state-3", "--limit-epsilon 20.01"));
    assert_eq!(sent["charged"]["limits"]["epsilon_total"], 20.01);
    let fourth = bench.study("1");
    let output = bench.report(&fourth, "state-4", "");
    refused(&output, 1, &["[budget-exceeded]", "20.01 in total"]);
    let output = bench.report(&fourth, "state-4", "--limit-epsilon many");
    refused(&output, 2, &["--limit-epsilon"]);
    assert_eq!(bench.server.accepted(&fourth), 0);
}

#[test]
fn a_changed_file_needs_confirmation() {
    let bench = Bench::new(ROWS);
    json_of(&bench.report(&bench.study("4"), "state-1", ""));
    let text = fs::read_to_string(&bench.rows).unwrap();
    // The same rows in another order, plus one.
    let mut lines: Vec<&str> = text.lines().rev().collect();
    lines.push("9,9,9");
    fs::write(&bench.rows, lines.join("\n") + "\n").unwrap();
    let second = bench.study("8");
    let output = bench.report(&second, "state-2", "");
    refused(&output, 1, &["row number", "--same-participants"]);
    let sent = json_of(&bench.report(&second, "state-2", "--same-participants"));
    assert_eq!(sent["accepted"], ROWS + 1);
    // Row 301 has spent less than the others, whose limits refuse the whole file.
    let output = bench.report(&bench.study("5"), "state-3", "--same-participants");
    refused(&output, 1, &["[budget-exceeded]", "rows 1 to 300"]);
}

#[test]
fn concurrent_commands_give_one_report_a_row() {
    let rows = 5_000;
    let bench = Bench::new(rows);
    let study = bench.study("4");
    for round in 0..2 {
        let start = |number| {
            bench
                .command(&study, &format!("state-{round}-{number}"), "")
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut succeeded = 0;
        for child in [0, 1, 2].map(start) {
            let output = child.wait_with_output().unwrap();
            if output.status.success() {
                succeeded += 1;
            } else {
                let message = stderr(&output);
                let known = ["another process has it open", "already-participated"];
                assert!(
                    known.iter().any(|known| message.contains(known)),
                    "{message}"
                );
            }
        }
        assert_eq!(succeeded, usize::from(round == 0), "round {round}");
    }
    assert_eq!(bench.server.accepted(&study), rows);
}

/// Killed at any time, then retried with other outboxes and older copies of the first: one report for each row.
#[tokio::test(flavor = "multi_thread")]
async fn one_report_a_row_after_kills_and_other_outboxes() {
    let rows = 5_000;
    let bench = Bench::new(rows);
    let study = bench.study("4");
    // Nothing arrives, so no command succeeds before the kill.
    let proxy = Proxy::gated(&bench.server.url, None).await;
    let report = |state: &str| {
        let mut command = bench.command(&study, state, "");
        command.env("EIGENVEIL_SERVER", &proxy.url);
        command
    };
    let mut killed = 0;
    for (number, pause) in [0_u64, 20, 60, 150].into_iter().enumerate() {
        let state = format!("state-{number}");
        let mut child = report(&state)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let outbox = bench.at(&state).join("outbox.db");
        // Refused if another outbox was charged before it was killed; otherwise runs until its first reports are on
        // disk.
        until("a run to be killed", async || {
            child.try_wait().unwrap().is_some()
                || fs::metadata(&outbox).is_ok_and(|file| file.len() >= 100_000)
        })
        .await;
        tokio::time::sleep(Duration::from_millis(pause)).await;
        killed += usize::from(child.try_wait().unwrap().is_none());
        let _ = child.kill();
        child.wait().unwrap();
        copy_folder(&bench.at(&state), &bench.at(&format!("copy-{number}")));
    }
    assert!(killed > 0, "no command was killed");
    // All are retried, the copies first: only the charged outbox, or its copy, may send.
    proxy.let_through(1_000_000);
    let mut finished = 0;
    for number in 0..4 {
        for state in [format!("copy-{number}"), format!("state-{number}")] {
            let output = tokio::task::block_in_place(|| report(&state).output().unwrap());
            if output.status.success() {
                finished += 1;
            } else {
                refused(&output, 1, &["[already-participated]"]);
            }
        }
    }
    assert!((1..=2).contains(&finished), "{finished}");
    assert_eq!(bench.server.accepted(&study), rows);
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
    refused(
        &server.cli(&moved),
        2,
        &["--moved", "localhost", "127.0.0.1"],
    );
    let elsewhere = format!("{moved} --moved --outbox {}", folder.at("second"));
    refused(&server.cli(&elsewhere), 1, &["already-participated"]);
    // What is refused moves nothing.
    let receipt = run(&format!("receipt {rows}.ledger"));
    assert!(
        !String::from_utf8(receipt.stdout)
            .unwrap()
            .contains("moved to")
    );
    for line in [format!("{moved} --moved"), moved] {
        let sent = json_of(&server.cli(&line));
        has(&sent, "accepted=0 acknowledged=3");
    }
    assert_eq!(server.accepted(&study), 3);
    // Back to the first address: the move must be confirmed again.
    refused(&server.cli(&report), 2, &["--moved"]);
    assert_eq!(
        json_of(&server.cli(&format!("{report} --moved")))["acknowledged"],
        3
    );
    let receipt = run(&format!("receipt {rows}.ledger"));
    let text = String::from_utf8(receipt.stdout).unwrap();
    assert!(text.contains("moved to http://localhost"), "{text}");
}
