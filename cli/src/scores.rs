//! Scores of local rows, and a column of labels.

use std::path::Path;

use eigenveil_shared::estimate::Estimate;

use crate::{
    error::{CliError, Result},
    files,
    rows::{self, ExpectedColumns, RowTable, TableArgs},
};

/// Scores of every row on every component, around the estimated mean if there is one.
///
/// # Errors
/// Errors of preparing a row: they name the row, never a value.
pub(crate) fn from_rows(estimate: &Estimate, table: &RowTable) -> Result<Vec<Vec<f64>>> {
    let preprocessor = estimate.params.preprocessor();
    let of_row = |index: usize| {
        let row = preprocessor.prepare_features_nth(index, &table.row(index))?;
        let mut centred = row.as_slice().to_vec();
        for (x, mean) in centred.iter_mut().zip(estimate.mean.iter().flatten()) {
            *x -= mean;
        }
        let score = |loadings: &[f64]| loadings.iter().zip(&centred).map(|(v, x)| v * x).sum();
        let components = estimate.components.iter();
        Ok(components
            .map(|component| score(&component.loadings))
            .collect())
    };
    (0..table.len()).map(of_row).collect()
}

/// A text table with one column of labels: the table without it, and the labels.
///
/// # Errors
/// Wrong usage if the file is not a text table with this column in its header; errors of reading rows.
pub(crate) fn read_labelled(
    path: &Path,
    column: &str,
    how: &TableArgs,
    expected: &ExpectedColumns,
) -> Result<(RowTable, Vec<String>)> {
    let (labels, rest) = without_labels(path, &files::read(path)?, "--label", column, how)?;
    let table = rows::parse(path, &rest, how, Some(expected))?;
    table
        .check_readable()
        .map_err(|error| error.context(path.display()))?;
    if table.len() != labels.len() {
        return Err(CliError::usage(format!(
            "{} has {} labels for {} rows; --label needs a header line that names the columns",
            path.display(),
            labels.len(),
            table.len()
        )));
    }
    Ok((table, labels))
}

/// The labels in the column that `flag` names, and the text table without it.
///
/// # Errors
/// Wrong usage if the file is not a text table with this column in its header.
pub(crate) fn without_labels(
    path: &Path,
    bytes: &[u8],
    flag: &str,
    column: &str,
    how: &TableArgs,
) -> Result<(Vec<String>, Vec<u8>)> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let ending = ending.unwrap_or_default().to_ascii_lowercase();
    let delimiters = match (how.delimiter, ending.as_str()) {
        (Some(delimiter), "csv" | "tsv" | "tab") => vec![delimiter],
        (None, "csv") => b",;\t|".to_vec(),
        (None, "tsv" | "tab") => b"\t".to_vec(),
        _ => {
            return Err(CliError::usage(format!(
                "{flag} needs a .csv or .tsv file with a header, and {} is not one",
                path.display()
            )));
        }
    };
    take_column(bytes, column, &delimiters).map_err(|error| error.context(path.display()))
}

/// The cells of the column of this name, and the table without it. Uses the first delimiter with which line 1 contains
/// the name.
fn take_column(bytes: &[u8], column: &str, delimiters: &[u8]) -> Result<(Vec<String>, Vec<u8>)> {
    let reader = |delimiter: u8| {
        csv::ReaderBuilder::new()
            .has_headers(false)
            .delimiter(delimiter)
            .trim(csv::Trim::All)
            .from_reader(bytes)
    };
    let found = delimiters.iter().find_map(|&delimiter| {
        let header = reader(delimiter).into_byte_records().next()?.ok()?;
        let place = header.iter().position(|field| field == column.as_bytes())?;
        Some((delimiter, place))
    });
    let Some((delimiter, place)) = found else {
        return Err(CliError::usage(format!(
            "its first line has no column named {column:?}"
        )));
    };
    let mut rest = csv::WriterBuilder::new()
        .delimiter(delimiter)
        .from_writer(Vec::new());
    let mut labels = Vec::new();
    for (line, record) in reader(delimiter).byte_records().enumerate() {
        // The csv crate's messages may contain fields of the row.
        let record = record.map_err(|_| {
            CliError::usage(format!(
                "line {} does not have the fields of line 1",
                line + 1
            ))
        })?;
        if line > 0
            && let Some(cell) = record.get(place)
        {
            labels.push(String::from_utf8_lossy(cell).into_owned());
        }
        let others = record.iter().enumerate().filter(|(at, _)| *at != place);
        rest.write_record(others.map(|(_, field)| field))
            .map_err(|_| CliError::failed("the table without its labels cannot be written"))?;
    }
    let rest = rest
        .into_inner()
        .map_err(|error| CliError::failed(error.to_string()))?;
    Ok((labels, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_column_is_removed_by_name() {
        let text = b"a, kind ,b\n1,red,2\n3,\"dark, blue\",4\n";
        let (labels, rest) = take_column(text, "kind", b",;").unwrap();
        assert_eq!(labels, ["red", "dark, blue"]);
        assert_eq!(rest, b"a,b\n1,2\n3,4\n");
        let (labels, rest) = take_column(b"a;kind\n1;red\n", "kind", b",;").unwrap();
        assert_eq!((labels, rest), (vec!["red".to_owned()], b"a\n1\n".to_vec()));
        let error = take_column(text, "color", b",;").unwrap_err().to_string();
        assert!(error.contains("no column named \"color\""), "{error}");
        // The message contains no value of a row.
        let error = take_column(b"a,kind\nsecret\n", "kind", b",").unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }
}
