//! What a file of rows would send, told to its owner only: `eigenveil report --check`, and the question before the
//! first report.

use eigenveil_shared::{
    preprocess::LengthShares,
    study::StudyParams,
    wording::{first_few, percent},
};

use super::report_persons::Persons;
use crate::{
    error::{Result, in_flags},
    output,
};

/// Share of unusable rows above which there is a warning.
const MAX_UNUSABLE_SHARE: f64 = 0.01;
/// Number of rows from which a share of them says something about the file rather than about one participant.
const MIN_ROWS_FOR_SHARES: usize = 100;
/// A share of observed cells that differs by more from the study's biases the estimate noticeably.
const MAX_DIFFERENCE_OF_OBSERVED: f64 = 0.05;
const MAX_LISTED: usize = 8;

/// Rows that would be sent as they are, in part or as zeros.
pub(super) struct RowCheck {
    counts: RowCounts,
    /// Cells that are not read, by column and reason, and rows that are too long.
    unreadable: Option<String>,
    /// Shares of the squared length of the rows that are not zero; `None` for fewer than two such rows: one row's
    /// shares are nearly its values.
    shares: Option<LengthShares>,
}

/// Counts of a file's rows and cells.
struct RowCounts {
    rows: usize,
    /// Rows that are sent as the zero row, because they hold something unusable.
    unusable: usize,
    /// Rows that are sent as the zero row, because all their cells are missing.
    empty: usize,
    /// Cells of each feature that are missing or are no number.
    missing: Vec<usize>,
    /// Weights above 1, which count as 1.
    weights_above_one: usize,
    /// Weights that are not above 0, which make zero rows.
    weights_unusable: usize,
}

impl RowCheck {
    /// Prepares every row, and perturbs none.
    pub(super) fn new(persons: &Persons, params: &StudyParams) -> Self {
        let table = &persons.table;
        let preprocessor = params.preprocessor();
        let (weights_above_one, weights_unusable) = persons.clipped_and_zero_weights();
        let mut counts = RowCounts {
            rows: table.len(),
            unusable: 0,
            empty: 0,
            missing: vec![0; params.dimension()],
            weights_above_one,
            weights_unusable,
        };
        let mut with_length = 0;
        let rows = (0..table.len()).filter_map(|index| {
            let row = table.row(index);
            let is_missing = row.values().iter().map(|value| value.is_nan());
            for (count, is_missing) in counts.missing.iter_mut().zip(is_missing) {
                *count += usize::from(is_missing);
            }
            let Ok(features) = preprocessor.prepare_features(&row) else {
                counts.unusable += 1;
                return None;
            };
            counts.empty += usize::from(row.values().iter().all(|value| value.is_nan()));
            let has_length = features.as_slice().iter().any(|x| *x != 0.0);
            with_length += usize::from(has_length);
            has_length.then(|| features.as_slice().to_vec())
        });
        let shares = LengthShares::new(params.dimension(), rows);
        let shares = (with_length > 1).then_some(shares);
        let missing_cells = params.preprocessing().allows_missing_cells();
        let unusable = || Some(table.check_usable(missing_cells).err()?.detail().to_owned());
        Self {
            counts,
            unreadable: table.unreadable(missing_cells).or_else(unusable),
            shares,
        }
    }

