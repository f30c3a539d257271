//! `eigenveil central` as a process.

use std::fmt::Write as _;

use eigenveil_central::ALGORITHMS;

use crate::harness::{Folder, has, has_keys, refused, refuses, run, run_json, says, succeeded};

const KEYS: &str = "algorithm epsilon delta true_epsilon neighbours calibration error_mean captured_variance seconds \
    algorithm_seconds";

#[test]
fn every_listed_algorithm_runs_and_prints_the_agreed_keys() {
    let listed = run_json("central list");
    let listed = listed["algorithms"].as_array().unwrap();
    assert_eq!(listed.len(), ALGORITHMS.len());
    for entry in listed {
        let name = entry["algorithm"].as_str().unwrap();
        for key in ["source", "description", "guarantee"] {
            assert!(!entry[key].as_str().unwrap().is_empty(), "{name}");
        }
        let plain = format!("central {name} --seed 1 --model spiked --p 8 --n 4000 --k 2");
        let result = run_json(&plain);
        has_keys(&result, KEYS);
        assert_eq!(result["algorithm"], name);
        has(&result, "epsilon=null true_epsilon=null");
        has(&result, "neighbours=null calibration=null");
        let error = result["error_mean"].as_f64().unwrap();
        assert!(error < 0.5, "{name}: {error}");
        for calibration in entry["calibrations"].as_array().unwrap() {
            for neighbours in entry["neighbours"].as_array().unwrap() {
                let [given, of] = [calibration, neighbours].map(|text| text.as_str().unwrap());
                // Accounting takes seconds, and zero-out doubles that; `central/tests` covers it.
                if given == "accounted" && of == "zero-out" {
                    continue;
                }
                let result = run_json(&format!(
                    "{plain} --epsilon 8 --calibration {given} --neighbours {of}"
                ));
                has_keys(&result, KEYS);
                has(&result, &format!("calibration={given} neighbours={of}"));
                if given == "accounted" {
                    let real = result["true_epsilon"].as_f64().unwrap();
                    assert!(real <= 8.0 && result["claim_holds"] == true, "{result}");
                }
            }
        }
    }
    let message = succeeded(&run("central list"));
    for info in ALGORITHMS {
        says(&message, &[info.name, info.source]);
        let flags = info.parameters.iter();
        let flags: Vec<_> = flags.map(|flag| format!("--{}", flag.name)).collect();
        says(&message, &flags);
    }
}

/// The trace of an iterative algorithm ends at the reported error and does not change the result.
#[test]
fn trace_does_not_change_the_result() {
    for info in ALGORITHMS {
        let name = info.name;
        let plain = format!("central {name} --seed 1 --model haystack --p 8 --n 500 --k 2");
        let traced = format!("{plain} --trace");
        if !info.has_trace {
            refused(&run(&traced), 2, &["no iterations", "--trace"]);
            continue;
        }
        let without = run_json(&plain);
        assert!(without.get("trace").is_none());
        let with = run_json(&traced);
        assert_eq!(without["error_mean"], with["error_mean"], "{name}");
        let last = with["trace"].as_array().unwrap().last().unwrap();
        has_keys(last, "iteration passes error objective");
        assert!(last["error"].as_f64().unwrap() < 3.0 && last["passes"].as_f64().unwrap() > 0.0);
        let text = succeeded(&run(&traced));
        assert!(text.contains("first run; not private"), "{text}");
    }
}

