//! Figures 2, 7, 8 and 9: over the number of rows N and the dimension D, with T = 2N.

use eigenveil_shared::Result;

use super::{
    grid::{self, Axes, Grid, judge_below, noise_clause},
    haystack::{COLUMNS, CONSTANTS, Keep, MEASURES, NOISES, Runs, Setting},
    method::{DP_GD, DP_GGD, DP_MD, DP_SGD, DP_SGGD, DP_SMD, Form, Method},
};
use crate::{Data, Exhibit, Minutes, Paper, Plan, Record, Scale, Table, Verdict, number::digits};

/// Those of Figure 2, in the paper's order.
pub(super) const FOUR: [Form; 4] = [DP_GGD, DP_GD, DP_SGGD, DP_SGD];

const OVER_SIZES: Axes<'_> = Axes {
    down: ("n", "N"),
    across: ("p", "D"),
    column: "log10_error_mean",
};

fn plan(forms: &[Form], sizes: &[usize], dimensions: &[usize], repeats: u64) -> Result<Plan> {
    let mut runs = Runs::default();
    for rule in NOISES {
        for &form in forms {
            for &n in sizes {
                for &p in dimensions {
                    let method = Method::printed(form, 2 * n);
                    runs.add(Setting::printed(n, p), method, rule, Keep::End, repeats)?;
                }
            }
        }
    }
    Ok(runs.plan)
}

fn figure_2(_: &Data, scale: Scale) -> Result<Plan> {
    match scale {
        Scale::Quick => plan(&FOUR, &[250, 1_000], &[10, 50], 5),
        Scale::Full => plan(&FOUR, &[250, 500, 1_000, 2_000], &[10, 20, 50, 100], 10),
    }
}

fn all_six(_: &Data, scale: Scale) -> Result<Plan> {
    match scale {
        Scale::Quick => plan(&Form::ALL, &[250, 1_000], &[10, 40], 5),
        Scale::Full => plan(&Form::ALL, &[250, 500, 1_000, 2_000], &[10, 20, 40, 80], 10),
    }
}

/// The smallest and the largest number in a column.
fn extremes(table: &Table, column: &str) -> (f64, f64) {
    let values = table.values(column);
    let numbers = values.iter().filter_map(|value| value.parse::<f64>().ok());
    numbers.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
        (low.min(x), high.max(x))
    })
}

/// The mean of log₁₀ of an algorithm's errors at this D, over N and the repeats, with its standard error.
fn mean_at(grid: Grid<'_>, form: Form, p: f64) -> (f64, f64) {
    let mut lines = grid.lines(form);
    lines.retain(|line| line.number("p") == p);
    let count = lines.len() as f64;
    let variance = |line: &Record| line.number("log10_error_sd").powi(2) / line.number("repeats");
    let mean = lines.iter().map(|line| line.number("log10_error_mean"));
    let variances = lines.iter().map(|line| variance(line));
    (
        mean.sum::<f64>() / count,
        variances.sum::<f64>().sqrt() / count,
    )
}

fn judge_2(table: &Table) -> Verdict {
    let mut verdict = Verdict::default();
    let (_, largest) = extremes(table, "p");
    for rule in NOISES {
        let grid = Grid::new(table, rule, "log10_error_mean");
        verdict = judge_below(verdict, grid, (DP_GGD, DP_GD), "outperforms");
        verdict = judge_below(verdict, grid, (DP_SGGD, DP_SGD), "is more accurate than");
        for (sampled, full) in [(DP_SGGD, DP_GGD), (DP_SGD, DP_GD)] {
            let [of_batches, of_all] = [sampled, full].map(|form| mean_at(grid, form, largest));
            let noise = of_batches.1.hypot(of_all.1);
            verdict = verdict.with(
                format!(
                    "{} sees the subspace at larger D than {}, for its noise is smaller, {}",
                    sampled.name(),
                    full.name(),
                    noise_clause(rule)
                ),
                of_all.0 - of_batches.0 > 2.0 * noise,
                format!(
                    "at D = {largest} the mean log₁₀ error is {} against {}, their difference known to {}; the true ε \
                     is {} against {}",
                    digits(of_batches.0, 3),
                    digits(of_all.0, 3),
                    digits(2.0 * noise, 2),
                    grid.holds(sampled),
                    grid.holds(full)
                ),
            );
        }
    }
    verdict
}

/// The mean of a column where D is smallest and N largest, and where it is the other way round.
fn corners(grid: Grid<'_>, form: Form) -> (f64, f64) {
    let ((few, many), (low, high)) = (extremes(grid.table, "n"), extremes(grid.table, "p"));
    let corner =
        |n: f64, p: f64| grid.mean(form, |line| line.number("n") == n && line.number("p") == p);
    (corner(many, low), corner(few, high))
}

fn judge_corners(
    table: &Table,
    column: &str,
    what: &str,
    good: impl Fn(f64, f64) -> bool,
) -> Verdict {
    let mut verdict = Verdict::default();
    for rule in NOISES {
        let grid = Grid::new(table, rule, column);
        for form in [DP_GD, DP_MD, DP_GGD] {
            let (easy, hard) = corners(grid, form);
            verdict = verdict.with(
                format!(
                    "{} {what} where D is small and N large {}",
                    form.name(),
                    noise_clause(rule)
                ),
                good(easy, hard),
                format!(
                    "{} there, {} where D is large and N small; the true ε is {}",
                    digits(easy, 3),
                    digits(hard, 3),
                    grid.holds(form)
                ),
            );
        }
    }
    verdict
}

fn judge_7(table: &Table) -> Verdict {
    // The tolerance of the other figures, on this scale.
    let works = super::haystack::TOLERANCE.log10();
    judge_corners(
        table,
        "log10_error_mean",
        "works well (log₁₀ error)",
        |easy, hard| easy <= works && easy < hard,
    )
}

