//! The use case: public constants of a study's features, and the study to expect with them.

use eigenveil_shared::{
    Result,
    preprocess::{Feature, LengthShares, Norm, Preprocessing},
};
use serde::Serialize;

use super::{
    choices::{Choice, MAX_FEW_ROWS, PrepareRequest, choices},
    columns::{Column, ColumnDescription, ColumnStatistics, PublicColumn, columns, from_rows},
    target::reject,
};
use crate::{Cancel, Table, check_columns, format::with_thousands};

/// Public constants. Scripts rely on the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrepareAnswer {
    /// Every column with its constants.
    pub columns: Vec<Column>,
    /// `‖E x‖²/E‖x‖²` of the raw rows.
    pub squared_mean_over_squared_length: f64,
    /// Ways to prepare rows; none without rows.
    pub choices: Vec<Choice>,
    /// The best of them, if one is worth a study.
    pub chosen: Option<Choice>,
    /// Why a choice of smaller error was not taken.
    pub passed_over: Option<String>,
    /// Reasons against it that the rows or the study show.
    pub warnings: Vec<String>,
}

/// Constants from published statistics.
///
/// # Errors
/// `invalid-request` for a column that is not described or that no study can have; `invalid-preprocessing` as of
/// [`Preprocessing::check`].
pub fn describe(lines: &[ColumnDescription]) -> Result<PrepareAnswer> {
    let statistics = lines.iter().map(ColumnDescription::statistics);
    constants(&statistics.collect::<Result<Vec<_>>>()?)
}

/// Constants from public rows, whose columns are these, and the study to expect with each way to prepare rows.
/// `progress` is told how many of how many ways are done.
///
/// # Errors
/// Those of [`describe`]; `invalid-request` for a single row, too many columns or a `k` that does not fit;
/// `estimate-failed` when it was cancelled.
pub fn prepare(
    request: &PrepareRequest,
    names: &[PublicColumn],
    table: Table<'_>,
    progress: &mut dyn FnMut(u64, u64),
    cancel: Cancel<'_>,
) -> Result<PrepareAnswer> {
    let mut answer = constants(&from_rows(names, table)?)?;
    let is_square = table.len >= table.columns;
    check_columns("prepare with `rows`", is_square, table.columns)?;
    let features: Vec<Feature> = answer.columns.iter().map(|c| c.feature.clone()).collect();
    let choices = choices(table, &features, request, progress, cancel)?;
    answer.warnings.extend(few_rows_warning(table.len));
    answer.chosen = choose(&choices, request.n.get(), &mut answer.warnings);
    answer.passed_over = passed_over(&choices, answer.chosen.as_ref());
    Ok(PrepareAnswer { choices, ..answer })
}

fn constants(statistics: &[ColumnStatistics]) -> Result<PrepareAnswer> {
    if statistics.is_empty() {
        return reject("there are no columns");
    }
    let squared_means: Vec<f64> = statistics.iter().map(|c| c.mean * c.mean).collect();
    let squares = statistics.iter();
    let squares = squares.map(|c| c.mean * c.mean + c.deviation * c.deviation);
    let mean_squares: Vec<f64> = squares.collect();
    let shares = LengthShares::from_moments(&squared_means, &mean_squares);
    let columns = columns(statistics, &shares)?;
    let features: Vec<Feature> = columns.iter().map(|c| c.feature.clone()).collect();
    // The same checks as of a study.
    Preprocessing {
        features: Some(features),
        ..Preprocessing::new(columns.len(), Norm::Normalize)
    }
    .check()?;
    let raw = shares.warnings(|column| format!("{:?}", statistics[column].name));
    let raw = raw.iter().map(|text| format!("as the columns are, {text}"));
    Ok(PrepareAnswer {
        columns,
        squared_mean_over_squared_length: shares.mean,
        choices: Vec::new(),
        chosen: None,
        passed_over: None,
        warnings: raw.collect(),
    })
}

/// The choice of smallest error that uses the constants and whose first component is neither the mean nor one column.
/// None, and a warning, if it could not show anything.
fn choose(choices: &[Choice], n: u64, warnings: &mut Vec<String>) -> Option<Choice> {
    let candidates = choices.iter().filter(|choice| choice.is_candidate());
    let best = candidates.min_by(|a, b| a.error.total_cmp(&b.error));
    let Some(best) = best else {
        warnings.push(
            "even with these centers and scales the first component is one column or the mean: look at the columns"
                .to_owned(),
        );
        return None;
    };
    let (above, k) = (best.components_above_floor, best.k);
    let way = "more participants or a larger epsilon would help";
    if above == 0 {
        let n = with_thousands(n);
        warnings.push(match choices.iter().any(|choice| choice.components_above_floor > 0) {
            true => format!("with {n} participants a component would stand above the noise floor only where the first is one column or the mean, or without these centers and scales: look at the columns; {way}"),
            false => format!("hopeless: with {n} participants no component of rows like these would stand above the noise floor; {way}"),
        });
        return None;
    }
    if above < k {
        warnings.push(format!(
            "only {above} of the {k} components would stand above the noise floor: ask for k = {above}; {way}"
        ));
    }
    Some(best.clone())
}

fn passed_over(choices: &[Choice], chosen: Option<&Choice>) -> Option<String> {
    let chosen = chosen?;
    let smaller = choices.iter().filter(|choice| choice.error < chosen.error);
    let smaller = smaller.map(|choice| {
        let why = match &choice.warning {
            Some(warning) => format!("first component: {warning}"),
            None => "other components, those of the columns in their own units".to_owned(),
        };
        format!("{choice}: {:.3} ({why})", choice.error)
    });
    let smaller: Vec<String> = smaller.collect();
    (!smaller.is_empty()).then(|| format!("smaller, but not taken: {}", smaller.join("; ")))
}

/// A warning about small tables.
fn few_rows_warning(n: usize) -> Option<String> {
    (n <= MAX_FEW_ROWS).then(|| {
        format!(
            "{n} public rows are few: a center is known to ± {:.2} scales, a scale to ± {:.0} %, and an error below to about what stands behind its ± (jackknife); so few rows look simpler than many: expect a larger error",
            1.0 / (n as f64).sqrt(),
            100.0 / (2.0 * (n as f64 - 1.0)).sqrt()
        )
    })
}
