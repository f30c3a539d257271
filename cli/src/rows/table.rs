//! The rows of a file, and its first unreadable value.

use std::borrow::Cow;

use eigenveil_shared::{mechanism::double_cap::MAX_DIMENSION, preprocess::Row};

use super::{
    columns::{self, ColumnMapping, ExpectedColumns, FileColumns},
    flags::TableArgs,
};
use crate::error::{CliError, Result};

/// Error message for a LIBSVM index 0.
pub(super) const INDEX_ZERO: &str = "index 0, but indices are taken from 1; if the file counts from 0 (as scikit-learn's dump_svmlight_file does), give --first-index 0";
/// Number of lines from which "most lines" means something.
pub(super) const MIN_LINES_FOR_MAJORITY: usize = 3;
/// Largest number of columns of a table: twice the largest dimension of a study.
pub(super) const MAX_COLUMNS: usize = 2 * MAX_DIMENSION;

/// The rows of a file, with the selected columns.
pub struct RowTable {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    names: Option<Vec<String>>,
    /// The names are certainly names, so messages may show them.
    shown: bool,
    unreadable: Option<Unreadable>,
    notes: Vec<String>,
    taken: Vec<usize>,
    /// Line 1 could be names or a row, and no flag says which.
    pub(super) guessed_header: bool,
}

/// Position of a value that is not a number, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unreadable {
    pub(super) line: usize,
    /// Column of the file; `None` for the whole line.
    pub(super) column: Option<usize>,
    /// The same column of the table, from 0, which may have a name.
    pub(super) named: Option<usize>,
    pub(super) reason: UnreadableReason,
}

