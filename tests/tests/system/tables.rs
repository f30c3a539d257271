//! Tables as people have them: each is read right, or refused before anything is perturbed or charged.
//!
//! The text is what pandas writes (`DataFrame.to_csv` with the arguments named at each form), the Parquet what it
//! writes through pyarrow: optional columns, an index that is not a range as `__index_level_0__`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{
    data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};

use crate::program::{ServerProcess, refused, run};

/// Numbers with names, and a class that is no feature.
struct Table {
    names: Vec<String>,
    rows: Vec<Vec<f64>>,
    /// `name,center,scale` of the features.
    constants: String,
}

impl Table {
    /// scikit-learn's `load_wine`. Centers and scales are what is published with it.
    fn wine() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/wine.csv");
        let text = fs::read_to_string(&path).unwrap();
        let (header, body) = text.split_once('\n').unwrap();
        let names: Vec<String> = header.split(',').take(13).map(str::to_owned).collect();
        let rows = body
            .lines()
            .map(|line| {
                line.split(',')
                    .take(13)
                    .map(|x| x.parse().unwrap())
                    .collect()
            })
            .collect();
        let constants = fs::read_to_string(path.with_file_name("wine_features.csv")).unwrap();
        Self {
            constants,
            names,
            rows,
        }
    }

    /// scikit-learn's `load_breast_cancer`, with its names; `None`, loudly, where the data is not beside the checkout.
    fn breast_cancer() -> Option<Self> {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/breast_cancer.npy");
        let Ok(bytes) = fs::read(&path) else {
            eprintln!("SKIPPED: {} is absent", path.display());
            return None;
        };
        let measured = [
            "radius",
            "texture",
            "perimeter",
            "area",
            "smoothness",
            "compactness",
            "concavity",
            "concave points",
            "symmetry",
            "fractal dimension",
        ];
        let mut names: Vec<String> = measured.iter().map(|name| format!("mean {name}")).collect();
        names.extend(measured.iter().map(|name| format!("{name} error")));
        names.extend(measured.iter().map(|name| format!("worst {name}")));
        // Version 1.0, C order, little-endian f32.
        let begin = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let numbers: Vec<f64> = bytes[begin..]
            .chunks_exact(4)
            .map(|b| {
                f32::from_le_bytes(b.try_into().unwrap())
                    .to_string()
                    .parse()
                    .unwrap()
            })
            .collect();
        // Round numbers of the size of the columns.
        let first = &numbers[..30];
        let constants: String = names
            .iter()
            .zip(first)
            .map(|(name, x)| format!("{name},{x},{x}\n"))
            .collect();
        Some(Self {
            constants: format!("name,center,scale\n{constants}"),
            names,
            rows: numbers.chunks_exact(30).map(<[f64]>::to_vec).collect(),
        })
    }

    /// `to_csv(index=False)`, but for the changes of `form`.
    fn csv(&self, form: &Form) -> String {
        let order: Vec<usize> = match &form.order {
            Some(order) => order.clone(),
            None => (0..self.names.len()).collect(),
        };
        let quoted = |text: String| {
            let odd = [form.separator, "\"", "\n"]
                .iter()
                .any(|sign| text.contains(sign));
            if odd { format!("\"{text}\"") } else { text }
        };
        let mut text = String::new();
        let mut line = |cells: Vec<String>| {
            let cells: Vec<String> = cells.into_iter().map(quoted).collect();
            text.push_str(&cells.join(form.separator));
            text.push('\n');
        };
        let mut header: Vec<String> = match form.header {
            "names" => order.iter().map(|&at| self.names[at].clone()).collect(),
            "numbers" => (0..order.len()).map(|at| at.to_string()).collect(),
            _ => Vec::new(),
        };
        if !header.is_empty() {
            if form.index {
                header.insert(0, String::new());
            }
            header.extend(form.class.then(|| "target".to_owned()));
            line(header);
        }
        for (number, row) in self.rows.iter().enumerate() {
            let mut cells: Vec<String> = order
                .iter()
                .map(|&at| format!("{:?}", row[at]).replace('.', form.decimal))
                .collect();
            if let Some((every, hole)) = form.holes
                && number % every == 0
            {
                cells[number % order.len()] = hole.to_owned();
            }
            if form.index {
                cells.insert(0, number.to_string());
            }
            cells.extend(form.class.then(|| "benign, more or less".to_owned()));
            line(cells);
        }
        text
    }

    /// `to_parquet()`; with `more` of a table with a class as text and an index that is not a range. The value of the
    /// first column is missing in every `every`-th row.
    fn parquet(&self, path: &Path, order: &[usize], more: bool, every: Option<usize>) {
        let mut fields: String = order
            .iter()
            .map(|at| format!("optional double column_{at};"))
            .collect();
        if more {
            fields.push_str("optional binary target (string); optional int64 __index_level_0__;");
        }
        let schema = parse_message_type(&format!("message schema {{ {fields} }}")).unwrap();
        // The parser knows no blanks in names.
        let schema = renamed(&schema, |name| match name.strip_prefix("column_") {
            Some(at) => self.names[at.parse::<usize>().unwrap()].clone(),
            None => name.to_owned(),
        });
        let properties = WriterProperties::builder()
            .set_compression(parquet::basic::Compression::SNAPPY)
            .build();
        let file = fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        // More than one row group, as large tables have.
        for (part, rows) in self.rows.chunks(100).enumerate() {
            let mut group = writer.next_row_group().unwrap();
            for (number, &at) in order.iter().enumerate() {
                let hole = |row: usize| {
                    number == 0
                        && every.is_some_and(|every| (100 * part + row).is_multiple_of(every))
                };
                let there: Vec<i16> = (0..rows.len()).map(|row| i16::from(!hole(row))).collect();
                let values: Vec<f64> = rows
                    .iter()
                    .zip(&there)
                    .filter(|(_, there)| **there == 1)
                    .map(|(row, _)| row[at])
                    .collect();
                let mut column = group.next_column().unwrap().unwrap();
                let typed = column.typed::<DoubleType>();
                typed.write_batch(&values, Some(&there), None).unwrap();
                column.close().unwrap();
            }
            let all = vec![1_i16; rows.len()];
            if more {
                let values = vec![ByteArray::from("benign"); rows.len()];
                let mut column = group.next_column().unwrap().unwrap();
                let typed = column.typed::<ByteArrayType>();
                typed.write_batch(&values, Some(&all), None).unwrap();
                column.close().unwrap();
                let values: Vec<i64> = (0..rows.len() as i64).collect();
                let mut column = group.next_column().unwrap().unwrap();
                let typed = column.typed::<Int64Type>();
                typed.write_batch(&values, Some(&all), None).unwrap();
                column.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.close().unwrap();
    }

    /// `numpy.save(file, table.to_numpy())`.
    fn npy(&self) -> Vec<u8> {
        let header = format!(
            "{{'descr': '<f8', 'fortran_order': False, 'shape': ({}, {}), }}",
            self.rows.len(),
            self.names.len()
        );
        let padded = format!("{header:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((padded.len() as u16).to_le_bytes());
        bytes.extend(padded.as_bytes());
        bytes.extend(self.rows.iter().flatten().flat_map(|x| x.to_le_bytes()));
        bytes
    }
}

/// A schema with other names of its columns.
fn renamed(
    schema: &parquet::schema::types::Type,
    name: impl Fn(&str) -> String,
) -> Arc<parquet::schema::types::Type> {
    use parquet::schema::types::Type;
    let fields = schema.get_fields().iter().map(|field| {
        let info = field.get_basic_info();
        let built = Type::primitive_type_builder(&name(field.name()), field.get_physical_type())
            .with_repetition(info.repetition())
            .with_logical_type(info.logical_type_ref().cloned())
            .build();
        Arc::new(built.unwrap())
    });
    let built = Type::group_type_builder("schema")
        .with_fields(fields.collect())
        .build();
    Arc::new(built.unwrap())
}

/// Arguments of `to_csv`, and changes to the table before it.
#[derive(Clone)]
struct Form {
    separator: &'static str,
    decimal: &'static str,
    /// names, numbers or none
    header: &'static str,
    index: bool,
    class: bool,
    order: Option<Vec<usize>>,
    /// Every so many rows one cell is this.
    holes: Option<(usize, &'static str)>,
}

const PLAIN: Form = Form {
    separator: ",",
    decimal: ".",
    header: "names",
    index: false,
    class: false,
    order: None,
    holes: None,
};

/// How it ends.
enum End {
    /// Every row is used.
    Right,
    /// Every row is used, and this is said.
    Said(&'static str),
    /// Rows that cannot be used are sent as zero rows, and `project` refuses the table with these words.
    Zero(usize, &'static str),
    /// Nothing is perturbed or charged; these words are said.
    Refused(&'static [&'static str]),
}

/// A study of a table, and what its forms should come to.
struct Bench {
    folder: tempfile::TempDir,
    server: ServerProcess,
    study: String,
    table: Table,
    scores: Option<String>,
    loadings: Option<String>,
    forms: usize,
}

impl Bench {
    fn new(table: Table) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ServerProcess::start(&folder.path().join("data"));
        let features = folder.path().join("features.csv");
        fs::write(&features, &table.constants).unwrap();
        fs::write(folder.path().join("names.txt"), table.names.join("\n")).unwrap();
        let features = features.to_str().unwrap().to_owned();
        let study = server.create_study(&["--epsilon", "4", "--k", "2", "--features", &features]);
        Self {
            folder,
            server,
            study,
            table,
            scores: None,
            loadings: None,
            forms: 0,
        }
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A new file with this ending.
    fn file(&mut self, ending: &str) -> PathBuf {
        self.forms += 1;
        self.folder
            .path()
            .join(format!("table{}.{ending}", self.forms))
    }

    /// Reports, projects and analyses the table, and compares with the other forms.
    #[track_caller]
    fn ends(&mut self, path: &Path, flags: &[&str], end: End) {
        let rows = path.to_str().unwrap().to_owned();
        let n = self.table.rows.len();
        let names = self.at("names.txt");
        let flags: Vec<&str> = flags
            .iter()
            .map(|&flag| {
                if flag == "NAMES" {
                    names.as_str()
                } else {
                    flag
                }
            })
            .collect();
        let report = [
            &["report", "--json", "--study", &self.study, "--rows", &rows],
            &flags[..],
        ]
        .concat();
        let output = self.server.cli(&report);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if let End::Refused(words) = end {
            refused(&output, 2, words);
            for ending in [".eigenveil", ".ledger"] {
                assert!(!Path::new(&format!("{rows}{ending}")).exists(), "{said}");
            }
            return;
        }
        assert!(output.status.success(), "{said}");
        let reported = crate::program::one_json_line(&output.stdout);
        let unusable = if let End::Zero(count, _) = end {
            count
        } else {
            0
        };
        assert_eq!(
            (&reported["accepted"], &reported["unusable"]),
            (&n.into(), &unusable.into()),
            "{said}"
        );
        if let End::Said(words) = end {
            assert!(said.contains(words), "{said}");
            assert_eq!(said.matches(words).count(), 1, "{said}");
        }
        // The estimate of the first form serves all of them.
        let estimate = self.at("result/estimate.json");
        if !Path::new(&estimate).exists() {
            let out = self.at("result");
            let arguments = [
                "estimate",
                "--json",
                "--study",
                &self.study,
                "--k",
                "2",
                "--wait",
            ];
            self.server
                .cli_json(&[&arguments[..], &["--out", &out]].concat());
        }
        let project = [
            &["project", "--estimate", &estimate, "--rows", &rows],
            &flags[..],
        ]
        .concat();
        let output = run(&project);
        if let End::Zero(_, words) = end {
            refused(&output, 2, &[words]);
            return;
        }
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let scores = String::from_utf8(output.stdout).unwrap();
        assert_eq!(scores.lines().count(), n + 1);
        assert_eq!(&scores, self.scores.get_or_insert_with(|| scores.clone()));
        // A curator's answer, with the features file for a study. Without names it says the order.
        let (features, out) = (self.at("features.csv"), self.at("loadings.csv"));
        let mut central = vec![
            "central", "pca", "--json", "--k", "2", "--rows", &rows, "--out", &out,
        ];
        central.extend(["--features", &features]);
        let own = flags.iter().position(|&flag| flag == "--features");
        let kept = |at: &usize| own.is_none_or(|own| *at != own && *at != own + 1);
        central.extend((0..flags.len()).filter(kept).map(|at| flags[at]));
        let output = run(&central);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let loadings = fs::read_to_string(out).unwrap();
        assert_eq!(
            &loadings,
            self.loadings.get_or_insert_with(|| loadings.clone())
        );
    }

    #[track_caller]
    fn csv(&mut self, form: &Form, flags: &[&str], end: End) {
        let path = self.file(if form.separator == "\t" { "tsv" } else { "csv" });
        fs::write(&path, self.table.csv(form)).unwrap();
        self.ends(&path, flags, end);
    }
}

fn every_form(table: Table) {
    let mut bench = Bench::new(table);
    let p = bench.table.names.len();
    let n = bench.table.rows.len();
    let reversed: Vec<usize> = (0..p).rev().collect();
    let with = |change: &dyn Fn(&mut Form)| {
        let mut form = PLAIN;
        change(&mut form);
        form
    };

    // to_csv("t.csv", index=False), and its columns in another order.
    bench.csv(&PLAIN, &[], End::Right);
    let moved = with(&|form| form.order = Some(reversed.clone()));
    bench.csv(&moved, &[], End::Said("matched by name"));
    // One feature more, fewer, or of another name.
    let fewer = with(&|form| form.order = Some((1..p).collect()));
    bench.csv(&fewer, &[], End::Refused(&["lacks"]));
    let class = with(&|form| form.class = true);
    bench.csv(
        &class,
        &[],
        End::Refused(&["does not have \"target\"", "--drop target"]),
    );
    bench.csv(&class, &["--drop", "target"], End::Right);

    // to_csv("t.csv"): the index stands before the columns, without a name.
    let index = with(&|form| form.index = true);
    bench.csv(&index, &[], End::Refused(&["index", "--drop 'Unnamed: 0'"]));
    bench.csv(&index, &["--drop", "Unnamed: 0"], End::Right);

    // DataFrame(array).to_csv("t.csv", index=False): columns named 0, 1, 2, …
    let numbers = with(&|form| form.header = "numbers");
    bench.csv(
        &numbers,
        &[],
        End::Refused(&["pandas", "--features", "--in-order"]),
    );
    // Named elsewhere, line 1 could be the first participant.
    let named = ["--features", "NAMES"];
    bench.csv(&numbers, &named, End::Refused(&["--header yes"]));
    let named = ["--features", "NAMES", "--header", "yes"];
    bench.csv(&numbers, &named, End::Right);
    let in_order = ["--header", "yes", "--in-order"];
    bench.csv(&numbers, &in_order, End::Right);
    // to_csv("t.csv", index=False, header=False)
    let none = with(&|form| form.header = "none");
    bench.csv(
        &none,
        &[],
        End::Refused(&["names none of the", "--header no"]),
    );
    bench.csv(&none, &["--header", "no"], End::Said("--header no"));

    // Missing cells, by pandas and by others; text in cells.
    for hole in ["", "NA", "n/a"] {
        let holes = with(&|form| form.holes = Some((10, hole)));
        bench.csv(
            &holes,
            &[],
            End::Zero(n.div_ceil(10), "the value is missing"),
        );
    }
    let strings = with(&|form| form.holes = Some((10, "trace, or less")));
    bench.csv(&strings, &[], End::Zero(n.div_ceil(10), "not a number"));
    // A feature that is text throughout.
    let mut text = bench.table.csv(&PLAIN);
    for row in &bench.table.rows {
        text = text.replacen(&format!("\n{:?},", row[0]), "\nhigh,", 1);
    }
    let path = bench.file("csv");
    fs::write(&path, text).unwrap();
    bench.ends(&path, &[], End::Refused(&["column 1", "holds text"]));

    // to_csv(sep=";"), (sep=";", decimal=","), (sep="\t"), (decimal=",").
    bench.csv(&with(&|form| form.separator = ";"), &[], End::Right);
    let european = with(&|form| {
        form.separator = ";";
        form.decimal = ",";
    });
    bench.csv(&european, &[], End::Right);
    let no_header = with(&|form| {
        *form = european.clone();
        form.header = "none";
    });
    bench.csv(&no_header, &["--header", "no"], End::Right);
    bench.csv(&with(&|form| form.separator = "\t"), &[], End::Right);
    let commas = with(&|form| form.decimal = ",");
    bench.csv(&commas, &[], End::Refused(&["decimal comma", "';'"]));
    // The same without quotes, as a spreadsheet's user might make it.
    let path = bench.file("csv");
    let unquoted = bench.table.csv(&commas).replace('"', "");
    fs::write(&path, unquoted).unwrap();
    bench.ends(&path, &[], End::Refused(&["most lines", "decimal commas"]));

    // to_parquet.
    let order: Vec<usize> = (0..p).collect();
    let parquet = |bench: &mut Bench, order: &[usize], more: bool, every| {
        let path = bench.file("parquet");
        bench.table.parquet(&path, order, more, every);
        path
    };
    let path = parquet(&mut bench, &order, false, None);
    bench.ends(&path, &[], End::Right);
    let path = parquet(&mut bench, &reversed, false, None);
    bench.ends(&path, &[], End::Said("matched by name"));
    let path = parquet(&mut bench, &order, false, Some(10));
    bench.ends(
        &path,
        &[],
        End::Zero(n.div_ceil(10), "the value is missing"),
    );
    let path = parquet(&mut bench, &order, true, None);
    bench.ends(
        &path,
        &[],
        End::Refused(&["index", "--drop __index_level_0__"]),
    );
    bench.ends(
        &path,
        &["--drop", "__index_level_0__"],
        End::Refused(&["--drop target"]),
    );
    bench.ends(&path, &["--drop", "__index_level_0__,target"], End::Right);

    // numpy.save: no names.
    let path = bench.file("npy");
    fs::write(&path, bench.table.npy()).unwrap();
    bench.ends(&path, &[], End::Refused(&["--features", "--in-order"]));
    bench.ends(&path, &["--features", "NAMES"], End::Right);
}

#[test]
fn wine_in_every_form_is_read_right_or_refused() {
    every_form(Table::wine());
}

#[test]
fn breast_cancer_in_every_form_is_read_right_or_refused() {
    if let Some(table) = Table::breast_cancer() {
        every_form(table);
    }
}

/// Columns in another order, in European writing: the reports are of the right ones. The first component of 20,000
/// wines at ε = 8 is known to about 3°; a false alarm is beyond reach (0.8 is 37°).
#[test]
fn reports_of_reordered_columns_find_the_component() {
    let wine = Table::wine();
    let mut many = Table {
        names: wine.names.clone(),
        constants: wine.constants.clone(),
        rows: Vec::new(),
    };
    // Every wine about as often.
    many.rows = wine.rows.iter().cycle().take(20_000).cloned().collect();
    let form = Form {
        separator: ";",
        decimal: ",",
        order: Some((0..13).map(|i| (5 * i + 3) % 13).collect()),
        ..PLAIN
    };
    let text = many.csv(&form);
    let bench = Bench::new(wine);
    let (rows, plain) = (bench.at("many.csv"), bench.at("plain.csv"));
    fs::write(&rows, text).unwrap();
    fs::write(&plain, bench.table.csv(&PLAIN)).unwrap();
    let features = bench.at("features.csv");
    let study = bench
        .server
        .create_study(&["--epsilon", "8", "--features", &features]);
    bench
        .server
        .cli_json(&["report", "--json", "--study", &study, "--rows", &rows]);
    let out = bench.at("many");
    let arguments = [
        "estimate", "--json", "--study", &study, "--k", "1", "--wait",
    ];
    bench
        .server
        .cli_json(&[&arguments[..], &["--out", &out]].concat());
    let text = fs::read_to_string(bench.at("many/estimate.json")).unwrap();
    let estimate: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found: Vec<f64> = estimate["components"][0]["loadings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect();
    let loadings = bench.at("loadings.csv");
    let central = run(&[
        "central",
        "pca",
        "--k",
        "1",
        "--rows",
        &plain,
        "--features",
        &features,
        "--out",
        &loadings,
    ]);
    assert!(
        central.status.success(),
        "{}",
        String::from_utf8_lossy(&central.stderr)
    );
    let true_ones: Vec<f64> = fs::read_to_string(loadings)
        .unwrap()
        .lines()
        .skip(1)
        .map(|line| line.rsplit(',').next().unwrap().parse().unwrap())
        .collect();
    let cosine: f64 = found.iter().zip(&true_ones).map(|(a, b)| a * b).sum();
    assert!(cosine.abs() > 0.8, "{cosine}");
}

/// A second run must read the file as the first did: with another header its rows are other participants.
#[test]
fn an_outbox_remembers_how_the_table_was_read() {
    let bench = Bench::new(Table::wine());
    let rows = bench.at("rows.csv");
    let numbered = Form {
        header: "numbers",
        ..PLAIN
    };
    fs::write(&rows, bench.table.csv(&numbered)).unwrap();
    let report = |flags: &[&str]| {
        let arguments = ["report", "--json", "--study", &bench.study, "--rows", &rows];
        bench.server.cli(&[&arguments[..], flags].concat())
    };
    let first = report(&["--header", "yes", "--in-order"]);
    assert!(
        first.status.success(),
        "{}",
        String::from_utf8_lossy(&first.stderr)
    );
    refused(
        &report(&["--header", "no"]),
        2,
        &[
            "another header or other columns",
            "the flags that were given then",
        ],
    );
    let again = report(&["--header", "yes", "--in-order"]);
    let again = crate::program::one_json_line(&again.stdout);
    assert_eq!(
        (&again["accepted"], &again["acknowledged"]),
        (&0.into(), &178.into())
    );
}

/// A study without names: `report` asks what line 1 is, and says that columns are taken in the file's order.
#[test]
fn a_study_without_names_takes_the_files_order() {
    let mut bench = Bench::new(Table::wine());
    bench.study = bench.server.create_study(&["--epsilon", "4", "--p", "13"]);
    let rows = bench.at("rows.csv");
    fs::write(&rows, bench.table.csv(&PLAIN)).unwrap();
    let report = |flags: &[&str]| {
        let arguments = ["report", "--json", "--study", &bench.study, "--rows", &rows];
        bench.server.cli(&[&arguments[..], flags].concat())
    };
    refused(&report(&[]), 2, &["--header yes or --header no"]);
    let output = report(&["--header", "yes"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("in its order: \"alcohol\", \"malic_acid\""),
        "{said}"
    );
    assert_eq!(
        crate::program::one_json_line(&output.stdout)["accepted"],
        178
    );
}
