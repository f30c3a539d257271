//! The use case: public constants of a study's features, and the study to expect with them.

use eigenveil_shared::{
    Result,
    mechanism::Calibration,
    preprocess::{BoundRows, Feature, LengthShares, Norm, Preprocessing},
    site_study::SiteWeights,
};
use serde::Serialize;

use super::{
    choices::{Choice, MAX_FEW_ROWS, PrepareRequest, choices},
    columns::{
        Column, ColumnDescription, ColumnStatistics, columns, from_rows, heavy_tails_warning,
    },
    correlations::{MovedCorrelation, of_values},
    plan::{PlanAnswer, PlanRequest, plan},
    sample::PublicRows,
    target::reject,
};
use crate::{
    Cancel, check_columns,
    format::{people, with_thousands},
    statistics::NO_MOMENT,
};

/// The error, for one component, that a warning names a number of participants for.
const EXAMPLE_ERROR: f64 = 0.3;

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
    /// The best of them that uses the centers and scales, where it would show nothing: for a plan with more participants.
    pub hidden: Option<Choice>,
    /// Why a choice of smaller error was not taken.
    pub passed_over: Option<String>,
    /// The choice whose correlations are the nearest to those of the values, where it is not `normalize`.
    pub for_correlations: Option<Choice>,
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

/// Constants from public rows, and the study to expect with each way to prepare rows; where cells are missing, the
/// shares of people who have each value, too. `progress` is told how many of how many ways are done.
///
/// # Errors
/// Those of [`describe`]; `invalid-request` for a single person, too many columns, a column that hardly anybody has or
/// a `k` that does not fit; `estimate-failed` when it was cancelled.
pub fn prepare(
    request: &PrepareRequest,
    rows: PublicRows<'_>,
    progress: &mut dyn FnMut(u64, u64),
    cancel: Cancel<'_>,
) -> Result<PrepareAnswer> {
    let table = rows.table;
    let statistics = from_rows(&rows)?;
    let mut answer = constants(&statistics)?;
    let features: Vec<Feature> = answer.columns.iter().map(|c| c.feature.clone()).collect();
    let missing = features.iter().any(|feature| feature.observed.is_some());
    let is_square = missing || table.len >= table.columns;
    check_columns("prepare with `rows`", is_square, table.columns)?;
    answer.warnings.extend(heavy_tails_warning(&statistics));
    answer.warnings.extend(missing.then(missing_cells_warning));
    answer.warnings.extend(few_rows_warning(&rows));
    let values = of_values(&rows, &statistics);
    let choices = choices(
        &rows,
        (features.as_slice(), values.as_ref()),
        request,
        progress,
        cancel,
    )?;
    choose(&choices, request, missing, &mut answer);
    answer.passed_over = passed_over(&choices, answer.chosen.as_ref());
    answer.for_correlations = for_correlations(&choices);
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
        hidden: None,
        passed_over: None,
        for_correlations: None,
        warnings: raw.collect(),
    })
}

/// Takes the choice of smallest error that uses the constants and whose first component is neither the mean nor one
/// column; with a warning as hidden, if it would show nothing.
fn choose(
    choices: &[Choice],
    request: &PrepareRequest,
    has_missing: bool,
    answer: &mut PrepareAnswer,
) {
    let warnings = &mut answer.warnings;
    let candidates = choices.iter().filter(|choice| choice.is_candidate());
    let best = candidates.min_by(|a, b| a.error.total_cmp(&b.error));
    let Some(best) = best else {
        warnings.push(
            "even with these centers and scales the first component is one column or the mean: look at the columns"
                .to_owned(),
        );
        return;
    };
    let (above, k) = (best.components_above_floor, best.k);
    let way = "more participants or a larger epsilon would help";
    if above == 0 {
        // A plan knows of no missing cells.
        let needed = (!has_missing)
            .then(|| needed_for_one(best, request))
            .flatten();
        let needed = needed.map_or_else(String::new, |needed| {
            let needed = people(needed);
            format!("; k = 1 with an error of {EXAMPLE_ERROR} needs about {needed}")
        });
        let n = with_thousands(request.n.get());
        warnings.push(format!(
            "with {n} participants no component of the prepared rows would stand above the noise floor{needed}; {way}"
        ));
        answer.hidden = Some(best.clone());
        return;
    }
    if above < k {
        warnings.push(format!(
            "only {above} of the {k} components would stand above the noise floor: ask for k = {above}; {way}"
        ));
    }
    answer.chosen = Some(best.clone());
}

