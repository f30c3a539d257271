//! A table as it comes is told of before anybody spends a report, and `prepare` mends it.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::program::{Folder, PROGRAM, json_of, refused, run, run_json, stderr, succeeded};

/// 200 public rows of four columns: two that move together, a small one, and a large one far from 0.
fn public_rows() -> String {
    let mut text = String::from("a,b,c,salary\n");
    for i in 0..200_u32 {
        let x = f64::from(i % 20) - 9.5;
        let y = f64::from(i * 7 % 11) - 5.0;
        let z = f64::from(i * 3 % 13) - 6.0;
        let (b, c, salary) = (x + 0.1 * y, 0.01 * z, 40_000.0 + 900.0 * y);
        writeln!(text, "{x},{b},{c},{salary}").unwrap();
    }
    text
}

fn prepare(rows: &str, out: &str, more: &str) -> Value {
    run_json(&format!(
        "prepare --rows {rows} --out {out} --epsilon 4 {more}"
    ))
}

#[test]
fn a_column_that_would_be_everything_is_told_and_mended() {
    let folder = Folder::new();
    let rows = folder.write("public.csv", public_rows());
    let out = folder.at("features.csv");
    let told = prepare(&rows, &out, "--k 1 --n 20000");
    let warnings = told["warnings"].to_string();
    assert!(
        warnings.contains("salary") && warnings.contains("100.0 %"),
        "{warnings}"
    );
    let as_they_are = &told["choices"][0];
    assert_eq!(as_they_are["uses_centers_and_scales"], false);
    let warning = as_they_are["warning"].as_str().unwrap();
    assert!(warning.contains("salary"), "{as_they_are}");
    let chosen = &told["chosen"];
    assert_eq!(
        (
            &chosen["uses_centers_and_scales"],
            &chosen["components_above_floor"]
        ),
        (&true.into(), &1.into())
    );
    assert!(
        chosen["warning"].is_null()
            && chosen["squared_mean_over_squared_length"].as_f64().unwrap() < 0.1
    );
    let written = folder.read("features.csv");
    assert!(written.starts_with("name,center,scale\na,") && written.lines().count() == 5);
    // What is written is what study create reads, and is not written over.
    let again = run(&format!(
        "prepare --rows {rows} --out {out} --k 1 --n 9 --epsilon 4"
    ));
    assert!(stderr(&again).contains("exists"));

    let text = "name,mean,sd\nsalary,40000,3000\nage,40,12\n";
    let description = folder.write("columns.csv", text);
    let described = folder.at("described.csv");
    let told = run_json(&format!(
        "prepare --description {description} --out {described}"
    ));
    assert!(told["warnings"][0].as_str().unwrap().contains("salary"));
    assert_eq!(
        folder.read("described.csv"),
        "name,center,scale\nsalary,40000.0,3000.0\nage,40.0,12.0\n"
    );
}

#[test]
fn creation_and_report_say_what_the_rows_are_made_of_before_it_is_spent() {
    let folder = Folder::new();
    let rows = folder.write("people.csv", public_rows());
    let server = folder.server();
    let create = |flags: &str| {
        let made = server.cli(&format!("study create --json --name x {flags}"));
        let id = json_of(&made)["id"].as_str().unwrap().to_owned();
        (id, stderr(&made))
    };
    let names = folder.write("names.csv", "name\na\nb\nc\nsalary\n");
    let (bare, said) = create(&format!("--epsilon 4 --features {names}"));
    assert!(said.contains("no center is subtracted"), "{said}");
    let features = folder.at("features.csv");
    prepare(&rows, &features, "--k 1 --n 20000");
    let (centred, said) = create(&format!("--epsilon 4 --features {features}"));
    assert!(!said.contains("center"), "{said}");
    let (_, said) = create("--epsilon 16 --p 64 --centring");
    assert!(said.contains("tries of 65 numbers"), "{said}");

    let report = |id: &str, rows: &str, count: usize| {
        let output = server.cli(&format!(
            "report --study {id} --rows {rows} --state {rows}.{id} --ledger {rows}.{id}.ledger --json"
        ));
        // Without a terminal nothing but the words depends on the rows.
        assert_eq!(json_of(&output)["acknowledged"], count);
        stderr(&output)
    };
    let said = report(&bare, &rows, 200);
    let warning = "warning, shown only to you: column \"salary\" has 100.0 %";
    assert!(said.contains(warning), "{said}");
    let said = report(&centred, &rows, 200);
    assert!(
        said.contains("shares of the squared length") && !said.contains("warning"),
        "{said}"
    );
    // Of one's own single row nothing is said.
    let one = folder.write("one.csv", "a,b,c,salary\n1,2,3,40000\n");
    let said = report(&bare, &one, 1);
    assert!(!said.contains("only"), "{said}");
}

