//! `eigenveil moment` as a process: from reports to tables with intervals.

use std::fmt::Write as _;

use eigenveil_tables::npy;

use crate::harness::{Folder, has, has_keys, refused, refuses, run, run_json, says, succeeded};

const KEYS: &str = "study job n p directions_only around_the_mean pairs refused correlations regression \
    further_epsilon warnings out";
const REPORTS: usize = 4_000;

/// `height` and `weight` vary together, away from the public centers; `age` does not.
fn rows() -> Vec<[f64; 3]> {
    let row = |i: usize| {
        let [tall, heavy, old] = [(i % 41, 41), (i * 5 % 17, 17), (i * 7 % 11, 11)]
            .map(|(at, of)| 2.0 * at as f64 / f64::from(of - 1) - 1.0);
        [0.5 + tall, 0.2 + 0.8 * tall + 0.5 * heavy, old]
    };
    (0..REPORTS).map(row).collect()
}

/// A study with the reports of these rows; its server, and its identifier.
fn reported(folder: &Folder, flags: &str) -> (crate::harness::ServerProcess, String) {
    let mut text = String::from("height,weight,age\n");
    for [height, weight, age] in rows() {
        writeln!(text, "{height},{weight},{age}").unwrap();
    }
    let rows = folder.write("rows.csv", text);
    let names = "name,center,scale\nheight,0,1\nweight,0,1\nage,0,1\n";
    let features = folder.write("features.csv", names);
    let server = folder.server();
    let study = server.create_study(&format!("--epsilon 8 --k 1 --features {features} {flags}"));
    server.cli_json(&format!("report --study {study} --rows {rows}"));
    (server, study)
}

/// Mean and covariance of the rows' directions.
fn truth() -> ([f64; 3], [[f64; 3]; 3]) {
    let mut mean = [0.0; 3];
    let mut moment = [[0.0; 3]; 3];
    for row in rows() {
        let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        let share = 1.0 / REPORTS as f64;
        for i in 0..3 {
            mean[i] += share * row[i] / length;
            for j in 0..3 {
                moment[i][j] += share * row[i] * row[j] / (length * length);
            }
        }
    }
    let covariance = |i: usize, j: usize| moment[i][j] - mean[i] * mean[j];
    let all = std::array::from_fn(|i| std::array::from_fn(|j| covariance(i, j)));
    (mean, all)
}

/// The cells of the lines of a CSV file after its header.
fn cells(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().skip(1);
    lines.map(|line| line.split(',').collect()).collect()
}

