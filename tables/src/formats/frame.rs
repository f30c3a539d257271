//! Data frames of a program, read like a file with the same columns.

use super::typed_columns::{Kind, TypedColumns, read_table};
use crate::{
    cells::normalized,
    columns::{self, ExpectedColumns, FileColumns},
    error::{Error, Result},
    settings::Settings,
    table::{RowTable, check_columns},
    text_columns::TextCells,
};

/// A column of a data frame.
#[derive(Clone, Debug)]
pub enum FrameColumn {
    /// Numbers; NaN if missing.
    Numbers(Vec<f64>),
    /// Texts; empty if missing.
    Texts(Vec<String>),
}

impl FrameColumn {
    fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Texts(texts) => texts.len(),
        }
    }
}

/// Reads a data frame with these columns, which have equal lengths, as [`parse`](crate::parse) reads a file.
///
/// # Errors
/// Those of [`parse`](crate::parse).
pub fn parse_frame(
    names: Option<Vec<String>>,
    columns: Vec<FrameColumn>,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let expected = expected.map(ExpectedColumns::with_normalized_names);
    let expected = expected.as_ref();
    let rows = columns.first().map_or(0, FrameColumn::len);
    if columns.iter().any(|column| column.len() != rows) {
        return Err(Error::new("its columns have different numbers of rows"));
    }
    check_columns(columns.len())?;
    let names = names.map(|names| {
        names
            .iter()
            .map(|name| normalized(name).into_owned())
            .collect()
    });
    let in_frame = FileColumns {
        count: columns.len(),
        names,
        names_may_be_shown: true,
    };
    let mapping = columns::map_columns(in_frame, settings, expected)?;
    read_table(Frame { columns, rows }, mapping, settings, expected)
}

struct Frame {
    columns: Vec<FrameColumn>,
    rows: usize,
}

impl TextCells for Frame {
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        for (index, &column) in columns.iter().enumerate() {
            match &self.columns[column] {
                FrameColumn::Texts(texts) => {
                    texts.iter().for_each(|text| each(index, &normalized(text)));
                }
                FrameColumn::Numbers(numbers) => {
                    numbers.iter().for_each(|number| match number.is_nan() {
                        true => each(index, ""),
                        false => each(index, &format!("{number:?}")),
                    });
                }
            }
        }
        Ok(())
    }
}

impl TypedColumns for Frame {
    // They are in memory.
    const MAX_VALUES: usize = usize::MAX;

    fn rows(&self) -> usize {
        self.rows
    }

    fn kind(&self, column: usize) -> Kind {
        match self.columns[column] {
            FrameColumn::Numbers(_) => Kind::Floating,
            FrameColumn::Texts(_) => Kind::Text,
        }
    }

    fn each_number(&mut self, column: usize, each: &mut dyn FnMut(f64)) -> Result<()> {
        if let FrameColumn::Numbers(numbers) = &self.columns[column] {
            numbers.iter().copied().for_each(each);
        }
        Ok(())
    }
}
