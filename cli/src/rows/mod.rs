//! Tables of rows: CSV and its relatives, `.npy`, Parquet and LIBSVM text. One row of a file = one participant.
//!
//! The columns to take are chosen by name before a value is read (`columns`). Errors name the row and the column,
//! never the value.

mod columns;
pub mod features;
mod flags;
mod libsvm;
mod npy;
#[cfg(feature = "parquet")]
mod parquet;
mod text;

use std::{borrow::Cow, path::Path};

use eigenveil_shared::{
    mechanism::double_cap::MAX_DIMENSION,
    preprocess::{Feature, Row},
};

use self::columns::{Found, Layout};
pub use self::{
    columns::Wanted,
    flags::{Format, Header, Names, TableArgs},
};
use crate::error::{CliError, Result};

/// Most columns that a table may have: what a study can have, and as many beside them.
const MAX_COLUMNS: usize = 2 * MAX_DIMENSION;

/// The rows of a file, with the columns that were chosen.
pub struct RowTable {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    names: Option<Vec<String>>,
    unreadable: Option<Unreadable>,
    notes: Vec<String>,
    taken: Vec<usize>,
    /// Line 1 could be names or a row, and nobody said which.
    guessed_header: bool,
}

/// Where a file has something else than a number, counted from 1.
#[derive(Clone, Copy, Debug)]
struct Unreadable {
    line: usize,
    /// Column of the file; the whole line when absent.
    column: Option<usize>,
    /// The same column of the table, from 0, where it may have a name.
    named: Option<usize>,
    why: Why,
}

/// Why it is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Missing,
    NotANumber,
    DecimalComma,
    /// A LIBSVM index beyond the study's dimension.
    Outside,
    /// A LIBSVM index 0 in a file taken to count from 1.
    IndexZero,
    /// A line that is no LIBSVM text.
    NotLibsvm,
    /// A line with another number of fields than the first; with a quote that the line does not close.
    Fields {
        has: usize,
        wants: usize,
        open: bool,
    },
}

impl RowTable {
    /// A table of `columns`-dimensional rows, one after the other in `values`.
    ///
    /// # Errors
    /// Wrong usage when there is no row or no column, or the values do not fill whole rows.
    pub fn new(columns: usize, values: Vec<f64>, names: Option<Vec<String>>) -> Result<Self> {
        if columns == 0 || values.is_empty() || !values.len().is_multiple_of(columns) {
            return Err(no_rows());
        }
        Ok(Self {
            rows: values.len() / columns,
            columns,
            values,
            names,
            unreadable: None,
            notes: Vec::new(),
            taken: (0..columns).collect(),
            guessed_header: false,
        })
    }

    fn with_unreadable(mut self, first: Option<Unreadable>) -> Self {
        self.unreadable = first;
        self
    }

    /// Columns that were taken as the layout says.
    fn of_layout(mut self, layout: Layout) -> Self {
        self.names = layout.names;
        self.notes = layout.notes;
        self.taken = layout.take;
        self
    }

    /// The columns of a layout, from a table with all of them.
    fn rearranged(mut self, layout: Layout) -> Self {
        if !layout.is_identity(self.columns) {
            self.values = self
                .values
                .chunks_exact(self.columns)
                .flat_map(|row| layout.take.iter().map(|&at| row[at]))
                .collect();
            self.columns = layout.take.len();
        }
        self.of_layout(layout)
    }

