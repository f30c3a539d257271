//! Tables as people have them: all commands read them alike, or refuse before anything is perturbed or charged. The
//! details of each format are in the tests of `tables`.

use std::{fs, path::Path, sync::Arc};

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};

use crate::harness::{Folder, json_of, refused, run, run_json, stderr};

/// With reordered columns and decimal commas the reports use the right columns. The first component of 20,000 wines at
/// ε = 8 is known to about 3°, so a false alarm is practically impossible (0.8 is 37°).
#[test]
fn reordered_columns_are_reported_in_the_studys_order() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data");
    let folder = Folder::new();
    // Centers and scales are published with the data.
    let constants = fs::read(data.join("wine_features.csv")).unwrap();
    let features = folder.write("features.csv", constants);
    let text = fs::read_to_string(data.join("wine.csv")).unwrap();
    // The last column is the kind of wine.
    let lines = text.lines().map(|line| line.rsplit_once(',').unwrap().0);
    let lines: Vec<&str> = lines.collect();
    let plain = folder.write("plain.csv", lines.join("\n"));
    // As a European spreadsheet writes them, every wine about equally often.
    let moved = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let cells: Vec<&str> = (0..13).map(|i| cells[(5 * i + 3) % 13]).collect();
        cells.join(";") + "\n"
    };
    let rows = lines[1..].iter().cycle().take(20_000);
    let rows: String = rows.map(|line| moved(line).replace('.', ",")).collect();
    let rows = folder.write("many.csv", moved(lines[0]) + &rows);
    let server = folder.server();
    let study = server.create_study(&format!("--epsilon 8 --features {features}"));
    server.cli_json(&format!("report --study {study} --rows {rows} --decimal ,"));
    let out = folder.at("many");
    server.cli_json(&format!(
        "estimate --study {study} --k 1 --wait --out {out}"
    ));
    let estimate = folder.read_json("many/estimate.json");
    let estimated_loadings = estimate["components"][0]["loadings"].as_array().unwrap();
    let loadings = folder.at("loadings.csv");
    run_json(&format!(
        "central pca --k 1 --rows {plain} --features {features} --out {loadings}"
    ));
    let text = folder.read("loadings.csv");
    let true_ones = text
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap());
    let cosine: f64 = estimated_loadings
        .iter()
        .zip(true_ones)
        .map(|(found, truth)| found.as_f64().unwrap() * truth.parse::<f64>().unwrap())
        .sum();
    assert!(cosine.abs() > 0.8, "{cosine}");
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
    let mut messages = 0;
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
                messages += usize::from(!output.status.success());
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
    assert!(messages > 100, "{messages}");
    let flag = run("simulate --n 9 --k 1 --epsilon 1 --rows x.csv --delimiter ' '");
    refused(&flag, 2, &["separated by spaces"]);
    let commas = folder.write("commas.csv", "a,b,c\n1.5,2.5,3\n1.5,4.5,3\n2.5,2.5,3\n");
    let flag = run(&format!(
        "simulate --n 9 --k 1 --epsilon 1 --rows {commas} --delimiter ';'"
    ));
    refused(&flag, 2, &["--delimiter is wrong", "';' separates none"]);
}

/// The outcome of every command for a file.
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

