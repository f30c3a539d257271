//! Tables of rows, from the bytes of a file: CSV and similar text, Parquet, `.npy` and LIBSVM text. One row of a table
//! is one participant.
//!
//! [`parse`] reads the rows of reports, where no single value may decide whether a row is sent; [`parse_usable`] reads
//! all other files, and [`parse_frame`] data frames. Columns are selected by name before any value is read. Errors name
//! the row and the column, never the value, except texts that several rows of a column have instead of its categories.
//!
//! ```
//! use std::path::Path;
//!
//! use eigenveil_tables::{ExpectedColumns, Settings, parse};
//!
//! # fn main() -> eigenveil_tables::Result<()> {
//! let names = ["height", "weight"].map(str::to_owned);
//! let study = ExpectedColumns::study(2, Some(names.to_vec()));
//! let bytes = b"weight,height\n71.5,1.8\n64,1.7\n";
//! let table = parse(Path::new("people.csv"), bytes, &Settings::default(), Some(&study))?;
//! assert_eq!(table.row(0).values(), [1.8, 71.5]);
//! # Ok(())
//! # }
//! ```
//!
//! # Limitations
//!
//! The caller reads files, interacts with users, and uses the rows.

mod blocks;
mod categories;
mod cells;
mod columns;
mod encoding;
mod error;
pub mod features;
mod formats;
mod persons;
mod problems;
pub mod questions;
mod settings;
mod table;
mod text_columns;

use std::path::Path;

pub use crate::{
    blocks::{BlockTable, ReadAt},
    cells::DecimalMark,
    columns::ExpectedColumns,
    encoding::{Encoding, encoding, read_text},
    error::{Error, Result},
    formats::{
        frame::{FrameColumn, parse_frame},
        npy,
    },
    persons::{IdentifierColumn, identifiers, numbers_of},
    settings::{Format, Header, Label, Settings, decimal_mark, delimiter},
    table::RowTable,
};

/// Reads a table like [`parse`] in which every value must be a number, or may be missing if `expected` allows it or the
/// rows are public.
///
/// # Errors
/// Those of [`parse`]; a value that is not a number or too large, by row and column; a label with a byte that is
/// invalid in its encoding.
pub fn parse_usable(
    path: &Path,
    bytes: &[u8],
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let table = parse(path, bytes, settings, expected)?;
    let missing_cells =
        settings.public_rows || expected.is_some_and(|expected| expected.missing_cells);
    let usable = table.check_usable(missing_cells);
    let usable = usable.and_then(|()| table.check_labels());
    usable.map_err(|error| error.context(path.display()))?;
    Ok(table)
}

/// Reads a table, for reports. The extension of `path` decides the format if the settings do not, and errors name it.
///
/// A field that is not a number becomes NaN rather than an error, and its row is sent as the zero row: whether a row is
/// sent must not depend on its data (`<0.5` in a laboratory's file reveals much). The same holds for a row of LIBSVM
/// text with an index beyond the dimension, and for a line with another number of fields than the header. If several
/// rows may belong to one person, such a line is an error, because its person is unknown. Errors concern the form, and
/// a column with 20 or more nonempty cells if more than half of them are unreadable or none of the column's categories
/// (unless several rows may belong to one person).
///
/// # Errors
/// Names and number of columns, their types, LIBSVM text without labels, bytes of another format; such a column;
/// `wrong-dimension` if the number of columns differs from that of `expected`.
pub fn parse(
    path: &Path,
    bytes: &[u8],
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let expected = expected.map(ExpectedColumns::with_normalized_names);
    let expected = expected.as_ref();
    let read = || {
        let format = checked_format(path, settings)?;
        match format {
            Format::Csv => formats::text::parse(bytes, false, settings, expected),
            Format::Tsv => formats::text::parse(bytes, true, settings, expected),
            Format::Npy => npy::parse(bytes, settings, expected),
            #[cfg(feature = "parquet")]
            Format::Parquet => formats::parquet::parse(bytes, settings, expected),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(Error::new(
                "this eigenveil was built without Parquet; write the table as CSV, or build it with that feature",
            )),
            Format::Libsvm => formats::libsvm::parse(bytes, settings, expected),
        }
    };
    let mut table = read().map_err(|error| error.context(path.display()))?;
    if expected.is_none_or(|expected| expected.names.is_none()) {
        let reports = expected.is_some_and(|expected| expected.reports);
        table.note_identifiers(settings.public_rows || reports);
    }
    Ok(table)
}