    /// Refuses a table in which a field was no number (and is NaN).
    ///
    /// # Errors
    /// Wrong usage that names the first such line and column.
    pub fn check_readable(&self) -> Result<()> {
        let Some(Unreadable {
            line,
            column,
            named,
            why,
        }) = self.unreadable
        else {
            return Ok(());
        };
        let name = named.and_then(|at| self.names()?.get(at));
        let place = match (column, name) {
            (Some(column), Some(name)) => format!("line {line}, column {column} ({name})"),
            (Some(column), None) => format!("line {line}, column {column}"),
            (None, _) => format!("line {line}"),
        };
        Err(CliError::usage(match why {
            Why::Missing => format!(
                "{place}: the value is missing; fill it in, or leave the row or the column out"
            ),
            Why::NotANumber => format!("{place}: not a number; every field must be a number"),
            Why::Outside => format!("{place}: there is no such column in the study"),
            Why::IndexZero => format!(
                "{place}: index 0, but indices are taken from 1; if the file counts from 0 (as scikit-learn's dump_svmlight_file does), give --first-index 0"
            ),
            Why::NotLibsvm => format!(
                "{place}: not LIBSVM text, which is a number and then index:value, indices from 1 and rising"
            ),
            Why::DecimalComma => format!(
                "{place}: a decimal comma, or one between thousands; write numbers as 1234.5, or separate the columns by ';'"
            ),
            Why::Fields { has, wants, open } => format!(
                "{place} has {has} fields but the first line has {wants}{}",
                if open {
                    "; a quoted cell must end on its line"
                } else {
                    "; a decimal comma makes one more"
                }
            ),
        }))
    }

    /// Refuses a table whose first line could be names or a row, where nobody said which.
    ///
    /// # Errors
    /// Wrong usage that names the flag.
    pub fn check_header_is_known(&self) -> Result<()> {
        if !self.guessed_header {
            return Ok(());
        }
        Err(CliError::usage(
            "line 1 has numbers: it may name the columns or be the first row; give --header yes or --header no",
        ))
    }

    /// What the user should be told once of how the columns were taken.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The file's column, from 0, of each column of the table.
    pub fn taken(&self) -> &[usize] {
        &self.taken
    }

    /// Number of rows n.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no row; never true.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Number of columns p.
    pub fn dimension(&self) -> usize {
        self.columns
    }

    /// Column names, where there are any.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// Row `index`, from 0.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, index: usize) -> Row {
        Row::new(self.values[index * self.columns..(index + 1) * self.columns].to_vec())
    }

    /// Refuses a table with a value that is NaN or infinite.
    ///
    /// # Errors
    /// Wrong usage that names the first such row and column.
    pub fn check_finite(&self) -> Result<()> {
        let Some(at) = self.values.iter().position(|v| !v.is_finite()) else {
            return Ok(());
        };
        let (row, named) = (at / self.columns + 1, at % self.columns);
        let column = self.taken[named] + 1;
        let column = match self.names() {
            Some(names) => format!("column {column} ({})", names[named]),
            None => format!("column {column}"),
        };
        let what = if self.values[at].is_nan() {
            "not a number"
        } else {
            "infinite"
        };
        Err(CliError::usage(format!(
            "row {row}, {column}: the value is {what}; give a finite number, or leave the row or the column out"
        )))
    }

    /// Says when a column only counts the rows: nobody's principal component.
    fn note_index(&mut self) {
        let counts = |column: usize| {
            let mut own = self.values.iter().skip(column).step_by(self.columns);
            let first = own.next().copied().unwrap_or(f64::NAN);
            (first == 0.0 || first == 1.0) && own.zip(1..).all(|(x, i)| *x == first + f64::from(i))
        };
        if self.rows < 3 || self.columns < 2 {
            return;
        }
        if let Some(column) = (0..self.columns).find(|&column| counts(column)) {
            let name = self.names.as_ref().map_or_else(
                || format!("{}", column + 1),
                |names| format!("{:?}", names[column]),
            );
            self.notes.push(format!(
                "column {name} counts the rows: if it is an index, leave it out with --drop"
            ));
        }
    }
}

fn no_rows() -> CliError {
    CliError::usage("it has no rows; one row is one participant")
}

impl std::fmt::Debug for RowTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowTable({} rows of {})", self.rows, self.columns)
    }
}

