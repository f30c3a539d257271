//! `eigenveil plan` as a process.

use crate::harness::{Folder, has, has_keys, refused, refuses, run, run_json, says, succeeded};

const BASE: &str = "plan --p 40 --k 2 --spectrum 0.3,0.2,0.05";
const KEYS: &str = "mechanism epsilon delta n n_at_least error error_range report_bytes calibration true_epsilon \
    claim_holds components_above_floor reason";

#[test]
fn plan_prints_the_agreed_keys() {
    let folder = Folder::new();
    let planned = run_json(&format!(
        "{BASE} --epsilon 2,4 --target-error 0.3 --calibration as-published --plot {}",
        folder.at("plan.svg")
    ));
    let rows = planned["rows"].as_array().unwrap();
    // Four mechanisms and the paper's own noise, two ε each.
    assert_eq!(rows.len(), 10);
    for row in rows {
        has_keys(row, KEYS);
        assert!(row["error_range"][1].as_f64().unwrap() <= 0.3 && row["reason"].is_null());
        assert!(row["n_at_least"].as_u64() < row["n"].as_u64(), "{row}");
    }
    let find = |mechanism: &str, calibration: Option<&str>| {
        let mut rows = rows.iter().filter(|row| row["epsilon"] == 4.0);
        rows.find(|row| row["mechanism"] == mechanism && row["calibration"].as_str() == calibration)
            .unwrap()
    };
    let cap = find("double-cap", None);
    has(cap, "delta=0.0 report_bytes=74");
    let published = find("symmetric-gaussian", Some("as-published"));
    assert_eq!(published["claim_holds"], false);
    let analytic = find("symmetric-gaussian", Some("analytic"));
    assert!(published["n"].as_u64() < analytic["n"].as_u64());
    assert!(cap["n"].as_u64() < analytic["n"].as_u64());
    let svg = folder.read("plan.svg");
    assert!(
        svg.contains("How many users?") && svg.contains("as published") && !svg.contains("NaN")
    );

    let table = folder.write("rows.csv", "mine");
    let plot = format!("{BASE} --epsilon 4 --target-error 0.3 --plot");
    refuses(&plot, &[(&table, "ends in .svg")]);
    assert_eq!(folder.read("rows.csv"), "mine");

    // With two eigenvalues the third may be as large as the second.
    let open = run_json(
        "plan --p 40 --k 2 --spectrum 0.3,0.2 --epsilon 4 --target-error 0.3 --mechanism double-cap",
    );
    let row = &open["rows"][0];
    assert!(
        row["n"].is_null() && row["n_at_least"].as_u64() < cap["n"].as_u64(),
        "{open}"
    );
    says(
        &row["reason"].to_string(),
        &["components 2 and 3 may be equal"],
    );
    says(
        &open["notes"].to_string(),
        &["2 of 40 eigenvalues are given"],
    );

    let message = succeeded(&run(&format!("{BASE} --epsilon 4 --target-error 0.3")));
    assert!(
        message.contains("How many users do I need?") && !message.contains("as-published"),
        "{message}"
    );
}

#[test]
fn plan_refuses_wrong_usage() {
    refuses(
        BASE,
        &[
            ("--epsilon 4 --target-error 2", "drawn at random"),
            ("--epsilon 17 --target-error 1", "at most 16"),
            ("--epsilon 4", "--target-error may stand in place of --n"),
            ("--epsilon 4 --n 0", "--n"),
            ("--epsilon 4 --target-error 1 --n 5", "cannot be used"),
        ],
    );
    let ask = "--epsilon 4 --target-error 0.3";
    refuses(
        &format!("{BASE} {ask}"),
        &[
            ("--mechanism double-cap --delta 1e-6", "is always 0"),
            (
                "--mechanism double-cap --calibration as-published",
                "not among",
            ),
        ],
    );
    // Whatever is missing, the first message says what a whole request is.
    refuses("plan", &[("--epsilon 4", "--pilot in place of --p")]);
    refuses(
        &format!("plan {ask}"),
        &[
            ("", "a plan needs --p, the dimension, and --n"),
            ("--p 40", "spectrum: give that of a pilot"),
            ("--pilot /none.json", "/none.json"),
        ],
    );
}

