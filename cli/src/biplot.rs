//! The scatter people expect of a PCA: rows in the plane of two components, the loadings as arrows.
//!
//! It shows rows, so it is drawn from one's own on one's own machine, and nothing of it is sent.

use std::{collections::BTreeMap, path::Path};

use eigenveil_estimation::floor::grouped;
use eigenveil_figures::{Arrow, Biplot, PointGroup};
use eigenveil_shared::estimate::{Estimate, Verdict};

use crate::{
    error::{CliError, Result},
    rows::{self, RowTable, TableArgs, Wanted},
};

/// Most points drawn: more make a file that nothing opens, and no other picture.
const MOST_POINTS: usize = 5_000;
/// Most labels with a colour and a shape of their own.
const MOST_LABELS: usize = 12;
/// More labels than this are no labels but numbers.
const MOST_DIFFERENT: usize = 100;

/// Scores of every row on every component, around the estimated mean if there is one.
///
/// # Errors
/// Those of preparing a row: names the row, never a value.
pub(crate) fn scores(estimate: &Estimate, table: &RowTable) -> Result<Vec<Vec<f64>>> {
    let preprocessor = estimate.study.preprocessor();
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

/// The picture of these two components (from 0) with one label a row, or none.
///
/// # Errors
/// Wrong usage for components that there are not, and labels that are none.
pub(crate) fn picture(
    estimate: &Estimate,
    (first, second): (usize, usize),
    scores: &[Vec<f64>],
    labels: Option<&[String]>,
) -> Result<Biplot> {
    let (Some(x), Some(y)) = (
        estimate.components.get(first),
        estimate.components.get(second),
    ) else {
        return Err(CliError::usage(format!(
            "the picture needs components {} and {}, but the estimate has {}; estimate with a larger --k, or choose others with --axes",
            first + 1,
            second + 1,
            estimate.k
        )));
    };
    let names = estimate.feature_names();
    let arrows = names.into_iter().enumerate().map(|(i, name)| Arrow {
        name,
        x: x.loadings[i],
        y: y.loadings[i],
    });
    // Every so many rows, from the first to the last.
    let step = scores.len().div_ceil(MOST_POINTS).max(1);
    let drawn: Vec<usize> = (0..scores.len()).step_by(step).collect();
    let point = |&row: &usize| (scores[row][first], scores[row][second]);
    let groups = match labels {
        None => vec![PointGroup {
            name: String::new(),
            points: drawn.iter().map(point).collect(),
        }],
        Some(labels) => {
            let names = group_names(labels)?;
            let of = |row: usize| names.iter().position(|name| *name == labels[row]);
            let rest = (0..names.len() + 1).map(|group| {
                let members = drawn
                    .iter()
                    .filter(|&&row| of(row).unwrap_or(names.len()) == group);
                PointGroup {
                    name: names.get(group).map_or("other", |name| name).to_owned(),
                    points: members.map(point).collect(),
                }
            });
            rest.filter(|group| !group.points.is_empty()).collect()
        }
    };
    let axis = |index: usize| {
        let component = &estimate.components[index];
        let standing = match component.verdict {
            Verdict::Above => "",
            Verdict::At => ", at the noise floor",
            Verdict::Below => ", below the noise floor",
        };
        let share = component.explained_variance_ratio;
        let share = share.map_or_else(String::new, |share| {
            format!(" ({:.1} % of the variance)", 100.0 * share)
        });
        format!("Component {}{share}{standing}", index + 1)
    };
    let title = format!("Rows by component, {}", estimate.name);
    let mut plot = Biplot::new(title, (axis(first), axis(second)), groups, arrows);
    plot.subtitle = Some(match step {
        1 => format!("{} rows", grouped(scores.len() as u64)),
        _ => format!(
            "{} of {} rows, one in {step}",
            grouped(drawn.len() as u64),
            grouped(scores.len() as u64)
        ),
    });
    Ok(plot)
}

/// The labels that get a colour of their own, most frequent first, then by name.
fn group_names(labels: &[String]) -> Result<Vec<&str>> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for label in labels {
        *counts.entry(label).or_default() += 1;
    }
    if counts.len() > MOST_DIFFERENT {
        return Err(CliError::usage(format!(
            "the label column has {} different values; at most {MOST_DIFFERENT} can be drawn: give a column with fewer",
            counts.len()
        )));
    }
    let mut names: Vec<(&str, usize)> = counts.into_iter().collect();
    if names.len() > MOST_LABELS {
        names.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        names.truncate(MOST_LABELS - 1);
    }
    Ok(names.into_iter().map(|(name, _)| name).collect())
}

/// A text table with one column of labels: the table without it, and the labels.
///
/// # Errors
/// Wrong usage for a file that is no text table with this column in its header; those of reading rows.
pub(crate) fn read_labelled(
    path: &Path,
    column: &str,
    how: &TableArgs,
    wanted: &Wanted,
) -> Result<(RowTable, Vec<String>)> {
    let ending = path.extension().and_then(|ending| ending.to_str());
    let ending = ending.unwrap_or_default().to_ascii_lowercase();
    let delimiters = match (how.delimiter, ending.as_str()) {
        (Some(delimiter), "csv" | "tsv" | "tab") => vec![delimiter],
        (None, "csv") => b",;\t|".to_vec(),
        (None, "tsv" | "tab") => b"\t".to_vec(),
        _ => {
            return Err(CliError::usage(format!(
                "--label needs a .csv or .tsv file with a header, and {} is not one",
                path.display()
            )));
        }
    };
    let bytes = rows::read_bytes(path)?;
    let (labels, rest) =
        take_column(&bytes, column, &delimiters).map_err(|error| error.context(path.display()))?;
    let table = rows::parse(path, &rest, how, Some(wanted))?;
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

/// The cells of the column of this name, and the table without it. Of the delimiters the first counts by which line 1
/// has the name.
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
        // The crate's own words may hold fields of the row.
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
    fn a_column_is_taken_out_by_its_name() {
        let text = b"a, kind ,b\n1,red,2\n3,\"dark, blue\",4\n";
        let (labels, rest) = take_column(text, "kind", b",;").unwrap();
        assert_eq!(labels, ["red", "dark, blue"]);
        assert_eq!(rest, b"a,b\n1,2\n3,4\n");
        let (labels, rest) = take_column(b"a;kind\n1;red\n", "kind", b",;").unwrap();
        assert_eq!((labels, rest), (vec!["red".to_owned()], b"a\n1\n".to_vec()));
        let error = take_column(text, "color", b",;").unwrap_err().to_string();
        assert!(error.contains("no column named \"color\""), "{error}");
        // No value of a row is in it.
        let error = take_column(b"a,kind\nsecret\n", "kind", b",").unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }

    #[test]
    fn rare_labels_share_a_group() {
        let labels: Vec<String> = (0..40).map(|i| format!("l{}", i * i % 23)).collect();
        let names = group_names(&labels).unwrap();
        assert_eq!(names.len(), MOST_LABELS);
        let names = group_names(&labels[..3]).unwrap();
        assert_eq!(names, ["l0", "l1", "l4"]);
        let many: Vec<String> = (0..101).map(|i| i.to_string()).collect();
        assert!(group_names(&many).is_err());
    }
}
