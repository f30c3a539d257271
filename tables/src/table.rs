//! The rows of a file, and its unreadable values.

use std::collections::{HashMap, HashSet};

use eigenveil_shared::{mechanism::double_cap::MAX_DIMENSION, preprocess::Row, wording::MAX_NAMED};

use crate::{
    cells::checked_number,
    columns::{self, ColumnMapping, ExpectedColumns, FileColumns},
    encoding::REPLACEMENT,
    error::{Error, Result},
    problems::{Problems, UnreadableReason},
    settings::Settings,
    text_columns::{Reading, RefusedColumns},
};

/// Minimum number of lines for a decision by most lines.
pub(crate) const MIN_LINES_FOR_MAJORITY: usize = 3;
/// Minimum number of rows at which distinct whole numbers are probably an identifier rather than a measurement.
const MIN_ROWS_OF_IDENTIFIER: usize = 20;
/// Largest number of columns of a table: twice the largest dimension of a study.
pub(crate) const MAX_COLUMNS: usize = 2 * MAX_DIMENSION;

const READ_AS_ROW_HINT: &str =
    "\nline 1 was read as a row; if it names the columns, give `header` yes";

/// The rows of a file, with the selected columns.
pub struct RowTable {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    /// The file's columns that these are.
    mapping: ColumnMapping,
    pub(crate) problems: Problems,
    labels: Vec<String>,
    /// Whether line 1 could be names or a row, and no setting decides.
    pub(crate) guessed_header: bool,
}

impl RowTable {
    /// A table of `columns`-dimensional rows, one after the other in `values`; an error if there is no row or no
    /// column, or if the values do not fill whole rows.
    pub fn new(columns: usize, values: Vec<f64>, names: Option<Vec<String>>) -> Result<Self> {
        if columns == 0 || values.is_empty() || !values.len().is_multiple_of(columns) {
            return Err(no_rows());
        }
        Ok(Self {
            rows: values.len() / columns,
            columns,
            values,
            mapping: ColumnMapping {
                file_columns: (0..columns).collect(),
                names_may_be_shown: true,
                names,
                ..ColumnMapping::default()
            },
            problems: Problems::default(),
            labels: Vec::new(),
            guessed_header: false,
        })
    }

    /// A table with the columns of a mapping and its values as read.
    pub(crate) fn from_mapping(
        mapping: ColumnMapping,
        values: Vec<f64>,
        problems: Problems,
        labels: Vec<String>,
    ) -> Result<Self> {
        let table = Self::new(mapping.file_columns.len(), values, None)?;
        Ok(Self {
            mapping,
            problems,
            labels,
            ..table
        })
    }

    /// Selects the columns of a mapping from a table with all columns.
    pub(crate) fn with_columns_selected(mut self, mapping: ColumnMapping) -> Self {
        if !mapping.is_identity(self.columns) {
            self.values = self
                .values
                .chunks_exact(self.columns)
                .flat_map(|row| mapping.file_columns.iter().map(|&at| row[at]))
                .collect();
            self.columns = mapping.file_columns.len();
        }
        Self { mapping, ..self }
    }

    /// Checks a table whose numbers are stored as such: those too large for a row become NaN and count as unreadable.
    ///
    /// # Errors
    /// A column of 20 numbers or more, without counting NaN, of which more than half are too large; unless several rows
    /// may belong to one person.
    pub fn judged(self, expected: Option<&ExpectedColumns>) -> Result<Self> {
        self.judged_from(0, expected)
    }

    /// Checks like [`judged`](Self::judged) a part of a table that begins with this row, from 0.
    pub(crate) fn judged_from(
        mut self,
        first_row: usize,
        expected: Option<&ExpectedColumns>,
    ) -> Result<Self> {
        let mut reading = Reading::new(&Settings::default(), expected, &self.mapping);
        for (index, value) in self.values.iter_mut().enumerate() {
            let (row, table_column) = (first_row + index / self.columns, index % self.columns);
            *value = reading.number(row + 1, table_column, checked_number(*value), &self.mapping);
        }
        reading.check(&self.mapping, RefusedColumns::default(), &mut ())?;
        self.problems = reading.problems;
        Ok(self)
    }