/// Participants for one component with an error of [`EXAMPLE_ERROR`], by a plan with the figures of this choice.
fn needed_for_one(choice: &Choice, request: &PrepareRequest) -> Option<u64> {
    let bound_rows = match choice.norm {
        Norm::Normalize => None,
        Norm::Clip { .. } | Norm::Require { .. } => Some(BoundRows::Clip),
    };
    let request = PlanRequest {
        p: Some(choice.p),
        k: Some(1),
        epsilon: vec![request.epsilon],
        delta: request.delta,
        mechanism: vec![request.mechanism],
        calibration: Calibration::default(),
        spectrum: choice.spectrum.clone(),
        target_error: Some(EXAMPLE_ERROR),
        n: Vec::new(),
        bound_rows,
        mean_squared_length: bound_rows.map(|_| choice.mean_squared_length),
        centring: choice.centring,
        mean_length: choice.centring.map(|_| choice.mean_length),
        sites: None,
        rows: Vec::new(),
        site_rows: Vec::new(),
        site_weights: SiteWeights::default(),
    };
    match plan(&request, None, Cancel::NEVER).ok()?.0 {
        PlanAnswer::Errors(plan) => plan.rows.first()?.n,
        PlanAnswer::Sizes(_) => None,
    }
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

/// The choice whose correlations are the nearest to those of the values, noise included, unless `normalize` is as near.
fn for_correlations(choices: &[Choice]) -> Option<Choice> {
    let distance = |choice: &Choice| {
        let outlook = choice.correlations.as_ref()?;
        // Most can be seen.
        let enough = choice.uses_centers_and_scales && 2 * outlook.given > outlook.pairs;
        let moved = outlook.furthest.as_ref();
        let moved = moved.map_or(0.0, MovedCorrelation::distance);
        Some(moved + outlook.standard_error.filter(|_| enough)?)
    };
    let known = choices
        .iter()
        .filter_map(|choice| Some((distance(choice)?, choice)));
    let (_, nearest) = known.min_by(|a, b| a.0.total_cmp(&b.0))?;
    (nearest.norm != Norm::Normalize).then(|| nearest.clone())
}

/// Tells before a study is made what it cannot give.
fn missing_cells_warning() -> String {
    format!(
        "cells are missing: the features say how many people have each value (observed), and which cells are missing together (section). These shares must be those of the participants; {NO_MOMENT}"
    )
}

/// A warning about small tables.
fn few_rows_warning(rows: &PublicRows<'_>) -> Option<String> {
    let n = rows.people();
    let few = match rows.persons {
        None => format!("{n} public rows are few"),
        Some(_) => format!("the public rows of {n} persons are few"),
    };
    (n <= MAX_FEW_ROWS).then(|| {
        format!(
            "{few}: a center is known to ± {:.2} scales, a scale to ± {:.0} %, and an error below to about what stands behind its ± (jackknife); so few rows look simpler than many: expect a larger error",
            1.0 / (n as f64).sqrt(),
            100.0 / (2.0 * (n as f64 - 1.0)).sqrt()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use eigenveil_shared::{mechanism::MechanismKind, preprocess::Row};

    use super::{super::sample::PublicColumn, *};
    use crate::Table;

    fn prepared(rows: &[Vec<f64>], persons: Option<&[Vec<usize>]>) -> PrepareAnswer {
        let columns = (0..rows[0].len()).map(|at| PublicColumn {
            name: format!("x{at}"),
            category_of: None,
        });
        let columns: Vec<PublicColumn> = columns.collect();
        let request = PrepareRequest {
            k: 1,
            n: NonZeroU64::new(10_000_000).unwrap(),
            epsilon: 4.0,
            mechanism: MechanismKind::DoubleCap,
            delta: None,
        };
        let public = PublicRows {
            table: Table {
                len: rows.len(),
                columns: columns.len(),
                row: &|index| Row::new(rows[index].clone()),
            },
            columns: &columns,
            persons,
        };
        prepare(&request, public, &mut |_, _| (), Cancel::NEVER).unwrap()
    }

    /// Values spread evenly over −1 to 1, in an order of their own.
    fn even(i: usize, step: usize, of: usize) -> f64 {
        2.0 * (i * step % of) as f64 / (of - 1) as f64 - 1.0
    }

    fn related(i: usize) -> Vec<f64> {
        let first = even(i, 7, 41);
        vec![
            first,
            first + 0.3 * even(i, 5, 17),
            even(i, 11, 23),
            even(i, 3, 29),
        ]
    }

    /// The long rows are those in which the first two columns go together: their correlation is 0.734 in the values and
    /// 0.297 in the directions (numpy).
    #[test]
    fn normalize_moves_correlations_and_clip_is_named_for_them() {
        let row = |i: usize| match (i % 4, even(i, 7, 41)) {
            (0, first) => vec![
                3.0 * first,
                3.0 * first + 0.3 * even(i, 5, 17),
                even(i, 11, 23),
            ],
            (_, first) => vec![first, even(i, 3, 29), even(i, 11, 23)],
        };
        let rows: Vec<Vec<f64>> = (0..400).map(row).collect();
        let answer = prepared(&rows, None);
        let of_norm = |norm: Norm, centring: bool| {
            let mut choices = answer.choices.iter();
            let choice = choices.find(|choice| {
                choice.uses_centers_and_scales
                    && choice.norm == norm
                    && choice.centring.is_some() == centring
            });
            choice.unwrap().correlations.clone()
        };
        let normalized = of_norm(Norm::Normalize, false).unwrap();
        let furthest = normalized.furthest.unwrap();
        assert_eq!((normalized.given, normalized.pairs), (3, 3));
        assert_eq!([&furthest.feature, &furthest.with], ["x0", "x1"]);
        for (found, numpy) in [(furthest.value, 0.297), (furthest.of_values, 0.734)] {
            assert!((found - numpy).abs() < 0.005, "{found} {numpy}");
        }
        let best = answer.for_correlations.as_ref().unwrap();
        assert!(
            best.centring.is_some() && matches!(best.norm, Norm::Clip { .. }),
            "{best:?}"
        );
        let outlook = best.correlations.as_ref().unwrap();
        assert!(
            outlook.furthest.as_ref().unwrap().distance() < 0.01,
            "{outlook:?}"
        );
        // The price: intervals that are wider.
        assert!(outlook.standard_error > normalized.standard_error);
        // Without private centring such reports show no variances.
        assert_eq!(of_norm(best.norm, false), None);
    }

    /// The spectrum of whole rows is 0.430, 0.278, 0.273, 0.019; of those with missing cells, undivided, 0.426, 0.294,
    /// 0.203, 0.078 (numpy).
    #[test]
    fn missing_cells_get_shares_and_sections_and_the_plan_of_whole_rows() {
        let row = |i: usize| {
            let mut row = related(i);
            if i % 10 < 3 {
                row[1..3].fill(f64::NAN);
            }
            if i.is_multiple_of(7) {
                row[3] = f64::NAN;
            }
            row
        };
        let rows: Vec<Vec<f64>> = (0..400).map(row).collect();
        let answer = prepared(&rows, None);
        let spreads = answer.columns.iter().map(|column| {
            let Feature {
                observed, section, ..
            } = &column.feature;
            (observed.unwrap(), section.as_deref())
        });
        let spreads: Vec<(f64, Option<&str>)> = spreads.collect();
        let section = Some("x1");
        assert_eq!(
            spreads,
            [(1.0, None), (0.7, section), (0.7, section), (0.855, None)]
        );
        let mut choices = answer.choices.iter();
        let normalized = choices
            .find(|choice| choice.uses_centers_and_scales)
            .unwrap();
        assert_eq!(
            (normalized.norm, normalized.centring),
            (Norm::Normalize, None)
        );
        for (found, whole) in normalized.spectrum.iter().zip([0.430, 0.278, 0.273]) {
            assert!(
                (found / whole - 1.0).abs() < 0.05,
                "{:?}",
                normalized.spectrum
            );
        }
        // Clipped reports of double-cap show what they are divided by with private centring only.
        let is_choice_shown =
            |choice: &Choice| choice.norm == Norm::Normalize || choice.centring.is_some();
        assert!(answer.choices.len() > 4 && answer.choices.iter().all(is_choice_shown));
        assert!(
            answer
                .choices
                .iter()
                .all(|choice| choice.correlations.is_none())
        );
        let warnings = answer.warnings.join("; ");
        assert!(
            warnings.contains("no correlations or regressions"),
            "{warnings}"
        );
        assert!(
            prepared(&(0..400).map(related).collect::<Vec<_>>(), None).columns[1]
                .feature
                .observed
                .is_none()
        );
    }

    /// However many rows a person has, they are one of the sample.
    #[test]
    fn persons_and_not_rows_are_the_sample() {
        let rows: Vec<Vec<f64>> = (0..60).map(related).collect();
        let once = prepared(&rows, None);
        // The first person's row 50 times, and that of everybody else.
        let many = [vec![rows[0].clone(); 49], rows].concat();
        let persons: Vec<Vec<usize>> = std::iter::once((0..50).collect::<Vec<usize>>())
            .chain((50..109).map(|row| vec![row]))
            .collect();
        let counted = prepared(&many, Some(&persons[..]));
        let as_rows = prepared(&many, None);
        let error = |answer: &PrepareAnswer| answer.choices[0].error;
        assert!((error(&counted) / error(&once) - 1.0).abs() < 1e-3);
        assert!((error(&as_rows) / error(&once) - 1.0).abs() > 0.01);
        for (one, other) in counted.columns.iter().zip(&once.columns) {
            assert_eq!(
                (&one.feature, one.scale_factor),
                (&other.feature, other.scale_factor)
            );
        }
        assert!(counted.columns[0].reason.contains("60 persons"));
        // A few persons with many rows are few.
        let persons: Vec<Vec<usize>> = (0..5).map(|at| (at * 20..at * 20 + 20).collect()).collect();
        let few = prepared(&many[..100], Some(&persons[..]));
        assert!(
            few.warnings
                .iter()
                .any(|said| said.contains("5 persons are few"))
        );
        assert!(few.choices[0].error_se.is_some());
    }
}
