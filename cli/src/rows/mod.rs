//! Tables of rows: CSV and similar text, `.npy`, Parquet and LIBSVM text. One row of a file = one participant.
//!
//! Columns are selected by name before any value is read (`columns`). Errors name the row and the column, never the
//! value.

mod categories;
mod cells;
mod columns;
pub mod features;
mod flags;
mod libsvm;
mod npy;
#[cfg(feature = "parquet")]
mod parquet;
mod problems;
mod table;
mod text;
mod text_columns;

use std::path::Path;

use eigenveil_shared::preprocess::Feature;

use self::{cells::DecimalMark, table::mapping_without_names};
pub use self::{
    columns::ExpectedColumns,
    flags::{Format, Header, Label, Names, TableArgs, names},
    table::RowTable,
};
use crate::{
    error::{CliError, Result},
    files,
};

/// Reads a row file in which every value must be a number, or may be missing where `expected` says so; the extension decides the format, as in [`parse`].
/// Wrong usage that names the file, the row and the column; errors of [`parse`].
pub fn read(path: &Path, how: &TableArgs, expected: Option<&ExpectedColumns>) -> Result<RowTable> {
    let table = parse(path, &files::read(path)?, how, expected)?;
    let missing_cells = expected.is_some_and(|expected| expected.missing_cells);
    table
        .check_usable(missing_cells)
        .map_err(|error| error.context(path.display()))?;
    Ok(table)
}

/// As [`read`], for commands without a study: a features file (`--features`) gives names and order of the columns, and
/// the public constants, which are returned too.
pub fn read_with_constants(
    path: &Path,
    how: &TableArgs,
) -> Result<(RowTable, Option<Vec<Feature>>)> {
    let features = how.features()?;
    let expected = features.as_ref().map(|features| ExpectedColumns {
        of: "features file",
        dimension: features.len(),
        names: Some(features.iter().map(|own| own.name.clone()).collect()),
        reports: false,
        missing_cells: features.iter().any(|feature| feature.observed.is_some()),
    });
    let table = read(path, how, expected.as_ref())?;
    crate::output::print_notes(table.notes());
    Ok((table, features))
}

/// As [`read`], for reports, from bytes already in memory; the extension of `path` decides the format, and errors name
/// it.
///
/// A field that is not a number becomes NaN, not an error: its row is sent as the zero row, because whether a row is
/// sent must not depend on its data (`<0.5` in a laboratory's file says a lot). The same holds for a row of LIBSVM text
/// with an index beyond the dimension, and for a line with another number of fields than the header. Only the form can
/// be an error: names and number of columns, their types, LIBSVM text without labels, bytes of another format.
/// Wrong usage that names the file and the columns; `wrong-dimension` if their number is not that of `expected`.
pub fn parse(
    path: &Path,
    bytes: &[u8],
    how: &TableArgs,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let read = || {
        let format = match how.format {
            Some(format) => format,
            None => format_of(path)?,
        };
        let is_text = matches!(format, Format::Csv | Format::Tsv);
        if !is_text && (how.header != Header::Auto || how.delimiter.is_some()) {
            return Err(CliError::usage(
                "--header and --delimiter are for text tables: .csv, .tsv or .tab",
            ));
        }
        if format != Format::Libsvm && how.first_index.is_some() {
            return Err(CliError::usage("--first-index is for LIBSVM text"));
        }
        let label = how.label.as_ref().map(|label| label.flag);
        let text_flag = how.one_hot.as_ref().map(|_| "--one-hot").or(label);
        let text_flag = text_flag.or(how.decimal.map(|_| "--decimal"));
        let has_text = is_text || format == Format::Parquet;
        if let Some(flag) = text_flag.filter(|_| !has_text) {
            return Err(CliError::usage(format!(
                "{flag} is for tables that can have text: write the table as CSV or Parquet first"
            )));
        }
        match format {
            Format::Csv => text::parse(bytes, false, how, expected),
            Format::Tsv => text::parse(bytes, true, how, expected),
            Format::Npy => npy::parse(bytes, |count| mapping_without_names(count, how, expected)),
            #[cfg(feature = "parquet")]
            Format::Parquet => parquet::parse(bytes, how, expected),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(CliError::usage(
                "this eigenveil was built without Parquet; write the table as CSV, or build with --features parquet",
            )),
            Format::Libsvm => libsvm::parse(bytes, how, expected),
        }
    };
    let mut table = read().map_err(|error| error.context(path.display()))?;
    if expected.is_none_or(|expected| expected.names.is_none()) {
        table.note_identifiers();
    }
    Ok(table)
}

