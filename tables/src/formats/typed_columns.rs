//! Tables whose columns have types: Parquet files, and data frames that a program holds.

use std::collections::BTreeMap;

use crate::{
    cells::stored,
    columns::{ColumnMapping, ExpectedColumns},
    error::{Error, Result},
    settings::Settings,
    table::RowTable,
    text_columns::{Reading, RefusedColumns, TextCells, encode},
};

/// Largest number of values read (1 GiB of memory, and as much again temporarily): a small file can expand to very many
/// values.
const MAX_VALUES: usize = 1 << 27;

/// How the values of a column are read.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(not(feature = "parquet"), allow(dead_code))]
pub(crate) enum Kind {
    /// Signed whole numbers, and truth values.
    Whole,
    /// Whole numbers of which none is negative.
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
    /// Number of rows.
    fn rows(&self) -> usize;
    /// How a column is read.
    fn kind(&self, column: usize) -> Kind;
    /// Calls `each` with the numbers of a column that is neither text nor refused; NaN for a missing one.
    fn each_number(&mut self, column: usize, each: &mut dyn FnMut(f64)) -> Result<()>;
}

/// The table of these columns; a column of text is read like one of a text table.
pub(crate) fn table<C: TypedColumns>(
    mut columns: C,
    mut mapping: ColumnMapping,
    how: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let mut taken = mapping.take.iter().chain(&mapping.label);
    if how.decimal.is_some() && !taken.any(|&at| columns.kind(at) == Kind::Text) {
        return Err(Error::new(
            "`decimal` is for numbers in text, and none of its columns is text; leave `decimal` out",
        ));
    }
    let way_out = encode(how, &mut columns, &mut mapping)?;
    let (rows, wide) = (columns.rows(), mapping.take.len());
    if rows.saturating_mul(wide) > MAX_VALUES {
        return Err(Error::new(format!(
            "{rows} rows of {wide} values need too much memory; give fewer rows or columns"
        )));
    }
    let mut unfit: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (named, &at) in mapping.take.iter().enumerate() {
        if let Kind::Refused(why) = columns.kind(at) {
            unfit.entry(why).or_default().push(named);
        }
    }
    let mut refused = RefusedColumns::default();
    for (why, columns) in unfit {
        refused.add(&columns, why, &mapping);
    }
    let mut reading = Reading::new(how, expected, &mapping);
    reading.problems.of_missing = way_out;
    let mut values: Vec<Vec<f64>> = vec![Vec::new(); wide];
    for (named, into) in values.iter_mut().enumerate() {
        let at = mapping.take[named];
        match (columns.kind(at), mapping.category(named)) {
            (Kind::Refused(_), _) => continue,
            (Kind::Whole | Kind::Unsigned | Kind::Floating, None) => {
                columns.each_number(at, &mut |number| {
                    into.push(reading.number(into.len() + 1, named, stored(number), &mapping));
                })?;
            }
            _ => columns.each_cell(&[at], &mut |_, cell| {
                into.push(reading.cell(into.len() + 1, named, cell, &mapping));
            })?,
        }
    }
    let mut labels = Vec::new();
    if let Some(label) = mapping.label {
        if columns.kind(label) == Kind::Floating && expected.is_some_and(|own| own.persons) {
            return Err(Error::new(format!(
                "column {} has floating-point numbers, which may be rounded, so that several persons would be one; write identifiers as text or as whole numbers",
                label + 1
            )));
        }
        columns.each_cell(&[label], &mut |_, cell| labels.push(cell.to_owned()))?;
    }
    reading.check(&mapping, refused, &mut columns)?;
    let row = |row: usize| values.iter().map(move |column| column[row]);
    let values = (0..rows).flat_map(row).collect();
    RowTable::of(mapping, values, reading.problems, labels)
}
