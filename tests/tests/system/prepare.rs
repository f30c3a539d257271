//! Problems of a raw table are reported before anybody spends a report, and `prepare` fixes them.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::harness::{
    Folder, PROGRAM, has, json_of, refused, run, run_json, says, shell, stderr, succeeded,
};

/// 200 public rows of four columns: two correlated ones, a small one, and a large one far from 0.
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
fn prepare_warns_of_a_dominant_column_and_rescales_it() {
    let folder = Folder::new();
    let rows = folder.write("public.csv", public_rows());
    let out = folder.at("features.csv");
    let answer = prepare(&rows, &out, "--k 1 --n 20000");
    let warnings = answer["warnings"].to_string();
    says(&warnings, &["salary", "100.0 %"]);
    let as_they_are = &answer["choices"][0];
    assert_eq!(as_they_are["uses_centers_and_scales"], false);
    let warning = as_they_are["warning"].as_str().unwrap();
    assert!(warning.contains("the mean"), "{as_they_are}");
    let centred = answer["choices"][3]["warning"].as_str().unwrap();
    assert!(centred.contains("salary"), "{centred}");
    let chosen = &answer["chosen"];
    has(
        chosen,
        "uses_centers_and_scales=true components_above_floor=1",
    );
    assert!(
        chosen["warning"].is_null()
            && chosen["squared_mean_over_squared_length"].as_f64().unwrap() < 0.1
    );
    let written = folder.read("features.csv");
    assert!(written.starts_with("name,center,scale\na,") && written.lines().count() == 5);
    // The written file is accepted by study create, and is not overwritten.
    let again = |out: &str, k: u32| {
        run(&format!(
            "prepare --rows {rows} --out {out} --k {k} --n 9 --epsilon 4"
        ))
    };
    assert!(stderr(&again(&out, 1)).contains("exists"));
    let other = folder.at("other.csv");
    let wrong = again(&other, 4);
    refused(&wrong, 2, &["--k is 4", "between 1 and p − 1 = 3"]);
    assert!(!fs::exists(other).unwrap());

    let text = "name,mean,sd\nsalary,40000,3000\nage,40,12\n";
    let description = folder.write("columns.csv", text);
    assert!(answer["passed_over"].is_string(), "{answer}");
    let described = folder.at("described.csv");
    let answer = run_json(&format!(
        "prepare --description {description} --out {described}"
    ));
    assert!(answer["warnings"].to_string().contains("salary"));
    // Of two columns one has at least half of any component.
    let two = prepare(&rows, &folder.at("two.csv"), "--keep a,b --k 1 --n 20000");
    assert!(two["chosen"]["warning"].is_null() && two["chosen"].is_object());
    assert_eq!(
        folder.read("described.csv"),
        "name,center,scale\nsalary,40000.0,3000.0\nage,40.0,12.0\n"
    );
}

#[test]
fn create_and_report_warn_of_dominant_columns() {
    let folder = Folder::new();
    let rows = folder.write("people.csv", public_rows());
    let server = folder.server();
    let create = |flags: &str| {
        let output = server.cli(&format!("study create --json --name x --same-name {flags}"));
        let id = json_of(&output)["id"].as_str().unwrap().to_owned();
        (id, stderr(&output))
    };
    let names = folder.write("names.csv", "name\na\nb\nc\nsalary\n");
    let (bare, message) = create(&format!("--epsilon 4 --features {names}"));
    assert!(message.contains("no center is subtracted"), "{message}");
    let features = folder.at("features.csv");
    prepare(&rows, &features, "--k 1 --n 20000");
    let (centred, message) = create(&format!("--epsilon 4 --features {features}"));
    assert!(!message.contains("center"), "{message}");
    let (_, message) = create("--epsilon 16 --p 64 --centring");
    assert!(message.contains("attempts of 65 numbers"), "{message}");

    let report = |id: &str, rows: &str, count: usize| {
        let output = server.cli(&format!(
            "report --study {id} --rows {rows} --ledger {rows}.{id}.ledger --json"
        ));
        // Without a terminal only the messages depend on the rows.
        assert_eq!(json_of(&output)["acknowledged"], count);
        stderr(&output)
    };
    let message = report(&bare, &rows, 200);
    let warning = "warning, shown only to you: column \"salary\" has 100.0 %";
    assert!(message.contains(warning), "{message}");
    let message = report(&centred, &rows, 200);
    assert!(
        message.contains("shares of the squared length") && !message.contains("warning"),
        "{message}"
    );
    // For a single row no shares are shown, which are nearly its values.
    let one = folder.write("one.csv", "a,b,c,salary\n1,2,3,40000\n");
    let message = report(&bare, &one, 1);
    assert!(!message.contains("shares"), "{message}");
}