/// The format of this extension. The contents do not decide it: a table read as another format would become rows of
/// zeros, each of which would cost its budget.
fn format_of(path: &Path) -> Result<Format> {
    let ending = path.extension().and_then(|e| e.to_str());
    let ending = ending.unwrap_or_default().to_ascii_lowercase();
    match ending.as_str() {
        "csv" => Ok(Format::Csv),
        "tsv" | "tab" => Ok(Format::Tsv),
        "npy" => Ok(Format::Npy),
        "parquet" | "pq" => Ok(Format::Parquet),
        "libsvm" | "svm" | "svmlight" => Ok(Format::Libsvm),
        "feather" | "arrow" | "ipc" | "npz" | "xlsx" | "xls" | "ods" | "json" | "gz" | "zip"
        | "zst" => Err(CliError::usage(format!(
            ".{ending} files are not supported; write the table as Parquet (.parquet), CSV or .npy"
        ))),
        _ => Err(CliError::usage(
            "its extension is none of .csv, .tsv, .tab, .parquet, .npy, .libsvm, .svm and .svmlight; name the format with --format csv, tsv, parquet, npy or libsvm",
        )),
    }
}

/// The number in a cell of a column that is no feature; NaN for anything else.
pub fn number_in(cell: &str) -> f64 {
    cells::number(cell, DecimalMark::Either).unwrap_or(f64::NAN)
}

/// Reads the bytes of a `.npy` file.
pub fn read_npy(bytes: &[u8]) -> Result<RowTable> {
    npy::parse(bytes, |count| {
        mapping_without_names(count, &TableArgs::default(), None)
    })
}

/// Settings for the tests of the formats.
#[cfg(test)]
mod testing {
    use super::*;

    pub(super) fn with(header: Header) -> TableArgs {
        TableArgs {
            header,
            ..TableArgs::default()
        }
    }

    pub(super) fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    pub(super) fn without(names: &[&str]) -> TableArgs {
        TableArgs {
            drop: Some(Names(strings(names))),
            ..TableArgs::default()
        }
    }

