//! A program that reports the rows of a file is killed at arbitrary points. The test program runs itself as the child.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use eigenveil_client::{PendingReport, ReportResult, RowLedger, Study};
use eigenveil_shared::study::to_hex;

use crate::{
    common::{self, PAYLOAD_LEN, assert_says},
    files::{self, Folder, prepare, rows},
    ledger_crash::{KillTimes, killed, spin},
};

const PATH: &str = "EIGENVEIL_TEST_ROW_LEDGER";
const STUDIES: u64 = 6;
/// More than one write.
const ROWS: u64 = 1_500;

fn study(number: u64) -> Study {
    common::study(&number.to_string(), 0.125)
}

fn bytes_of(pending: &PendingReport) -> String {
    format!("{}{}", pending.report.id, to_hex(&pending.report.payload))
}

/// Works as the child until it is killed: makes the missing reports and says which are kept, takes some as acknowledged
/// and, in every other study, gives up the rest, and says so *afterwards*.
#[test]
fn child() {
    let Some(path) = env::var_os(PATH) else {
        return;
    };
    let mut out = std::io::stdout();
    out.write_all(b"\nbegins\n").unwrap();
    let mut ledger = RowLedger::open(path).unwrap();
    let file = rows(&ledger, ROWS);
    for number in 0..STUDIES {
        let study = study(number);
        prepare(&mut ledger, &study, &file).unwrap();
        let pending = ledger.pending(&study, 0, usize::MAX).unwrap();
        let said = pending
            .iter()
            .map(|kept| format!("kept {number} {} {}\n", kept.row, bytes_of(kept)));
        out.write_all(said.collect::<String>().as_bytes()).unwrap();
        let thirds = (0..ROWS).step_by(3);
        let results = thirds.map(|row| (row, ReportResult::Accepted));
        ledger.record(&study, results).unwrap();
        let said = format!("acknowledged {number}\n");
        out.write_all(said.as_bytes()).unwrap();
        if number % 2 == 1 {
            ledger.give_up(study.id()).unwrap();
            let line = format!("gave-up {number}\n");
            out.write_all(line.as_bytes()).unwrap();
        }
    }
    out.write_all(b"finished\n").unwrap();
}

/// A ledger over all its restarts, as this test knows it.
#[derive(Default)]
struct Seen {
    /// Study and row → identifier and payload, for ever.
    fixed: BTreeMap<(u64, u64), String>,
    /// Studies of which each third report is acknowledged.
    acknowledged: Vec<u64>,
    /// Studies of which the other reports are given up.
    given_up: Vec<u64>,
}

impl Seen {
    fn note(&mut self, study: u64, row: u64, bytes: &str) {
        let fixed = self.fixed.entry((study, row));
        let was = fixed.or_insert_with(|| bytes.to_owned());
        assert_eq!(
            *was, bytes,
            "row {row} got a second report for study {study}"
        );
    }