/// The format of a file; refuses settings that have no effect on it.
fn checked_format(path: &Path, settings: &Settings) -> Result<Format> {
    let format = match settings.format {
        Some(format) => format,
        None => format_of(path)?,
    };
    let is_text = matches!(format, Format::Csv | Format::Tsv);
    let is_stated = settings.delimiter.is_some() || settings.encoding.is_some();
    if !is_text && (settings.header != Header::Auto || is_stated) {
        return Err(Error::new(
            "`header`, `delimiter` and `encoding` are for text tables: .csv, .tsv or .tab",
        ));
    }
    if format != Format::Libsvm && settings.first_index.is_some() {
        return Err(Error::new("`first_index` is for LIBSVM text"));
    }
    let label = settings.label.as_ref().map(|label| label.flag);
    let text_flag = settings.one_hot.as_ref().map(|_| "`one_hot`").or(label);
    let text_flag = text_flag.or(settings.decimal.map(|_| "`decimal`"));
    let has_text = is_text || format == Format::Parquet;
    if let Some(flag) = text_flag.filter(|_| !has_text) {
        return Err(Error::new(format!(
            "{flag} is for tables that can have text: write the table as CSV or Parquet first"
        )));
    }
    Ok(format)
}

/// The format for this extension, regardless of the contents: a table read in the wrong format would become zero rows,
/// which would still be charged.
fn format_of(path: &Path) -> Result<Format> {
    let extension = path.extension().and_then(|e| e.to_str());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "csv" => Ok(Format::Csv),
        "tsv" | "tab" => Ok(Format::Tsv),
        "npy" => Ok(Format::Npy),
        "parquet" | "pq" => Ok(Format::Parquet),
        "libsvm" | "svm" | "svmlight" => Ok(Format::Libsvm),
        "feather" | "arrow" | "ipc" | "npz" | "xlsx" | "xls" | "ods" | "json" | "gz" | "zip"
        | "zst" => Err(Error::new(format!(
            ".{extension} files are not supported; write the table as Parquet (.parquet), CSV or .npy"
        ))),
        _ => Err(Error::new(
            "its extension is none of .csv, .tsv, .tab, .parquet, .npy, .libsvm, .svm and .svmlight; name the format with `format` csv, tsv, parquet, npy or libsvm",
        )),
    }
}

/// The number in a cell of a column that is not a feature; NaN for any other cell.
#[inline]
pub fn number_in(cell: &str, mark: Option<DecimalMark>) -> f64 {
    cells::number(cell, mark).unwrap_or(f64::NAN)
}

/// Settings and an assertion about messages, for the tests of the formats.
#[cfg(test)]
mod testing {
    use super::*;

    pub(crate) fn with(header: Header) -> Settings {
        Settings {
            header,
            ..Settings::default()
        }
    }

    pub(crate) fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    pub(crate) fn without(names: &[&str]) -> Settings {
        Settings {
            drop: Some(strings(names)),
            ..Settings::default()
        }
    }

    pub(crate) fn study(names: Option<&[&str]>, dimension: usize) -> ExpectedColumns {
        ExpectedColumns::study(dimension, names.map(strings))
    }