    pub(super) fn study(names: Option<&[&str]>, dimension: usize) -> ExpectedColumns {
        ExpectedColumns::study(dimension, names.map(strings))
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::{testing::with, *};
    use crate::error::assert_says;

    #[test]
    fn the_extension_decides_and_the_dimension_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("rows.csv");
        std::fs::write(&csv, "a,b\n1,2\n3,4\n").unwrap();
        let how = TableArgs::default();
        let study = |dimension| ExpectedColumns {
            reports: false,
            ..ExpectedColumns::study(dimension, None)
        };
        let table = read(&csv, &how, None).unwrap();
        assert_eq!((table.len(), table.dimension()), (2, 2));
        assert_eq!(table.row(1).values(), &[3.0, 4.0]);
        let error = read(&csv, &how, Some(&study(3))).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        let text = dir.path().join("rows.libsvm");
        std::fs::write(&text, "+1 1:0.5 3:2\n").unwrap();
        let table = read(&text, &how, Some(&study(4))).unwrap();
        assert_eq!(table.row(0).values(), &[0.5, 0.0, 2.0, 0.0]);
        let missing = read(&dir.path().join("none.npy"), &how, None).unwrap_err();
        assert!(missing.to_string().contains("none.npy"));
        // A header can use any separator, whatever the extension.
        let tsv = dir.path().join("rows.tsv");
        std::fs::write(&tsv, "b\ta\n1,5\t2\n3\t4\n").unwrap();
        let named = ExpectedColumns {
            names: Some(vec!["a".into(), "b".into()]),
            ..study(2)
        };
        let table = read(&tsv, &how, Some(&named)).unwrap();
        assert_eq!(table.row(0).values(), &[2.0, 1.5]);
        assert_eq!(table.notes().len(), 1);
        for (name, words) in [("rows.feather", "Parquet"), ("rows.xlsx", "CSV")] {
            let error = parse(Path::new(name), b"x", &how, None).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = read(&text, &with(Header::Yes), None).unwrap_err();
        assert_says(&error, &["--header"], &[]);
    }

    /// Read as LIBSVM text, a table of another format would be rows of zeros.
    #[test]
    fn an_unknown_extension_is_refused() {
        let rows = b"1.5,2.5,3.5\n4.5,5.5,6.5\n";
        for name in ["wine.data", "wine.txt", "wine", "rnd.bin", "x.sav"] {
            let error = parse(Path::new(name), rows, &TableArgs::default(), None).unwrap_err();
            assert!(error.to_string().contains("--format"), "{error}");
            let how = TableArgs {
                format: Some(Format::Csv),
                ..TableArgs::default()
            };
            assert_eq!(parse(Path::new(name), rows, &how, None).unwrap().len(), 2);
        }
        let error = parse(Path::new("x.svm"), rows, &TableArgs::default(), None).unwrap_err();
        assert!(error.to_string().contains("--format csv"), "{error}");
    }

    #[test]
    fn a_column_of_row_numbers_is_noted() {
        let of = |text: &str, header| {
            let rows = Path::new("rows.csv");
            let table = parse(rows, text.as_bytes(), &with(header), None).unwrap();
            table.notes().join("; ")
        };
        let ids = "id,a\n0,5\n1,7\n2,6\n";
        assert!(of(ids, Header::Yes).contains("column 1 (id) counts"));
        // A first line that is only taken for names may be a row.
        assert!(of(ids, Header::Auto).contains("column 1 counts"));
        assert!(of("5,1\n7,2\n6,3\n", Header::Auto).contains("column 2 counts"));
        assert!(!of("a,b\n0,5\n1,7\n3,6\n", Header::Auto).contains("counts"));
    }

    /// A number names a column, or is its place where line 1 is a row: a flag says which.
    #[test]
    fn a_column_given_by_number_needs_a_known_header() {
        let study = ExpectedColumns::study(2, Some(vec!["a".into(), "b".into()]));
        let read = |name: &str, line: &str, header| {
            let how = TableArgs {
                drop: Some(Names(vec!["1".into()])),
                ..with(header)
            };
            parse(Path::new(name), line.as_bytes(), &how, Some(&study))
        };
        for (name, text) in [
            ("rows.csv", "1,SECRETNAME,8641.25\n2,3,4\n"),
            ("rows.csv", "1;SECRETNAME;8641,25\n2;3;4\n"),
            ("rows.tsv", "1\tSECRETNAME\t8641.25\n2\t3\t4\n"),
        ] {
            let error = read(name, text, Header::Auto).unwrap_err().to_string();
            assert_says(
                &error,
                &["--header yes or --header no"],
                &["SECRET", "8641"],
            );
            assert_eq!(read(name, text, Header::No).unwrap().len(), 2);
        }
        let named = read("rows.csv", "1,a,b\n2,3,4\n", Header::Yes).unwrap();
        assert_eq!(named.row(0).values(), &[3.0, 4.0]);
    }

    #[test]
    fn debug_shows_no_values_and_infinite_values_are_located() {
        let table = RowTable::new(2, vec![1.0, 2.0, 3.0, f64::NAN], None).unwrap();
        let error = table.check_finite().unwrap_err();
        assert_says(&error, &["row 2, column 2: the value is not a number"], &[]);
        let named = Some(vec!["a".to_owned(), "b".to_owned()]);
        let table = RowTable::new(2, vec![1.0, 2.0, f64::INFINITY, 3.0], named).unwrap();
        let error = table.check_finite().unwrap_err().to_string();
        assert_says(&error, &["row 2, column 1 (a): the value is infinite"], &[]);
        let table = RowTable::new(2, vec![1.0, 2.0, 3.0, -1e308], None).unwrap();
        let error = table.check_usable(true).unwrap_err();
        assert_says(
            &error,
            &["row 2, column 2: the value is too large", "2e90"],
            &["308"],
        );
        assert_eq!(format!("{table:?}"), "RowTable(2 rows of 2)");
        assert!(RowTable::new(2, vec![1.0], None).is_err());
        assert!(RowTable::new(0, vec![], None).is_err());
    }
}
