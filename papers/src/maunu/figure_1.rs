//! Figure 1: the error of the six algorithms over their iterations.

use eigenveil_central::CentralCalibration;
use eigenveil_figures::{Axis, Figure, LineChart, LineStyle, Series};
use eigenveil_shared::Result;

use super::{
    grid::noise_clause,
    haystack::{CALIBRATIONS, COLUMNS, CONSTANTS, PlanBuilder, Recorded, Setting},
    method::{DP_GD, DP_GGD, DP_MD, DP_SGD, DP_SGGD, DP_SMD, Method, Variant},
};
use crate::{
    Data, Exhibit, Minutes, Paper, PaperVerdict, RunPlan, RunSize, Table, number::digits, sweep,
};

const ITERATIONS: usize = 2_000;

fn plan(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut builder = PlanBuilder::default();
    for rule in CALIBRATIONS {
        for variant in Variant::ALL {
            let method = Method::from_paper(variant, ITERATIONS);
            let setting = Setting::from_paper(2_000, 20);
            builder.add(setting, method, rule, Recorded::Trace, size.choose(5, 100))?;
        }
    }
    Ok(builder.plan)
}

/// The medians of one algorithm over its iterations.
struct ErrorCurve(Vec<(f64, f64)>);

impl ErrorCurve {
    fn new(table: &Table, variant: Variant, rule: CentralCalibration, measure: &str) -> Self {
        Self(table.line(&variant.lines(rule), "iteration", measure))
    }

    fn errors(table: &Table, variant: Variant, rule: CentralCalibration) -> Self {
        Self::new(table, variant, rule, "error_median")
    }

    /// The value at the last point up to this iteration.
    fn value_at(&self, iteration: usize) -> f64 {
        let before = |point: &&(f64, f64)| point.0 <= iteration as f64;
        let last = self.0.iter().rev().find(before);
        last.map_or(f64::NAN, |point| point.1)
    }

    fn end(&self) -> f64 {
        self.value_at(ITERATIONS)
    }

    /// Share of the points up to this iteration, without the start, at which this curve is below the other.
    fn share_below(&self, other: &Self, until: usize) -> f64 {
        let early = |point: &&(f64, f64)| point.0 > 0.0 && point.0 <= until as f64;
        let points: Vec<_> = self.0.iter().filter(early).collect();
        let lower = points
            .iter()
            .filter(|point| point.1 < other.value_at(point.0 as usize))
            .count();
        lower as f64 / points.len() as f64
    }
}

fn check_claims(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    let convex = [DP_GD, DP_MD, DP_SGD, DP_SMD];
    for rule in CALIBRATIONS {
        let noise = noise_clause(rule);
        let curve = |variant| ErrorCurve::errors(table, variant, rule);
        let worst = curve(DP_GGD).end().max(curve(DP_SGGD).end());
        let best = convex
            .map(|variant| curve(variant).end())
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        let holds =
            |variant: Variant| digits(table.number(&variant.lines(rule), "true_epsilon"), 3);
        verdict = verdict.with_claim(
            format!("dp-(s)ggd end below the four convex methods {noise}"),
            worst < best,
            format!(
                "the worse of the two has a median error of {}, the best of the four {}; the true ε of dp-ggd is {}, \
                 of dp-sggd {}",
                digits(worst, 2),
                digits(best, 2),
                holds(DP_GGD),
                holds(DP_SGGD)
            ),
        );
        // With linear convergence the second half of the iterations gains as many digits as the first; with sublinear
        // next to none.
        let gain = |variant| {
            let curve = curve(variant);
            curve.value_at(ITERATIONS / 2) / curve.end()
        };
        let (slow, fast) = (
            gain(DP_GGD).min(gain(DP_SGGD)),
            convex.map(gain).into_iter().fold(0.0, f64::max),
        );
        verdict = verdict.with_claim(
            format!("dp-(s)ggd converge linearly, the convex methods do not {noise}"),
            slow > 100.0 && fast < 10.0,
            format!(
                "from iteration 1,000 to 2,000 the errors fall by a factor of at least {}, and at most {}",
                digits(slow, 2),
                digits(fast, 2)
            ),
        );
        for (convex, other, until) in [
            (DP_SGD, DP_SGGD, 600),
            (DP_SMD, DP_SGGD, 600),
            (DP_GD, DP_GGD, 100),
            (DP_MD, DP_GGD, 100),
        ] {
            let (first, second) = (curve(convex), curve(other));
            let share = first.share_below(&second, until);
            verdict = verdict.with_claim(
                format!(
                    "{} is ahead of {} in the first {until} iterations {noise}",
                    convex.name(),
                    other.name()
                ),
                share > 0.5,
                format!(
                    "at {} % of the points; at iteration {until} {} against {}",
                    (100.0 * share).round(),
                    digits(first.value_at(until), 2),
                    digits(second.value_at(until), 2)
                ),
            );
        }
    }
    verdict
}