    /// The unreadable cells, and those that are none of their column's categories: for each column and reason, their
    /// number and the position of the first. Missing cells are omitted if they are allowed. Only for the person who
    /// holds the rows.
    pub fn unreadable(&self, missing_cells: bool) -> Option<String> {
        let mut problems = self.problems.clone();
        if missing_cells {
            problems = problems.without(UnreadableReason::Missing);
        }
        problems.describe(|at| self.mapping.column(at))
    }

    pub(crate) fn mapping(&self) -> &ColumnMapping {
        &self.mapping
    }

    /// Cells without a number, missing or unreadable: each column of the file that has some, and how many. A line that
    /// cannot be read has no cells. Only for the person who holds the rows.
    pub fn cells_without_number(&self) -> Vec<(String, usize)> {
        let cells = self.problems.cells().into_iter();
        cells
            .map(|(at, count)| (self.mapping.column(at), count))
            .collect()
    }

    /// Refuses a table with unreadable fields (which are NaN); the error names the columns, the number of fields, and
    /// the first line.
    pub fn check_readable(&self) -> Result<()> {
        self.refuse(&self.problems)
    }

    /// Refuses a table with unreadable fields; cells may be missing where that is allowed. The error names the columns.
    pub fn check_usable(&self, missing_cells: bool) -> Result<()> {
        match missing_cells {
            true => self.refuse(&self.problems.clone().without(UnreadableReason::Missing)),
            false => self.check_readable(),
        }
    }

    /// Refuses labels with bytes that would be written as other characters.
    pub(crate) fn check_labels(&self) -> Result<()> {
        let lost = self
            .labels
            .iter()
            .position(|label| label.contains(REPLACEMENT));
        lost.map_or(Ok(()), |row| {
            Err(Error::new(format!(
                "row {}: the label has a byte that is invalid in its encoding; name the encoding with `encoding`",
                row + 1
            )))
        })
    }

    fn refuse(&self, problems: &Problems) -> Result<()> {
        let Some(mut text) = problems.describe(|at| self.mapping.column(at)) else {
            return Ok(());
        };
        if self.guessed_header && problems.first_line() == Some(1) {
            text.push_str(READ_AS_ROW_HINT);
        }
        Err(Error::new(text))
    }

    /// Refuses a table whose first line could be names or a row, if no setting decides.
    pub fn check_header_is_known(&self) -> Result<()> {
        if !self.guessed_header {
            return Ok(());
        }
        Err(Error::new(
            "line 1 has numbers, or words for a missing value: it may name the columns or be the first row; give `header` yes or `header` no",
        ))
    }

    /// Notes on how the columns were selected.
    pub fn notes(&self) -> &[String] {
        &self.mapping.notes
    }

    /// The file's column, from 0, of each column of the table.
    pub fn file_columns(&self) -> &[usize] {
        &self.mapping.file_columns
    }

    /// The rows' labels; empty without `label`.
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Whether a column contains 0 and 1 for one category of a text column.
    pub fn is_category(&self, at: usize) -> bool {
        self.mapping.category(at).is_some()
    }

    /// Number of rows n.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no row: always false.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Number of columns p.
    pub fn dimension(&self) -> usize {
        self.columns
    }

    /// Column names, if there are any.
    pub fn names(&self) -> Option<&[String]> {
        self.mapping.names.as_deref()
    }

    /// The n·p numbers, row by row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// Row `index`, from 0.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    pub fn row(&self, index: usize) -> Row {
        Row::new(self.values[index * self.columns..(index + 1) * self.columns].to_vec())
    }

    /// Notes columns that only count or identify the rows, and should not enter principal components; `persons` says
    /// whether the caller takes a column of persons.
    pub fn note_identifiers(&mut self, persons: bool) {
        let values = || self.values.iter().copied();
        let column_values = |column: usize| values().skip(column).step_by(self.columns);
        let counts = |column: usize| {
            let first = column_values(column).next().unwrap_or(f64::NAN);
            (first == 0.0 || first == 1.0)
                && column_values(column)
                    .zip(0..)
                    .all(|(x, i)| x == first + f64::from(i))
        };
        let differs = |column: usize| {
            let mut seen = HashSet::new();
            self.rows >= MIN_ROWS_OF_IDENTIFIER
                && column_values(column).all(|x| x.fract() == 0.0 && seen.insert(x.to_bits()))
        };
        if self.rows < 3 || self.columns < 2 {
            return;
        }
        let (counting, others): (Vec<usize>, Vec<usize>) =
            (0..self.columns).partition(|&at| counts(at));
        let (differing, others): (Vec<usize>, Vec<usize>) =
            others.into_iter().partition(|&at| differs(at));
        let repeating = others.into_iter().filter(|&at| {
            let groups = || groups_of_rows(column_values(at));
            persons && groups().is_some_and(|groups| groups >= MIN_ROWS_OF_IDENTIFIER)
        });
        let leave_out = "leave it out with `drop`";
        let person = "name it with `person`: each of a person's rows would make a report otherwise, and spend its ε";
        let mut notes = Vec::new();
        for (columns, property, likely, way_out) in [
            (counting, "counts the rows", "is an index", leave_out),
            (
                differing,
                "has whole numbers that all differ",
                "is an identifier",
                leave_out,
            ),
            (
                repeating.collect(),
                "has whole numbers of which each fills a few rows",
                "says whose a row is",
                person,
            ),
        ] {
            let reported = columns.iter().take(MAX_NAMED);
            notes.extend(reported.map(|&at| {
                format!(
                    "{} {property}: if it {likely}, {way_out}",
                    self.mapping.column(at)
                )
            }));
        }
        self.mapping.notes.extend(notes);
    }
}