/// Why a value is unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnreadableReason {
    Missing,
    NotANumber,
    DecimalComma,
    /// A percentage: 12 or 0.12?
    Percent,
    /// A LIBSVM index beyond the study's dimension.
    Outside,
    /// A LIBSVM index 0 in a file taken to count from 1.
    IndexZero,
    /// A line that is not LIBSVM text.
    NotLibsvm,
    /// A line with another number of fields than the first; `open` if a quote is not closed on the line.
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
            shown: true,
            unreadable: None,
            notes: Vec::new(),
            taken: (0..columns).collect(),
            guessed_header: false,
        })
    }

    pub(super) fn with_unreadable(mut self, first: Option<Unreadable>) -> Self {
        self.unreadable = first;
        self
    }

    /// For columns that were already selected by the mapping.
    pub(super) fn with_mapping(mut self, mapping: ColumnMapping) -> Self {
        self.names = mapping.names;
        self.shown = mapping.shown;
        self.notes = mapping.notes;
        self.taken = mapping.take;
        self
    }

    /// Selects the columns of a mapping from a table with all columns.
    pub(super) fn with_columns_selected(mut self, mapping: ColumnMapping) -> Self {
        if !mapping.is_identity(self.columns) {
            self.values = self
                .values
                .chunks_exact(self.columns)
                .flat_map(|row| mapping.take.iter().map(|&at| row[at]))
                .collect();
            self.columns = mapping.take.len();
        }
        self.with_mapping(mapping)
    }

    /// Refuses a table with an unreadable field (which is NaN).
    ///
    /// # Errors
    /// Wrong usage that names the first such line and column.
    pub fn check_readable(&self) -> Result<()> {
        let Some(Unreadable {
            line,
            column,
            named,
            reason,
        }) = self.unreadable
        else {
            return Ok(());
        };
        let place = match (column, named) {
            (Some(_), Some(at)) => format!("line {line}, {}", self.column(at)),
            (Some(column), None) => format!("line {line}, column {column}"),
            (None, _) => format!("line {line}"),
        };
        Err(CliError::usage(match reason {
            UnreadableReason::Missing => format!(
                "{place}: the value is missing; fill it in, or leave the row or the column out"
            ),
            UnreadableReason::NotANumber => {
                format!("{place}: not a number; every field must be a number")
            }
            UnreadableReason::Outside => {
                format!("{place}: an index is beyond the last column of the study")
            }
            UnreadableReason::IndexZero => format!("{place}: {INDEX_ZERO}"),
            UnreadableReason::NotLibsvm => format!(
                "{place}: not LIBSVM text, which is a label and then index:value with increasing indices from 1"
            ),
            UnreadableReason::Percent => format!(
                "{place} has a percent sign; write 12.5 or 0.125 for 12.5 %, the same in every row"
            ),
            UnreadableReason::DecimalComma => format!(
                "{place}: a decimal comma, or one between thousands; write numbers as 1234.5, or separate the columns by ';'"
            ),
            UnreadableReason::Fields { has, wants, open } => format!(
                "{place} has {has} fields but the first line has {wants}{}",
                if open {
                    "; a quoted cell must end on its line"
                } else {
                    "; a decimal comma adds one"
                }
            ),
        }))
    }

    /// Refuses a table whose first line could be names or a row, if no flag says which.
    pub fn check_header_is_known(&self) -> Result<()> {
        if !self.guessed_header {
            return Ok(());
        }
        Err(CliError::usage(
            "line 1 has numbers: it may name the columns or be the first row; give --header yes or --header no",
        ))
    }

    /// Notes on how the columns were selected.
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

    /// Column names, if there are any.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// How messages call a column.
    fn column(&self, at: usize) -> String {
        let names = self.names.as_ref().filter(|_| self.shown);
        columns::column_called(self.taken[at], names.map(|names| names[at].as_str()))
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
        let column = self.column(named);
        let what = if self.values[at].is_nan() {
            "not a number"
        } else {
            "infinite"
        };
        Err(CliError::usage(format!(
            "row {row}, {column}: the value is {what}; give a finite number, or leave the row or the column out"
        )))
    }

    /// Notes a column that only counts the rows, which is nobody's principal component.
    pub(super) fn note_row_numbers(&mut self) {
        let counts = |column: usize| {
            let mut own = self.values.iter().skip(column).step_by(self.columns);
            let first = own.next().copied().unwrap_or(f64::NAN);
            (first == 0.0 || first == 1.0) && own.zip(1..).all(|(x, i)| *x == first + f64::from(i))
        };
        if self.rows < 3 || self.columns < 2 {
            return;
        }
        if let Some(column) = (0..self.columns).find(|&column| counts(column)) {
            self.notes.push(format!(
                "{} counts the rows: if it is an index, leave it out with --drop",
                self.column(column)
            ));
        }
    }
}

pub(super) fn no_rows() -> CliError {
    CliError::usage("it has no rows; one row is one participant")
}

impl std::fmt::Debug for RowTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowTable({} rows of {})", self.rows, self.columns)
    }
}

/// Refuses more columns than any study has, before memory is reserved for them.
pub(super) fn check_columns(count: usize) -> Result<()> {
    if count <= MAX_COLUMNS {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "it has {count} columns; at most {MAX_COLUMNS} can be used"
    )))
}

pub(super) fn mapping_without_names(
    count: usize,
    how: &TableArgs,
    expected: Option<&ExpectedColumns>,
) -> Result<ColumnMapping> {
    check_columns(count)?;
    let found = FileColumns {
        count,
        ..FileColumns::default()
    };
    columns::map_columns(found, how, expected)
}

/// The bytes as text. Invalid UTF-8 becomes a replacement character, which no number contains: one cell in another
/// encoding (`<5 µg`) must not decide whether the rows are sent.
///
/// # Errors
/// Wrong usage for UTF-16 text with a byte-order mark.
pub(super) fn text_of(bytes: &[u8]) -> Result<Cow<'_, str>> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(CliError::usage("it is UTF-16 text; save it as UTF-8"));
    }
    Ok(String::from_utf8_lossy(bytes))
}
