//! Private centring through the program: the mean is estimated, removed, written and used.

use eigenveil_shared::estimate::Estimate;

use crate::program::{run, run_json};

/// Rows around (0.6, 0.5, 0.3) that spread along (0, 3, 4)/5: the longest direction of the second moment is the
/// mean, that of the covariance is not.
fn rows() -> String {
    let mut text = String::from("alpha,beta,gamma\n");
    for i in 0..60 {
        let t = 0.3 * f64::from(i % 5 - 2) / 2.0;
        text.push_str(&format!("0.6,{},{}\n", 0.5 + 0.6 * t, 0.3 + 0.8 * t));
    }
    text
}

#[test]
fn the_demo_removes_the_mean_and_project_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    std::fs::write(&file, rows()).unwrap();
    let out = folder.path().join("result");
    let result = run_json(&[
        "demo",
        "--json",
        "--n",
        "6000",
        "--k",
        "1",
        "--epsilon",
        "8",
        "--norm",
        "clip",
        "--centring",
        "--rows",
        file.to_str().unwrap(),
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!((&result["p"], &result["k"]), (&3.into(), &1.into()));
    // Both answers are those of the covariance; the noise at ε = 8 hardly turns a component of 0.045.
    assert!(result["error"].as_f64().unwrap() < 0.5, "{result}");
    let text = std::fs::read_to_string(out.join("estimate.json")).unwrap();
    let estimate: Estimate = serde_json::from_str(&text).unwrap();
    assert_eq!(estimate.eigenvalues.len(), 3);
    let mean = estimate.mean.as_ref().unwrap();
    let error = estimate.mean_standard_error.unwrap();
    assert!(error > 0.0 && error < 0.03, "{error}");
    for (found, expected) in mean.iter().zip([0.6, 0.5, 0.3]) {
        // Five standard errors of the noise, and the sample's own.
        assert!((found - expected).abs() < 5.0 * error + 0.02, "{mean:?}");
    }
    for name in ["report.html", "scree.svg"] {
        let text = std::fs::read_to_string(out.join(name)).unwrap();
        assert!(text.contains("covariance"), "{name}");
    }
    // As many users again can expect what the estimate says of itself (25 %: the noise is the operating system's).
    let again = run_json(&[
        "plan",
        "--json",
        "--pilot",
        out.join("estimate.json").to_str().unwrap(),
        "--epsilon",
        "8",
        "--n",
        "6000",
        "--mechanism",
        "double-cap",
    ]);
    let again = again["rows"][0]["error"].as_f64().unwrap();
    let itself = estimate.expected_error;
    assert!((again / itself - 1.0).abs() < 0.25, "{again} {itself}");
    // A row at the mean has score 0.
    let at_mean = folder.path().join("mean.csv");
    let row: Vec<String> = mean.iter().map(f64::to_string).collect();
    std::fs::write(&at_mean, format!("alpha,beta,gamma\n{}\n", row.join(","))).unwrap();
    let scores = run(&[
        "project",
        "--estimate",
        out.join("estimate.json").to_str().unwrap(),
        "--rows",
        at_mean.to_str().unwrap(),
    ]);
    let scores = String::from_utf8_lossy(&scores.stdout).into_owned();
    let score: f64 = scores.lines().nth(1).unwrap().parse().unwrap();
    assert!(score.abs() < 1e-12, "{scores}");
}

#[test]
fn simulate_centres_on_both_paths_and_refuses_a_wrong_constant() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    std::fs::write(&file, rows()).unwrap();
    for path in ["law", "device"] {
        let result = run_json(&[
            "simulate",
            "--json",
            "--n",
            "6000",
            "--k",
            "1",
            "--epsilon",
            "8",
            "--norm",
            "clip",
            "--centring=0.6",
            "--rows",
            file.to_str().unwrap(),
            "--path",
            path,
        ]);
        assert_eq!(
            (&result["p"], &result["centring"]),
            (&3.into(), &0.6.into())
        );
        assert!(result["error_mean"].as_f64().unwrap() < 0.5, "{result}");
        assert!(
            result["nonprivate_error"].as_f64().unwrap() < 0.05,
            "{result}"
        );
    }
    let refused = run(&[
        "simulate",
        "--n",
        "10",
        "--k",
        "1",
        "--epsilon",
        "1",
        "--model",
        "spiked",
        "--p",
        "4",
        "--centring=1.5",
    ]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("private centring is 1.5"), "{said}");
}
