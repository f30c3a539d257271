//! What each row of a file has spent, whatever the outbox, the study and the moment of a kill.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use crate::program::{ServerProcess, one_json_line, program, refused, run, run_json};

const ROWS: u64 = 300;

/// A server, a file of rows of two numbers, and room for outboxes.
struct Bench {
    folder: tempfile::TempDir,
    server: ServerProcess,
    rows: String,
}

impl Bench {
    fn new(rows: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&folder.path().join("data"));
        let path = folder.path().join("rows.csv");
        let text: String = (0..rows)
            .map(|i| format!("{},{},1\n", i % 7, i % 5 + 1))
            .collect();
        fs::write(&path, text).unwrap();
        Self {
            rows: path.to_str().unwrap().to_owned(),
            folder,
            server,
        }
    }

    fn study(&self, epsilon: &str) -> String {
        self.server
            .create_study(&["--p", "3", "--epsilon", epsilon])
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `report` with this outbox; `more` besides.
    fn arguments(&self, study: &str, state: &str, more: &[&str]) -> Vec<String> {
        let state = self.at(state);
        let fixed = [
            "report",
            "--header",
            "no",
            "--json",
            "--study",
            study,
            "--rows",
            &self.rows,
            "--state",
            state.to_str().unwrap(),
        ];
        fixed
            .iter()
            .chain(more)
            .map(|&text| text.to_owned())
            .collect()
    }

    fn report(&self, study: &str, state: &str, more: &[&str]) -> Output {
        let arguments = self.arguments(study, state, more);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.server.cli(&arguments)
    }

    fn accepted(&self, study: &str) -> u64 {
        self.server.cli_json(&["study", "show", "--json", study])["reports_accepted"]
            .as_u64()
            .unwrap()
    }
}

