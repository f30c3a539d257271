//! `project --plot`: the user's rows in the plane of two components.

use std::fmt::Write as _;

use crate::harness::{Folder, has, refuses, run_json, says};

/// Rows of three groups, with and without the column of labels.
fn tables() -> (String, String) {
    let (mut plain, mut labelled) = ("a,b,c\n".to_owned(), "a,kind,b,c\n".to_owned());
    for i in 0..300 {
        let (kind, t) = (i % 3, f64::from(i));
        let (a, b, c) = (
            t.sin() + f64::from(kind),
            2.0 * t.cos(),
            0.1 * (3.0 * t).sin(),
        );
        let name = ["red", "green", "dark blue"][kind as usize];
        writeln!(plain, "{a},{b},{c}").unwrap();
        writeln!(labelled, "{a},{name},{b},{c}").unwrap();
    }
    (plain, labelled)
}

#[test]
fn biplot_shows_rows_labels_and_loadings() {
    let folder = Folder::new();
    let (plain, labelled) = tables();
    let rows = folder.write("rows.csv", plain);
    let labelled = folder.write("labelled.csv", labelled);
    let [out, scores, plot] = ["out", "scores.csv", "scatter.svg"].map(|name| folder.at(name));
    run_json(&format!(
        "demo --rows {rows} --n 3000 --k 2 --epsilon 8 --out {out}"
    ));
    let (report, picture) = (folder.read("out/index.html"), folder.read("out/biplot.svg"));
    assert!(report.contains("The rows by component") && report.contains(&picture));
    let project =
        format!("project --estimate {out}/estimate.json --out {scores} --plot {plot} --rows");
    let done = run_json(&format!("{project} {labelled} --label kind"));
    has(&done, &format!("n=300 plot={plot}"));
    let svg = folder.read("scatter.svg");
    // Each label has a group with its own marker, each row is one marker.
    let path = "<path class=\"mk\"";
    for (kind, mark) in [("red", path), ("green", path), ("dark blue", "<circle")] {
        let (_, group) = svg.split_once(&format!("<title>{kind}</title>")).unwrap();
        let (group, _) = group.split_once("</g>").unwrap();
        assert_eq!(group.matches(mark).count(), 100, "{kind}");
    }
    let axes = ["Component 1 (", "Component 2 ("];
    says(&svg, &axes);
    says(&svg, &["300 rows", "Arrows: loadings"]);
    let labelled_scores = folder.read("scores.csv");
    // The label is not a feature: the scores equal those of the table without it.
    run_json(&format!("{project} {rows} --axes 2,1"));
    let labels = [",kind,", ",red,", ",green,", ",dark blue,"];
    let without = labels.iter().fold(labelled_scores.clone(), |text, label| {
        text.replace(label, ",")
    });
    assert_eq!(folder.read("scores.csv"), without);
    assert!(labelled_scores.starts_with("row,kind,component_1,component_2\n1,red,"));
    assert!(!folder.read("scatter.svg").contains("<title>red</title>"));

    // A feature may be the label, too.
    run_json(&format!(
        "project --estimate {out}/estimate.json --out {scores} --rows {rows} --label a"
    ));
    let of_feature = folder.read("scores.csv");
    assert!(of_feature.starts_with("row,a,component_1,component_2\n1,0,"));

    // Errors name what is wrong, never a value of a row.
    let sort = format!("{labelled} --label sort");
    refuses(&project, &[(&sort, "has no column named \"sort\"")]);
    refuses(
        &format!("{project} {rows}"),
        &[
            ("--axes 1,3", "the estimate has 2"),
            ("--axes 1,1", "two different components"),
            ("--label a", "the label column has 300 different values"),
        ],
    );
    // Both outputs are checked before one is written.
    let (new, document) = (folder.at("new.svg"), format!("{out}/estimate.json"));
    let over = format!("project --estimate {document} --rows {rows} --plot {new} --out");
    refuses(&over, &[(&document, "input of this"), (&new, "one file")]);
    assert!(!std::fs::exists(&new).unwrap());
}
