//! Figures 4 and 6: over the budget, and over the dimensions of the space and of the subspace.

use eigenveil_central::CentralCalibration;
use eigenveil_shared::Result;

use super::{
    figures_2_7_8_9::FIGURE_2,
    grid::{self, Axes, Grid, noise_clause},
    haystack::{CALIBRATIONS, PlanBuilder, Recorded, Setting, TOLERANCE},
    method::{DP_GD, DP_GGD, DP_MD, Method, Variant},
};
use crate::{Data, Exhibit, Minutes, PaperVerdict, RunPlan, RunSize, Table, number::digits};

const N: usize = 2_000;

fn plan(settings: &[Setting], repeats: u64) -> Result<RunPlan> {
    let mut builder = PlanBuilder::default();
    for rule in CALIBRATIONS {
        for variant in Variant::ALL {
            for setting in settings {
                let method = Method::from_paper(variant, N);
                builder.add(*setting, method, rule, Recorded::End, repeats)?;
            }
        }
    }
    Ok(builder.plan)
}

fn figure_4(_: &Data, size: RunSize) -> Result<RunPlan> {
    let epsilons: &[f64] = size.choose(&[0.1, 0.8], &[0.05, 0.1, 0.2, 0.4, 0.8, 1.6]);
    let deltas: &[f64] = size.choose(&[1e-6, 1e-2], &[1e-8, 1e-6, 1e-4, 1e-2]);
    let settings: Vec<Setting> = deltas
        .iter()
        .flat_map(|&delta| {
            epsilons.iter().map(move |&epsilon| Setting {
                epsilon,
                delta,
                ..Setting::from_paper(N, 20)
            })
        })
        .collect();
    plan(&settings, size.choose(5, 10))
}

fn figure_6(_: &Data, size: RunSize) -> Result<RunPlan> {
    let dimensions: &[usize] = size.choose(&[10, 40], &[10, 20, 40, 80]);
    let ranks: &[usize] = size.choose(&[1, 5], &[1, 2, 4, 8]);
    let settings: Vec<Setting> = ranks
        .iter()
        .flat_map(|&k| {
            dimensions.iter().map(move |&p| Setting {
                k,
                ..Setting::from_paper(N, p)
            })
        })
        .collect();
    plan(&settings, size.choose(5, 10))
}

/// The largest change of log₁₀ of the median error between neighbours on the grid of budgets.
fn largest_change(table: &Table, rule: CentralCalibration, variant: Variant) -> f64 {
    let (deltas, epsilons) = (table.values("delta"), table.values("epsilon"));
    let error = |delta: &str, epsilon: &str| {
        let cell = [("delta", delta), ("epsilon", epsilon)];
        let wanted = [&variant.lines(rule)[..], &cell].concat();
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

fn check_claims_4(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    for rule in CALIBRATIONS {
        let [glad, gd, md] =
            [DP_GGD, DP_GD, DP_MD].map(|variant| largest_change(table, rule, variant));
        let grid = Grid::new(table, rule, "error_median");
        verdict = verdict.with_claim(
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
                grid.true_epsilons(DP_GGD)
            ),
        );
    }
    verdict
}

fn check_claims_6(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    let (ranks, dimensions) = (table.values("k"), table.values("p"));
    let ends = [
        (ranks.first(), dimensions.first()),
        (ranks.last(), dimensions.last()),
    ];
    for rule in CALIBRATIONS {
        for variant in [DP_GD, DP_MD, DP_GGD] {
            let [small, large] = ends.map(|(k, p)| {
                let [k, p] = [k, p].map(|end| end.copied().unwrap_or_default());
                let wanted = [&variant.lines(rule)[..], &[("k", k), ("p", p)]].concat();
                table.number(&wanted, "error_median")
            });
            let grid = Grid::new(table, rule, "error_median");
            verdict = verdict.with_claim(
                format!(
                    "{} works well where D and r are small {}",
                    variant.name(),
                    noise_clause(rule)
                ),
                small <= TOLERANCE && small < large,
                format!(
                    "median error {} there, {} where both are large; the true ε is {}",
                    digits(small, 2),
                    digits(large, 2),
                    grid.true_epsilons(variant)
                ),
            );
        }
    }
    verdict
}

fn svg(table: &Table, down: (&str, &str), across: (&str, &str), title: &str) -> String {
    let column = "error_median";
    let axes = Axes {
        down,
        across,
        column,
    };
    let colours = "median; strong blue: subspace found; white or orange: not found";
    grid::svg(table, &Variant::ALL, &axes, title, colours, f64::log10)
}

pub(crate) const FIGURE_4: Exhibit = Exhibit {
    id: "maunu-figure-4",
    item: "Figure 4",
    caption: "the six private methods over δ and ε, N = T = 2,000, D = 20",
    minutes: Minutes::new(0.8, 9.0),
    plan: figure_4,
    check_claims: check_claims_4,
    to_svg: |table| {
        let title = "Over δ and ε: log10 of the last error, N = T = 2,000, D = 20";
        svg(table, ("delta", "δ"), ("epsilon", "ε"), title)
    },
    to_markdown: |table| grid::markdown(table, &["delta", "epsilon"], "log10_error"),
    ..FIGURE_2
};

pub(crate) const FIGURE_6: Exhibit = Exhibit {
    id: "maunu-figure-6",
    item: "Figure 6",
    caption: "the six private methods over D and r, N = T = 2,000",
    minutes: Minutes::new(1.2, 45.0),
    plan: figure_6,
    check_claims: check_claims_6,
    to_svg: |table| {
        let title = "Over r and D: log10 of the last error, N = T = 2,000, ε = 0.8";
        svg(table, ("k", "r"), ("p", "D"), title)
    },
    to_markdown: |table| grid::markdown(table, &["k", "p"], "log10_error"),
    ..FIGURE_2
};