/// Fourteen numbers are within five of their standard errors, which one study in 100,000 would miss.
#[test]
fn the_moment_comes_with_files_that_hold_the_truth() {
    let folder = Folder::new();
    let (server, study) = reported(&folder, "--centring");
    let out = folder.at("out");
    let regress = "--regress weight --on height,age";
    let answer = server.cli_json(&format!("moment --study {study} --out {out} {regress}"));
    has_keys(&answer, KEYS);
    has(
        &answer,
        "n=4000 job=1 pairs=3 refused=0 further_epsilon=0.0",
    );
    has(&answer, "directions_only=true around_the_mean=true");

    let (mean, covariance) = truth();
    let near = |value: f64, error: f64, of: f64| {
        assert!(error > 0.0 && error < 0.05, "{error}");
        assert!((value - of).abs() < 5.0 * error, "{value} ± {error}: {of}");
    };
    let array = |name: &str| npy::read(&std::fs::read(folder.at(name)).unwrap()).unwrap();
    let moment = array("out/moment.npy");
    let errors = array("out/standard-errors.npy").values;
    assert_eq!((moment.rows, moment.columns), (3, 3));
    for (at, (value, error)) in moment.values.iter().zip(errors).enumerate() {
        near(*value, error, covariance[at / 3][at % 3]);
    }
    // The projected one has the trace that unit rows leave.
    let projected = array("out/moment-projected.npy").values;
    let text = folder.read("out/mean.csv");
    let lines = cells(&text);
    let number = |cell: &str| cell.parse::<f64>().unwrap();
    let squared: f64 = lines.iter().map(|line| number(line[1]).powi(2)).sum();
    let trace = projected[0] + projected[4] + projected[8];
    assert!((trace - (1.0 - squared)).abs() < 1e-9, "{trace}");
    for (line, of) in lines.iter().zip(mean) {
        near(number(line[1]), number(line[2]), of);
    }

    let text = folder.read("out/correlation.csv");
    let correlations = cells(&text);
    let largest = &answer["correlations"][0];
    assert_eq!(correlations[0][..2], ["height", "weight"]);
    has(largest, "feature=height with=weight");
    assert_eq!(largest["value"].as_f64(), Some(number(correlations[0][2])));
    let correlation = covariance[0][1] / (covariance[0][0] * covariance[1][1]).sqrt();
    near(
        number(correlations[0][2]),
        number(correlations[0][3]),
        correlation,
    );
    assert!(folder.read("out/covariance.csv").contains("\nage,age,"));
    let map = folder.read("out/correlations.svg");
    says(&map, &["height ~ weight: 0.", "1 height"]);
    let regression = folder.read("out/regression.csv");
    assert_eq!(cells(&regression).len(), 2, "{regression}");

    // The document answers other questions without a server, and the same one with the same numbers.
    let offline = format!("moment --estimate {out}/estimate.json");
    let again = run_json(&format!("{offline} {regress}"));
    assert_eq!(again["regression"], answer["regression"]);
    let message = succeeded(&run(&format!("{offline} --regress age --on height")));
    assert!(
        message.starts_with("normalize: these numbers describe directions only"),
        "{message}"
    );
    says(
        &message,
        &[
            "no further epsilon is spent",
            "largest by correlation of directions, 3 of 3 pairs",
            "height ~ weight",
            "regression of age",
        ],
    );
    let over = format!("--out {out} --overwrite");
    refuses(
        &offline,
        &[
            (&over, "input of this command"),
            ("--regress weight", "--on"),
            (
                "--regress wide --on age",
                "no feature \"wide\"; it has height, weight, age",
            ),
            ("--regress age --on age", "--on age is the feature"),
            ("--regress age --on height,height", "height twice"),
            (
                "--regress age --on \"height,cm\",weight",
                "no feature \"height,cm\"",
            ),
        ],
    );

    // Whoever may read estimates may read this one, and start none.
    let alice = folder.at("alice");
    server.cli_json(&format!(
        "token create --name alice --study {study} --out {alice}"
    ));
    let hers = format!("moment --study {study} --token-file {alice}");
    succeeded(&server.cli(&format!("{hers} --job 1")));
    refused(&server.cli(&hers), 1, &["[forbidden]"]);
    // An estimate that was made for its components has no moment.
    let estimate = format!(
        "estimate --study {study} --wait --out {}",
        folder.at("other")
    );
    server.cli_json(&estimate);
    let other = server.cli(&format!("moment --study {study} --job 2"));
    refused(&other, 2, &["requested without the moment"]);
}

#[test]
fn what_the_reports_do_not_show_is_refused_by_name() {
    let folder = Folder::new();
    let (server, study) = reported(&folder, "--bound-rows clip --radius 2");
    let out = folder.at("out");
    let answer = server.cli_json(&format!(
        "moment --study {study} --out {out} --regress age --on height"
    ));
    has(&answer, "refused=3 pairs=3");
    assert_eq!(answer["directions_only"], false);
    let why = "the reports of double-cap show no variances under clip";
    assert!(
        answer["regression"]["refused"]
            .as_str()
            .unwrap()
            .contains(why)
    );
    let covariance = folder.read("out/covariance.csv");
    assert!(covariance.contains("height,height,,,,,\"the reports of double-cap"));
    let entries = cells(&covariance);
    assert!(entries[1][2].parse::<f64>().is_ok(), "{covariance}");
    for file in ["correlation.csv", "regression.csv"] {
        assert!(folder.read(&format!("out/{file}")).contains(why), "{file}");
    }
    for absent in ["moment-projected.npy", "mean.csv"] {
        assert!(!folder.path().join("out").join(absent).exists(), "{absent}");
    }
}