/// No row is perturbed, charged or sent before the person has answered yes.
#[test]
fn report_asks_at_a_terminal() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("SKIPPED: script (util-linux), which gives a program a terminal, is not here");
        return;
    }
    let folder = Folder::new();
    let rows = folder.write("people.csv", public_rows());
    let server = folder.server();
    let study = server.create_study("--p 4 --epsilon 4");
    let url = &server.url;
    // A single row with nothing conspicuous is asked about alike.
    let one = folder.write("one.csv", "a,b,c,d\n1,2,3,4\n");
    let report_of = |rows: &str, answer: &str| {
        let command = format!(
            "{PROGRAM} report --server {url} --study {study} --rows {rows} --header yes --by-position"
        );
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
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), message)
    };
    let report = |answer: &str| report_of(&rows, answer);
    let (done, message) = report_of(&one, "n\n");
    assert!(!done && message.contains("Go on? [y/N]"), "{message}");
    // Its owner learns what cannot be used before it is sent, not after.
    let missing = folder.write("missing.csv", "a,b,c,d\n1,,3,4\n");
    let (done, message) = report_of(&missing, "n\n");
    let counts = "cells without a number: 1, whose rows are sent as zero rows: column 2 (b): 1";
    let asked = message.find("Go on? [y/N]");
    assert!(
        !done && message.find(counts) < asked && message.contains(counts),
        "{message}"
    );
    for answer in ["n\n", "\n", "what?\n"] {
        let (done, message) = report(answer);
        assert!(!done && message.contains("Go on? [y/N]"), "{message}");
        says(&message, &["nothing was perturbed or sent"]);
        assert_eq!(server.accepted(&study), 0);
        assert!(!Path::new(&format!("{rows}.ledger")).exists());
    }
    // After a "no" the rows are corrected, and the new file is accepted.
    fs::write(&rows, public_rows().replacen("\n-9.5,", "\n-9.4,", 1)).unwrap();
    let (done, message) = report("y\n");
    assert!(done && message.contains("200 of 200 rows"), "{message}");
    assert_eq!(server.accepted(&study), 200);
}

/// 569 rows of 30 columns, drawn from 20,000 times. The seed is fixed: no false alarms. Measured: error 0.234, expected
/// 0.239, planned 0.244.
#[test]
fn prepare_gives_the_predicted_error_on_breast_cancer() {
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/breast_cancer.npy");
    if !rows.exists() {
        eprintln!("SKIPPED: {} is absent", rows.display());
        return;
    }
    let folder = Folder::new();
    let (rows, out) = (format!("'{}'", rows.display()), folder.at("features.csv"));
    let answer = prepare(&rows, &out, "--k 3 --n 20000");
    // The warning comes before any report.
    let before = &answer["choices"][0];
    assert!(
        before["uses_centers_and_scales"] == false && before["warning"].is_string(),
        "{before}"
    );
    assert!(!answer["warnings"].as_array().unwrap().is_empty());
    let chosen = &answer["chosen"];
    assert_eq!(chosen["components_above_floor"], 3, "{chosen}");
    assert!(chosen["error"].as_f64().unwrap() <= 0.3, "{chosen}");
    let mut line =
        format!("simulate --rows {rows} --features {out} --k 3 --n 20000 --epsilon 4 --seed 7");
    if let Some(radius) = chosen["norm"]["radius"].as_f64() {
        write!(line, " --bound-rows clip --radius {radius}").unwrap();
    }
    if chosen["centring"].is_number() {
        line += " --centring";
    }
    let simulated = run_json(&line);
    // All 30 columns, the largest first; at least the 3 requested components are above the floor.
    assert!(
        simulated["components_above_floor"].as_f64() >= Some(3.0),
        "{simulated}"
    );
    for error in ["error_mean", "error_predicted_from_data"] {
        assert!(simulated[error].as_f64().unwrap() <= 0.3, "{simulated}");
    }
}

