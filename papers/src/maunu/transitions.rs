//! Figures 4 and 6: over the budget, and over the dimensions of the space and of the subspace.

use eigenveil_central::CentralCalibration;
use eigenveil_shared::Result;

use super::{
    grid::{self, Axes, Grid, noise_clause},
    haystack::{Keep, NOISES, Runs, Setting, TOLERANCE},
    method::{DP_GD, DP_GGD, DP_MD, Form, Method},
    sizes::FIGURE_2,
};
use crate::{Data, Exhibit, Minutes, Plan, Scale, Table, Verdict, number::digits};

const N: usize = 2_000;

fn plan(settings: &[Setting], repeats: u64) -> Result<Plan> {
    let mut runs = Runs::default();
    for rule in NOISES {
        for form in Form::ALL {
            for setting in settings {
                let method = Method::printed(form, N);
                runs.add(*setting, method, rule, Keep::End, repeats)?;
            }
        }
    }
    Ok(runs.plan)
}

fn figure_4(_: &Data, scale: Scale) -> Result<Plan> {
    let epsilons: &[f64] = scale.choose(&[0.1, 0.8], &[0.05, 0.1, 0.2, 0.4, 0.8, 1.6]);
    let deltas: &[f64] = scale.choose(&[1e-6, 1e-2], &[1e-8, 1e-6, 1e-4, 1e-2]);
    let settings: Vec<Setting> = deltas
        .iter()
        .flat_map(|&delta| {
            epsilons.iter().map(move |&epsilon| Setting {
                epsilon,
                delta,
                ..Setting::printed(N, 20)
            })
        })
        .collect();
    plan(&settings, scale.choose(5, 10))
}

fn figure_6(_: &Data, scale: Scale) -> Result<Plan> {
    let dimensions: &[usize] = scale.choose(&[10, 40], &[10, 20, 40, 80]);
    let ranks: &[usize] = scale.choose(&[1, 5], &[1, 2, 4, 8]);
    let settings: Vec<Setting> = ranks
        .iter()
        .flat_map(|&k| {
            dimensions.iter().map(move |&p| Setting {
                k,
                ..Setting::printed(N, p)
            })
        })
        .collect();
    plan(&settings, scale.choose(5, 10))
}

const OVER_BUDGETS: Axes<'_> = Axes {
    down: ("delta", "δ"),
    across: ("epsilon", "ε"),
    column: "error_median",
};
const OVER_DIMENSIONS: Axes<'_> = Axes {
    down: ("k", "r"),
    across: ("p", "D"),
    column: "error_median",
};

/// The largest change of log₁₀ of the median error between neighbours on the grid of budgets.
fn largest_change(table: &Table, rule: CentralCalibration, form: Form) -> f64 {
    let (deltas, epsilons) = (table.values("delta"), table.values("epsilon"));
    let error = |delta: &str, epsilon: &str| {
        let wanted = [
            ("algorithm", form.name()),
            ("calibration", rule.as_str()),
            ("delta", delta),
            ("epsilon", epsilon),
        ];
        table.number(&wanted, "error_median").log10()
    };
    let along_epsilon = deltas.iter().flat_map(|delta| {
        let pairs = epsilons.windows(2);
        pairs.map(move |pair| (error(delta, pair[0]) - error(delta, pair[1])).abs())
    });
    let along_delta = epsilons.iter().flat_map(|epsilon| {
        let pairs = deltas.windows(2);
        pairs.map(move |pair| (error(pair[0], epsilon) - error(pair[1], epsilon)).abs())
    });
    along_epsilon.chain(along_delta).fold(0.0, f64::max)
}

fn judge_4(table: &Table) -> Verdict {
    let mut verdict = Verdict::default();
    for rule in NOISES {
        let [glad, gd, md] = [DP_GGD, DP_GD, DP_MD].map(|form| largest_change(table, rule, form));
        let grid = Grid::new(table, rule, "error_median");
        verdict = verdict.with(
            format!(
                "dp-ggd goes over from small ε and δ more abruptly than dp-gd-reap and dp-md-reap {}",
                noise_clause(rule)
            ),
            glad > gd.max(md),
            format!(
                "its largest change between neighbours is {} of log₁₀, theirs {} and {}; its true ε is {}",
                digits(glad, 3),
                digits(gd, 3),
                digits(md, 3),
                grid.holds(DP_GGD)
            ),
        );
    }
    verdict
}

fn judge_6(table: &Table) -> Verdict {
    let mut verdict = Verdict::default();
    let (ranks, dimensions) = (table.values("k"), table.values("p"));
    let ends = [
        (ranks.first(), dimensions.first()),
        (ranks.last(), dimensions.last()),
    ];
    for rule in NOISES {
        for form in [DP_GD, DP_MD, DP_GGD] {
            let [small, large] = ends.map(|(k, p)| {
                let wanted = [
                    ("algorithm", form.name()),
                    ("calibration", rule.as_str()),
                    ("k", k.copied().unwrap_or_default()),
                    ("p", p.copied().unwrap_or_default()),
                ];
                table.number(&wanted, "error_median")
            });
            let grid = Grid::new(table, rule, "error_median");
            verdict = verdict.with(
                format!(
                    "{} works well where D and r are small {}",
                    form.name(),
                    noise_clause(rule)
                ),
                small <= TOLERANCE && small < large,
                format!(
                    "median error {} there, {} where both are large; the true ε is {}",
                    digits(small, 2),
                    digits(large, 2),
                    grid.holds(form)
                ),
            );
        }
    }
    verdict
}

fn picture_4(table: &Table) -> String {
    grid::picture(
        table,
        &Form::ALL,
        &OVER_BUDGETS,
        "Over δ and ε: log10 of the last error, N = T = 2,000, D = 20",
        "median; strong blue: found, white or orange: not",
        f64::log10,
    )
}

fn picture_6(table: &Table) -> String {
    grid::picture(
        table,
        &Form::ALL,
        &OVER_DIMENSIONS,
        "Over r and D: log10 of the last error, N = T = 2,000, ε = 0.8",
        "median; strong blue: found, white or orange: not",
        f64::log10,
    )
}

fn numbers_4(table: &Table) -> String {
    let text = grid::markdown(table, &["delta", "epsilon"], "log10_error");
    format!("log₁₀ of the error:\n\n{text}")
}

fn numbers_6(table: &Table) -> String {
    let text = grid::markdown(table, &["k", "p"], "log10_error");
    format!("log₁₀ of the error:\n\n{text}")
}

pub(crate) const FIGURE_4: Exhibit = Exhibit {
    id: "maunu-figure-4",
    item: "Figure 4",
    caption: "the six private methods over δ and ε, N = T = 2,000, D = 20",
    minutes: Minutes::new(0.8, 9.0),
    plan: figure_4,
    check_claims: judge_4,
    to_svg: picture_4,
    to_markdown: numbers_4,
    ..FIGURE_2
};

pub(crate) const FIGURE_6: Exhibit = Exhibit {
    id: "maunu-figure-6",
    item: "Figure 6",
    caption: "the six private methods over D and r, N = T = 2,000",
    minutes: Minutes::new(1.2, 45.0),
    plan: figure_6,
    check_claims: judge_6,
    to_svg: picture_6,
    to_markdown: numbers_6,
    ..FIGURE_2
};
