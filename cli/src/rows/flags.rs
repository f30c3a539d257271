//! The flags of every command that reads rows.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use eigenveil_shared::preprocess::Feature;

use super::{
    cells::{DecimalMark, is_value},
    features,
};
use crate::error::Result;

pub(super) const SPACES: &str = "its columns are separated by spaces; separate them by semicolons, commas or tabs, for example with: awk -v OFS=';' '{$1=$1}1' FILE";

/// Whether the first line of a text table names its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Header {
    /// It names the columns
    Yes,
    /// It is the first row; the columns are in the study's order
    No,
    /// `report`: it must have the study's names; for a study without names give yes or no. Other commands decide by the
    /// line
    #[default]
    Auto,
}

/// File format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text, one row per line: .csv
    Csv,
    /// Text with tabs between the columns: .tsv, .tab
    Tsv,
    /// NumPy: .npy
    Npy,
    /// .parquet, .pq
    Parquet,
    /// Sparse text, label index:value …, indices from 1: .libsvm, .svm, .svmlight
    Libsvm,
}

/// How a table is read.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The table")]
pub struct TableArgs {
    /// File format [default: by extension]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Whether line 1 of CSV or TSV names the columns; yes if pandas wrote 0,1,2,…
    #[arg(long, value_enum, default_value_t)]
    pub header: Header,
    /// Column separator of a text table, such as ';' or tab [default: found from the first line]
    #[arg(long, value_name = "CHAR|tab", value_parser = delimiter)]
    pub delimiter: Option<u8>,
    /// Decimal mark of numbers in text, , or . [default: as the numbers show]; the other mark separates thousands
    #[arg(long, value_name = ",|.", value_parser = decimal)]
    pub decimal: Option<DecimalMark>,
    /// Columns to use, such as height,weight; a name with a comma in double quotes, numbers from 1 if there are no
    /// names
    #[arg(long, value_name = "NAMES", value_parser = names)]
    pub keep: Option<Names>,
    /// Columns to leave out, such as id,"Unnamed: 0"
    #[arg(long, value_name = "NAMES", value_parser = names, conflicts_with = "keep")]
    pub drop: Option<Names>,
    /// Names of the columns of a table without names: one a line, or the features file of study create
    #[arg(long, value_name = "FILE")]
    pub features: Option<PathBuf>,
    /// Index of the first column in LIBSVM text: 0 if scikit-learn wrote it [default: 1]
    #[arg(long, value_name = "0|1", value_parser = first_index)]
    pub first_index: Option<usize>,
    /// Match columns by position and ignore their names
    #[arg(long)]
    pub by_position: bool,
    /// Columns of text that become a column of 0 and 1 for each value (`prepare --one-hot`).
    #[arg(skip)]
    pub one_hot: Option<Names>,
    /// The column with a text for each row that is no feature.
    #[arg(skip)]
    pub label: Option<Label>,
}

/// A column that a flag of its own names: `project --label`, `report --person` and `--weight`.
#[derive(Clone, Debug)]
pub struct Label {
    /// The flag.
    pub flag: &'static str,
    /// The column's name.
    pub column: String,
}

impl TableArgs {
    /// The features of the features file, if one was given.
    pub fn features(&self) -> Result<Option<Vec<Feature>>> {
        self.features.as_deref().map(features::read).transpose()
    }

    /// Whether what most rows have may decide: not of reports where most rows may be one person's.
    pub(super) fn most_rows_decide(&self, reports: bool) -> bool {
        let label = self.label.as_ref();
        !reports || label.is_none_or(|label| label.flag != "--person")
    }

    /// Whether `--keep` or `--drop` gives a number: a column's name if line 1 is a header, otherwise its place.
    pub(super) fn selects_by_number(&self) -> bool {
        let names = self.keep.iter().chain(&self.drop);
        names.flat_map(|names| &names.0).any(|name| is_value(name))
    }
}

/// Names of columns, given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(pub Vec<String>);

/// Names separated by commas, quoted as in CSV.
pub fn names(text: &str) -> Result<Names, String> {
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .trim(::csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut record = ::csv::StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(true) => Ok(Names(record.iter().map(str::to_owned).collect())),
        _ => Err("give names separated by commas, such as height,weight".to_owned()),
    }
}

fn first_index(text: &str) -> Result<usize, String> {
    match text {
        "0" => Ok(0),
        "1" => Ok(1),
        _ => Err("it must be 0 or 1".to_owned()),
    }
}

fn delimiter(text: &str) -> Result<u8, String> {
    match text {
        "tab" | "\\t" | "\t" => Ok(b'\t'),
        " " | "space" => Err(SPACES.to_owned()),
        _ => match text.as_bytes() {
            [one] if one.is_ascii_punctuation() && !b"\"'.-+_".contains(one) => Ok(*one),
            _ => {
                Err("it must be one character, such as ';', ',' or '|', or the word tab".to_owned())
            }
        },
    }
}

fn decimal(text: &str) -> Result<DecimalMark, String> {
    match text {
        "," => Ok(DecimalMark::Comma),
        "." => Ok(DecimalMark::Point),
        _ => Err("it must be , or .".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_delimiters() {
        assert_eq!(names("a, b").unwrap().0, ["a", "b"]);
        let quoted = names("\"size, cm\",Unnamed: 0").unwrap();
        assert_eq!(quoted.0, ["size, cm", "Unnamed: 0"]);
        assert!(names("").is_err());
        assert_eq!(delimiter("tab"), Ok(b'\t'));
        assert_eq!(delimiter(";"), Ok(b';'));
        for bad in ["", "::", "\"", ".", "x", "5"] {
            assert!(delimiter(bad).is_err(), "{bad:?}");
        }
    }
}