/// Reads a row file of which every value must be a number; the ending decides the format, as in [`parse`].
///
/// # Errors
/// Wrong usage that names the file, the row and the column; those of [`parse`].
pub fn read(path: &Path, how: &TableArgs, wanted: Option<&Wanted>) -> Result<RowTable> {
    let table = parse(path, &read_bytes(path)?, how, wanted)?;
    table
        .check_readable()
        .and_then(|()| table.check_finite())
        .map_err(|error| error.context(path.display()))?;
    Ok(table)
}

/// As [`read`], for commands without a study: a features file (`--features`) gives the names and order of the columns,
/// and the public constants that are returned beside the table.
///
/// # Errors
/// As [`read`].
pub fn read_with_constants(
    path: &Path,
    how: &TableArgs,
) -> Result<(RowTable, Option<Vec<Feature>>)> {
    let features = how.features()?;
    let wanted = features.as_ref().map(|features| Wanted {
        of: "features file",
        dimension: features.len(),
        names: Some(
            features
                .iter()
                .map(|feature| feature.name.clone())
                .collect(),
        ),
        reports: false,
    });
    let table = read(path, how, wanted.as_ref())?;
    crate::output::notes(table.notes());
    Ok((table, features))
}

/// The bytes of a row file, for [`parse`].
///
/// # Errors
/// Wrong usage that names the file.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))
}

/// As [`read`], for reports, from bytes that were read before; `path` gives the format by its ending, and the name in errors.
///
/// Where a field is no number the value is NaN, and no error: its row is sent as the zero row, because whether a row
/// is sent must not depend on what is in it (`<0.5` in a laboratory's file says a lot). So is a row of LIBSVM text with
/// an index beyond the dimension, and a line with another number of fields than the header. What is an error is the
/// form: names and number of the columns, their types, a line of LIBSVM text without a label, bytes of another format.
///
/// # Errors
/// Wrong usage that names the file and the columns; `wrong-dimension` where their number is not that of `wanted`.
pub fn parse(
    path: &Path,
    bytes: &[u8],
    how: &TableArgs,
    wanted: Option<&Wanted>,
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
        match format {
            Format::Csv => text::parse(bytes, false, how, wanted),
            Format::Tsv => text::parse(bytes, true, how, wanted),
            Format::Npy => npy::parse(bytes, |count| nameless(count, how, wanted)),
            #[cfg(feature = "parquet")]
            Format::Parquet => parquet::parse(bytes, how, wanted),
            #[cfg(not(feature = "parquet"))]
            Format::Parquet => Err(CliError::usage(
                "this eigenveil was built without Parquet; write the table as CSV, or build with --features parquet",
            )),
            Format::Libsvm => libsvm::parse(bytes, how.first_index.unwrap_or(1), wanted, |count| {
                nameless(count, how, wanted)
            }),
        }
    };
    let mut table = read().map_err(|error| error.context(path.display()))?;
    if wanted.is_none_or(|wanted| wanted.names.is_none()) {
        table.note_index();
    }
    Ok(table)
}

/// The format that the ending stands for. What is in the file decides nothing: a table taken for another format would be
/// rows of zeros, each of which costs its budget.
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
            "a .{ending} file is not read; write the table as Parquet (.parquet), CSV or .npy"
        ))),
        _ => Err(CliError::usage(
            "its name does not end as a table's does (.csv, .tsv, .tab, .parquet, .npy, .libsvm, .svm, .svmlight); say what it is with --format csv, tsv, parquet, npy or libsvm",
        )),
    }
}

/// Refuses more columns than any study has, before room is made for them.
fn check_columns(count: usize) -> Result<()> {
    if count <= MAX_COLUMNS {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "it has {count} columns; at most {MAX_COLUMNS} can be used"
    )))
}

/// The layout of a format without names.
fn nameless(count: usize, how: &TableArgs, wanted: Option<&Wanted>) -> Result<Layout> {
    check_columns(count)?;
    let found = Found {
        count,
        ..Found::default()
    };
    columns::layout(found, how, wanted)
}