fn to_svg(table: &Table) -> String {
    let mut chart = LineChart {
        subtitle: Some(
            "solid: noise that holds; dotted: as published; medians (quartiles in the CSV)"
                .to_owned(),
        ),
        height: 560.0,
        ..LineChart::new(
            "Haystack, N = T = 2,000, D = 20, ε = 0.8: error along the iterations",
            Axis::linear("iteration"),
            Axis::log("error ‖V̂V̂ᵀ − VVᵀ‖_F"),
        )
    };
    for (rule, style) in CALIBRATIONS
        .into_iter()
        .zip([LineStyle::Dotted, LineStyle::Solid])
    {
        for (place, variant) in Variant::ALL.into_iter().enumerate() {
            let points = ErrorCurve::errors(table, variant, rule).0;
            // A hundred points are more than the figure can show.
            let series = Series::new(
                format!("{}, {rule}", variant.name()),
                points.into_iter().step_by(5),
            );
            let series = series.with_style(style).with_colour_of(place);
            chart.series.push(series);
        }
    }
    chart.to_svg()
}

fn to_markdown(table: &Table) -> String {
    const SHOWN: [usize; 5] = [100, 300, 600, 1_000, 2_000];
    let heads = SHOWN.map(|iteration| format!("iteration {iteration}"));
    let mut rows = Vec::new();
    for rule in CALIBRATIONS {
        for variant in Variant::ALL {
            let cells = SHOWN.map(|iteration| {
                let [median, low, high] = ["median", "q1", "q3"].map(|what| {
                    let curve = ErrorCurve::new(table, variant, rule, &format!("error_{what}"));
                    digits(curve.value_at(iteration), 2)
                });
                format!("{median} ({low}–{high})")
            });
            rows.push(format!(
                "{rule} | {} | {} | {} | {}",
                variant.name(),
                digits(table.number(&variant.lines(rule), "true_epsilon"), 3),
                cells.join(" | "),
                digits(
                    ErrorCurve::new(table, variant, rule, "seconds_median").end(),
                    2
                )
            ));
        }
    }
    let heads = format!(
        "noise | algorithm | true ε | {} | seconds",
        heads.join(" | ")
    );
    format!("Median error (quartiles):\n\n{}", sweep::grid(&heads, rows))
}

pub(crate) const FIGURE_1: Exhibit = Exhibit {
    id: "maunu-figure-1",
    item: "Figure 1",
    caption: "convergence of the six private methods, N = T = 2,000, D = 20",
    differs_from_paper: Some(
        "a run's seconds are spread evenly over its iterations; the error is \
         ‖V̂V̂ᵀ − VVᵀ‖_F, where the paper's d² is half its square",
    ),
    minutes: Minutes::new(0.3, 4.5),
    key_columns: COLUMNS,
    coordinate: Some("iteration"),
    per_cell: CONSTANTS,
    measures: "error seconds",
    plan,
    check_claims,
    to_svg,
    to_markdown,
    ..Exhibit::of_paper(Paper::Maunu)
};
