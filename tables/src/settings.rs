//! How a table is read.

use eigenveil_shared::preprocess::Feature;
use serde::{Deserialize, Deserializer, de};

use crate::{
    cells::{DecimalMark, is_value},
    encoding::Encoding,
    error::{Error, Result},
};

pub(crate) const SPACES: &str = "its columns are separated by spaces; separate them by semicolons, commas or tabs, for example with: awk -v OFS=';' '{$1=$1}1' FILE";

/// Whether the first line of a text table names its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Header {
    /// It names the columns.
    Yes,
    /// It is the first row; the columns are in the study's order.
    No,
    /// For reports it must have the study's names; otherwise the line decides.
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

/// How a table is read; the default reads every column of any table that shows how.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// File format; by the name's extension without.
    pub format: Option<Format>,
    /// Whether line 1 of a text table names the columns.
    pub header: Header,
    /// Column separator of a text table, as [`delimiter`] takes it; found from the first line without.
    #[serde(deserialize_with = "separator")]
    pub delimiter: Option<u8>,
    /// Decimal mark of numbers in text, a point or a comma; the other one separates thousands. Without it a number has a
    /// point, and nothing between its thousands.
    #[serde(deserialize_with = "mark")]
    pub decimal: Option<DecimalMark>,
    /// Encoding of a text table; without it UTF-8, or what a byte-order mark says.
    pub encoding: Option<Encoding>,
    /// Columns to use, by name, or by number from 1 where there are no names.
    pub keep: Option<Vec<String>>,
    /// Columns to leave out, where none are to be kept.
    pub drop: Option<Vec<String>>,
    /// Features that name the columns of a table without names.
    pub features: Option<Vec<Feature>>,
    /// Index of the first column in LIBSVM text, 0 or 1; 1 without.
    pub first_index: Option<usize>,
    /// Match columns by position and ignore their names.
    pub by_position: bool,
    /// Columns of text that become a column of 0 and 1 for each value; `column=word` says that the word, which would stand
    /// for a missing value, is one of them.
    pub one_hot: Option<Vec<String>>,
    /// The column with a text for each row that is no feature.
    #[serde(skip)]
    pub label: Option<Label>,
}

/// A column that a flag of its own names: `project --label`, `report --person` and `report --weight`.
#[derive(Clone, Debug)]
pub struct Label {
    /// The flag.
    pub flag: &'static str,
    /// The column's name.
    pub column: String,
}

impl Settings {
    /// Whether a column to keep or to drop is given by a number: a column's name if line 1 is a header, otherwise its
    /// place.
    pub(crate) fn selects_by_number(&self) -> bool {
        let mut names = self.keep.iter().chain(&self.drop).flatten();
        names.any(|name| is_value(name))
    }
}

/// The separator of a text table that this character, or the word tab, means.
///
/// # Errors
/// It is no separator.
pub fn delimiter(text: &str) -> Result<u8> {
    match text {
        "tab" | "\\t" | "\t" => Ok(b'\t'),
        " " | "space" => Err(Error::new(SPACES)),
        _ => match text.as_bytes() {
            [one] if one.is_ascii_punctuation() && !b"\"'.-+_".contains(one) => Ok(*one),
            _ => Err(Error::new(
                "it must be one character, such as ';', ',' or '|', or the word tab",
            )),
        },
    }
}

fn separator<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let separator = delimiter(&text);
    separator
        .map(Some)
        .map_err(|error| de::Error::custom(error.detail()))
}

fn mark<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<DecimalMark>, D::Error> {
    let text = String::deserialize(deserializer)?;
    decimal_mark(&text)
        .map(Some)
        .map_err(|error| de::Error::custom(error.detail()))
}

/// The decimal mark that this text is.
///
/// # Errors
/// For another text than "," and ".".
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
