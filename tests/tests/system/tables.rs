//! Tables as people have them: all commands read them alike, or refuse before anything is perturbed or charged. The
//! details of each format are in the tests of `cli/src/rows`.

use std::{fs, path::Path};

use crate::harness::{Folder, ServerProcess, json_of, refused, run, run_json, stderr, succeeded};

/// The rows of scikit-learn's `load_wine` and a study of its 13 features.
struct Bench {
    folder: Folder,
    server: ServerProcess,
    study: String,
    names: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Bench {
    fn new() -> Self {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data");
        let text = fs::read_to_string(data.join("wine.csv")).unwrap();
        // The last column is the kind of wine.
        let mut lines = text
            .lines()
            .map(|line| line.split(',').take(13).map(str::to_owned).collect());
        let folder = Folder::new();
        // Centers and scales are published with the data.
        let constants = fs::read(data.join("wine_features.csv")).unwrap();
        let features = folder.write("features.csv", constants);
        let server = folder.server();
        Self {
            study: server.create_study(&format!("--epsilon 4 --k 2 --features {features}")),
            names: lines.next().unwrap(),
            rows: lines.collect(),
            folder,
            server,
        }
    }

    fn csv(&self, header: &[String]) -> String {
        csv(header, &self.rows)
    }

    /// The same columns in another order, as a European spreadsheet writes them.
    fn reordered(&self, rows: impl Iterator<Item = Vec<String>>) -> String {
        let line = |cells: &[String]| {
            let cells: Vec<&str> = (0..13).map(|i| cells[(5 * i + 3) % 13].as_str()).collect();
            cells.join(";") + "\n"
        };
        let body = rows.map(|row| line(&row).replace('.', ","));
        line(&self.names) + &body.collect::<String>()
    }

    fn report(&self, rows: &str, flags: &str) -> std::process::Output {
        let study = &self.study;
        self.server.cli(&format!(
            "report --json --study {study} --rows {rows} {flags}"
        ))
    }
}

/// A header and the rows, like pandas' `to_csv`.
fn csv(header: &[String], rows: &[Vec<String>]) -> String {
    let lines = std::iter::once(header).chain(rows.iter().map(Vec::as_slice));
    lines.map(|line| line.join(",") + "\n").collect()
}

#[test]
fn all_commands_read_tables_alike() {
    let bench = Bench::new();
    let folder = &bench.folder;
    let (result, loadings) = (folder.at("result"), folder.at("loadings.csv"));
    let features = folder.at("features.csv");
    let mut results = Vec::new();
    for (name, text) in [
        ("plain.csv", bench.csv(&bench.names)),
        ("moved.csv", bench.reordered(bench.rows.iter().cloned())),
    ] {
        let rows = folder.write(name, text);
        let output = bench.report(&rows, "");
        let moved = name == "moved.csv";
        assert_eq!(stderr(&output).contains("matched by name"), moved);
        let reported = json_of(&output);
        assert_eq!(
            (&reported["accepted"], &reported["unusable"]),
            (&178.into(), &0.into())
        );
        // The estimate of the first form serves both.
        if !moved {
            let study = &bench.study;
            bench
                .server
                .cli_json(&format!("estimate --study {study} --wait --out {result}"));
        }
        let project = format!("project --estimate {result}/estimate.json --rows {rows}");
        run_json(&format!(
            "central pca --k 2 --rows {rows} --features {features} --out {loadings}"
        ));
        results.push((succeeded(&run(&project)), folder.read("loadings.csv")));
    }
    assert_eq!(results[0].0.lines().count(), 179);
    assert_eq!(results[0], results[1]);

    // An index column: nothing is perturbed or charged.
    let header = [&[String::new()][..], &bench.names[..]].concat();
    let numbered = bench.rows.iter().enumerate();
    let numbered = numbered.map(|(number, row)| [&[number.to_string()][..], &row[..]].concat());
    let text = csv(&header, &numbered.collect::<Vec<_>>());
    let rows = folder.write("index.csv", text);
    refused(
        &bench.report(&rows, ""),
        2,
        &["index", "--drop 'Unnamed: 0'"],
    );
    for ending in [".eigenveil", ".ledger"] {
        assert!(!Path::new(&format!("{rows}{ending}")).exists(), "{ending}");
    }
    let dropped = bench.report(&rows, "--drop 'Unnamed: 0'");
    assert_eq!(json_of(&dropped)["accepted"], 178);

    // A missing cell becomes a zero row in `report`, and an error in `project`.
    let mut holes = bench.rows.clone();
    holes[3][7].clear();
    let text = csv(&bench.names, &holes);
    let rows = folder.write("hole.csv", text);
    assert_eq!(json_of(&bench.report(&rows, ""))["unusable"], 1);
    let project = run(&format!(
        "project --estimate {result}/estimate.json --rows {rows}"
    ));
    refused(&project, 2, &["the value is missing"]);
}

/// With reordered columns and decimal commas the reports use the right columns. The first component of 20,000 wines at
/// ε = 8 is known to about 3°, so a false alarm is practically impossible (0.8 is 37°).
#[test]
fn reordered_columns_are_reported_in_the_studys_order() {
    let mut bench = Bench::new();
    let folder = &bench.folder;
    // Every wine about equally often.
    let many = bench.reordered(bench.rows.iter().cycle().take(20_000).cloned());
    let (rows, features) = (folder.write("many.csv", many), folder.at("features.csv"));
    bench.study = bench
        .server
        .create_study(&format!("--epsilon 8 --features {features}"));
    json_of(&bench.report(&rows, ""));
    let (study, out) = (&bench.study, folder.at("many"));
    bench.server.cli_json(&format!(
        "estimate --study {study} --k 1 --wait --out {out}"
    ));
    let estimate = folder.read_json("many/estimate.json");
    let found = estimate["components"][0]["loadings"].as_array().unwrap();
    let plain = folder.write("plain.csv", bench.csv(&bench.names));
    let loadings = folder.at("loadings.csv");
    run_json(&format!(
        "central pca --k 1 --rows {plain} --features {features} --out {loadings}"
    ));
    let text = folder.read("loadings.csv");
    let true_ones = text
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap());
    let cosine: f64 = found
        .iter()
        .zip(true_ones)
        .map(|(found, truth)| found.as_f64().unwrap() * truth.parse::<f64>().unwrap())
        .sum();
    assert!(cosine.abs() > 0.8, "{cosine}");
}

