//! `eigenveil plan` as a process.

use crate::program::{has_keys, refused, run, run_json};

#[test]
fn plan_prints_the_agreed_keys_and_refuses_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("plan.svg");
    let base = ["plan", "--p", "40", "--k", "2", "--spectrum", "0.3,0.2"];
    let with = |more: &[&'static str]| [&base, more].concat();
    let mut arguments = with(&[
        "--json",
        "--epsilon",
        "2,4",
        "--target-error",
        "0.3",
        "--calibration",
        "as-published",
    ]);
    arguments.extend(["--plot", picture.to_str().unwrap()]);
    let planned = run_json(&arguments);
    let rows = planned["rows"].as_array().unwrap();
    // Four mechanisms and the paper's own noise, two ε each.
    assert_eq!(rows.len(), 10);
    for row in rows {
        has_keys(
            row,
            &[
                "mechanism",
                "epsilon",
                "delta",
                "n",
                "error",
                "bytes_per_report",
                "calibration",
                "true_epsilon",
                "claim_holds",
                "components_above_floor",
                "reason",
            ],
        );
        assert!(row["error"].as_f64().unwrap() <= 0.3 && row["reason"].is_null());
    }
    let find = |mechanism: &str, calibration: Option<&str>, epsilon: f64| {
        rows.iter()
            .find(|row| {
                row["mechanism"] == mechanism
                    && row["calibration"].as_str() == calibration
                    && row["epsilon"] == epsilon
            })
            .unwrap()
    };
    let cap = find("double-cap", None, 4.0);
    assert_eq!(
        (&cap["delta"], &cap["bytes_per_report"]),
        (&0.0.into(), &74.into())
    );
    let published = find("symmetric-gaussian", Some("as-published"), 4.0);
    assert_eq!(published["claim_holds"], false);
    let analytic = find("symmetric-gaussian", Some("analytic"), 4.0);
    assert!(published["n"].as_u64() < analytic["n"].as_u64());
    assert!(cap["n"].as_u64() < analytic["n"].as_u64());
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(
        svg.contains("How many users?") && svg.contains("as published") && !svg.contains("NaN")
    );

    // The answer turned round.
    let n = cap["n"].to_string();
    let mut arguments = with(&[
        "--json",
        "--epsilon",
        "4",
        "--mechanism",
        "double-cap",
        "--n",
    ]);
    arguments.push(&n);
    let back = run_json(&arguments);
    assert_eq!(back["rows"].as_array().unwrap().len(), 1);
    assert_eq!(back["rows"][0]["error"], cap["error"]);

    // No number of users is enough for the second of equal components: null, and why.
    let never = run_json(&[
        "plan",
        "--json",
        "--p",
        "4",
        "--k",
        "1",
        "--spectrum",
        "0.3,0.3",
        "--epsilon",
        "4",
        "--target-error",
        "0.3",
        "--mechanism",
        "double-cap",
    ]);
    assert!(never["rows"][0]["n"].is_null(), "{never}");
    assert!(
        never["rows"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("component 1")
    );

    let said = run(&with(&["--epsilon", "4", "--target-error", "0.3"]));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("How many users do I need?") && !said.contains("as-published"),
        "{said}"
    );

    let ask = ["--epsilon", "4", "--target-error", "0.3"];
    for (wrong, says) in [
        (
            with(&["--epsilon", "4", "--target-error", "2"]),
            "nothing in common",
        ),
        (
            with(&["--epsilon", "4", "--target-error", "-1"]),
            "positive",
        ),
        (
            with(&["--epsilon", "17", "--target-error", "1"]),
            "at most 16",
        ),
        (with(&["--epsilon", "4"]), "--target-error"),
        (with(&["--epsilon", "4", "--n", "0"]), "--n"),
        (
            with(&["--epsilon", "4", "--target-error", "1", "--n", "5"]),
            "cannot be used",
        ),
        (
            [
                &base,
                &ask[..],
                &["--mechanism", "double-cap", "--delta", "1e-6"],
            ]
            .concat(),
            "is always 0",
        ),
        (
            [
                &base,
                &ask[..],
                &["--mechanism", "double-cap", "--calibration", "as-published"],
            ]
            .concat(),
            "not among",
        ),
        ([&base, &ask[..], &["--norm", "clip"]].concat(), "--total"),
        ([&base, &ask[..], &["--total", "0.5"]].concat(), "normalize"),
        (
            [&base, &ask[..], &["--pilot", "none.json"]].concat(),
            "cannot be used",
        ),
        (
            [
                &["plan", "--p", "40", "--k", "2", "--spectrum", "0.2,0.3"],
                &ask[..],
            ]
            .concat(),
            "not descending",
        ),
        (
            [
                &["plan", "--p", "40", "--k", "2", "--spectrum", "0.8,0.3"],
                &ask[..],
            ]
            .concat(),
            "sum to",
        ),
        (
            [
                &["plan", "--p", "40", "--k", "3", "--spectrum", "0.3,0.2"],
                &ask[..],
            ]
            .concat(),
            "needs 3",
        ),
        ([&["plan"], &ask[..]].concat(), "--p"),
        (
            [&["plan", "--pilot", "/none.json"], &ask[..]].concat(),
            "/none.json",
        ),
    ] {
        eprintln!("{wrong:?}");
        refused(&run(&wrong), 2, &[says]);
    }
}