/// A header of numbers read as a row would spoil every center and scale.
#[test]
fn prepare_asks_about_a_first_line_of_numbers() {
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
fn prepare_names_the_file_that_it_cannot_write() {
    let folder = Folder::new();
    let text = folder.write("columns.csv", "name,mean,sd\nage,40,12\n");
    let out = folder.at("features.csv");
    // No file may grow, as on a full disk.
    let mut limited = shell("trap '' XFSZ; ulimit -f 0; exec");
    limited.args(["prepare", "--description", &text, "--out", &out]);
    refused(&limited.output().unwrap(), 1, &["cannot write", &out]);
    assert!(!Path::new(&out).exists());
}

/// Columns of text become 0 and 1 by the public table's values, and every command reads participants' tables the same
/// way: what the features file says is all that it takes.
#[test]
fn categories_are_encoded_alike_by_every_command() {
    let folder = Folder::new();
    let mut text = String::from("age,colour,size\n");
    for i in 0..60 {
        let colour = ["red", "green", "blue"][i % 3];
        writeln!(
            text,
            "{},{colour},{}",
            20 + i * 7 % 40,
            (i * 5 % 11) as f64 + i as f64 % 3.0
        )
        .unwrap();
    }
    let rows = folder.write("public.csv", text);
    let out = folder.at("features.csv");
    let line = format!("prepare --rows {rows} --out {out} --epsilon 8 --k 1 --n 100000");
    refused(
        &run(&line),
        2,
        &[
            "column 2 (colour): most of its cells are no numbers",
            "--one-hot",
        ],
    );
    run_json(&format!("{line} --one-hot colour"));
    // One scale for the group: √(3·(1/3)(2/3)).
    let written = folder.read("features.csv");
    for category in ["blue", "green", "red"] {
        says(&written, &[&format!("\ncolour={category},0.333,0.816\n")]);
    }
    // Participants: other order, a category that nobody knows, a missing one.
    let people = "colour;size;age\nred;1.5;30\npurple;2;40\n;3;50\n";
    let people = folder.write("people.csv", people);
    let server = folder.server();
    let study = server.create_study(&format!("--epsilon 8 --features {out}"));
    let output = server.cli(&format!("report --json --study {study} --rows {people}"));
    let reported = json_of(&output);
    has(&reported, "accepted=3");
    let message = stderr(&output);
    says(
        &message,
        &[
            "0 and 1 for the categories of the study: \"colour\"",
            "sent as zero rows: 1 that",
            "line 3, column 1 (colour): none of the categories",
        ],
    );
    assert!(!message.contains("purple"), "{message}");
    // Where nothing is sent the table can be mended.
    let line = format!("central pca --k 2 --features {out} --rows {people}");
    refused(
        &run(&line),
        2,
        &[
            "some of its cells are none of the categories of the features file",
            "\"blue\", \"green\", \"red\"",
            "line 3, column 1 (colour): none of the categories",
        ],
    );
    // The same numbers as a table that somebody encoded by hand.
    let people = folder.write(
        "two.csv",
        "colour,size,age\nred,1.5,30\ngreen,2,40\nblue,3,41\n",
    );
    let by_hand =
        "age,colour=blue,colour=green,colour=red,size\n30,0,0,1,1.5\n40,0,1,0,2\n41,1,0,0,3\n";
    let by_hand = folder.write("hand.csv", by_hand);
    let loadings = [&people, &by_hand].map(|rows| {
        let loadings = folder.at("loadings.csv");
        run_json(&format!(
            "central pca --k 2 --rows {rows} --features {out} --out {loadings}"
        ));
        folder.read("loadings.csv")
    });
    assert_eq!(loadings[0], loadings[1]);
}

/// Warnings of `prepare` before anybody spends a report: few rows, identifiers, and that no command is worth giving.
#[test]
fn few_rows_identifiers_and_hopeless_plans_are_told() {
    let folder = Folder::new();
    let few: String = public_rows()
        .lines()
        .take(13)
        .map(|line| line.to_owned() + "\n")
        .collect();
    let few = folder.write("few.csv", few);
    let answer = prepare(&few, &folder.at("few_features.csv"), "--k 1 --n 20000");
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("12 public rows are few"), "{warnings}");
    for choice in answer["choices"].as_array().unwrap() {
        assert!(choice["error_se"].as_f64().unwrap() >= 0.0, "{choice}");
    }

    let mut lines = public_rows();
    lines = lines
        .lines()
        .enumerate()
        .map(|(i, line)| match i {
            0 => format!("id,{line}\n"),
            _ => format!("{},{line}\n", 100_003 + i * 7919 % 100_000),
        })
        .collect();
    let rows = folder.write("ids.csv", lines);
    let line = |out: &str, n: u32| {
        let out = folder.at(out);
        run(&format!(
            "prepare --rows {rows} --out {out} --k 1 --n {n} --epsilon 0.1"
        ))
    };
    let hopeless = line("a.csv", 50);
    assert!(
        stderr(&hopeless).contains("column 1 (id) has whole numbers that all differ"),
        "{}",
        stderr(&hopeless)
    );
    let text = succeeded(&hopeless);
    assert!(
        text.contains("with 50 participants no component of the prepared rows would stand")
            && !text.contains("study create"),
        "{text}"
    );
    // Without centers the column of identifiers stands above. One component needs more people, and a plan says how many.
    let above = "--k 1 --n 300 --epsilon 2";
    let above = run(&format!(
        "prepare --rows {rows} --out {} {above}",
        folder.at("b.csv")
    ));
    let text = succeeded(&above);
    assert!(
        text.contains("k = 1 with an error of 0.3 needs about")
            && text.contains("eigenveil plan --p"),
        "{text}"
    );
}