/// One table in every format and with every flag that a command must hand on, and what all refuse: name, bytes, flags,
/// outcome.
fn written_tables() -> Vec<(&'static str, Vec<u8>, &'static str, Outcome)> {
    const NAMES: &str = "height,weight,dose\r\n";
    let number = |i: usize, j: usize| {
        let x = (i * [7, 5, 11][j] % 23) as f64 - 8.0;
        [x * 0.25, x * 310.5, 1.0 + x * x * 12.25][j]
    };
    let value = |i: usize, j: usize| format!("{:.2}", number(i, j));
    let lines = |header: &str, cell: &dyn Fn(usize, usize) -> String, by: &str| {
        let row = |i: usize| (0..3).map(|j| cell(i, j)).collect::<Vec<_>>().join(by) + "\r\n";
        header.to_owned() + &(0..24).map(row).collect::<String>()
    };
    let commas = |header: &str, cell: &dyn Fn(usize, usize) -> String| lines(header, cell, ",");
    // 1234.50 with this mark between thousands, and a decimal comma.
    let local = |thousands: &str| {
        let cell = |i: usize, j: usize| {
            let text = value(i, j);
            let (whole, decimals) = text.split_once('.').unwrap();
            let at = whole.len().saturating_sub(3);
            let (first, rest) = whole.split_at(at);
            let by = if ["", "-"].contains(&first) {
                ""
            } else {
                thousands
            };
            format!("{first}{by}{rest},{decimals}")
        };
        lines(&NAMES.replace(',', ";"), &cell, ";")
    };
    let numbered = {
        let rows = commas("", &value);
        let rows = rows.lines().enumerate();
        let rows = rows.map(|(i, row)| format!("{},{row}\n", i + 1));
        format!(",{NAMES}{}", rows.collect::<String>())
    };
    // With one cell like this.
    let replaced = |cell: &str| {
        commas(NAMES, &|i, j| match (i, j) {
            (5, 1) => cell.to_owned(),
            _ => value(i, j),
        })
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
    let kind = |i: usize, j: usize| match (j, number(i, j) > 200.0) {
        (2, true) => "high".to_owned(),
        (2, false) => "low".to_owned(),
        _ => value(i, j),
    };
    let percents = commas(NAMES, &|i, j| value(i, j) + if j == 2 { "%" } else { "" });
    let other_order = commas("dose,weight,height\n", &|i, j| value(i, 2 - j));
    let utf_16 = format!("\u{feff}{}", commas(NAMES, &value));
    let utf_16 = utf_16.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let text = || Refused("column 3 (dose): most of its cells are no numbers");
    let from_0 = "--first-index 0 --by-position";
    let texts = [
        ("plain.csv", commas(NAMES, &value), "", Read),
        (
            "index.csv",
            numbered.clone(),
            "",
            Refused("--drop 'Unnamed: 0'"),
        ),
        ("dropped.csv", numbered, "--drop 'Unnamed: 0'", Read),
        ("other order.csv", other_order, "", Read),
        ("no header.csv", commas("", &value), "--header no", Read),
        (
            "array.csv",
            commas("0,1,2\n", &value),
            "--header yes --by-position",
            Read,
        ),
        (
            "spaces.csv",
            lines("height weight dose\n", &value, " "),
            "",
            Refused("separated by spaces"),
        ),
        ("de.csv", local("."), "", Refused("--decimal ,")),
        ("de, said.csv", local("."), "--decimal ,", Read),
        ("percent.csv", percents, "", Refused("1234.5")),
        (
            "comment.csv",
            format!("# exported\r\n{}", commas(NAMES, &value)),
            "",
            Refused("line 2 names the columns"),
        ),
        (
            "title.csv",
            format!("Survey,,\r\n,,\r\n{}", commas(NAMES, &value)),
            "",
            Refused("line 3 names the columns"),
        ),
        (
            "broken name.csv",
            commas("\"height\r\n(cm)\",weight,dose\r\n", &value),
            "",
            Refused("quoted name in line 1"),
        ),
        (
            "missing.csv",
            replaced("NA"),
            "",
            Unusable("the value is missing"),
        ),
        (
            "error.csv",
            replaced("#DIV/0!"),
            "",
            Unusable("not a number"),
        ),
        ("categories.csv", commas(NAMES, &kind), "", text()),
        ("svm.libsvm", libsvm(1), "--by-position", Read),
        ("sklearn.svm", libsvm(0), from_0, Read),
        (
            "unasked.svm",
            libsvm(0),
            "--by-position",
            Refused("--first-index 0"),
        ),
    ];
    let texts = texts.map(|(name, text, flags, outcome)| (name, text.into_bytes(), flags, outcome));
    let mut files = Vec::from(texts);
    files.push(("utf-16.csv", utf_16, "", Read));
    files.push(("strings.parquet", parquet(&value), "", Read));
    files.push(("categories.parquet", parquet(&kind), "", text()));
    files.push(("save.npy", npy, "--by-position", Read));
    files
}

/// Every command reads all of them alike, or refuses them in the same words before anything is perturbed or charged.
#[test]
fn files_are_read_or_refused_alike_by_every_command() {
    let folder = Folder::new();
    let server = folder.server();
    let features = "name,center,scale\nheight,0,2\nweight,0,2000\ndose,800,900\n";
    let features = folder.write("features.csv", features);
    let study = server.create_study(&format!("--epsilon 8 --features {features}"));
    let plain = folder.write("plain.csv", written_tables().swap_remove(0).1);
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
            "demo --n 50 --k 1 --features {features} --out {} --overwrite",
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
        // What depends on time, on chance and on earlier reports is left out. Of a report's rows the owner is told alone.
        let answer = answer.as_object_mut().unwrap();
        answer.retain(|key, _| match command.split(' ').next() {
            Some("report") => false,
            Some("demo") => ["nonprivate_captured", "rows_in_file"].contains(&key.as_str()),
            _ => !key.contains("seconds"),
        });
        let on_error = stderr(&output);
        let zeros = on_error
            .lines()
            .find_map(|line| line.split_once("sent as zero rows: "));
        let zeros = zeros.and_then(|(_, rest)| rest.split(' ').next());
        if let Some(zeros) = zeros.filter(|zeros| *zeros != "0") {
            answer.insert("zeros".to_owned(), zeros.into());
        }
        Ok((answer.clone(), fs::read_to_string(&out).unwrap_or_default()))
    };
    let expected: Vec<_> = commands
        .iter()
        .map(|command| outcome(command, &plain, "").unwrap())
        .collect();
    for (name, bytes, flags, wanted) in written_tables() {
        let rows = folder.write(name, bytes);
        for (command, expected) in commands.iter().zip(&expected) {
            let read = outcome(command, &rows, flags);
            let reports = command.starts_with("report");
            match (&wanted, read) {
                (Read, Ok(read)) => assert_eq!(read, *expected, "{name}: {command}"),
                (Unusable(_), Ok((answer, _))) if reports => {
                    assert_eq!(answer["zeros"], "1", "{name}");
                }
                // For the constants missing cells are no obstacle.
                (Unusable(_), Ok((answer, _))) if name == "missing.csv" => {
                    assert!(answer.contains_key("choices"), "{command}");
                }
                (Refused(words) | Unusable(words), Err((code, message))) => {
                    assert!(
                        code == Some(2) && message.contains(words),
                        "{name}: {command}: {message}"
                    );
                }
                (_, read) => panic!("{name}: {command}: {read:?}"),
            }
        }
        let charged = fs::exists(format!("{rows}.ledger")).unwrap();
        assert_eq!(charged, !matches!(wanted, Refused(_)), "{name}");
    }
}