#[test]
fn a_plan_from_a_pilot_is_the_pilots_own_error_with_a_range() {
    let folder = Folder::new();
    let out = folder.at("pilot");
    run_json(&format!("demo --n 3000 --k 1 --epsilon 4 --out {out}"));
    let estimate = folder.read_json("pilot/estimate.json");
    let plan = format!("plan --pilot {out}/estimate.json --epsilon 4 --mechanism double-cap");
    let planned = run_json(&format!("{plan} --n 3000"));
    has(&planned, "p=64 k=1");
    // To the bit.
    let row = &planned["rows"][0];
    assert_eq!(row["error"], estimate["expected_error"]);
    assert_eq!(row["error_range"], estimate["expected_error_range"]);
    // Other numbers have a range as well, and so has the number of users for an error.
    let asked = run_json(&format!("{plan} --target-error 0.1"));
    let row = &asked["rows"][0];
    let (enough, least) = (&row["n"], row["n_at_least"].as_u64().unwrap());
    assert!(
        enough.is_null()
            || enough.as_u64().unwrap() > least && row["error_range"][1].as_f64().unwrap() <= 0.1
    );
    // 3,000 reports show the strong first components of the digits, but not all.
    let above = estimate["spectrum"]["standing"].as_array().unwrap().len();
    assert!((1..10).contains(&above), "{above}");
    let all = run(&format!("{plan} --k {} --target-error 1", above + 1));
    let at_most = format!("k = {above}");
    refused(&all, 2, &["does not stand above the noise", &at_most]);
    refuses(&plan, &[("--p 40 --k 1 --n 5", "64")]);
}

#[test]
fn a_plan_without_a_spectrum_says_what_shows_and_no_error() {
    let plan = "plan --p 13 --epsilon 4 --mechanism double-cap";
    let answer = run_json(&format!("{plan} --n 20000,1"));
    let rows = answer["rows"].as_array().unwrap();
    let visible = rows[0]["visible"].as_f64().unwrap();
    assert!((visible - 0.013).abs() < 0.001, "{answer}");
    assert!(rows[1]["visible"].is_null() && rows[0].get("error").is_none());
    let folder = Folder::new();
    let plot = folder.at("shown.svg");
    let message = succeeded(&run(&format!("{plan} --n 20000 --plot {plot}")));
    says(&message, &["1.3 points", "run a pilot"]);
    says(
        &std::fs::read_to_string(plot).unwrap(),
        &["How small a component shows?"],
    );
    // Points are shares of the rows' variance: of half as much the same noise hides twice the share.
    let points = |more: &str| {
        let planned =
            format!("plan --p 13 --epsilon 4 --mechanism isotropic-gaussian --n 200000 {more}");
        run_json(&planned)["rows"][0]["visible"].as_f64().unwrap()
    };
    let unit = points("");
    assert!((points("--bound-rows clip --mean-squared-length 0.5") / unit - 2.0).abs() < 1e-9);
    // 1 + a² = 1.5 times the noise, at a variance of 1 − 0.04.
    let centred = points("--centring --mean-length 0.2") / unit;
    assert!((centred * 0.96 / 1.5 - 1.0).abs() < 1e-6, "{centred}");
    // Noise that does not hold what it claims is told from that which does.
    let published =
        "plan --p 13 --epsilon 0.5 --mechanism symmetric-gaussian --calibration as-published";
    let message = succeeded(&run(&format!("{published} --n 20000,40000")));
    says(&message, &["symmetric-gaussian, as-published"]);
    assert_eq!(
        message.matches("is smaller than claimed").count(),
        1,
        "{message}"
    );
}

#[test]
fn planning_with_centring_needs_the_mean() {
    refuses(
        "plan --p 40 --k 2 --epsilon 4 --target-error 0.3 --spectrum 0.2,0.15,0.012",
        &[
            ("--centring", "--mean-length"),
            (
                "--centring=1.5 --mean-length 0.5",
                "private centring is 1.5",
            ),
            ("--centring --mean-length 1", "below 1.0000"),
            ("--centring --mean-length 0.9", "sum to"),
        ],
    );
}

