//! The numbers in README are those that its commands print.

use std::path::Path;

use eigenveil_estimation::format::people;
use eigenveil_shared::{
    codec,
    mechanism::MechanismKind,
    preprocess::Row,
    report::{Report, ReportId},
    study::{StudyDesign, StudyParams},
};
use serde_json::Value;

use crate::harness::run_json;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let text = std::fs::read_to_string(path).unwrap();
    // Sentences continue over line ends.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The numbers after these words, up to the first word that is not a number: "0.80, 0.36 and 0.16;" has three.
fn quoted(text: &str, before: &str) -> Vec<String> {
    assert_eq!(
        text.matches(before).count(),
        1,
        "README has {before:?} once"
    );
    let (_, rest) = text.split_once(before).unwrap();
    let mut numbers = Vec::new();
    for word in rest.split_whitespace().filter(|word| *word != "and") {
        let number = word.trim_end_matches([',', '.', ';', ')', ':']);
        if number.replace(',', "").parse::<f64>().is_err() {
            break;
        }
        numbers.push(number.to_owned());
        if word.ends_with(['.', ';', ')', ':']) {
            break;
        }
    }
    numbers
}

/// Runs the command of README that begins like this, with more flags.
fn printed(text: &str, beginning: &str, more: &str) -> Value {
    let (_, rest) = text.split_once(beginning).unwrap();
    let (rest, _) = rest.split_once("```").unwrap();
    let line = format!("{beginning}{rest}");
    let (_, arguments) = line.split_once(' ').unwrap();
    run_json(&format!("{arguments} {more}"))
}

/// Rounded as in README.
fn two_decimals(values: &Value, key: &str) -> Vec<String> {
    let rows = values["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| format!("{:.2}", row[key].as_f64().unwrap()))
        .collect()
}

#[test]
fn readme_numbers_match_the_commands() {
    let text = readme();
    let simulate = "eigenveil simulate --model spiked";
    let ours = two_decimals(&printed(&text, simulate, ""), "error_mean");
    assert_eq!(quoted(&text, "`double-cap`, the error is "), ours);
    let paper = "--mechanism symmetric-gaussian --calibration as-published";
    let theirs = two_decimals(&printed(&text, simulate, paper), "error_mean");
    assert_eq!(quoted(&text, &format!("(`{paper}`) ")), theirs);

    let plan = printed(&text, "eigenveil plan --p 40", "");
    let rows = plan["rows"].as_array().unwrap().iter();
    let users: Vec<String> = rows
        .filter(|row| row["mechanism"] == "double-cap")
        .map(|row| people(row["n"].as_u64().unwrap()))
        .collect();
    assert_eq!(quoted(&text, "`double-cap` needs "), users);

    let central = printed(&text, "eigenveil central analyze-gauss", "");
    let error = format!("{:.3}", central["error_mean"].as_f64().unwrap());
    assert_eq!(quoted(&text, "would get at the same ε (error "), [error]);
    assert_eq!(quoted(&text, "; `double-cap` "), [ours[0].clone()]);
}

/// The size of a report: the payload, and the whole with identifier, fingerprint and envelope.
#[test]
fn readme_report_size_is_right() {
    let text = readme();
    let (p, kind) = (64, MechanismKind::DoubleCap);
    let study =
        StudyParams::freeze(StudyDesign::new(kind, p, kind.budget(4.0, None).unwrap())).unwrap();
    let row = Row::new(vec![0.3; p]);
    let row = study.preprocessor().prepare(&row).unwrap();
    let payload = study.mechanism().perturb(&row).unwrap();
    let bytes = payload.len();
    let report = codec::encode_report(&Report {
        id: ReportId::from_parts(1_700_000_000_000, [7; 16]),
        fingerprint: study.fingerprint(),
        payload,
    });
    let wire = report.len();
    assert_eq!((bytes, wire), (16, 74));
    for words in [
        format!("one report of {wire} bytes leaves it (a {bytes}-byte payload"),
        format!("one report of {wire} bytes (payload {bytes} bytes)"),
    ] {
        assert!(text.contains(&words), "README does not say {words:?}");
    }
}
