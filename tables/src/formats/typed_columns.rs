//! Tables whose columns have types: Parquet files, and data frames of a program.

use std::collections::BTreeMap;

use crate::{
    cells::checked_number,
    columns::{ColumnMapping, ExpectedColumns},
    error::{Error, Result},
    settings::Settings,
    table::RowTable,
    text_columns::{Reading, RefusedColumns, TextCells, encode},
};

/// Type of the values of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(not(feature = "parquet"), allow(dead_code))]
pub(crate) enum Kind {
    /// Signed whole numbers, and Booleans.
    Whole,
    /// Nonnegative whole numbers.
    Unsigned,
    /// Numbers that a program may have rounded.
    Floating,
    /// Strings, categories and enumerations, read like the cells of a text table.
    Text,
    /// Not read, for this reason.
    Refused(&'static str),
}

/// Columns that are read on demand.
pub(crate) trait TypedColumns: TextCells {
    /// Maximum number of values read.
    const MAX_VALUES: usize;
    /// Number of rows.
    fn rows(&self) -> usize;
    /// The type of a column.
    fn kind(&self, column: usize) -> Kind;
    /// Calls `each` with the numbers of a column that is neither text nor refused; NaN if missing.
    fn each_number(&mut self, column: usize, each: &mut dyn FnMut(f64)) -> Result<()>;
}

/// Reads the table of these columns; a text column is read as in a text table.
pub(crate) fn read_table<C: TypedColumns>(
    mut columns: C,
    mut mapping: ColumnMapping,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let mut used_columns = mapping.file_columns.iter().chain(&mapping.label);
    if settings.decimal.is_some()
        && !used_columns.any(|&file_column| columns.kind(file_column) == Kind::Text)
    {
        return Err(Error::new(
            "`decimal` is for numbers in text, and none of its columns is text; leave `decimal` out",
        ));
    }
    let missing_advice = encode(settings, &mut columns, &mut mapping)?;
    let (rows, width) = (columns.rows(), mapping.file_columns.len());
    if rows.saturating_mul(width) > C::MAX_VALUES {
        return Err(Error::new(format!(
            "{rows} rows of {width} values need too much memory; give fewer rows or columns"
        )));
    }
    let mut refused_by_reason: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (table_column, &file_column) in mapping.file_columns.iter().enumerate() {
        if let Kind::Refused(why) = columns.kind(file_column) {
            refused_by_reason.entry(why).or_default().push(table_column);
        }
    }
    let mut refused = RefusedColumns::default();
    for (why, columns) in refused_by_reason {
        refused.add(&columns, why, &mapping);
    }
    let mut reading = Reading::new(settings, expected, &mapping);
    reading.problems.missing_advice = missing_advice;
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); width];
    for (table_column, column_values) in values.iter_mut().enumerate() {
        let file_column = mapping.file_columns[table_column];
        match (columns.kind(file_column), mapping.category(table_column)) {
            (Kind::Refused(_), _) => continue,
            (Kind::Whole | Kind::Unsigned | Kind::Floating, None) => {
                columns.each_number(file_column, &mut |number| {
                    column_values.push(reading.number(
                        column_values.len() + 1,
                        table_column,
                        checked_number(number),
                        &mapping,
                    ));
                })?;
            }
            _ => columns.each_cell(&[file_column], &mut |_, cell| {
                column_values.push(reading.cell(
                    column_values.len() + 1,
                    table_column,
                    cell,
                    &mapping,
                ));
            })?,
        }
    }
    let mut labels = Vec::new();
    if let Some(label) = mapping.label {
        let number = label + 1;
        match columns.kind(label) {
            Kind::Floating if expected.is_some_and(|expected| expected.persons) => {
                return Err(Error::new(format!(
                    "column {number} has floating-point numbers, which may be rounded, so that several persons would be one; write identifiers as text or as whole numbers"
                )));
            }
            Kind::Refused(why) => {
                let has = why.split([',', ';']).next().unwrap_or_default();
                return Err(Error::new(format!(
                    "column {number} has {has}, neither text nor numbers; write it as text"
                )));
            }
            _ => {}
        }
        columns.each_cell(&[label], &mut |_, cell| labels.push(cell.to_owned()))?;
    }
    reading.check(&mapping, refused, &mut columns)?;
    let row = |row: usize| values.iter().map(move |column| column[row]);
    let values = (0..rows).flat_map(row).collect();
    RowTable::from_mapping(mapping, values, reading.problems, labels)
}