#[test]
fn plan_reports_expected_attempts() {
    let planned = |epsilon| {
        run_json(&format!(
            "plan --p 40 --k 1 --spectrum 0.4,0.1 --n 1000 --mechanism double-cap --epsilon {epsilon}"
        ))
    };
    let (slow, fast) = (planned(16), planned(4));
    assert!(
        slow["notes"].to_string().contains("attempts of 40 numbers"),
        "{slow}"
    );
    assert!(!fast["notes"].to_string().contains("attempts"), "{fast}");
    let attempts =
        |plan: &serde_json::Value| plan["rows"][0]["expected_attempts"].as_f64().unwrap();
    assert!(attempts(&slow) > 100.0 * attempts(&fast) && attempts(&fast) >= 1.0);
}

/// Sites, a curator and one report a row in one plan and one picture; the rows of each site in place of their sum.
#[test]
fn a_plan_of_sites_has_a_curator_and_single_rows_beside_them() {
    let folder = Folder::new();
    let sites = format!("{BASE} --epsilon 1 --delta 1e-7");
    let plot = folder.at("plan.svg");
    let planned = run_json(&format!("{sites} --sites 10 --rows 100000 --plot {plot}"));
    let errors = |planned: &serde_json::Value| -> Vec<(Option<u64>, f64)> {
        let rows = planned["rows"].as_array().unwrap().iter();
        rows.map(|row| {
            has_keys(row, KEYS);
            (row["sites"].as_u64(), row["error"].as_f64().unwrap())
        })
        .collect()
    };
    let row_errors = errors(&planned);
    let who: Vec<Option<u64>> = row_errors.iter().map(|row| row.0).collect();
    assert_eq!(who, [None, None, Some(10), Some(1)]);
    let [_, _, ten, curator] = row_errors[..] else {
        panic!("{planned}");
    };
    assert!(
        row_errors[0].1 > 5.0 * ten.1 && ten.1 > curator.1,
        "{planned}"
    );
    let svg = folder.read("plan.svg");
    for words in ["10 sites", "a curator", "one row each"] {
        assert!(svg.contains(words), "{words}");
    }
    // By rows it does not matter how they are divided; by precision a large table counts for more.
    let uneven = run_json(&format!(
        "{sites} --site-rows 91000,1000,1000,1000,1000,1000,1000,1000,1000,1000"
    ));
    assert!((errors(&uneven)[2].1 - ten.1).abs() < 1e-3, "{uneven}");
    let precise = run_json(&format!(
        "{sites} --site-weights precision --site-rows 91000,1000,1000,1000,1000,1000,1000,1000,1000,1000"
    ));
    assert!(errors(&precise)[2].1 < ten.1, "{precise}");
    let needed = run_json(&format!("{sites} --sites 10 --target-error 0.3"));
    let rows = |at: usize| needed["rows"][at]["n"].as_u64().unwrap();
    assert!(rows(2) < rows(0) / 5 && rows(3) < rows(2), "{needed}");
    let text = succeeded(&run(&format!("{sites} --sites 10 --rows 100000")));
    says(
        &text,
        &[
            "At epsilon 1: 10 sites an error of",
            "a curator an error of",
        ],
    );
    refuses(&sites, &[("--sites 10 --rows 9", "--sites is 10; 9 rows")]);
}

#[test]
fn a_simulation_of_sites_has_a_line_for_each_number_of_them() {
    let base = "simulate --model spiked --p 10 --k 1 --spike 20 --epsilon 4 --repeats 3";
    let sweep = run_json(&format!("{base} --n 3000 --sites 1,30"));
    let rows = sweep["rows"].as_array().unwrap();
    let error = |at: usize| rows[at]["error_mean"].as_f64().unwrap();
    assert!(rows.len() == 2 && error(0) < error(1), "{sweep}");
    assert!(
        rows[1]["sites"] == 30 && rows[1]["mechanism"] == "discrete-gaussian",
        "{sweep}"
    );
    let uneven = run_json(&format!(
        "{base} --site-rows 1500,900,600 --site-weights precision --tilt 10"
    ));
    assert!(uneven["sites"] == 3 && uneven["n"] == 3000, "{uneven}");
    refuses(
        base,
        &[
            ("--n 3000 --tilt 10", "--tilt has no effect"),
            (
                "--n 3000 --site-weights precision",
                "--site-weights has no effect",
            ),
            ("--n 3 --sites 4", "--sites is 4"),
            (
                "--n 300 --sites 4 --noise per-report",
                "--noise has no effect",
            ),
            (
                "--n 300 --sites 4 --mechanism double-cap",
                "no double-cap over tables",
            ),
        ],
    );
}