/// Number of groups of rows with the same whole number, if these look like the rows of one person each: every group
/// stands together, or all have the same size, and there are 2 to 50 rows in one on average.
fn groups_of_rows(values: impl Iterator<Item = f64>) -> Option<usize> {
    let mut sizes: HashMap<u64, usize> = HashMap::new();
    let (mut rows, mut last, mut stand_together) = (0, None, true);
    for value in values {
        if value.fract() != 0.0 {
            return None;
        }
        let size = sizes.entry(value.to_bits()).or_default();
        stand_together &= *size == 0 || last == Some(value);
        *size += 1;
        (rows, last) = (rows + 1, Some(value));
    }
    let groups = sizes.len();
    let mut sizes = sizes.into_values();
    let first = sizes.next();
    let all_alike = sizes.all(|size| Some(size) == first);
    let few_rows_each = (2 * groups..=50 * groups).contains(&rows);
    (few_rows_each && (stand_together || all_alike)).then_some(groups)
}

pub(crate) fn no_rows() -> Error {
    Error::new("it has no rows; one row is one participant")
}

impl std::fmt::Debug for RowTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowTable({} rows of {})", self.rows, self.columns)
    }
}

/// Refuses more columns than any study can have, before memory is reserved for them.
pub(crate) fn check_columns(count: usize) -> Result<()> {
    if count <= MAX_COLUMNS {
        return Ok(());
    }
    Err(Error::new(format!(
        "it has {count} columns; at most {MAX_COLUMNS} can be used"
    )))
}

pub(crate) fn mapping_without_names(
    count: usize,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<ColumnMapping> {
    check_columns(count)?;
    let columns = FileColumns {
        count,
        ..FileColumns::default()
    };
    columns::map_columns(columns, settings, expected)
}

/// Refuses bytes of other formats, recognised by their first bytes, and UTF-16 without a byte-order mark.
pub(crate) fn check_is_text(bytes: &[u8], is_stated: bool) -> Result<()> {
    let excel = "an old Excel file; save the table as CSV";
    let zip = "a ZIP or Excel file; unpack it, or save the table as CSV";
    for (prefix, format) in [
        (&b"\x1f\x8b"[..], "compressed by gzip; unpack it first"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd; unpack it first"),
        (b"\xfd7zXZ", "compressed by xz; unpack it first"),
        (b"\xd0\xcf\x11\xe0", excel),
        (b"PK\x03\x04", zip),
        // PAR1 is also the name of a gene. A first page, or the metadata if there is none, begins with a number.
        (b"PAR1\x15", "Parquet; give `format` parquet"),
        (b"\x93NUMPY", "a NumPy array; give `format` npy"),
    ] {
        if bytes.starts_with(prefix) {
            return Err(Error::new(format!("it is not text but {format}")));
        }
    }
    if !is_stated && bytes.iter().take(2).any(|&byte| byte == 0) {
        return Err(Error::new(
            "it is UTF-16 text without a byte-order mark; give `encoding` utf-16le, or save it as UTF-8",
        ));
    }
    Ok(())
}

/// The lines of a text in UTF-8, numbered from 1, without line ends.
pub(crate) fn lines_of(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    (1..).zip(lines.map(|line| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line)
    }))
}
