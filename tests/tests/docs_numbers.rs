//! Numbers that the pages quote from a table of `docs/experiments` are those in it.
//!
//! Before a table of a page stands where its numbers are from:
//!
//! ```text
//! <!-- numbers from experiments/stochastic_a9a.csv experiments/stochastic_mnist_t10k.csv
//! where k = 5
//! label `{algorithm}` {calibration}
//! header {table}, ε = {epsilon}
//! alias MNIST = mnist_t10k
//! cell error_mean ± error_std [true_epsilon]
//! -->
//! ```
//!
//! `where`: a column of the CSV and its value (`≠`: or the one it has not). `label TEMPLATE`: what the first cell of a row says of the line that is meant, `key
//! HEADER = TEMPLATE` what the cells under this heading say of it; an empty cell says what the one above it does. `header TEMPLATE`: what the headings of the other columns say of it.
//! `alias`: a word of the page and what the CSV has for it. `cell`: the CSV's columns that a cell shows, each with the sign
//! before it (none, ±, [, (, – or /). `column HEADER = …`: the same for the cells under one heading. `skip HEADER`: not from there.
//! In a text a number is followed by `<!-- from experiments/robust_phase.csv: error_median where n = 500, p = 100 -->`.
//!
//! A number agrees when it is the CSV's, rounded to the digits that it has.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

type Record = BTreeMap<String, String>;
/// Columns of the CSV and the values that the line meant has in them.
type Wanted = Vec<(String, String)>;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn pages() -> Vec<(String, String)> {
    let mut pages: Vec<_> = std::fs::read_dir(docs())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "md"))
        .collect();
    pages.push(docs().join("../README.md"));
    pages.sort();
    pages
        .into_iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// The lines of a CSV, read once.
fn records(file: &str) -> &'static [Record] {
    static READ: Mutex<BTreeMap<String, &'static [Record]>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    read.entry(file.to_owned())
        .or_insert_with(|| parse(file).leak())
}

fn parse(file: &str) -> Vec<Record> {
    let text = std::fs::read_to_string(docs().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    assert!(!text.contains('"'), "{file} has quotes");
    let mut lines = text.lines().map(|line| line.split(','));
    let header: Vec<&str> = lines.next().unwrap().collect();
    lines
        .map(|fields| {
            let pairs = header.iter().zip(fields);
            pairs
                .map(|(k, v)| ((*k).to_owned(), v.to_owned()))
                .collect()
        })
        .collect()
}

/// A number, also one written as 10⁴ or 122,635.
fn number(text: &str) -> Option<f64> {
    const RAISED: &str = "⁰¹²³⁴⁵⁶⁷⁸⁹";
    if let Some(power) = text.strip_prefix("10").filter(|power| !power.is_empty()) {
        let digits: Option<Vec<usize>> = power
            .chars()
            .map(|c| RAISED.chars().position(|digit| digit == c))
            .collect();
        if let Some(digits) = digits {
            return Some(10_f64.powi(digits.iter().fold(0, |e, d| 10 * e + *d as i32)));
        }
    }
    text.replace(',', "").parse().ok()
}

fn same(one: &str, other: &str) -> bool {
    if let (Some(a), Some(b)) = (number(one), number(other)) {
        return (a - b).abs() <= 1e-9 * b.abs();
    }
    let words = |text: &str| -> Vec<String> {
        let words = text.split(['-', ' ']).filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    };
    words(one) == words(other)
}

/// A number as it stands in a page, with the sign before it.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    sign: char,
    below: bool,
    text: String,
}

const SIGNS: &str = "±[(–/";

/// The numbers of a cell (`digits`), or the columns that one shows.
fn parts(cell: &str, digits: bool) -> Vec<Shown> {
    let cell: Vec<char> = cell.chars().filter(|c| !"*`".contains(*c)).collect();
    let belongs = |i: usize| match cell[i] {
        c if !digits => c.is_ascii_alphanumeric() || c == '_',
        c if c.is_ascii_digit() => true,
        '.' | ',' => cell.get(i + 1).is_some_and(char::is_ascii_digit),
        'e' => cell
            .get(i + 1)
            .is_some_and(|c| *c == '-' || c.is_ascii_digit()),
        '-' => i > 0 && cell[i - 1] == 'e',
        _ => false,
    };
    let (mut found, mut sign, mut below, mut i) = (Vec::new(), ' ', false, 0);
    while i < cell.len() {
        let end = (i..cell.len()).find(|&j| !belongs(j)).unwrap_or(cell.len());
        if end > i && (!digits || cell[i].is_ascii_digit()) {
            let text = cell[i..end].iter().collect();
            found.push(Shown { sign, below, text });
            (sign, below, i) = (' ', false, end);
            continue;
        }
        if SIGNS.contains(cell[i]) {
            sign = cell[i];
        }
        below |= cell[i] == '<';
        i += 1;
    }
    found
}

