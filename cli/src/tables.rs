//! The tables of commands: the flags of every command that reads rows, and the files.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use eigenveil_shared::{about::FeatureNotice, preprocess::Feature};
use eigenveil_tables::{
    DecimalMark, Encoding, ExpectedColumns, Format, Header, RowTable, Settings, decimal_mark,
    delimiter, encoding, features, parse_usable,
};

use crate::{error::Result, files, output};

/// Whether the first line of a text table names its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum HeaderArg {
    /// It names the columns
    Yes,
    /// It is the first row; the columns are in the study's order
    No,
    /// `report`: it must have the study's names; for a study without names give yes or no. Other commands decide by the
    /// line
    #[default]
    Auto,
}

impl From<HeaderArg> for Header {
    fn from(arg: HeaderArg) -> Self {
        match arg {
            HeaderArg::Yes => Header::Yes,
            HeaderArg::No => Header::No,
            HeaderArg::Auto => Header::Auto,
        }
    }
}

/// File format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FormatArg {
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

impl From<FormatArg> for Format {
    fn from(arg: FormatArg) -> Self {
        match arg {
            FormatArg::Csv => Format::Csv,
            FormatArg::Tsv => Format::Tsv,
            FormatArg::Npy => Format::Npy,
            FormatArg::Parquet => Format::Parquet,
            FormatArg::Libsvm => Format::Libsvm,
        }
    }
}

/// How a table is read.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "The table")]
#[group(requires = "rows")]
pub(crate) struct TableArgs {
    /// File format [default: by extension]
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Whether line 1 of CSV or TSV names the columns; yes if pandas wrote 0,1,2,…
    #[arg(long, value_enum, default_value_t)]
    header: HeaderArg,
    /// Column separator of a text table, such as ';' or tab [default: found from the first line]
    #[arg(long, value_name = "CHAR|tab", value_parser = delimiter)]
    delimiter: Option<u8>,
    /// Decimal mark of numbers in text, , or .; the other mark separates thousands [default: 1234.5 alone is a number]
    #[arg(long, value_name = ",|.", value_parser = decimal_mark)]
    decimal: Option<DecimalMark>,
    /// Encoding of a text table, such as iso-8859-2, macintosh, ibm850 or shift_jis [default: UTF-8, a cell that is not
    /// Windows-1252, or UTF-16 by its mark]
    #[arg(long, value_name = "NAME", value_parser = encoding)]
    encoding: Option<Encoding>,
    /// Columns to use, such as height,weight; a name with a comma in double quotes, numbers from 1 if there are no
    /// names
    #[arg(long, value_name = "NAMES", value_parser = names)]
    keep: Option<Names>,
    /// Columns to leave out, such as id,"Unnamed: 0"
    #[arg(long, value_name = "NAMES", value_parser = names, conflicts_with = "keep")]
    drop: Option<Names>,
    /// Names of the columns of a table without names: one a line, or the features file of study create
    #[arg(long, value_name = "FILE")]
    features: Option<PathBuf>,
    /// Index of the first column in LIBSVM text: 0 if scikit-learn wrote it [default: 1]
    #[arg(long, value_name = "0|1", value_parser = first_index)]
    first_index: Option<usize>,
    /// Match columns by position with the names of a study, an estimate or a features file, and ignore their own
    #[arg(long)]
    by_position: bool,
}

impl TableArgs {
    /// The settings that these flags say, with the features of the features file, if one was given.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let read = |path: &PathBuf| -> Result<Vec<Feature>> {
            Ok(features::parse(path, &files::read_text(path)?)?)
        };
        Ok(Settings {
            format: self.format.map(Format::from),
            header: self.header.into(),
            delimiter: self.delimiter,
            decimal: self.decimal,
            encoding: self.encoding,
            keep: self.keep.clone().map(|names| names.0),
            drop: self.drop.clone().map(|names| names.0),
            features: self.features.as_ref().map(read).transpose()?,
            first_index: self.first_index,
            by_position: self.by_position,
            one_hot: None,
            public_rows: false,
            label: None,
        })
    }
}

/// Names of columns, given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names(pub(crate) Vec<String>);

/// Names separated by commas, quoted as in CSV.
pub(crate) fn names(text: &str) -> Result<Names, String> {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut record = csv::StringRecord::new();
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

/// Reads a row file in which every value must be a number, or may be missing where `expected` says so.
/// Wrong usage if it cannot be read; errors of [`parse_usable`].
pub(crate) fn read(
    path: &Path,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let bytes = files::read(path)?;
    Ok(parse_usable(path, &bytes, settings, expected)?)
}

/// Reads like [`read`], for commands without a study: a features file (`--features`) gives names and order of the
/// columns, and the public constants, which are returned too.
pub(crate) fn read_with_constants(
    path: &Path,
    settings: Settings,
) -> Result<(RowTable, Option<Vec<Feature>>)> {
    let features = settings.features.as_deref();
    let expected = features.map(ExpectedColumns::features_file);
    let table = read(path, &settings, expected.as_ref())?;
    output::print_notes(table.notes());
    Ok((table, settings.features))
}

/// Reads a features file that must be a table with the public constants, and what it tells people of the features.
pub(crate) fn read_constants(path: &Path) -> Result<(Vec<Feature>, Option<Vec<FeatureNotice>>)> {
    let text = files::read_text(path)?;
    let features = features::parse_constants(path, &text)?;
    Ok((features, features::parse_notices(path, &text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_commas() {
        assert_eq!(names("a, b").unwrap().0, ["a", "b"]);
        let quoted = names("\"size, cm\",Unnamed: 0").unwrap();
        assert_eq!(quoted.0, ["size, cm", "Unnamed: 0"]);
        assert!(names("").is_err());
    }
}
