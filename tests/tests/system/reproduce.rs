//! `eigenveil reproduce`: after SIGKILL it repeats nothing; without data it says what is missing.

use std::{
    collections::BTreeSet,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::{
    harness::{program, refused, run, run_json, says, succeeded},
    waiting::MAX_WAIT,
};

/// The complete lines of a journal after its header.
fn runs(journal: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    text.split_inclusive('\n')
        .skip(1)
        .filter(|line| line.ends_with('\n'))
        .map(|line| line.split("\"points\"").next().unwrap().to_owned())
        .collect()
}

/// Starts the exhibit, waits until its journal has this many runs, and kills it.
fn killed_after(out: &Path, exhibit: &str, wanted: usize) -> Vec<String> {
    let journal = out.join(format!("{exhibit}.journal"));
    let mut child = program()
        .args(["reproduce", exhibit, "--out", out.to_str().unwrap()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while runs(&journal).len() < wanted {
        let ended = child.try_wait().unwrap().is_some() || started.elapsed() > MAX_WAIT;
        assert!(!ended, "it came to {} runs", runs(&journal).len());
        std::thread::sleep(Duration::from_millis(20));
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    runs(&journal)
}

#[test]
fn no_run_is_repeated_after_sigkill() {
    let out = tempfile::tempdir().unwrap();
    let first = killed_after(out.path(), "wang-xu-figure-3", 3);
    let second = killed_after(out.path(), "wang-xu-figure-3", first.len() + 3);
    assert_eq!(second[..first.len()], first[..]);
    let distinct: BTreeSet<_> = second.iter().collect();
    assert_eq!(distinct.len(), second.len(), "{second:?}");
}

#[test]
fn list_names_data_minutes_and_differences() {
    let listed = run_json("reproduce list");
    let exhibits = listed["exhibits"].as_array().unwrap();
    let table_1 = exhibits
        .iter()
        .find(|exhibit| exhibit["id"] == "wang-xu-table-1")
        .unwrap();
    assert!(
        table_1["differs_from_paper"]
            .as_str()
            .unwrap()
            .contains("NIPS")
    );
    assert!(table_1["data"].to_string().contains("isolet.npy"));
    for exhibit in exhibits {
        let [quick, full] =
            ["minutes_quick", "minutes_full"].map(|key| exhibit[key].as_f64().unwrap());
        assert!(0.0 < quick && quick <= full, "{exhibit}");
    }
    let minutes = exhibits.iter().map(|exhibit| &exhibit["minutes_quick"]);
    let minutes: f64 = minutes.map(|quick| quick.as_f64().unwrap()).sum();
    assert!(minutes <= 20.0, "all of them take {minutes} minutes");
    let list = succeeded(&run("reproduce list"));
    says(&list, &["wang-xu-figure-3", "minutes"]);
}

#[test]
fn missing_data_is_an_error() {
    let out = tempfile::tempdir().unwrap();
    let reproduce = |name: &str| run(&format!("reproduce {name} --out {}", out.path().display()));
    refused(
        &reproduce("wang-xu-table-1"),
        1,
        &[
            "isolet.npy",
            "--data",
            "scikit-feature",
            "1 of 1 exhibits were not run",
        ],
    );
    refused(&reproduce("wang-xu-table-9"), 2, &["wang-xu-table-2"]);
}

#[test]
fn page_is_made_from_matching_tables_only() {
    let results = tempfile::tempdir().unwrap();
    let folder = results.path().display();
    let done = succeeded(&run(&format!("reproduce liu-figure-1 --out {folder}")));
    says(&done, &["liu-figure-1 agrees"]);
    let page = || run(&format!("reproduce page --results {folder}"));
    let text = succeeded(&page());
    says(&text, &["### wang-xu-table-1", "Not run yet."]);
    std::fs::write(results.path().join("wang-xu-table-1.csv"), "x,y\n1,2\n").unwrap();
    refused(&page(), 2, &["columns differ", "reproduce wang-xu-table-1"]);
}