/// Half of the last digit's place.
fn half_a_place(text: &str) -> f64 {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let places = mantissa.split_once('.').map_or(0, |(_, after)| after.len());
    0.5 * 10_f64.powi(exponent.parse::<i32>().unwrap() - places as i32)
}

fn agrees(shown: &Shown, stored: &str) -> bool {
    let (Some(a), Some(b)) = (number(&shown.text), number(stored)) else {
        return false;
    };
    if shown.below {
        return b < a;
    }
    // The CSV's number is itself rounded.
    (a - b).abs() <= (half_a_place(&shown.text) + half_a_place(stored)) * (1.0 + 1e-9)
}

/// What a text says by this template: `{column}` stands for a value. What follows in brackets is left out.
fn read(template: &str, text: &str) -> Option<Wanted> {
    let text = text.replace("**", "");
    let text = text.split(" [").next().unwrap_or_default().trim();
    let mut pieces = template.split('{');
    let mut rest = text.strip_prefix(pieces.next()?)?;
    let mut wanted = Wanted::new();
    for piece in pieces {
        let (column, literal) = piece.split_once('}')?;
        let end = if literal.is_empty() {
            rest.len()
        } else {
            rest.find(literal)?
        };
        let value = rest[..end].replace('`', "");
        wanted.push((column.to_owned(), value.trim().to_owned()));
        rest = &rest[end + literal.len()..];
    }
    rest.is_empty().then_some(wanted)
}

/// Where a table's numbers are from.
#[derive(Default)]
struct Source {
    records: Vec<&'static Record>,
    fixed: Wanted,
    barred: Wanted,
    /// Headings, the first one's for `None`, and templates.
    keys: Vec<(Option<String>, String)>,
    header: Option<String>,
    aliases: Vec<(String, String)>,
    cell: Option<String>,
    columns: Vec<(String, String)>,
    skipped: Vec<String>,
}

impl Source {
    fn parse(comment: &str) -> Self {
        let mut source = Self::default();
        let mut lines = comment.lines();
        for file in lines.next().unwrap_or_default().split_whitespace() {
            source.records.extend(records(file));
        }
        for line in lines.filter(|line| !line.trim().is_empty()) {
            let (word, rest) = line.split_once(' ').unwrap();
            let pair = || {
                let (left, right) = rest.split_once('=').unwrap();
                (left.trim().to_owned(), right.trim().to_owned())
            };
            match word {
                "where" if rest.contains('≠') => {
                    let (column, value) = rest.split_once('≠').unwrap();
                    let pair = (column.trim().to_owned(), value.trim().to_owned());
                    source.barred.push(pair);
                }
                "where" => source.fixed.push(pair()),
                "label" => source.keys.push((None, rest.to_owned())),
                "key" => {
                    let (heading, template) = pair();
                    source.keys.push((Some(heading), template));
                }
                "header" => source.header = Some(rest.to_owned()),
                "alias" => {
                    let (left, right) = rest.rsplit_once(" = ").unwrap();
                    source.aliases.push((left.to_owned(), right.to_owned()));
                }
                "cell" => source.cell = Some(rest.to_owned()),
                "column" => source.columns.push(pair()),
                "skip" => source.skipped.push(rest.to_owned()),
                _ => panic!("{line:?} is no line of such a comment"),
            }
        }
        source
    }

    /// The one line with these values.
    fn find(&self, wanted: &Wanted) -> Result<&Record, String> {
        let meant = |value: &str| {
            let alias = self.aliases.iter().find(|(shown, _)| shown == value);
            alias.map_or(value.to_owned(), |(_, meant)| meant.clone())
        };
        let fits = |record: &&Record| {
            let has = |(column, value): &(String, String)| {
                let stored = record.get(column);
                let stored = stored.unwrap_or_else(|| panic!("there is no column {column}"));
                same(stored, &meant(value))
            };
            self.fixed.iter().chain(wanted).all(has) && !self.barred.iter().any(has)
        };
        let found: Vec<&Record> = self.records.iter().copied().filter(fits).collect();
        match found[..] {
            [record] => Ok(record),
            _ => Err(format!("{} lines have {wanted:?}", found.len())),
        }
    }
}

/// What was looked at: the line of the page and the number; and what is wrong.
#[derive(Default)]
struct Checked {
    numbers: Vec<(usize, String)>,
    problems: Vec<String>,
}

