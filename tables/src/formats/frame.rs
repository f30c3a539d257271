//! Data frames that a program holds, read as a file with the same columns.

use super::typed_columns::{Kind, TypedColumns, table};
use crate::{
    cells::normal,
    columns::{self, ExpectedColumns, FileColumns},
    error::{Error, Result},
    settings::Settings,
    table::{RowTable, check_columns},
    text_columns::TextCells,
};

/// A column of a data frame.
#[derive(Clone, Debug)]
pub enum FrameColumn {
    /// Numbers; NaN where they are missing.
    Numbers(Vec<f64>),
    /// Texts; empty where they are missing.
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

/// Reads a data frame of these columns, of one length, as [`parse`](crate::parse) reads a file.
///
/// # Errors
/// Those of [`parse`](crate::parse).
pub fn parse_frame(
    names: Option<Vec<String>>,
    columns: Vec<FrameColumn>,
    how: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let expected = expected.map(ExpectedColumns::in_normal_form);
    let expected = expected.as_ref();
    let rows = columns.first().map_or(0, FrameColumn::len);
    if columns.iter().any(|column| column.len() != rows) {
        return Err(Error::new("its columns have different numbers of rows"));
    }
    check_columns(columns.len())?;
    let names = names.map(|names| names.iter().map(|name| normal(name).into_owned()).collect());
    let in_frame = FileColumns {
        count: columns.len(),
        names,
        shown: true,
    };
    let mapping = columns::map_columns(in_frame, how, expected)?;
    table(Frame { columns, rows }, mapping, how, expected)
}

struct Frame {
    columns: Vec<FrameColumn>,
    rows: usize,
}

impl TextCells for Frame {
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        for (place, &column) in columns.iter().enumerate() {
            match &self.columns[column] {
                FrameColumn::Texts(texts) => {
                    texts.iter().for_each(|text| each(place, &normal(text)));
                }
                FrameColumn::Numbers(numbers) => {
                    numbers.iter().for_each(|number| match number.is_nan() {
                        true => each(place, ""),
                        false => each(place, &format!("{number:?}")),
                    });
                }
            }
        }
        Ok(())
    }
}

impl TypedColumns for Frame {
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