fn judge_8(table: &Table) -> Verdict {
    let mut verdict = Verdict::default();
    for rule in NOISES {
        let grid = Grid::new(table, rule, "seconds_to_tolerance_median");
        for (glad, convex) in [(DP_GGD, [DP_GD, DP_MD]), (DP_SGGD, [DP_SGD, DP_SMD])] {
            let pairs = convex.map(|convex| grid.below(glad, convex));
            let faster: usize = pairs.iter().map(|pair| pair.0).sum();
            let both: usize = pairs.iter().map(|pair| pair.1).sum();
            let reached = |form: Form| grid.numbers(form).iter().filter(|s| !s.is_nan()).count();
            verdict = verdict.with(
                format!(
                    "{} reaches the tolerance sooner than {} and {} {}",
                    glad.name(),
                    convex[0].name(),
                    convex[1].name(),
                    noise_clause(rule)
                ),
                faster == both && reached(glad) > 0,
                format!(
                    "sooner in {faster} of {both} comparisons in which both reach it; cells reached: {}, {} and {}",
                    reached(glad),
                    reached(convex[0]),
                    reached(convex[1])
                ),
            );
        }
    }
    verdict
}

fn judge_9(table: &Table) -> Verdict {
    judge_corners(
        table,
        "reached_mean",
        "seldom fails (share that reaches the tolerance)",
        |easy, hard| easy >= 0.5 && easy >= hard,
    )
}

fn picture_2(table: &Table) -> String {
    grid::picture(
        table,
        &FOUR,
        &OVER_SIZES,
        "Over N and D, ε = 0.8: where each method sees the subspace",
        "mean of log10 of the error; strong blue: found, white or orange: not",
        |value| value,
    )
}

fn picture_7(table: &Table) -> String {
    grid::picture(
        table,
        &Form::ALL,
        &OVER_SIZES,
        "Over N and D: log10 of the last error, T = 2N, ε = 0.8",
        "mean; strong blue: found, white or orange: not",
        |value| value,
    )
}

fn picture_8(table: &Table) -> String {
    grid::picture(
        table,
        &Form::ALL,
        &Axes {
            column: "seconds_to_tolerance_median",
            ..OVER_SIZES
        },
        "Over N and D: time to a squared distance of 10⁻², T = 2N, ε = 0.8",
        "log10 of the median seconds; blue: less than a second, orange: more, a cross: no repeat reaches it",
        f64::log10,
    )
}

fn picture_9(table: &Table) -> String {
    grid::picture(
        table,
        &Form::ALL,
        &Axes {
            column: "reached_mean",
            ..OVER_SIZES
        },
        "Over N and D: share of repeats that fail to reach a squared distance of 10⁻²",
        "T = 2N, ε = 0.8; white: none fails, strong orange: all fail",
        |reached| 1.0 - reached,
    )
}

fn numbers_of_errors(table: &Table) -> String {
    let text = grid::markdown(table, &["n", "p"], "log10_error");
    format!("log₁₀ of the error:\n\n{text}")
}

fn numbers_of_times(table: &Table) -> String {
    let text = grid::markdown(table, &["n", "p"], "seconds_to_tolerance");
    format!(
        "Seconds until the error stays within the tolerance, of the repeats in which it does:\n\n{text}"
    )
}

fn numbers_of_shares(table: &Table) -> String {
    let text = grid::markdown(table, &["n", "p"], "reached");
    format!("Share of the repeats whose error stays within the tolerance:\n\n{text}")
}

pub(crate) const FIGURE_2: Exhibit = Exhibit {
    id: "maunu-figure-2",
    item: "Figure 2",
    caption: "four private methods over N and D: mean log₁₀ error, T = 2N",
    differs_from_paper: Some(
        "10 repeats where the paper has 50; the axes' values are not in the text we have",
    ),
    minutes: Minutes::new(0.4, 20.0),
    key_columns: COLUMNS,
    per_cell: CONSTANTS,
    measures: MEASURES,
    plan: figure_2,
    check_claims: judge_2,
    to_svg: picture_2,
    to_markdown: numbers_of_errors,
    ..Exhibit::of(Paper::Maunu)
};

pub(crate) const FIGURE_7: Exhibit = Exhibit {
    id: "maunu-figure-7",
    item: "Figure 7",
    caption: "the six private methods over N and D: log₁₀ of the last error, T = 2N",
    minutes: Minutes::new(0.5, 25.0),
    plan: all_six,
    check_claims: judge_7,
    to_svg: picture_7,
    ..FIGURE_2
};

const TOLERANCE_IS: Option<&str> = Some(
    "10 repeats where the paper has 50; the axes' values are not in the text we have; a repeat reaches the tolerance \
     when its error stays within it to the end, from one of some hundred iterations that are looked at",
);

pub(crate) const FIGURE_8: Exhibit = Exhibit {
    id: "maunu-figure-8",
    item: "Figure 8",
    caption: "the six private methods over N and D: seconds to a squared distance of 10⁻², T = 2N",
    differs_from_paper: TOLERANCE_IS,
    check_claims: judge_8,
    to_svg: picture_8,
    to_markdown: numbers_of_times,
    ..FIGURE_7
};

pub(crate) const FIGURE_9: Exhibit = Exhibit {
    id: "maunu-figure-9",
    item: "Figure 9",
    caption: "the six private methods over N and D: share of repeats that fail to reach a squared distance of 10⁻²",
    differs_from_paper: TOLERANCE_IS,
    check_claims: judge_9,
    to_svg: picture_9,
    to_markdown: numbers_of_shares,
    ..FIGURE_7
};