/// Cells that are missing in public rows become shares of a study, which says what it cannot give.
#[test]
fn missing_cells_of_public_rows_become_observed_shares() {
    let folder = Folder::new();
    let lines = public_rows();
    let lines = lines.lines().enumerate().map(|(i, line)| {
        let cells: Vec<&str> = line.split(',').collect();
        match (i, i % 5) {
            (0, _) | (_, 1..) => format!("{line}\n"),
            // Columns b and c in one row of five.
            _ => format!("{},,NA,{}\n", cells[0], cells[3]),
        }
    });
    let rows = folder.write("public.csv", lines.collect::<String>());
    let out = folder.at("features.csv");
    let answer = prepare(&rows, &out, "--k 1 --n 100000");
    let written = folder.read("features.csv");
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines[0], "name,center,scale,observed,section");
    assert!(
        lines[1].ends_with(",1.0,") && lines[4].ends_with(",1.0,"),
        "{written}"
    );
    assert!(
        lines[2].ends_with(",0.8,b") && lines[3].ends_with(",0.8,b"),
        "{written}"
    );
    let says_why = "no correlations or regressions";
    says(&answer["warnings"].to_string(), &[says_why]);
    // The study that it proposes is one, and says so when it is made.
    let server = folder.server();
    let created = server.cli(&format!(
        "study create --json --name x --epsilon 4 --k 1 --features {out} --centring"
    ));
    json_of(&created);
    says(&stderr(&created), &[says_why]);
}

/// Visits of persons: they count alike, and a column that looks like theirs is named.
#[test]
fn persons_are_the_sample_of_prepare() {
    let folder = Folder::new();
    let mut text = String::from("patient,a,b,c\n");
    for (i, line) in public_rows().lines().skip(1).enumerate() {
        let (cells, _) = line.rsplit_once(',').unwrap();
        writeln!(text, "{},{cells}", 501 + i / 8).unwrap();
    }
    let rows = folder.write("visits.csv", text);
    let line = |out: &str, more: &str| {
        let out = folder.at(out);
        run(&format!(
            "prepare --rows {rows} --out {out} --epsilon 4 --k 1 --n 20000 {more}"
        ))
    };
    says(
        &stderr(&line("a.csv", "")),
        &["column 1 (patient) has whole numbers", "--person"],
    );
    let printed = succeeded(&line("b.csv", "--person patient"));
    says(
        &printed,
        &[
            "the public rows of 25 persons are few",
            "of 25 persons, who count alike",
        ],
    );
    let written = folder.read("b.csv");
    assert!(
        !written.contains("patient") && written.lines().count() == 4,
        "{written}"
    );
    // Who leaves such a column out of reports is told what it may be, too.
    let server = folder.server();
    let study = server.create_study(&format!("--epsilon 4 --features {}", folder.at("b.csv")));
    let reported = server.cli(&format!("report --study {study} --rows {rows}"));
    refused(&reported, 2, &["--drop patient", "--person"]);
}

/// Medical spending of 5,574 people (docs/tables.md, "Heavy tails").
#[test]
fn prepare_names_heavy_tails_and_how_far_a_scale_may_be_off() {
    let tables = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/tables");
    let rows = tables.join("medical_spending.csv");
    if !rows.exists() {
        eprintln!("SKIPPED: {} is absent", rows.display());
        return;
    }
    let folder = Folder::new();
    let answer = prepare(
        &format!("'{}'", rows.display()),
        &folder.at("f.csv"),
        "--k 3 --n 30000",
    );
    let warnings = answer["warnings"].to_string();
    says(
        &warnings,
        &["heavy tails: \\\"med\\\" (one row has 42.4 %", "logarithms"],
    );
    let factor = |name: &str| {
        let mut columns = answer["columns"].as_array().unwrap().iter();
        let column = columns.find(|column| column["name"] == name).unwrap();
        column["scale_factor"].as_f64().unwrap()
    };
    assert!(factor("med") > 1.4 && factor("age") < 1.05, "{answer}");
}
