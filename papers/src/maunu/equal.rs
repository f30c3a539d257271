//! Who wins at equal true ε, with noiseless and noisy inliers: ours, not the paper's.

use eigenveil_central::NoiseRule::Accounted;
use eigenveil_figures::{Axis, Figure, LineChart, LineStyle, Series};
use eigenveil_shared::Result;

use super::{
    grid::{self, Grid, judge_below},
    haystack::{Keep, Runs, Setting},
    method::{DP_GGD, DP_SGGD, Form, Method},
    sizes::{FIGURE_2, FOUR},
};
use crate::{
    data::Data,
    exhibit::{Exhibit, Minutes},
    number::digits,
    plan::{Plan, Scale},
    table::{Record, Table},
    verdict::Verdict,
};

impl Method {
    /// As many steps as a budget affords: 50 over all rows, 200 over batches.
    fn short(form: Form) -> Self {
        Self {
            form,
            iterations: if form.is_sampled() { 200 } else { 50 },
            batch: None,
            stage: None,
        }
    }
}

fn plan(_: &Data, scale: Scale) -> Result<Plan> {
    let mut runs = Runs::default();
    let dimensions: &[usize] = scale.choose(&[20], &[20, 200]);
    for &p in dimensions {
        for epsilon in [0.8, 4.0] {
            for form in Form::ALL {
                for inlier_noise in [0.0, 0.3] {
                    let setting = Setting {
                        inlier_noise,
                        epsilon,
                        delta: 1e-5,
                        ..Setting::printed(2_000, p)
                    };
                    let repeats = scale.choose(5, 10);
                    runs.add(setting, Method::short(form), Accounted, Keep::End, repeats)?;
                }
            }
        }
    }
    Ok(runs.plan)
}

fn few_steps(_: &Data, scale: Scale) -> Result<Plan> {
    let sizes: &[usize] = scale.choose(&[500, 4_000], &[500, 1_000, 2_000, 4_000]);
    let dimensions: &[usize] = scale.choose(&[10, 50], &[10, 20, 50, 100]);
    let mut runs = Runs::default();
    for form in FOUR {
        for &n in sizes {
            for &p in dimensions {
                let setting = Setting::printed(n, p);
                let repeats = scale.choose(5, 10);
                runs.add(setting, Method::short(form), Accounted, Keep::End, repeats)?;
            }
        }
    }
    Ok(runs.plan)
}

fn judge_few_steps(table: &Table) -> Verdict {
    let grid = Grid {
        table,
        rule: Accounted,
        column: "log10_error_mean",
    };
    judge_below(
        Verdict::default(),
        grid,
        (DP_SGGD, DP_GGD),
        "sees more than",
    )
}

fn judge(table: &Table) -> Verdict {
    let grid = Grid {
        table,
        rule: Accounted,
        column: "error_median",
    };
    let asked = |line: &&Record| line.number("true_epsilon") <= line.number("epsilon");
    let kept = table.records().iter().filter(asked).count();
    let (first, cells) = grid.below(DP_GGD, DP_SGGD);
    let settings = Form::ALL.map(|form| grid.numbers(form));
    let count = settings[0].len();
    // Of each setting.
    let best: Vec<usize> = (0..count)
        .map(|at| {
            let errors = settings.iter().map(|errors| errors[at]).enumerate();
            let least = errors.min_by(|a, b| a.1.total_cmp(&b.1));
            least.map_or(0, |(place, _)| place)
        })
        .collect();
    let wins = Form::ALL
        .iter()
        .enumerate()
        .map(|(place, form)| {
            let won = best.iter().filter(|winner| **winner == place).count();
            format!("{} {won}", form.name())
        })
        .collect::<Vec<_>>()
        .join(", ");
    let spread: Vec<f64> = (0..count)
        .map(|at| {
            let errors = settings.iter().map(|errors| errors[at]);
            errors.clone().fold(0.0, f64::max) / errors.fold(f64::INFINITY, f64::min)
        })
        .collect();
    let noisy = |noise: f64| {
        let lines = grid.lines(DP_GGD);
        let of_this = lines.iter().zip(&spread);
        let of_this = of_this.filter(|(line, _)| line.number("inlier_noise") == noise);
        of_this.map(|(_, spread)| *spread).fold(0.0, f64::max)
    };
    Verdict::default()
        .with(
            "the ε asked for is kept",
            kept == table.records().len(),
            format!("in {kept} of {} cells", table.records().len()),
        )
        .with(
            "at equal ε batches are better than all rows (dp-sggd than dp-ggd)",
            cells > 0 && first == 0,
            format!("dp-ggd has the smaller median error in {first} of {cells} settings"),
        )
        .with(
            "the nonconvex methods are the best",
            best.iter().all(|&place| matches!(Form::ALL[place], DP_GGD | DP_SGGD)),
            format!(
                "settings won: {wins}; the worst error is up to {} times the best for exact inliers, {} times for \
                 noisy ones",
                digits(noisy(0.0), 2),
                digits(noisy(0.3), 2)
            ),
        )
}

fn picture(table: &Table) -> String {
    let largest = table.values("p").last().copied().unwrap_or("20");
    let mut chart = LineChart {
        subtitle: Some(format!(
            "N = 2,000, D = {largest}, δ = 1e-5; solid: exact inliers, dashed: noisy ones (ν = 0.3); medians"
        )),
        height: 560.0,
        ..LineChart::new(
            "Who wins at equal true ε",
            Axis::log("ε that holds"),
            Axis::log("error ‖V̂V̂ᵀ − VVᵀ‖_F"),
        )
    };
    for (place, form) in Form::ALL.into_iter().enumerate() {
        for (noise, style) in [("0", LineStyle::Solid), ("0.3", LineStyle::Dashed)] {
            let wanted = [
                ("algorithm", form.name()),
                ("p", largest),
                ("inlier_noise", noise),
            ];
            let line = table.line(&wanted, "true_epsilon", "error_median");
            let series = Series::new(format!("{}, ν = {noise}", form.name()), line);
            let series = series.with_style(style).with_colour_of(place);
            chart.series.push(series);
        }
    }
    chart.to_svg()
}

fn numbers(table: &Table) -> String {
    grid::markdown(table, &["p", "epsilon", "inlier_noise"], "error")
}

pub(crate) const EQUAL_EPSILON: Exhibit = Exhibit {
    id: "000-equal-epsilon",
    item: "at equal true ε (ours)",
    shows: "the six private methods at equal true ε, with exact and with noisy inliers",
    lacks: None,
    minutes: Minutes {
        quick: 0.2,
        full: 4.0,
    },
    plan,
    judge,
    picture,
    numbers,
    ..FIGURE_2
};

pub(crate) const FEW_STEPS: Exhibit = Exhibit {
    id: "000-few-steps",
    item: "few steps (ours)",
    shows: "four private methods over N and D at noise that holds: 50 steps over all rows, 200 over batches",
    lacks: None,
    minutes: Minutes {
        quick: 0.2,
        full: 3.0,
    },
    plan: few_steps,
    judge: judge_few_steps,
    ..FIGURE_2
};