    /// Runs the child, and kills it after this time; whether it had finished before.
    fn run(&mut self, path: &Path, kill_after: Option<Duration>) -> bool {
        let mut child = files::child("row_ledger_crash::child")
            .env(PATH, path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("begins")));
        // It never waits to be read.
        let reader = thread::spawn(move || lines.collect::<Vec<_>>());
        if let Some(time) = kill_after {
            spin(time);
            child.kill().unwrap();
        }
        let said = reader.join().unwrap();
        let status = child.wait().unwrap();
        let finished = said.iter().any(|line| line == "finished");
        assert!(finished || killed(status), "it failed itself: {status}");
        for line in said {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                // The kill may have cut the last one.
                ["kept", study, row, bytes] if bytes.len() == 32 + 2 * PAYLOAD_LEN => {
                    self.note(study.parse().unwrap(), row.parse().unwrap(), bytes);
                }
                ["acknowledged", study] => {
                    self.acknowledged.extend(study.parse::<u64>());
                }
                ["gave-up", study] => self.given_up.extend(study.parse::<u64>()),
                _ => {}
            }
        }
        finished
    }

    /// A row has charge and report or neither, and the report is the one that was fixed.
    fn check(&mut self, path: &Path, ledger: &RowLedger) {
        let studies = ledger.receipt().unwrap().studies;
        for number in 0..STUDIES {
            let counts = ledger.counts(&study(number)).unwrap();
            let mut charged = studies.iter().filter(|own| own.study == number.to_string());
            let charged = charged.next().map_or(0, |own| own.rows);
            assert_eq!(counts.total(), charged, "{}", path.display());
            assert_eq!(counts.refused, 0);
            // They are made from the first row on.
            let last = self.fixed.range((number, 0)..(number + 1, 0)).next_back();
            assert!(
                last.is_none_or(|((_, row), _)| *row < charged),
                "it is lost"
            );
            let pending = ledger.pending(&study(number), 0, usize::MAX).unwrap();
            assert_eq!(pending.len() as u64, counts.pending);
            for pending in &pending {
                // Kept and not said, or said: the same from now on.
                self.note(number, pending.row, &bytes_of(pending));
            }
            let thirds = pending.iter().filter(|pending| pending.row % 3 == 0);
            let all = charged.div_ceil(3);
            let left = if counts.acknowledged == 0 { all } else { 0 };
            assert_eq!(thirds.count() as u64, left, "acknowledged in one write");
            assert_eq!(counts.acknowledged, all - left);
            if self.acknowledged.contains(&number) {
                assert_eq!(left, 0, "it would be sent again");
            }
            let rest = [0, charged - all][usize::from(pending.is_empty())];
            assert_eq!(counts.given_up, rest, "given up in one write");
            if self.given_up.contains(&number) {
                assert!(pending.is_empty(), "it would be sent");
            }
        }
    }
}

#[test]
fn killed_anywhere_a_row_has_charge_and_report_or_neither() {
    kill_ledgers(16, 5);
}

#[test]
#[ignore = "minutes"]
fn killed_hundreds_of_times() {
    kill_ledgers(500, 6);
}

fn kill_ledgers(wanted: usize, seed: u64) {
    let folder = Folder::new();
    let begun = Instant::now();
    assert!(Seen::default().run(&folder.at("whole"), None));
    let whole = begun.elapsed();
    let mut moments = KillTimes(seed);
    let (mut kills, mut ledgers) = (0, 0);
    while kills < wanted {
        let folder = Folder::new();
        let path = folder.at("rows");
        let mut seen = Seen::default();
        ledgers += 1;
        for _ in 0..6 {
            // An unkilled run does the most at its beginning, where a later one only looks.
            let limit = whole.as_micros() as u64 / (1 + moments.next_below(3));
            let after = Duration::from_micros(moments.next_below(limit.max(1)));
            if seen.run(&path, Some(after)) {
                break;
            }
            kills += 1;
            if !path.exists() {
                continue;
            }
            // What was said is in the file, without the log and under another name.
            let other = folder.at(&format!("copy-{kills}"));
            fs::copy(&path, &other).unwrap();
            match RowLedger::open(&other) {
                Ok(found) => seen.check(&other, &found),
                Err(error) => assert_says(error, &["damaged"]),
            }
            seen.check(&path, &RowLedger::open(&path).unwrap());
        }
        // In the end, unkilled: every row has its report, and those that were there are the same.
        assert!(seen.run(&path, None));
        seen.check(&path, &RowLedger::open(&path).unwrap());
        assert_eq!(seen.acknowledged.iter().max(), Some(&(STUDIES - 1)));
        let ledger = RowLedger::open(&path).unwrap();
        let studies = ledger.receipt().unwrap().studies;
        assert!(studies.iter().all(|study| study.rows == ROWS));
        assert_eq!(studies.len() as u64, STUDIES);
    }
    println!(
        "{kills} kills, {ledgers} ledgers; an unkilled run takes {:.0} ms",
        whole.as_secs_f64() * 1e3
    );
}