/// Nothing of a row is perturbed, charged or sent before the person has said yes.
#[test]
fn at_a_terminal_a_person_is_asked() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("SKIPPED: script (util-linux), which gives a program a terminal, is not here");
        return;
    }
    let folder = Folder::new();
    let rows = folder.write("people.csv", public_rows());
    let server = folder.server();
    let study = server.create_study("--p 4 --epsilon 4");
    let url = &server.url;
    let command = format!(
        "{PROGRAM} report --server {url} --study {study} --rows {rows} --header yes --by-position"
    );
    let report = |answer: &str| {
        let mut child = Command::new("script")
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(answer.as_bytes()).unwrap();
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    };
    for answer in ["n\n", "\n", "what?\n"] {
        let (done, said) = report(answer);
        assert!(!done && said.contains("Go on? [y/N]"), "{said}");
        assert!(said.contains("nothing was perturbed or sent"), "{said}");
        assert_eq!(server.accepted(&study), 0);
        let spent = run(&format!("receipt --ledger {rows}.ledger"));
        let said = String::from_utf8_lossy(&spent.stdout);
        assert!(!said.contains(&study), "{said}");
    }
    // What the answer no advises: the rows are mended, and nothing is held against the new file.
    fs::write(&rows, public_rows().replacen("\n-9.5,", "\n-9.4,", 1)).unwrap();
    let (done, said) = report("y\n");
    assert!(done && said.contains("200 of 200 rows"), "{said}");
    assert_eq!(server.accepted(&study), 200);
}

/// 569 rows of 30 columns, drawn from 20,000 times. The seed is fixed: no false alarms. Measured: error 0.234, expected
/// 0.239, planned 0.244.
#[test]
fn breast_cancer_through_prepare() {
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/breast_cancer.npy");
    if !rows.exists() {
        eprintln!("SKIPPED: {} is absent", rows.display());
        return;
    }
    let folder = Folder::new();
    let (rows, out) = (format!("'{}'", rows.display()), folder.at("features.csv"));
    let told = prepare(&rows, &out, "--k 3 --n 20000");
    // Told so before any report.
    let before = &told["choices"][0];
    assert!(
        before["uses_centers_and_scales"] == false && before["warning"].is_string(),
        "{before}"
    );
    assert!(!told["warnings"].as_array().unwrap().is_empty());
    let chosen = &told["chosen"];
    assert_eq!(chosen["components_above_floor"], 3, "{chosen}");
    assert!(chosen["error"].as_f64().unwrap() <= 0.3, "{chosen}");
    let mut line =
        format!("simulate --rows {rows} --features {out} --k 3 --n 20000 --epsilon 4 --seed 7");
    if let Some(radius) = chosen["norm"]["radius"].as_f64() {
        write!(line, " --norm clip --radius {radius}").unwrap();
    }
    if chosen["centring"].is_number() {
        line += " --centring";
    }
    let simulated = run_json(&line);
    // Of all 30, and the largest first: 3 or more are all that were asked for.
    assert!(
        simulated["components_above_floor"].as_f64() >= Some(3.0),
        "{simulated}"
    );
    for error in ["error_mean", "error_predicted_from_data"] {
        assert!(simulated[error].as_f64().unwrap() <= 0.3, "{simulated}");
    }
}

/// A header of numbers would be in every center and scale.
#[test]
fn a_first_line_of_numbers_is_asked_about() {
    let folder = Folder::new();
    let text = public_rows().replacen("a,b,c,salary", "450,451,452,453", 1);
    let (rows, out) = (folder.write("spectra.csv", text), folder.at("features.csv"));
    let line = format!("prepare --rows {rows} --out {out} --k 1 --n 1000 --epsilon 4");
    refused(&run(&line), 2, &["--header yes", "spectra.csv"]);
    assert!(!Path::new(&out).exists());
    succeeded(&run(&format!("{line} --header yes")));
    let written = folder.read("features.csv");
    assert!(written.contains("\n450,"), "{written}");
}

#[test]
fn prepare_refuses_what_it_cannot_use() {
    let folder = Folder::new();
    let rows = folder.write("rows.csv", public_rows());
    let out = folder.at("f.csv");
    let wrong = run(&format!(
        "prepare --rows {rows} --out {out} --n 10 --epsilon 4 --k 4"
    ));
    refused(&wrong, 2, &["--k is 4", "between 1 and p − 1 = 3"]);
    assert!(!Path::new(&out).exists());
}