    /// Asserts that a message contains all of `words` and none of `hidden`, such as values of a row.
    #[track_caller]
    pub(crate) fn assert_says(message: &impl std::fmt::Display, words: &[&str], hidden: &[&str]) {
        let text = message.to_string();
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
        for word in hidden {
            assert!(!text.contains(word), "{word:?} is in: {text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;
    use serde::Deserialize;
    use serde_json::Value;

    use crate::{
        testing::{assert_says, with},
        *,
    };

    #[test]
    fn the_extension_decides_and_the_dimension_is_checked() {
        let settings = Settings::default();
        let read = |name: &str, text: &str, expected: Option<&ExpectedColumns>| {
            parse_usable(Path::new(name), text.as_bytes(), &settings, expected)
        };
        let (csv, libsvm) = ("a,b\n1,2\n3,4\n", "+1 1:0.5 3:2\n");
        let study = |dimension| ExpectedColumns {
            reports: false,
            ..ExpectedColumns::study(dimension, None)
        };
        let table = read("rows.csv", csv, None).unwrap();
        assert_eq!((table.len(), table.dimension()), (2, 2));
        assert_eq!(table.row(1).values(), &[3.0, 4.0]);
        let error = read("rows.csv", csv, Some(&study(3))).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        let table = read("rows.libsvm", libsvm, Some(&study(4))).unwrap();
        assert_eq!(table.row(0).values(), &[0.5, 0.0, 2.0, 0.0]);
        // A header can use any separator, whatever the extension.
        let tsv = "b\ta\n1.5\t2\n3\t4\n";
        let named = ExpectedColumns {
            names: Some(vec!["a".into(), "b".into()]),
            ..study(2)
        };
        let table = read("rows.tsv", tsv, Some(&named)).unwrap();
        assert_eq!(table.row(0).values(), &[2.0, 1.5]);
        assert_eq!(table.notes().len(), 1);
        for (name, words) in [("rows.feather", "Parquet"), ("rows.xlsx", "CSV")] {
            let error = parse(Path::new(name), b"x", &settings, None).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        let libsvm = libsvm.as_bytes();
        let error = parse(Path::new("x.svm"), libsvm, &with(Header::Yes), None).unwrap_err();
        assert_says(&error, &["x.svm: `header`"], &[]);
    }

    /// A table of another format that is read as LIBSVM text would become rows of zeros.
    #[test]
    fn an_unknown_extension_is_refused() {
        let rows = b"1.5,2.5,3.5\n4.5,5.5,6.5\n";
        for name in ["wine.data", "wine.txt", "wine", "rnd.bin", "x.sav"] {
            let error = parse(Path::new(name), rows, &Settings::default(), None).unwrap_err();
            assert!(error.to_string().contains("`format`"), "{error}");
            let settings = Settings {
                format: Some(Format::Csv),
                ..Settings::default()
            };
            assert_eq!(
                parse(Path::new(name), rows, &settings, None).unwrap().len(),
                2
            );
        }
        let error = parse(Path::new("x.svm"), rows, &Settings::default(), None).unwrap_err();
        assert!(error.to_string().contains("`format` csv"), "{error}");
    }

    /// A column that an estimate or a study needs cannot be left out.
    #[test]
    fn a_missing_cell_has_a_way_out() {
        let estimate = ExpectedColumns {
            source: "estimate",
            reports: false,
            ..ExpectedColumns::study(2, Some(vec!["a".into(), "b".into()]))
        };
        for (expected, one, several) in [
            (
                None,
                "leave the row or the column out",
                "leave these rows or columns out",
            ),
            (Some(&estimate), "leave the row out", "leave these rows out"),
        ] {
            for (text, way_out) in [("a,b\n1,2\n3,\n", one), ("a,b\n1,2\n,\n3,\n,4\n", several)] {
                let path = Path::new("rows.csv");
                let read = parse_usable(path, text.as_bytes(), &Settings::default(), expected);
                assert_says(&read.unwrap_err(), &[way_out], &[]);
            }
        }
    }

    #[test]
    fn a_column_of_row_numbers_is_noted() {
        let read_text = |text: &str, header| {
            let rows = Path::new("rows.csv");
            let table = parse(rows, text.as_bytes(), &with(header), None).unwrap();
            table.notes().join("; ")
        };
        let ids = "id,a\n0,5\n1,7\n2,6\n";
        assert!(read_text(ids, Header::Yes).contains("column 1 (id) counts"));
        // A first line that was only guessed to be names may be a row.
        assert!(read_text(ids, Header::Auto).contains("column 1 counts"));
        assert!(read_text("5,1\n7,2\n6,3\n", Header::Auto).contains("column 2 counts"));
        assert!(!read_text("a,b\n0,5\n1,7\n3,6\n", Header::Auto).contains("counts"));
    }

    /// Several rows of a person: each number stands in a few rows, together or in every wave.
    #[test]
    fn a_column_of_persons_is_noted_where_it_can_be_named() {
        let notes = |value: fn(usize) -> usize, public_rows: bool| {
            let rows = (0..120).map(|row| format!("{},{}\n", value(row), row * 37 % 101));
            let text = "patient,x\n".to_owned() + &rows.collect::<String>();
            let settings = Settings {
                public_rows,
                ..with(Header::Yes)
            };
            let table = parse(Path::new("a.csv"), text.as_bytes(), &settings, None).unwrap();
            table.notes().join("; ")
        };
        let named = "column 1 (patient) has whole numbers of which each fills a few rows";
        let of_persons: [fn(usize) -> usize; 2] = [|row| 7 + row / 4, |row| 7 + row % 40];
        for value in of_persons {
            assert_says(&notes(value, true), &[named, "`person`"], &[]);
            assert_eq!(notes(value, false), "");
        }
        // Ages, of which some are more frequent, and a column of few values.
        let others: [fn(usize) -> usize; 2] = [|row| row * row % 61, |row| row / 30];
        for value in others {
            assert_eq!(notes(value, true), "");
        }
    }

    /// A number may be a column's name, or its position if line 1 is a row: a flag must say which.
    #[test]
    fn a_column_given_by_number_needs_a_known_header() {
        let study = ExpectedColumns::study(2, Some(vec!["a".into(), "b".into()]));
        let read = |name: &str, line: &str, header| {
            let settings = Settings {
                drop: Some(vec!["1".into()]),
                ..with(header)
            };
            parse(Path::new(name), line.as_bytes(), &settings, Some(&study))
        };
        for (name, text) in [
            ("rows.csv", "1,SECRETNAME,8641.25\n2,3,4\n"),
            ("rows.csv", "1;SECRETNAME;8641.25\n2;3;4\n"),
            ("rows.tsv", "1\tSECRETNAME\t8641.25\n2\t3\t4\n"),
        ] {
            let error = read(name, text, Header::Auto).unwrap_err().to_string();
            assert_says(
                &error,
                &["`header` yes or `header` no"],
                &["SECRET", "8641"],
            );
            assert_eq!(read(name, text, Header::No).unwrap().len(), 2);
        }
        let named = read("rows.csv", "1,a,b\n2,3,4\n", Header::Yes).unwrap();
        assert_eq!(named.row(0).values(), &[3.0, 4.0]);
    }

    /// A case of `bindings/conformance/cells.json`, which is for bindings, too.
    #[derive(Deserialize)]
    struct Case {
        cell: String,
        #[serde(default)]
        categories: Vec<String>,
        is: Value,
    }

    #[test]
    fn a_cell_is_read_alike_from_a_file_and_from_a_program() {
        let cases = include_str!("../../bindings/conformance/cells.json");
        for Case {
            cell,
            categories,
            is,
        } in serde_json::from_str::<Vec<Case>>(cases).unwrap()
        {
            let names = match categories.is_empty() {
                true => vec!["a".to_owned()],
                false => categories
                    .iter()
                    .map(|category| format!("a={category}"))
                    .collect(),
            };
            let study = ExpectedColumns::study(
                names.len() + 1,
                Some([names, vec!["b".to_owned()]].concat()),
            );
            let text = format!("b;a\n1;\"{cell}\"\n");
            let settings = Settings::default();
            let columns = [
                FrameColumn::Numbers(vec![1.0]),
                FrameColumn::Texts(vec![cell.clone()]),
            ];
            let names = Some(vec!["b".to_owned(), "a".to_owned()]);
            for table in [
                parse(Path::new("a.csv"), text.as_bytes(), &settings, Some(&study)),
                parse_frame(names, columns.into(), &settings, Some(&study)),
            ] {
                let table = table.unwrap();
                let row = table.row(0);
                let read = &row.values()[..study.dimension - 1];
                let expected: Vec<f64> = match &is {
                    Value::Array(values) => values.iter().filter_map(Value::as_f64).collect(),
                    one => vec![one.as_f64().unwrap_or(f64::NAN); read.len()],
                };
                let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
                assert!(
                    read.iter().zip(&expected).all(same),
                    "{cell:?} {categories:?}"
                );
                let is_none = expected.iter().sum::<f64>() == 0.0 && !categories.is_empty();
                let unreadable = is == "unreadable" || is_none;
                assert_eq!(table.unreadable(true).is_some(), unreadable, "{cell:?}");
            }
        }
    }

    /// A kind of cell planted in 5 % of the rows is counted, and all other rows are unchanged; planted in all rows it
    /// refuses the column, unless it means a missing value or the rows may belong to one person.
    #[test]
    fn planted_cells_are_counted_or_refused() {
        let number = |row: usize| row as f64 * 0.25 - 3.0;
        let read = |every: usize, cell: &str, persons| {
            let row = |row: usize| match row % every {
                0 => format!("{cell};{row}\n"),
                _ => format!("{};{row}\n", number(row)),
            };
            let text = format!("a;b\n{}", (0..400).map(row).collect::<String>());
            let names = ["a", "b"].map(str::to_owned);
            let study = ExpectedColumns {
                persons,
                ..ExpectedColumns::study(2, Some(names.to_vec()))
            };
            let settings = Settings::default();
            parse(Path::new("a.csv"), text.as_bytes(), &settings, Some(&study))
        };
        for (cell, missing) in [
            ("1,5", false),
            ("1 234", false),
            ("5 %", false),
            ("$5", false),
            ("inf", false),
            ("1e300", false),
            ("2024-03-01", false),
            ("#DIV/0!", false),
            ("gr\u{fffd}n", false),
            ("NA", true),
            ("\"\"", true),
            ("-", true),
        ] {
            let table = read(20, cell, false).unwrap();
            let counted = table.unreadable(false).unwrap();
            assert_says(&counted, &["column 1 (a): 20 values"], &[]);
            for (row, values) in table.values().chunks(2).enumerate() {
                let expected = if row % 20 == 0 { f64::NAN } else { number(row) };
                assert!(values[0] == expected || values[0].is_nan() && expected.is_nan());
                assert_eq!(values[1], row as f64);
            }
            assert_eq!(read(1, cell, false).is_ok(), missing, "{cell:?}");
            let table = read(1, cell, true).unwrap();
            assert!(table.values().iter().step_by(2).all(|value| value.is_nan()));
        }
    }

    /// Numbers that are stored as numbers: those too large for a row are as unreadable as in text, and NaN is missing.
    #[test]
    fn stored_numbers_are_judged_as_text_is() {
        for (planted, persons, every, refused, unreadable) in [
            (f64::INFINITY, false, 1, true, true),
            (f64::NEG_INFINITY, false, 20, false, true),
            (1e300, false, 1, true, true),
            (-1e300, false, 20, false, true),
            (f64::INFINITY, true, 1, false, true),
            (f64::NAN, false, 1, false, false),
        ] {
            let last = |row: usize| row as f64;
            let first = |row: usize| match row % every {
                0 => planted,
                _ => last(row),
            };
            let study = ExpectedColumns {
                persons,
                ..ExpectedColumns::study(2, None)
            };
            let settings = Settings::default();
            let array = npy::write(40, 2, (0..40).flat_map(|row| [first(row), last(row)]));
            let columns = [
                FrameColumn::Numbers((0..40).map(first).collect()),
                FrameColumn::Numbers((0..40).map(last).collect()),
            ];
            for table in [
                parse(Path::new("a.npy"), &array, &settings, Some(&study)),
                parse_frame(None, columns.into(), &settings, Some(&study)),
            ] {
                assert_eq!(table.is_err(), refused, "{planted} {every}");
                let Ok(table) = table else { continue };
                assert!(table.row(0).values()[0].is_nan());
                let message = table.unreadable(true);
                assert_eq!(message.is_some(), unreadable, "{planted} {every}");
            }
        }
        let settings = Settings {
            decimal: Some(DecimalMark::Comma),
            ..Settings::default()
        };
        let columns = vec![FrameColumn::Numbers(vec![1.0])];
        let error = parse_frame(None, columns, &settings, None).unwrap_err();
        assert_says(&error, &["`decimal` is for numbers in text"], &[]);
    }

    #[test]
    fn debug_shows_no_values_and_values_too_large_are_located() {
        let named = Some(vec!["a".to_owned(), "b".to_owned()]);
        let table = RowTable::new(2, vec![1.0, 2.0, -1e308, 3.0], named).unwrap();
        let table = table.judged(None).unwrap();
        let error = table.check_usable(true).unwrap_err();
        let words = ["line 2, column 1 (a): the value is too large", "2e90"];
        assert_says(&error, &words, &["308"]);
        assert_eq!(format!("{table:?}"), "RowTable(2 rows of 2)");
        assert!(RowTable::new(2, vec![1.0], None).is_err());
        assert!(RowTable::new(0, vec![], None).is_err());
    }
}