#[test]
fn a_pilot_is_planned_from_its_components_above_the_floor_alone() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("pilot");
    let demo = run_json(&[
        "demo",
        "--json",
        "--n",
        "3000",
        "--k",
        "5",
        "--epsilon",
        "4",
        "--out",
        out.to_str().unwrap(),
    ]);
    let pilot = out.join("estimate.json");
    let pilot = pilot.to_str().unwrap();
    let text = std::fs::read_to_string(pilot).unwrap();
    let estimate: serde_json::Value = serde_json::from_str(&text).unwrap();
    let components = estimate["components"].as_array().unwrap();
    // A weak third may stand above by chance where the second does not.
    let above = components
        .iter()
        .take_while(|component| component["verdict"] == "above")
        .count();
    assert!(demo["components_above_floor"].as_u64().unwrap() >= above as u64);
    // 3,000 reports show the strong first component of the digits and not all of the weak fifth.
    assert!((1..5).contains(&above), "{above}");
    let planned = run_json(&[
        "plan",
        "--json",
        "--pilot",
        pilot,
        "--k",
        "1",
        "--epsilon",
        "4",
        "--n",
        "3000",
    ]);
    assert_eq!((&planned["p"], &planned["k"]), (&64.into(), &1.into()));
    assert!(planned["notes"][0].as_str().unwrap().contains("uncertain"));
    // As many users again can expect what the pilot says of itself.
    let alignment = components[0]["expected_alignment"].as_f64().unwrap();
    let itself = (2.0 * (1.0 - alignment)).sqrt();
    let again = planned["rows"][0]["error"].as_f64().unwrap();
    assert_eq!(planned["rows"][0]["mechanism"], "double-cap");
    assert!((again / itself - 1.0).abs() < 0.05, "{again} {itself}");
    let refused = run(&[
        "plan",
        "--pilot",
        pilot,
        "--epsilon",
        "4",
        "--target-error",
        "1",
    ]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said.contains("does not stand above its noise floor")
            && said.contains(&format!("k = {above}")),
        "{said}"
    );
    let other_p = run(&[
        "plan",
        "--pilot",
        pilot,
        "--p",
        "40",
        "--k",
        "1",
        "--epsilon",
        "4",
        "--n",
        "5",
    ]);
    assert_eq!(other_p.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&other_p.stderr).contains("64"));
}

#[test]
fn centring_has_its_price_and_needs_the_mean() {
    let base = [
        "plan",
        "--p",
        "40",
        "--k",
        "2",
        "--epsilon",
        "4",
        "--target-error",
        "0.3",
    ];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    let one = ["--mechanism", "symmetric-gaussian"];
    let users = |arguments: &[&'static str]| {
        let mut all = with(arguments);
        all.extend(one);
        all.push("--json");
        run_json(&all)["rows"][0]["n"].as_u64().unwrap() as f64
    };
    // A mean of length 0.6 leaves 0.64 of the rows' variance.
    let centred = users(&[
        "--spectrum",
        "0.2,0.15",
        "--centring",
        "--mean-length",
        "0.6",
    ]);
    let plain = users(&[
        "--spectrum",
        "0.2,0.15",
        "--norm",
        "clip",
        "--total",
        "0.64",
    ]);
    // Gaussian noise across the mean: (1 + a²)² = 2.25, times the change from p to p + 1 (none here).
    assert!(
        (centred / plain / 2.25 - 1.0).abs() < 0.02,
        "{centred} {plain}"
    );
    let ask = ["--spectrum", "0.2,0.15"];
    for (wrong, says) in [
        (with(&[&ask[..], &["--centring"]].concat()), "--mean-length"),
        (
            with(&[&ask[..], &["--mean-length", "0.5"]].concat()),
            "--centring",
        ),
        (
            with(&[&ask[..], &["--centring=1.5", "--mean-length", "0.5"]].concat()),
            "private centring is 1.5",
        ),
        (
            with(&[&ask[..], &["--centring", "--mean-length", "1"]].concat()),
            "below 1.0000",
        ),
        (
            with(&[&ask[..], &["--centring", "--mean-length", "0.9"]].concat()),
            "sum to",
        ),
    ] {
        refused(&run(&wrong), 2, &[says]);
    }
}
