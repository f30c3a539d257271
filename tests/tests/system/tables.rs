//! Tables as people have them: all commands read them alike, or refuse before anything is perturbed or charged. The
//! details of each format are in the tests of `cli/src/rows`.

use std::{fs, path::Path, sync::Arc};

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};

use crate::harness::{
    Folder, ServerProcess, has, json_of, refused, run, run_json, says, stderr, succeeded,
};

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
        has(&reported, "accepted=178 unusable=0");
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
        "another header, other columns, other persons",
        "the flags that were given then",
    ];
    refused(&bench.report(&rows, "--header no"), 2, &words);
    let again = json_of(&bench.report(&rows, "--header yes --by-position"));
    has(&again, "accepted=0 acknowledged=178");
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
    says(&message, &["the file's order: \"alcohol\", \"malic_acid\""]);
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
    refused(&spaces, 2, &["separated by spaces", "awk -v OFS=';'"]);
    let flag = run("simulate --n 9 --k 1 --epsilon 1 --rows x.csv --delimiter ' '");
    refused(&flag, 2, &["separated by spaces"]);
}

/// What every command does with a file.
enum Outcome {
    /// It reads the rows of the plain file.
    Read,
    /// It refuses the file with these words.
    Refused(&'static str),
    /// It refuses it with these words; `report` sends one zero row.
    Unusable(&'static str),
}
use Outcome::{Read, Refused, Unusable};

/// Two columns of numbers and one of strings, which Parquet stores as a dictionary.
fn parquet(cell: &dyn Fn(usize, usize) -> String) -> Vec<u8> {
    let schema = "message schema {
        required double height; required double weight; required binary dose (string);
    }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for j in 0..2 {
        let values: Vec<f64> = (0..24).map(|i| cell(i, j).parse().unwrap()).collect();
        let mut column = group.next_column().unwrap().unwrap();
        let numbers = column.typed::<DoubleType>();
        numbers.write_batch(&values, None, None).unwrap();
        column.close().unwrap();
    }
    let values: Vec<ByteArray> = (0..24).map(|i| cell(i, 2).into_bytes().into()).collect();
    let mut column = group.next_column().unwrap().unwrap();
    let strings = column.typed::<ByteArrayType>();
    strings.write_batch(&values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// One table as thirty-odd programs and settings write it: name, bytes, flags, outcome.
fn written_tables() -> Vec<(&'static str, Vec<u8>, &'static str, Outcome)> {
    const NAMES: &str = "height,weight,dose\n";
    const DROP: Outcome = Refused("--drop 'Unnamed: 0'");
    let number = |i: usize, j: usize| {
        let x = (i * [7, 5, 11][j] % 23) as f64 - 8.0;
        [x * 0.25, x * 310.5, 1.0 + x * x * 12.25][j]
    };
    let value = |i: usize, j: usize| format!("{:.2}", number(i, j));
    let lines = |header: &str, cell: &dyn Fn(usize, usize) -> String, by: &str, end: &str| {
        let row = |i: usize| (0..3).map(|j| cell(i, j)).collect::<Vec<_>>().join(by) + end;
        header.to_owned() + &(0..24).map(row).collect::<String>()
    };
    // 1234.50 with these marks between thousands and before decimals.
    let local = |thousands: &'static str, decimal: &'static str| {
        move |i: usize, j: usize| {
            let text = value(i, j);
            let (whole, decimals) = text.split_once('.').unwrap();
            let (sign, digits) = whole
                .strip_prefix('-')
                .map_or(("", whole), |digits| ("-", digits));
            let (first, rest) = digits.split_at(digits.len().saturating_sub(3));
            let by = if first.is_empty() { "" } else { thousands };
            format!("{sign}{first}{by}{rest}{decimal}{decimals}")
        }
    };
    let quoted = |cell: &dyn Fn(usize, usize) -> String| {
        let cell = |i: usize, j: usize| format!("\"{}\"", cell(i, j));
        lines("height,weight,dose\r\n", &cell, ",", "\r\n")
    };
    let commas =
        |header: &str, cell: &dyn Fn(usize, usize) -> String| lines(header, cell, ",", "\n");
    let semicolons =
        |cell: &dyn Fn(usize, usize) -> String| lines("height;weight;dose\r\n", cell, ";", "\r\n");
    let plain = commas(NAMES, &value);
    let body = commas("", &value);
    let german = local("", ",");
    let numbered = |header: &str, by: &str, from: usize| {
        let rows = plain.lines().skip(1).enumerate();
        let rows = rows.map(|(i, row)| format!("{}{by}{}\n", i + from, row.replace(',', by)));
        header.to_owned() + &rows.collect::<String>()
    };
    let by_r = numbered("\"\",\"height\",\"weight\",\"dose\"\n", ",", 1);
    // With one cell like this.
    let replaced = |cell: &'static str| {
        move |i: usize, j: usize| match (i, j) {
            (5, 1) => cell.to_owned(),
            _ => value(i, j),
        }
    };
    let libsvm = |first: usize| {
        let row = |i: usize| {
            let pairs = (0..3).map(|j| format!(" {}:{}", j + first, value(i, j)));
            format!("0{}\n", pairs.collect::<String>())
        };
        (0..24).map(row).collect::<String>()
    };
    let npy = {
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        let head = "{'descr': '<f8', 'fortran_order': False, 'shape': (24, 3), }";
        bytes.extend(format!("{head:<117}\n").bytes());
        let values = (0..72).map(|at| value(at / 3, at % 3).parse::<f64>().unwrap());
        bytes.extend(values.flat_map(f64::to_le_bytes));
        bytes
    };
    let utf16 = |text: &str| {
        let units = std::iter::once(0xfeff).chain(text.encode_utf16());
        units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()
    };
    let percent = |i: usize, j: usize| value(i, j) + if j == 2 { "%" } else { "" };
    let minus = |i: usize, j: usize| value(i, j).replace('-', "\u{2212}");
    let exponent = |i: usize, j: usize| format!("{:.18e}", number(i, j));
    let in_quotes = |i: usize, j: usize| format!("\"{}\"", value(i, j));
    let spaced = "\"height\", \"weight\", \"dose\"\n";
    let r_header = "\"height\",\"weight\",\"dose\"\n";
    let mut labelled = plain.replacen("dose\n", "dose,kind\n", 1);
    for (end, kind) in [(".50", 'a'), (".00", 'b'), (".25", 'b'), (".75", 'a')] {
        labelled = labelled.replace(&format!("{end}\n"), &format!("{end},{kind}\n"));
    }
    let missing = || Unusable("the value is missing");
    let mut files: Vec<(&str, Vec<u8>, &str, Outcome)> = Vec::new();
    let mut add = |name, text: String, flags, outcome| {
        files.push((name, text.into_bytes(), flags, outcome));
    };
    // R
    let semicolons_of_r = lines(&r_header.replace(',', ";"), &german, ";", "\n");
    let in_spaces = lines("height weight dose\n", &value, " ", "\n");
    let in_tabs = numbered("height\tweight\tdose\n", "\t", 1);
    add("r, no names.csv", commas(r_header, &value), "", Read);
    add("r.csv", by_r.clone(), "", DROP);
    add("r, dropped.csv", by_r, "--drop 'Unnamed: 0'", Read);
    add("r, csv2.csv", semicolons_of_r, "", Read);
    add(
        "r, table.csv",
        in_spaces,
        "",
        Refused("separated by spaces"),
    );
    add("r, tabs.tsv", in_tabs, "", Refused("row names"));
    add("r, NA.csv", commas(NAMES, &replaced("NA")), "", missing());
    // Excel: United States
    let old_mac = plain.replace('\n', "\r");
    add("us.csv", plain.replace('\n', "\r\n"), "", Read);
    add("us, utf-8.csv", format!("\u{feff}{plain}"), "", Read);
    add("us, thousands.csv", quoted(&local(",", ".")), "", Read);
    let accounting = |i: usize, j: usize| match value(i, j) {
        cell if cell.starts_with('-') => format!("(${})", &cell[1..]),
        cell => format!("${cell}"),
    };
    add("us, accounting.csv", quoted(&accounting), "", Read);
    let percents = commas(NAMES, &percent);
    add("us, percent.csv", percents, "", Refused("percent sign"));
    add("us, empty.csv", plain.replace('\n', ",,\r\n"), "", Read);
    add("old mac.csv", old_mac, "", Refused("carriage returns"));
    // Germany, France and Switzerland
    let broken = semicolons(&replaced("#DIV/0!"));
    add("de.csv", semicolons(&german), "", Read);
    add("de, thousands.csv", semicolons(&local(".", ",")), "", Read);
    let said = semicolons(&local(".", ","));
    add("de, said.csv", said, "--decimal ,", Read);
    let whole = |i: usize, j: usize| match (j, value(i, j)) {
        (1, cell) => format!("2.{}", &cell[cell.len() - 3..].replace('.', "8")),
        (_, cell) => cell.replace('.', ","),
    };
    add(
        "de, whole.csv",
        semicolons(&whole),
        "",
        Refused("--decimal ,"),
    );
    let sep = format!("sep=;\r\n{}", semicolons(&german));
    add("de, sep.csv", sep, "", Read);
    add("de, error.csv", broken, "", Unusable("not a number"));
    add("fr.csv", semicolons(&local("\u{202f}", ",")), "", Read);
    add("ch.csv", semicolons(&local("\u{2019}", ".")), "", Read);
    // Numbers
    let no_end = semicolons(&german).trim_end().to_owned();
    add("numbers us.csv", plain.trim_end().to_owned(), "", Read);
    add("numbers us, minus.csv", quoted(&minus), "", Read);
    add("numbers de.csv", no_end, "", Read);
    // pandas
    let array = format!("0,1,2\n{body}");
    let kind = Refused("--drop kind");
    add("pandas.csv", plain.clone(), "", Read);
    add(
        "index.csv",
        numbered(",height,weight,dose\n", ",", 0),
        "",
        DROP,
    );
    add("tabs.tsv", plain.replace(',', "\t"), "", Read);
    add("no header.csv", body, "--header no", Read);
    add("array.csv", array, "--header yes --by-position", Read);
    add("nan.csv", commas(NAMES, &replaced("")), "", missing());
    add("label.csv", labelled, "", kind);
    // numpy
    let savetxt = lines("", &exponent, " ", "\n");
    let lacks = Refused("lacks \"height\"");
    add("savetxt.csv", savetxt, "--header no", Refused("column"));
    add("commas.csv", commas("", &exponent), "--header no", Read);
    add("savetxt, header.csv", format!("# {plain}"), "", lacks);
    // By hand
    let other_order = commas("dose,weight,height\n", &|i, j| value(i, 2 - j));
    add(
        "quotes.csv",
        lines(spaced, &in_quotes, ", ", "\n"),
        "",
        Read,
    );
    add("other order.csv", other_order, "", Read);
    // LIBSVM
    let from_0 = "--first-index 0 --by-position";
    let unasked = Refused("--first-index 0");
    add("svm.libsvm", libsvm(1), "--by-position", Read);
    add("sklearn.svm", libsvm(0), from_0, Read);
    add("unasked.svm", libsvm(0), "--by-position", unasked);
    // Parquet
    let kind = |i: usize, j: usize| match (j, number(i, j) > 200.0) {
        (2, true) => "high".to_owned(),
        (2, false) => "low".to_owned(),
        _ => value(i, j),
    };
    let text = || Refused("column 3 (dose): text in most rows");
    add("categories.csv", commas(NAMES, &kind), "", text());
    files.push(("strings.parquet", parquet(&value), "", Read));
    files.push(("categories.parquet", parquet(&kind), "", text()));
    let windows = semicolons(&local("\u{a0}", ","));
    let windows = windows.chars().map(|c| c as u8).collect();
    files.push(("fr, windows-1252.csv", windows, "", Read));
    let unicode = utf16(&plain.replace(',', "\t"));
    files.push(("unicode text.tsv", unicode, "", Refused("UTF-16")));
    files.push(("save.npy", npy, "--by-position", Read));
    files
}

/// Thirty-odd files as R, Excel in four countries, Numbers, pandas, numpy and LIBSVM write them: every command reads all
/// of them alike or refuses them in the same words.
#[test]
fn thirty_files_are_read_or_refused_alike_by_every_command() {
    let folder = Folder::new();
    let server = folder.server();
    let features = "name,center,scale\nheight,0,2\nweight,0,2000\ndose,800,900\n";
    let features = folder.write("features.csv", features);
    let study = server.create_study(&format!("--epsilon 8 --features {features}"));
    let plain = folder.write("plain.csv", written_tables().swap_remove(7).1);
    // Enough people for an estimate.
    let text = folder.read("plain.csv");
    let (header, body) = text.split_once("\r\n").unwrap();
    let many = folder.write("many.csv", format!("{header}\r\n{}", body.repeat(50)));
    json_of(&server.cli(&format!("report --json --study {study} --rows {many}")));
    let result = folder.at("result");
    server.cli_json(&format!(
        "estimate --study {study} --k 1 --wait --out {result}"
    ));
    let out = folder.at("out.csv");
    let commands = [
        format!("central pca --k 2 --features {features} --out {out}"),
        format!("simulate --n 500 --k 1 --epsilon 4 --features {features}"),
        format!("prepare --k 1 --n 1000 --epsilon 4 --features {features} --out {out}"),
        format!("project --estimate {result}/estimate.json --out {out}"),
        format!("report --study {study}"),
        format!(
            "demo --n 50 --k 1 --features {features} --out {}",
            folder.at("demo")
        ),
    ];
    let outcome = |command: &str, rows: &str, flags: &str| {
        fs::remove_file(&out).ok();
        let output = server.cli(&format!("{command} --json --rows '{rows}' {flags}"));
        let mut answer = match output.status.success() {
            true => json_of(&output),
            false => return Err((output.status.code(), stderr(&output))),
        };
        // What depends on time, on chance and on earlier reports is left out.
        let answer = answer.as_object_mut().unwrap();
        answer.retain(|key, _| match command.split(' ').next() {
            Some("report") => key == "unusable",
            Some("demo") => ["nonprivate_captured", "rows_in_file"].contains(&key.as_str()),
            _ => !key.contains("seconds"),
        });
        Ok((answer.clone(), fs::read_to_string(&out).unwrap_or_default()))
    };
    let expected: Vec<_> = commands
        .iter()
        .map(|command| outcome(command, &plain, "").unwrap())
        .collect();
    let files = written_tables();
    assert!(files.len() > 30);
    for (name, bytes, flags, wanted) in files {
        let rows = folder.write(name, bytes);
        for (command, expected) in commands.iter().zip(&expected) {
            let found = outcome(command, &rows, flags);
            let reports = command.starts_with("report");
            match (&wanted, found) {
                (Read, Ok(found)) => assert_eq!(found, *expected, "{name}: {command}"),
                (Unusable(_), Ok((answer, _))) if reports => {
                    assert_eq!(answer["unusable"], 1, "{name}");
                }
                (Refused(words) | Unusable(words), Err((code, message))) => {
                    assert!(
                        code == Some(2) && message.contains(words),
                        "{name}: {command}: {message}"
                    );
                }
                (_, found) => panic!("{name}: {command}: {found:?}"),
            }
        }
    }
}
