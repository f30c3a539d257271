//! `project --plot`: one's own rows in the plane of two components.

use std::fmt::Write as _;

use crate::program::{refused, run, run_json};

/// Rows of three kinds, with and without the column that says which.
fn tables(folder: &std::path::Path) -> (String, String) {
    let (mut plain, mut labelled) = ("a,b,c\n".to_owned(), "a,kind,b,c\n".to_owned());
    for i in 0..300 {
        let (kind, t) = (i % 3, f64::from(i));
        let (a, b, c) = (
            t.sin() + f64::from(kind),
            2.0 * t.cos(),
            0.1 * (3.0 * t).sin(),
        );
        let _ = writeln!(plain, "{a},{b},{c}");
        let _ = writeln!(
            labelled,
            "{a},{},{b},{c}",
            ["red", "green", "dark blue"][kind as usize]
        );
    }
    let path = |name: &str| folder.join(name).display().to_string();
    let (rows, with_kind) = (path("rows.csv"), path("labelled.csv"));
    std::fs::write(&rows, plain).unwrap();
    std::fs::write(&with_kind, labelled).unwrap();
    (rows, with_kind)
}

#[test]
fn a_scatter_has_every_row_its_label_and_the_loadings() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, labelled) = tables(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (out, scores, plot) = (path("out"), path("scores.csv"), path("scatter.svg"));
    let demo = [
        "demo",
        "--json",
        "--rows",
        &rows,
        "--n",
        "3000",
        "--k",
        "2",
        "--epsilon",
        "8",
    ];
    run_json(&[&demo[..], &["--out", &out]].concat());
    let report = std::fs::read_to_string(format!("{out}/report.html")).unwrap();
    let picture = std::fs::read_to_string(format!("{out}/biplot.svg")).unwrap();
    assert!(report.contains("The rows by component") && report.contains(&picture));
    let estimate = format!("{out}/estimate.json");
    let project = [
        "project",
        "--json",
        "--estimate",
        &estimate,
        "--out",
        &scores,
        "--plot",
        &plot,
    ];
    let done = run_json(&[&project[..], &["--rows", &labelled, "--label", "kind"]].concat());
    assert_eq!(
        (&done["n"], &done["plot"]),
        (&300.into(), &plot.clone().into())
    );
    let svg = std::fs::read_to_string(&plot).unwrap();
    // Each kind in a group of a shape of its own, each row a mark in it.
    for (kind, mark) in [
        ("red", "<path class=\"mk\""),
        ("green", "<path class=\"mk\""),
    ] {
        let (_, group) = svg.split_once(&format!("<title>{kind}</title>")).unwrap();
        let (group, _) = group.split_once("</g>").unwrap();
        assert_eq!(group.matches(mark).count(), 100, "{kind}");
    }
    let (_, group) = svg.split_once("<title>dark blue</title>").unwrap();
    assert_eq!(
        group
            .split_once("</g>")
            .unwrap()
            .0
            .matches("<circle")
            .count(),
        100
    );
    for words in [
        "300 rows",
        "Component 1 (",
        "Component 2 (",
        "Arrows: loadings",
    ] {
        assert!(svg.contains(words), "{words}");
    }
    let labelled_scores = std::fs::read(&scores).unwrap();
    // A label is not a feature: the scores are those of the table without it.
    let swapped = ["--rows", &rows, "--axes", "2,1"];
    run_json(&[&project[..], &swapped].concat());
    assert_eq!(std::fs::read(&scores).unwrap(), labelled_scores);
    let svg = std::fs::read_to_string(&plot).unwrap();
    assert!(!svg.contains("<title>red</title>"));

    // What is wrong is named; no value of a row is.
    let wrong = |more: &[&str]| run(&[&project[..], more].concat());
    refused(
        &wrong(&["--rows", &labelled, "--label", "sort"]),
        2,
        &["has no column named \"sort\""],
    );
    refused(
        &wrong(&["--rows", &rows, "--axes", "1,3"]),
        2,
        &["the estimate has 2"],
    );
    refused(
        &wrong(&["--rows", &rows, "--axes", "1,1"]),
        2,
        &["two different components"],
    );
    refused(&wrong(&["--rows", &rows, "--label", "a"]), 2, &["columns"]);
}