/// A second run must read the file like the first: with another header its rows are other participants.
#[test]
fn rereading_a_table_differently_is_refused() {
    let bench = Bench::new();
    let numbers: Vec<String> = (0..13).map(|number| number.to_string()).collect();
    let rows = bench.folder.write("rows.csv", bench.csv(&numbers));
    json_of(&bench.report(&rows, "--header yes --by-position"));
    let words = [
        "another header or other columns",
        "the flags that were given then",
    ];
    refused(&bench.report(&rows, "--header no"), 2, &words);
    let again = json_of(&bench.report(&rows, "--header yes --by-position"));
    assert_eq!(
        (&again["accepted"], &again["acknowledged"]),
        (&0.into(), &178.into())
    );
}

/// For a study without names `report` asks what line 1 is, and notes that columns are taken in the file's order.
#[test]
fn studies_without_names_use_the_files_order() {
    let mut bench = Bench::new();
    bench.study = bench.server.create_study("--epsilon 4 --p 13");
    let rows = bench.folder.write("rows.csv", bench.csv(&bench.names));
    refused(
        &bench.report(&rows, ""),
        2,
        &["--header yes or --header no"],
    );
    let output = bench.report(&rows, "--header yes");
    let message = stderr(&output);
    assert!(
        message.contains("the file's order: \"alcohol\", \"malic_acid\""),
        "{message}"
    );
    assert_eq!(json_of(&output)["accepted"], 178);
}

/// Tables that are refused or misread: messages contain no value of a row, not even from a first line that was taken
/// for column names.
#[test]
fn messages_never_repeat_a_value() {
    let folder = Folder::new();
    let server = folder.server();
    let study = server.create_study("--p 3 --epsilon 1");
    let named = folder.write("named.csv", "name\na\nb\nc\n");
    let named = server.create_study(&format!("--epsilon 1 --features {named}"));
    let rows = [
        ["7310.25", "8421.5", "9532.75"],
        ["6243.125", "5354.5", "4465.25"],
    ];
    let joined = |separator: &str| -> String {
        let lines = rows.map(|row| row.join(separator) + "\n");
        lines.concat().repeat(4)
    };
    let marked = rows.iter().flatten().copied().chain(["Marlowe", "Zebulon"]);
    let tables = [
        ("spaces.csv", joined(" ")),
        ("spaces.tsv", joined("   ")),
        ("slashes.csv", joined(" / ")),
        ("colons.csv", joined(":")),
        ("text.csv", "Marlowe,Zebulon\nZebulon,Marlowe\n".repeat(3)),
        ("text_beside.csv", joined(",").replace("7310.25", "Marlowe")),
        ("ragged.csv", format!("{}9532.75,8421.5\n", joined(","))),
        ("quote.csv", format!("\"7310.25,8421.5\n{}", joined(","))),
        ("comma.csv", joined(";").replace('.', ",") + "7310.25\n"),
        (
            "exponent.csv",
            joined(",").replace("7310.25", "7310.25e999"),
        ),
        ("units.csv", joined(",").replace("8421.5", "8421.5 mg")),
        ("label.libsvm", joined(" ")),
        ("index.libsvm", "1 1:7310.25 1:8421.5\n".to_owned()),
        ("short.npy", "7310.25\n".to_owned()),
        ("not.parquet", joined(",")),
        ("unknown.dat", joined(",")),
    ];
    let mut said = 0;
    for (name, text) in tables {
        let rows = folder.write(name, text);
        let out = folder.at("out");
        for (line, flags) in [
            ("prepare --out OUT", ""),
            ("central analyze-gauss --k 1 --epsilon 1", "--header yes"),
            ("simulate --n 9 --k 1 --epsilon 1", "--header no"),
            ("demo --n 50 --k 1 --out OUT", ""),
            ("report --study STUDY", "--header no"),
            ("report --study NAMED", ""),
            ("report --study NAMED", "--header yes --by-position"),
        ] {
            let line = line.replace("OUT", &out).replace("STUDY", &study);
            let line = line.replace("NAMED", &named);
            for flags in ["", flags] {
                let output = server.cli(&format!("{line} --rows {rows} {flags}"));
                said += usize::from(!output.status.success());
                // Names that a flag declares may be shown, and what a command computes is its result.
                if flags.contains("--header yes") {
                    continue;
                }
                let text = stderr(&output);
                for value in marked.clone() {
                    let comma = value.replace('.', ",");
                    assert!(
                        !text.contains(value) && !text.contains(&comma),
                        "{line} {flags} {name}: {text}"
                    );
                }
            }
            fs::remove_file(&out).ok();
            fs::remove_dir_all(&out).ok();
        }
    }
    assert!(said > 100, "{said}");
    let spaces = run(&format!(
        "simulate --n 9 --k 1 --epsilon 1 --rows {}",
        folder.at("spaces.csv")
    ));
    refused(&spaces, 2, &["separated by spaces", "tr -s"]);
    let flag = run("simulate --n 9 --k 1 --epsilon 1 --rows x.csv --delimiter ' '");
    refused(&flag, 2, &["separated by spaces"]);
}
