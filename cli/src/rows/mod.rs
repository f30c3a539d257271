//! Row files: `.npy`, `.csv` and LIBSVM text. One row of a file = one participant.
//!
//! Errors name the row and the column, never the value.

mod csv;
mod libsvm;
mod npy;

use std::{borrow::Cow, path::Path};

use eigenveil_shared::{ErrorCode, preprocess::Row};

use crate::error::{CliError, Result};

/// The rows of a file.
pub struct RowTable {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    names: Option<Vec<String>>,
    unreadable: Option<Place>,
}

/// Where a file has something else than a number, counted from 1.
#[derive(Clone, Copy, Debug)]
struct Place {
    line: usize,
    column: usize,
}

impl RowTable {
    /// A table of `columns`-dimensional rows, one after the other in `values`.
    ///
    /// # Errors
    /// Wrong usage when there is no row or no column, or the values do not fill whole rows.
    pub fn new(columns: usize, values: Vec<f64>, names: Option<Vec<String>>) -> Result<Self> {
        if columns == 0 || values.is_empty() || !values.len().is_multiple_of(columns) {
            return Err(CliError::usage(
                "it has no rows; one row is one participant",
            ));
        }
        Ok(Self {
            rows: values.len() / columns,
            columns,
            values,
            names,
            unreadable: None,
        })
    }

    fn with_unreadable(mut self, first: Option<Place>) -> Self {
        self.unreadable = first;
        self
    }

    /// Refuses a table in which a field was no number (and is NaN).
    ///
    /// # Errors
    /// Wrong usage that names the first such line and column.
    pub fn check_readable(&self) -> Result<()> {
        match self.unreadable {
            None => Ok(()),
            Some(Place { line, column }) => Err(CliError::usage(format!(
                "line {line}, column {column}: not a number, or there is no such column; every field must be a number"
            ))),
        }
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

    /// Column names, where the file has them.
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

    /// The first value that is NaN or infinite, as (row, column) counted from 1.
    pub fn first_not_finite(&self) -> Option<(usize, usize)> {
        let at = self.values.iter().position(|v| !v.is_finite())?;
        Some((at / self.columns + 1, at % self.columns + 1))
    }
}

impl std::fmt::Debug for RowTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowTable({} rows of {})", self.rows, self.columns)
    }
}

/// Reads a row file; the ending decides the format (`.npy`, `.csv`, anything else is LIBSVM text).
///
/// # Errors
/// Wrong usage that names the file, the row and the column; a file of another dimension than
/// `dimension` is `wrong-dimension`.
pub fn read(path: &Path, dimension: Option<usize>) -> Result<RowTable> {
    let table = parse(path, &read_bytes(path)?, dimension)?;
    table
        .check_readable()
        .map_err(|error| error.context(path.display()))?;
    Ok(table)
}

/// The bytes of a row file, for [`parse`].
///
/// # Errors
/// Wrong usage that names the file.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path)
        .map_err(|error| CliError::usage(format!("cannot read {}: {error}", path.display())))
}

/// As [`read`], for reports, from bytes that were read before; `path` gives the ending and the name in errors.
///
/// Where a field is no number the value is NaN, and no error: its row is sent as the zero row, because whether a row
/// is sent must not depend on what is in it (`<0.5` in a laboratory's file says a lot). So is a row of LIBSVM text with
/// an index beyond `dimension`. What is an error is the same for every value: fields that are missing or too many, a
/// line of LIBSVM text without a label, bytes of another format.
///
/// # Errors
/// Wrong usage that names the file and the line; `wrong-dimension` as for [`read`], of formats that say how wide they are.
pub fn parse(path: &Path, bytes: &[u8], dimension: Option<usize>) -> Result<RowTable> {
    let ending = path
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default()
        .to_ascii_lowercase();
    let table = match ending.as_str() {
        "npy" => npy::parse(bytes),
        "csv" => csv::parse(bytes),
        _ => libsvm::parse(bytes, dimension),
    }
    .map_err(|error| error.context(path.display()))?;
    match dimension {
        Some(p) if p != table.columns => Err(eigenveil_shared::Error::new(
            ErrorCode::WrongDimension,
            format!(
                "{} has {} columns but the study has {p} features; give the features the study names, in its order",
                path.display(),
                table.columns
            ),
        )
        .into()),
        _ => Ok(table),
    }
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
    npy::parse(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_decides_and_the_dimension_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let csv = dir.path().join("rows.csv");
        std::fs::write(&csv, "a,b\n1,2\n3,4\n").unwrap();
        let table = read(&csv, None).unwrap();
        assert_eq!((table.len(), table.dimension()), (2, 2));
        assert_eq!(table.row(1).values(), &[3.0, 4.0]);
        let error = read(&csv, Some(3)).unwrap_err();
        assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        let text = dir.path().join("rows.libsvm");
        std::fs::write(&text, "+1 1:0.5 3:2\n").unwrap();
        assert_eq!(
            read(&text, Some(4)).unwrap().row(0).values(),
            &[0.5, 0.0, 2.0, 0.0]
        );
        let missing = read(&dir.path().join("none.npy"), None).unwrap_err();
        assert!(missing.to_string().contains("none.npy"));
    }

    #[test]
    fn debug_and_not_finite() {
        let table = RowTable::new(2, vec![1.0, 2.0, 3.0, f64::NAN], None).unwrap();
        assert_eq!(table.first_not_finite(), Some((2, 2)));
        assert_eq!(format!("{table:?}"), "RowTable(2 rows of 2)");
        assert!(RowTable::new(2, vec![1.0], None).is_err());
        assert!(RowTable::new(0, vec![], None).is_err());
    }
}
