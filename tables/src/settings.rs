//! Settings for reading a table.

use eigenveil_shared::preprocess::Feature;
use serde::{Deserialize, Deserializer, de};

use crate::{
    cells::{DecimalMark, is_value},
    encoding::Encoding,
    error::{Error, Result},
};

pub(crate) const SPACE_SEPARATED_MESSAGE: &str = "its columns are separated by spaces; separate them by semicolons, commas or tabs, for example with: awk -v OFS=';' '{$1=$1}1' FILE";

/// Whether the first line of a text table names its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Header {
    /// Line 1 names the columns.
    Yes,
    /// Line 1 is the first row; the columns are in the study's order.
    No,
    /// For reports line 1 must have the study's names; otherwise the line itself decides.
    #[default]
    Auto,
}

/// File format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Text, one row per line: .csv.
    Csv,
    /// Text with tabs between the columns: .tsv, .tab.
    Tsv,
    /// NumPy: .npy.
    Npy,
    /// Parquet: .parquet, .pq.
    Parquet,
    /// Sparse text, label index:value …: .libsvm, .svm, .svmlight.
    Libsvm,
}

/// Settings for reading a table; by default all columns are read, and the format is detected.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// File format; default: from the file name's extension.
    pub format: Option<Format>,
    /// Whether line 1 of a text table names the columns.
    pub header: Header,
    /// Column separator of a text table, as [`delimiter`] parses it; default: detected in the first line.
    #[serde(deserialize_with = "deserialize_delimiter")]
    pub delimiter: Option<u8>,
    /// Decimal mark of numbers in text, a point or a comma; the other one separates thousands. Default: a point, and no
    /// separator between thousands.
    #[serde(deserialize_with = "deserialize_decimal_mark")]
    pub decimal: Option<DecimalMark>,
    /// Encoding of a text table; default: that of the byte-order mark, or UTF-8.
    pub encoding: Option<Encoding>,
    /// Columns to use, by name, or by number from 1 if there are no names.
    pub keep: Option<Vec<String>>,
    /// Columns to leave out, if `keep` is not given.
    pub drop: Option<Vec<String>>,
    /// Features that name the columns of a table without names.
    pub features: Option<Vec<Feature>>,
    /// Index of the first column in LIBSVM text, 0 or 1; default 1.
    pub first_index: Option<usize>,
    /// Match columns by position and ignore their names.
    pub by_position: bool,
    /// Text columns that become a column of 0 and 1 for each value; `column=word` makes `word` a category although it
    /// usually means a missing value.
    pub one_hot: Option<Vec<String>>,
    /// Whether the rows are public: then messages name columns as line 1 does, also where it is only guessed that it
    /// names them, and every cell may be missing.
    #[serde(skip)]
    pub public_rows: bool,
    /// The label column: text for each row, not a feature.
    #[serde(skip)]
    pub label: Option<Label>,
}

/// A column that is named by a separate flag: `project --label`, `prepare --person`, `report --person` or
/// `report --weight`.
#[derive(Clone, Debug)]
pub struct Label {
    /// The flag.
    pub flag: &'static str,
    /// The column's name.
    pub column: String,
}

impl Settings {
    /// Whether columns are chosen.
    pub(crate) fn selects(&self) -> bool {
        self.keep.is_some() || self.drop.is_some()
    }

    /// Whether a column to keep or to drop is given by a number, which is its name if line 1 is a header, and otherwise
    /// its position.
    pub(crate) fn selects_by_number(&self) -> bool {
        let mut names = self.keep.iter().chain(&self.drop).flatten();
        names.any(|name| is_value(name))
    }
}

/// Parses a column separator: one character, or the word `tab`.
///
/// # Errors
/// If the text is not a separator.
pub fn delimiter(text: &str) -> Result<u8> {
    match text {
        "tab" | "\\t" | "\t" => Ok(b'\t'),
        " " | "space" => Err(Error::new(SPACE_SEPARATED_MESSAGE)),
        _ => match text.as_bytes() {
            [byte] if byte.is_ascii_punctuation() && !b"\"'.-+_".contains(byte) => Ok(*byte),
            _ => Err(Error::new(
                "it must be one character, such as ';', ',' or '|', or the word tab",
            )),
        },
    }
}

fn deserialize_delimiter<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let separator = delimiter(&text);
    separator
        .map(Some)
        .map_err(|error| de::Error::custom(error.detail()))
}

fn deserialize_decimal_mark<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<DecimalMark>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decimal_mark(&text)
        .map(Some)
        .map_err(|error| de::Error::custom(error.detail()))
}

/// Parses a decimal mark.
///
/// # Errors
/// If the text is neither "," nor ".".
pub fn decimal_mark(text: &str) -> Result<DecimalMark> {
    match text {
        "," => Ok(DecimalMark::Comma),
        "." => Ok(DecimalMark::Point),
        _ => Err(Error::new("it must be , or .")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_are_characters_that_no_number_has() {
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert_eq!(delimiter(";"), Ok(b';'));
        for bad in ["", "::", "\"", ".", "x", "5"] {
            assert!(delimiter(bad).is_err(), "{bad:?}");
        }
    }
}