#[test]
fn central_reads_rows_writes_loadings_and_repeats_with_a_seed() {
    let folder = Folder::new();
    let mut rows = String::from("a,b,c\n");
    for turn in 0..400 {
        let t = f64::from(turn);
        writeln!(rows, "{},{},0.05", t.sin(), 0.3 * t.cos()).unwrap();
    }
    let (rows, out) = (folder.write("rows.csv", rows), folder.at("components.csv"));
    let summary = |more: &str| {
        let mut result = run_json(&format!(
            "central analyze-gauss --rows {rows} --k 1 --epsilon 4 {more}"
        ));
        for key in ["seconds", "algorithm_seconds"] {
            assert!(result.as_object_mut().unwrap().remove(key).is_some());
        }
        result
    };
    let seeded = "--seed 3 --repeats 2";
    assert_eq!(summary(seeded), summary(seeded));
    let result = summary(&format!("--out {out}"));
    assert_ne!(summary(""), result);
    has(&result, "n=400 p=3");
    let written = folder.read("components.csv");
    assert_eq!(written.lines().count(), 4);
    assert!(written.starts_with("feature,component1\na,"), "{written}");
    assert_eq!(summary("--n 1000")["n"], 1000);
    // A missing guarantee is null in JSON, and the text says so.
    let message = succeeded(&run(&format!(
        "central wishart --rows {rows} --k 1 --epsilon 1 --calibration as-published"
    )));
    says(&message, &["no finite epsilon at delta", "0.283"]);
    let accounted = run(&format!("central wishart --rows {rows} --k 1 --epsilon 1"));
    refused(&accounted, 2, &["--calibration as-published"]);
    // Fewer rows than one batch.
    let few = run(&format!(
        "central minibatch-oja --rows {rows} --k 1 --batch 1000"
    ));
    refused(&few, 2, &["1000", "400"]);
}

#[test]
fn central_refuses_wrong_usage() {
    let folder = Folder::new();
    let long = folder.write("long.csv", "a,b\n0.5,0.1\n9.25,0\n");
    let nan = folder.write("nan.csv", "a,b\n0.5,0.1\nNaN,0\n");
    let message = refuses(
        &format!("central analyze-gauss --k 1 --rows {long}"),
        &[
            ("--bound-rows require", "row 2"),
            ("--epsilon 17", "at most 16"),
            ("--delta 1e-6", "--epsilon"),
            ("--epsilon 1 --delta 0", "delta is 0"),
            ("--repeats 0", "--repeats"),
            ("--neighbours add", "replace"),
        ],
    );
    // Messages never contain a value of a row.
    assert!(!message.contains("9.25"), "{message}");
    let of_nan = format!("analyze-gauss --k 1 --rows {nan}");
    refuses(
        "central",
        &[
            (&of_nan, "line 3, column 1: the value is missing"),
            ("analyze-gauss --n 10 --k 5 --model spiked --p 4", "k = 5"),
            ("analyse-gauss --k 1", "analyze-gauss"),
            ("", "ALGORITHM"),
        ],
    );
    // The p × p matrix would take 137 GB; the algorithms that use products with the rows do not need it.
    let wide = folder.write("wide.libsvm", "1 131072:1\n");
    let much = run(&format!("central analyze-gauss --rows {wide} --k 2"));
    refused(&much, 2, &["131072 columns", "at most 20000"]);
    let answer = run_json(&format!("central pca --rows {wide} --k 2"));
    assert!((answer["captured_variance"].as_f64().unwrap() - 1.0).abs() < 1e-12);
}

/// Columns 10⁸ from 0: the sum of outer products has no digits left for the spread, and the second component would be
/// pure rounding error, consistent with itself.
#[test]
fn pca_finds_the_spread_of_rows_far_from_0() {
    let folder = Folder::new();
    let mut text = String::from("a,b,c,d\n");
    for i in 0..140_i64 {
        let (t, u) = (2 * (i % 7 - 3), i % 5 - 2);
        let [a, b, c, d] = [t, -t, u, -u].map(|x| 100_000_000 + x);
        writeln!(text, "{a},{b},{c},{d}").unwrap();
    }
    let (rows, out) = (folder.write("rows.csv", text), folder.at("loadings.csv"));
    let answer = run_json(&format!("central pca --k 2 --rows {rows} --out {out}"));
    assert!(answer["error_mean"].as_f64().unwrap() < 1e-6, "{answer}");
    let half = 0.5_f64.sqrt();
    let loadings = folder.read("loadings.csv");
    let lines = loadings.lines().skip(1);
    for (line, expected) in lines.zip([half, -half, 0.0, 0.0]) {
        let loading: f64 = line.rsplit(',').next().unwrap().parse().unwrap();
        assert!((loading - expected).abs() < 1e-6, "{line}");
    }
}
