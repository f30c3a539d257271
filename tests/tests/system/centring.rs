//! Private centring through the program: the mean is estimated, removed, written and used for scores.

use std::fmt::Write as _;

use eigenveil_shared::estimate::Estimate;

use crate::harness::{Folder, has, run, run_json, succeeded};

/// Rows around (0.6, 0.5, 0.3) that spread along (0, 3, 4)/5: the leading direction of the second-moment matrix is the
/// mean, that of the covariance is not.
fn rows() -> String {
    let mut text = String::from("alpha,beta,gamma\n");
    for i in 0..60 {
        let t = 0.3 * f64::from(i % 5 - 2) / 2.0;
        writeln!(text, "0.6,{},{}", 0.5 + 0.6 * t, 0.3 + 0.8 * t).unwrap();
    }
    text
}

#[test]
fn demo_removes_the_mean_and_project_uses_it() {
    let folder = Folder::new();
    let (rows, out) = (folder.write("rows.csv", rows()), folder.at("out"));
    let result = run_json(&format!(
        "demo --n 6000 --k 1 --epsilon 8 --bound-rows clip --centring --rows {rows} --out {out}"
    ));
    has(&result, "p=3 k=1");
    // Both results are those of the covariance; at ε = 8 the noise hardly turns a component of variance 0.045.
    assert!(result["error"].as_f64().unwrap() < 0.5, "{result}");
    let estimate: Estimate = serde_json::from_str(&folder.read("out/estimate.json")).unwrap();
    assert_eq!(estimate.eigenvalues.len(), 3);
    let mean = estimate.mean.as_ref().unwrap();
    let error = estimate.mean_standard_error.unwrap();
    assert!(error > 0.0 && error < 0.03, "{error}");
    for (found, expected) in mean.iter().zip([0.6, 0.5, 0.3]) {
        // Five standard errors of the noise, plus the sampling error.
        assert!((found - expected).abs() < 5.0 * error + 0.02, "{mean:?}");
    }
    for name in ["out/index.html", "out/scree.svg"] {
        assert!(folder.read(name).contains("covariance"), "{name}");
    }
    // A plan for the same number of users is the error that the estimate states.
    let again = run_json(&format!(
        "plan --pilot {out}/estimate.json --epsilon 8 --n 6000 --mechanism double-cap"
    ));
    let again = again["rows"][0]["error"].as_f64();
    assert_eq!(again, estimate.expected_error);
    // A score is that of the difference from the mean.
    let at = |share: f64| mean.iter().map(move |x| (share * x).to_string());
    let row = |share| at(share).collect::<Vec<_>>().join(",");
    let rows = format!("alpha,beta,gamma\n{}\n{}\n", row(1.0), row(0.9));
    let rows = folder.write("mean.csv", rows);
    let scores = succeeded(&run(&format!(
        "project --estimate {out}/estimate.json --rows {rows}"
    )));
    let pairs = estimate.components[0].loadings.iter().zip(mean);
    let of_mean: f64 = pairs.map(|(loading, x)| loading * x).sum();
    let lines = scores.lines().skip(1);
    for (line, (number, expected)) in lines.zip([("1,", 0.0), ("2,", -0.1 * of_mean)]) {
        let score: f64 = line.strip_prefix(number).unwrap().parse().unwrap();
        assert!((score - expected).abs() < 1e-12, "{scores}");
    }
}