impl Checked {
    fn compare(&mut self, at: usize, cell: &str, columns: &str, record: &Record) {
        let columns = parts(columns, false);
        for shown in parts(cell, true) {
            self.numbers.push((at, shown.text.clone()));
            let column = columns.iter().find(|column| column.sign == shown.sign);
            let Some(Shown { text, .. }) = column else {
                let sign = shown.sign;
                let text = shown.text;
                self.problems
                    .push(format!("line {at}: no column is named for {sign}{text}"));
                continue;
            };
            let stored = record
                .get(text)
                .unwrap_or_else(|| panic!("no column {text}"));
            if !agrees(&shown, stored) {
                self.problems
                    .push(format!("line {at}: {} is {stored} ({text})", shown.text));
            }
        }
    }

    fn table(&mut self, source: &Source, first: usize, lines: &[&str]) {
        let cells = |line: &str| -> Vec<String> {
            let line = line.trim().trim_start_matches('|').trim_end_matches('|');
            line.split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        let header = cells(lines[0]);
        let mut above: Vec<String> = vec![String::new(); header.len()];
        let before = self.numbers.len();
        for (i, line) in lines.iter().enumerate().skip(2) {
            let at = first + i;
            let mut row = cells(line);
            assert_eq!(row.len(), header.len(), "line {at}");
            let mut of_row = Wanted::new();
            for (heading, template) in &source.keys {
                let named = |name: &String| heading.as_ref().is_none_or(|heading| name == heading);
                let column = header.iter().position(named);
                let column = column.unwrap_or_else(|| panic!("no heading {heading:?}"));
                if row[column].is_empty() {
                    row[column].clone_from(&above[column]);
                }
                match read(template, &row[column]) {
                    Some(wanted) => of_row.extend(wanted),
                    None => self
                        .problems
                        .push(format!("line {at}: {:?} is not {template:?}", row[column])),
                }
            }
            above.clone_from(&row);
            for (heading, cell) in header.iter().zip(&row) {
                let is_key = source.keys.iter().any(|(key, _)| match key {
                    Some(key) => key == heading,
                    None => *heading == header[0],
                });
                if is_key || source.skipped.contains(heading) || parts(cell, true).is_empty() {
                    continue;
                }
                let own = source.columns.iter().find(|(name, _)| name == heading);
                let mut wanted = of_row.clone();
                if let (None, Some(template)) = (own, &source.header) {
                    match read(template, heading) {
                        Some(more) => wanted.extend(more),
                        None => panic!("{heading:?} is not {template:?}"),
                    }
                }
                let columns = own.map(|(_, columns)| columns).or(source.cell.as_ref());
                let columns =
                    columns.unwrap_or_else(|| panic!("what {heading:?} shows is not said"));
                match source.find(&wanted) {
                    Ok(record) => self.compare(at, cell, columns, record),
                    Err(why) => {
                        self.numbers.push((at, parts(cell, true)[0].text.clone()));
                        self.problems.push(format!("line {at}: {why}"));
                    }
                }
            }
        }
        assert!(
            self.numbers.len() > before,
            "nothing in the table at {first}"
        );
    }

    /// `number<!-- from FILE: COLUMN where A = a, B = b -->`
    fn inline(&mut self, at: usize, line: &str) {
        let mut pieces = line.split("<!-- from ");
        let mut before = pieces.next().unwrap_or_default();
        for piece in pieces {
            let (comment, after) = piece.split_once("-->").unwrap();
            let (file, rest) = comment.split_once(": ").unwrap();
            let (column, conditions) = rest.split_once(" where ").unwrap();
            let fixed = conditions.split(',').map(|condition| {
                let (column, value) = condition.split_once('=').unwrap();
                (column.trim().to_owned(), value.trim().to_owned())
            });
            let source = Source {
                records: records(file).iter().collect(),
                fixed: fixed.collect(),
                ..Source::default()
            };
            let last = parts(before, true).pop().unwrap();
            let cell = if last.below {
                format!("<{}", last.text)
            } else {
                last.text
            };
            match source.find(&Wanted::new()) {
                Ok(record) => self.compare(at, &cell, column, record),
                Err(why) => self.problems.push(format!("line {at}: {why}")),
            }
            before = after;
        }
    }
}

fn check(text: &str) -> Checked {
    let lines: Vec<&str> = text.lines().collect();
    let mut checked = Checked::default();
    let mut i = 0;
    while i < lines.len() {
        if let Some(begun) = lines[i].strip_prefix("<!-- numbers from ") {
            let end = (i..lines.len())
                .find(|&j| lines[j].contains("-->"))
                .unwrap();
            let comment = [&[begun], &lines[i + 1..=end]].concat().join("\n");
            let source = Source::parse(comment.trim_end().trim_end_matches("-->"));
            let first = end + 1;
            let table = lines[first..]
                .iter()
                .take_while(|line| line.starts_with('|'));
            let count = table.count();
            assert!(count > 2, "line {}: no table follows", i + 1);
            checked.table(&source, first + 1, &lines[first..first + count]);
            i = first + count;
        } else {
            checked.inline(i + 1, lines[i]);
            i += 1;
        }
    }
    checked
}

#[test]
fn numbers_quoted_from_a_csv_are_those_in_it() {
    let mut count = 0;
    let mut problems = Vec::new();
    for (name, text) in pages() {
        let checked = check(&text);
        count += checked.numbers.len();
        problems.extend(
            checked
                .problems
                .into_iter()
                .map(|why| format!("{name}, {why}")),
        );
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    println!("{count} numbers");
    assert!(count > 300, "only {count} numbers are compared");
}

/// A page that names a table says at its numbers that they are from it.
#[test]
fn a_csv_that_a_page_names_is_compared_with_it() {
    // What estimation.md says of it is fitted from it: papers/src/own/kappa.rs.
    let fitted = ["experiments/kappa.csv"];
    let mut named = 0;
    for (name, text) in pages() {
        for piece in text.split("experiments/").skip(1) {
            let Some((table, _)) = piece.split_once(".csv") else {
                continue;
            };
            let file = format!("experiments/{table}.csv");
            if table.contains([' ', ')', '\n']) || fitted.contains(&file.as_str()) {
                continue;
            }
            named += 1;
            let compared = text.split("<!-- ").skip(1).any(|comment| {
                let begun = comment.split("-->").next().unwrap_or_default();
                let is_source = begun.starts_with("numbers from ") || begun.starts_with("from ");
                is_source && begun.contains(&file)
            });
            assert!(compared, "{name} names {file} and compares nothing with it");
        }
    }
    assert!(named >= 10);
}

/// Another digit for the last one.
fn falsified(number: &str) -> String {
    let end = number.find('e').unwrap_or(number.len());
    let last = number[..end].rfind(|c: char| c.is_ascii_digit()).unwrap();
    let digit = number.as_bytes()[last] - b'0';
    format!(
        "{}{}{}",
        &number[..last],
        (digit + 5) % 10,
        &number[last + 1..]
    )
}

/// The first number of every line, then the second of every line, and so on: each is missed on its line.
#[test]
fn every_number_that_is_changed_is_found() {
    for (name, text) in pages() {
        let mut numbers = BTreeMap::<usize, Vec<String>>::new();
        for (at, number) in check(&text).numbers {
            numbers.entry(at).or_default().push(number);
        }
        for round in 0..numbers.values().map(Vec::len).max().unwrap_or(0) {
            let mut changed = Vec::new();
            let lines = text.lines().enumerate().map(|(i, line)| {
                let number = numbers.get(&(i + 1)).and_then(|found| found.get(round));
                // A bound is true of many numbers.
                match number.filter(|number| !line.contains(&format!("<{number}"))) {
                    Some(number) => {
                        changed.push(i + 1);
                        // From the end: keys stand before.
                        let (before, after) = line.split_at(line.rfind(number).unwrap());
                        format!("{before}{}{}", falsified(number), &after[number.len()..])
                    }
                    None => line.to_owned(),
                }
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            let problems = check(&text).problems;
            for at in changed {
                let start = format!("line {at}:");
                let found = problems.iter().any(|problem| problem.starts_with(&start));
                assert!(found, "{name}, line {at}, number {round}: nothing is found");
            }
        }
    }
}

/// The reading of cells itself.
#[test]
fn cells_are_read_as_they_are_meant() {
    let shown = |cell| -> Vec<(char, bool, String)> {
        let parts = parts(cell, true).into_iter();
        parts
            .map(|part| (part.sign, part.below, part.text))
            .collect()
    };
    let of = |sign, text: &str| (sign, false, text.to_owned());
    assert_eq!(shown("**0.32 ± 0.09**"), [of(' ', "0.32"), of('±', "0.09")]);
    assert_eq!(
        shown("3.10 [<1e-4]"),
        [of(' ', "3.10"), ('[', true, "1e-4".to_owned())]
    );
    assert_eq!(
        shown("0.26 (0.19–0.33)"),
        [of(' ', "0.26"), of('(', "0.19"), of('–', "0.33")]
    );
    assert!(shown("-").is_empty() && shown("kept").is_empty());
    let stale = |text: &str, stored| agrees(&parts(text, true)[0], stored);
    assert!(stale("0.66", "0.661") && stale("122,635", "122634.8") && stale("6.0e-4", "5.98e-4"));
    assert!(!stale("0.661", "0.480") && !stale("0.66", "0.667") && stale("<1e-4", "0.0000"));
    assert!(same("10⁴", "10000") && same("as published", "as-published") && !same("0.1", "1"));
    let label = "`dp-spca --step 1/2n` as published [ε that holds]";
    let said = read("`{algorithm}` {calibration}", label).unwrap();
    assert!(same(&said[0].1, "dp-spca step 1/2n") && same(&said[1].1, "as-published"));
    assert!(read("{algorithm}, ε = {epsilon}", "`dp-ggd`").is_none());
}