    /// Describes what the file would send, in lines for its owner.
    pub(super) fn describe(&self, params: &StudyParams) -> Vec<String> {
        let names = params.feature_names();
        let name = |column: usize| name_of(names.as_deref(), column);
        let counts = &self.counts;
        let mut lines = vec![format!("rows: {}", counts.rows)];
        let (above, unusable) = (counts.weights_above_one, counts.weights_unusable);
        if above + unusable > 0 {
            lines.push(format!(
                "weights: {above} above 1, which count as 1; {unusable} not above 0, whose rows are sent as zero rows"
            ));
        }
        let (zero, without) = match params.preprocessing().allows_missing_cells() {
            true => (
                "infinite, not a number, too long or too wide",
                "missing cells: TOTAL, which count as their centers",
            ),
            false => (
                "a missing cell, infinite, not a number, too long or too wide",
                "cells without a number: TOTAL, whose rows are sent as zero rows",
            ),
        };
        lines.push(format!(
            "sent as zero rows: {} that cannot be used ({zero}), {} without any value",
            counts.unusable, counts.empty
        ));
        let total: usize = counts.missing.iter().sum();
        if total > 0 {
            let missing = counts.missing.iter().copied();
            let mut columns: Vec<(usize, usize)> = missing.enumerate().collect();
            columns.retain(|(_, count)| *count > 0);
            columns.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let listed = columns.iter();
            let listed = listed.map(|(column, count)| match &names {
                Some(_) => format!("{} {count}", name(*column)),
                None => format!("column {}: {count}", name(*column)),
            });
            let listed = first_few(listed, MAX_LISTED, |others| {
                format!(", and in {others} other columns")
            });
            let without = without.replace("TOTAL", &total.to_string());
            lines.push(format!("{without}: {listed}"));
        }
        lines.extend(self.unlike_the_study(params));
        if let Some(shares) = &self.shares {
            lines.push(shares.summary(name));
        }
        let unreadable = self.unreadable.iter();
        lines.extend(unreadable.map(|why| format!("what cannot be used: {}", in_flags(why))));
        lines
    }

    /// Tells the file's owner, whatever else the command prints.
    pub(super) fn tell(&self, params: &StudyParams) {
        for line in self.describe(params) {
            output::print_error_line(&format!("shown only to you: {line}"));
        }
    }

    /// Columns whose share of observed cells is not the one that the study divides by.
    fn unlike_the_study(&self, params: &StudyParams) -> Option<String> {
        if self.counts.rows < MIN_ROWS_FOR_SHARES {
            return None;
        }
        let features = params.preprocessing().features.as_deref()?;
        let rows = self.counts.rows as f64;
        let differ = features.iter().zip(&self.counts.missing);
        let differ: Vec<String> = differ
            .filter_map(|(feature, missing)| {
                let (here, study) = (1.0 - *missing as f64 / rows, feature.observed?);
                // Four standard errors of a share in a sample of this size.
                let chance = 4.0 * (study * (1.0 - study) / rows).sqrt();
                let (own, theirs) = (percent(here), percent(study));
                ((here - study).abs() > MAX_DIFFERENCE_OF_OBSERVED.max(chance))
                    .then(|| format!("{:?} {own} here, {theirs} in the study", feature.name))
            })
            .take(MAX_LISTED)
            .collect();
        (!differ.is_empty()).then(|| {
            format!(
                "observed otherwise than the study says, which biases its estimate if it is so everywhere: {}",
                differ.join("; ")
            )
        })
    }

    /// Tells what the file has and what is conspicuous about it, and asks a person at a terminal whether to go on,
    /// alike for every file. Without a terminal nothing depends on it: whether a file is sent would tell of the row at
    /// the edge, exactly.
    pub(super) fn confirmed(&self, yes: bool, params: &StudyParams) -> Result<bool> {
        self.tell(params);
        let names = params.feature_names();
        let shares = self.shares.iter();
        let mut warnings: Vec<String> = shares
            .flat_map(|shares| shares.warnings(|column| name_of(names.as_deref(), column)))
            .collect();
        let rows = self.counts.rows;
        let unusable = self.counts.unusable + self.counts.weights_unusable;
        let share = unusable as f64 / rows as f64;
        if rows >= MIN_ROWS_FOR_SHARES && share > MAX_UNUSABLE_SHARE {
            warnings.push(format!(
                "{unusable} of {rows} rows ({}) cannot be used and would be sent as zero rows, which makes the estimate's variances too small",
                percent(share)
            ));
        }
        for warning in &warnings {
            output::print_error_line(&format!("warning, shown only to you: {warning}"));
        }
        if yes {
            return Ok(true);
        }
        let answer = output::ask(
            "Nothing has been perturbed or sent. Whoever runs the study can see whether you take part. Go on? [y/N]",
        )?;
        Ok(answer.unwrap_or(true))
    }
}

fn name_of(names: Option<&[String]>, column: usize) -> String {
    match names {
        Some(names) => format!("{:?}", names[column]),
        None => format!("{}", column + 1),
    }
}