/// The bytes as text. What is no UTF-8 becomes a sign that is in no number: one cell in another encoding (`<5 µg`)
/// must not decide whether the rows are sent.
///
/// # Errors
/// Wrong usage for text of 16-bit units, which says so at its beginning.
fn text_of(bytes: &[u8]) -> Result<Cow<'_, str>> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(CliError::usage("it is UTF-16 text; save it as UTF-8"));
    }
    Ok(String::from_utf8_lossy(bytes))
}

/// Reads the bytes of a `.npy` file.
///
/// # Errors
/// Wrong usage that says what is wrong with it.
pub fn read_npy(bytes: &[u8]) -> Result<RowTable> {
    npy::parse(bytes, |count| nameless(count, &TableArgs::default(), None))
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;

    #[test]
    fn the_ending_decides_and_the_dimension_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("rows.csv");
        std::fs::write(&csv, "a,b\n1,2\n3,4\n").unwrap();
        let how = TableArgs::default();
        let study = |dimension| Wanted {
            of: "study",
            dimension,
            names: None,
            reports: false,
        };
        let table = read(&csv, &how, None).unwrap();
        assert_eq!((table.len(), table.dimension()), (2, 2));
        assert_eq!(table.row(1).values(), &[3.0, 4.0]);
        let error = read(&csv, &how, Some(&study(3))).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        let text = dir.path().join("rows.libsvm");
        std::fs::write(&text, "+1 1:0.5 3:2\n").unwrap();
        assert_eq!(
            read(&text, &how, Some(&study(4))).unwrap().row(0).values(),
            &[0.5, 0.0, 2.0, 0.0]
        );
        let missing = read(&dir.path().join("none.npy"), &how, None).unwrap_err();
        assert!(missing.to_string().contains("none.npy"));
        // The header can be anything that separates columns, in a file of any of these endings.
        let tsv = dir.path().join("rows.tsv");
        std::fs::write(&tsv, "b\ta\n1,5\t2\n3\t4\n").unwrap();
        let named = Wanted {
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
        let yes = TableArgs {
            header: Header::Yes,
            ..TableArgs::default()
        };
        let error = read(&text, &yes, None).unwrap_err().to_string();
        assert!(error.contains("--header"), "{error}");
    }

    /// Taken for LIBSVM text, a table of another format would be rows of zeros.
    #[test]
    fn an_unknown_ending_is_no_format() {
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
    fn a_column_that_counts_is_pointed_out() {
        let how = TableArgs::default();
        let of = |text: &str| {
            let table = parse(Path::new("rows.csv"), text.as_bytes(), &how, None).unwrap();
            table.notes().join("; ")
        };
        assert!(of("id,a\n0,5\n1,7\n2,6\n").contains("column \"id\" counts"));
        assert!(of("5,1\n7,2\n6,3\n").contains("column 2 counts"));
        assert!(!of("a,b\n0,5\n1,7\n3,6\n").contains("counts"));
    }

    #[test]
    fn debug_and_not_finite() {
        let table = RowTable::new(2, vec![1.0, 2.0, 3.0, f64::NAN], None).unwrap();
        let error = table.check_finite().unwrap_err().to_string();
        assert!(
            error.contains("row 2, column 2: the value is not a number"),
            "{error}"
        );
        let named = Some(vec!["a".to_owned(), "b".to_owned()]);
        let table = RowTable::new(2, vec![1.0, 2.0, f64::INFINITY, 3.0], named).unwrap();
        let error = table.check_finite().unwrap_err().to_string();
        assert!(
            error.contains("row 2, column 1 (a): the value is infinite"),
            "{error}"
        );
        assert_eq!(format!("{table:?}"), "RowTable(2 rows of 2)");
        assert!(RowTable::new(2, vec![1.0], None).is_err());
        assert!(RowTable::new(0, vec![], None).is_err());
    }
}
