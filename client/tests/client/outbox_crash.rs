//! The outbox is killed at arbitrary points. The test program runs itself as the child.

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::Stdio,
};

use eigenveil_client::Outbox;
use eigenveil_shared::study::to_hex;

use crate::common::{self, Folder, SERVER, assert_says, borrowed, prepare, reporter, study_ref};

const PATH: &str = "EIGENVEIL_TEST_OUTBOX";
const PARTICIPANTS: u64 = 4_000;

/// What the child does until it is killed: perturb what is missing in small batches, acknowledge some
/// of it, and say what is committed *after* it is.
#[test]
fn child() {
    let Some(path) = env::var_os(PATH) else {
        return;
    };
    let mut outbox = Outbox::open(path, &study_ref(SERVER)).unwrap();
    let reporter = reporter();
    let mut out = std::io::stdout();
    for start in (0..PARTICIPANTS).step_by(20) {
        let missing = outbox.missing(start..start + 20).unwrap();
        let prepared = prepare(&reporter, &missing);
        let new = outbox.enqueue_batch(borrowed(&prepared)).unwrap();
        assert_eq!(new, missing);
        let mut said = String::new();
        for (index, prepared) in &prepared {
            let report = prepared.report();
            said += &format!("kept {index} {}{}\n", report.id, to_hex(&report.payload));
        }
        out.write_all(said.as_bytes()).unwrap();
        let acknowledged: Vec<u64> = missing.iter().copied().filter(|i| i % 3 == 0).collect();
        outbox.record_acknowledged(&acknowledged).unwrap();
        let said = acknowledged.iter().map(|i| format!("acknowledged {i}\n"));
        let said: String = said.collect();
        out.write_all(said.as_bytes()).unwrap();
    }
    out.write_all(b"finished\n").unwrap();
}

#[derive(Default)]
struct Seen {
    /// Participant → identifier and payload, for ever.
    fixed: BTreeMap<u64, String>,
    acknowledged: Vec<u64>,
    finished: bool,
}

/// Runs the child and kills it after `lines` lines.
fn run_and_kill(path: &Path, lines: usize, seen: &mut Seen) {
    let mut child = common::child("outbox_crash::child")
        .env(PATH, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let reader = BufReader::new(child.stdout.take().unwrap());
    let mut read = 0;
    for line in reader.lines() {
        let line = line.unwrap();
        // The test runner may have written its own words before the child's first line.
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(at) = words.iter().position(|w| *w == "kept") {
            // A line cut by the kill has no newline but is still given: the last one may be short.
            if let [index, bytes] = words[at + 1..] {
                let index = index.parse().unwrap();
                if bytes.len() == 32 + 2 * 60 {
                    note(&mut seen.fixed, index, bytes);
                }
            }
        } else if let ["acknowledged", index] = words[..]
            && let Ok(index) = index.parse::<u64>()
            && seen.fixed.contains_key(&index)
        {
            seen.acknowledged.push(index);
        } else if line.ends_with("finished") {
            seen.finished = true;
        }
        read += 1;
        if read == lines {
            child.kill().unwrap();
            // What it said before is still read; it was true when it was said.
        }
    }
    let status = child.wait().unwrap();
    assert!(status.success() || read >= lines, "it failed by itself");
}

fn note(fixed: &mut BTreeMap<u64, String>, index: u64, bytes: &str) {
    let was = fixed.entry(index).or_insert_with(|| bytes.to_owned());
    assert_eq!(*was, bytes, "participant {index} got a second report");
}

/// Every participant has no report or the one that was fixed.
fn check(path: &Path, seen: &mut Seen) {
    let outbox = Outbox::open(path, &study_ref(SERVER)).unwrap();
    let pending = outbox.pending(usize::MAX).unwrap();
    for p in &pending {
        let bytes = format!("{}{}", p.report.id, to_hex(&p.report.payload));
        // Committed but not said, or said: the same from now on.
        note(&mut seen.fixed, p.participant, &bytes);
    }
    let pending: Vec<u64> = pending.iter().map(|p| p.participant).collect();
    for &index in seen.fixed.keys() {
        assert!(outbox.has_report(index).unwrap(), "{index} is lost");
    }
    for index in &seen.acknowledged {
        assert!(!pending.contains(index), "{index} would be sent again");
    }
    let counts = outbox.counts().unwrap();
    assert_eq!(counts.pending, pending.len() as u64);
    assert_eq!(counts.refused, 0);
    let missing = outbox.missing(0..PARTICIPANTS).unwrap();
    assert_eq!(counts.total(), PARTICIPANTS - missing.len() as u64);
}

#[test]
fn killed_anywhere_a_participant_has_no_report_or_one_for_ever() {
    let folder = Folder::new();
    let path = folder.at("outbox");
    let mut seen = Seen::default();
    let mut sizes = Vec::new();
    for lines in [5, 31, 47, 170, 3, 333, 64, 501] {
        run_and_kill(&path, lines, &mut seen);
        // What was said is in the file, without the log and under another name.
        let other = folder.at("other");
        fs::copy(&path, &other).unwrap();
        match Outbox::open(&other, &study_ref(SERVER)) {
            Ok(found) => {
                for index in seen.fixed.keys() {
                    assert!(found.has_report(*index).unwrap(), "{index} is lost");
                }
            }
            Err(error) => assert_says(error, &["damaged"]),
        }
        check(&path, &mut seen);
        sizes.push(seen.fixed.len());
    }
    // The kills must come in the middle.
    assert!(!seen.finished, "{sizes:?}");
    assert!(sizes[7] > 500, "{sizes:?}");
    run_and_kill(&path, usize::MAX, &mut seen);
    assert!(seen.finished);
    check(&path, &mut seen);
    assert_eq!(seen.fixed.len() as u64, PARTICIPANTS);
}