fn succeeded(output: &Output) -> serde_json::Value {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    one_json_line(&output.stdout)
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn five_outboxes_are_one_report_a_row() {
    let bench = Bench::new(ROWS);
    let study = bench.study("4");
    let first = succeeded(&bench.report(&study, "state-1", &[]));
    let charged = &first["charged"];
    assert_eq!(
        (&first["accepted"], &charged["rows"]),
        (&ROWS.into(), &ROWS.into())
    );
    // What is charged is what the study says that holds.
    let shown = bench.server.cli_json(&["study", "show", "--json", &study]);
    assert_eq!(charged["epsilon"], shown["privacy"]["true_epsilon"]);
    assert_eq!(charged["spent"]["epsilon"], charged["epsilon"]);
    assert_eq!(charged["limits"]["epsilon_total"], 16.01);
    for number in 2..=5 {
        let output = bench.report(&study, &format!("state-{number}"), &[]);
        refused(
            &output,
            1,
            &["[already-participated]", "rows 1 to 300", "--state"],
        );
    }
    // The outbox that has them, and a copy of it, send nothing new.
    copy_folder(&bench.at("state-1"), &bench.at("copy"));
    for state in ["state-1", "copy"] {
        let again = succeeded(&bench.report(&study, state, &[]));
        assert_eq!(
            (&again["acknowledged"], &again["charged"]["rows"]),
            (&ROWS.into(), &0.into())
        );
    }
    assert_eq!(bench.accepted(&study), ROWS);
    // A link to the rows has their ledger.
    std::os::unix::fs::symlink(&bench.rows, bench.at("link.csv")).unwrap();
    let link = bench.at("link.csv");
    let output = bench.server.cli(&[
        "report",
        "--header",
        "no",
        "--study",
        &study,
        "--rows",
        link.to_str().unwrap(),
    ]);
    refused(&output, 1, &["[already-participated]"]);

    let book = format!("{}.ledger", bench.rows);
    let receipt = run_json(&["receipt", &book, "--json"]);
    assert_eq!(
        (&receipt["spent"]["epsilon"], &receipt["studies"][0]["rows"]),
        (&charged["epsilon"], &ROWS.into())
    );
    let text = String::from_utf8(run(&["receipt", &book]).stdout).unwrap();
    assert!(text.contains("300 rows of 3 numbers"), "{text}");
}

#[test]
fn studies_add_up_and_what_would_pass_the_limit_is_refused_before_anything_is_perturbed() {
    let bench = Bench::new(ROWS);
    for number in 1..=4 {
        let study = bench.study("4");
        let sent = succeeded(&bench.report(&study, &format!("state-{number}"), &[]));
        assert_eq!(sent["accepted"], ROWS);
    }
    let fifth = bench.study("4");
    refused(
        &bench.report(&fifth, "state-5", &[]),
        1,
        &[
            "[budget-exceeded]",
            "rows 1 to 300",
            "on top of 16.0000",
            "16.01 in total",
            "--limit-epsilon",
        ],
    );
    let made = rusqlite::Connection::open(bench.at("state-5/outbox.db"))
        .unwrap()
        .query_row("SELECT count(*) FROM report", [], |row| {
            row.get::<_, i64>(0)
        });
    assert_eq!(made.unwrap(), 0, "something was perturbed");
    // The limit is whoever's who answers for the rows, and stays.
    let more = ["--limit-epsilon", "20.01"];
    let sent = succeeded(&bench.report(&fifth, "state-5", &more));
    assert_eq!(sent["charged"]["limits"]["epsilon_total"], 20.01);
    let sixth = bench.study("1");
    refused(
        &bench.report(&sixth, "state-6", &[]),
        1,
        &["[budget-exceeded]", "20.01 in total"],
    );
    refused(
        &bench.report(&sixth, "state-6", &["--limit-epsilon", "many"]),
        2,
        &["--limit-epsilon"],
    );
    assert_eq!(bench.accepted(&sixth), 0);
}

#[test]
fn another_file_of_the_same_name_is_asked_about() {
    let bench = Bench::new(ROWS);
    succeeded(&bench.report(&bench.study("4"), "state-1", &[]));
    let text = fs::read_to_string(&bench.rows).unwrap();
    // The same rows in another order, and one more.
    let mut lines: Vec<&str> = text.lines().rev().collect();
    lines.push("9,9,9");
    fs::write(&bench.rows, lines.join("\n") + "\n").unwrap();
    let second = bench.study("8");
    let output = bench.report(&second, "state-2", &[]);
    refused(&output, 1, &["number of the row", "--same-participants"]);
    let more = ["--same-participants"];
    let sent = succeeded(&bench.report(&second, "state-2", &more));
    assert_eq!(sent["accepted"], ROWS + 1);
    // Row 301 has spent less than the others, who are refused for all.
    let third = bench.study("5");
    let output = bench.report(&third, "state-3", &more);
    refused(&output, 1, &["[budget-exceeded]", "rows 1 to 300"]);
}

#[test]
fn two_at_once_are_one_report_a_row() {
    let bench = Bench::new(20_000);
    let study = bench.study("4");
    for round in 0..3 {
        let children: Vec<_> = (0..3)
            .map(|number| {
                program()
                    .args(bench.arguments(&study, &format!("state-{round}-{number}"), &[]))
                    .env("EIGENVEIL_SERVER", &bench.server.url)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut succeeded = 0;
        for child in children {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.success() {
                succeeded += 1;
            } else {
                let known = ["another process has it open", "already-participated"];
                assert!(known.iter().any(|known| said.contains(known)), "{said}");
            }
        }
        assert_eq!(succeeded, usize::from(round == 0), "round {round}");
    }
    assert_eq!(bench.accepted(&study), 20_000);
}

/// Killed anywhere, then tried with other outboxes and older copies of the first: one report a row.
#[test]
fn killed_and_tried_with_other_outboxes_a_row_has_one_report() {
    let rows = 20_000;
    let bench = Bench::new(rows);
    let study = bench.study("4");
    let start = |state: &str| {
        program()
            .args(bench.arguments(&study, state, &[]))
            .env("EIGENVEIL_SERVER", &bench.server.url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    // When each state has its first report on the disk.
    let begun = |state: &str| {
        let file = bench.at(state).join("outbox.db");
        let until = Instant::now() + Duration::from_secs(120);
        while fs::metadata(&file).map_or(0, |file| file.len()) < 100_000 {
            assert!(Instant::now() < until, "{state} never began");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for (number, pause) in [0_u64, 20, 60, 150].into_iter().enumerate() {
        let state = format!("state-{number}");
        let mut child = start(&state);
        // Refused at once when another outbox was charged before its kill.
        while child.try_wait().unwrap().is_none()
            && fs::metadata(bench.at(&state).join("outbox.db")).map_or(0, |file| file.len())
                < 100_000
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        if child.try_wait().unwrap().is_none() {
            begun(&state);
            std::thread::sleep(Duration::from_millis(pause));
        }
        let _ = child.kill();
        child.wait().unwrap();
        copy_folder(&bench.at(&state), &bench.at(&format!("copy-{number}")));
    }
    // All go on, the copies first: one of them, or one and its copy, holds what was charged.
    let mut finished = 0;
    for number in 0..4 {
        for state in [format!("copy-{number}"), format!("state-{number}")] {
            let output = bench.report(&study, &state, &[]);
            if output.status.success() {
                finished += 1;
            } else {
                refused(&output, 1, &["[already-participated]"]);
            }
        }
    }
    assert!((1..=2).contains(&finished), "{finished}");
    assert_eq!(bench.accepted(&study), rows);
}
