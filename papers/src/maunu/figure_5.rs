//! Figure 5: over the share of inliers and the size of a batch.

use eigenveil_shared::Result;

use super::{
    figures_2_7_8_9::FIGURE_2,
    grid::{self, Axes, Grid, noise_clause},
    haystack::{CALIBRATIONS, PlanBuilder, Recorded, Setting},
    method::{DP_SGD, DP_SGGD, DP_SMD, Method, Variant},
};
use crate::{
    Data, Exhibit, Minutes, PaperVerdict, Record, RunPlan, RunSize, Table, number::digits,
};

const SAMPLED: [Variant; 3] = [DP_SGGD, DP_SGD, DP_SMD];

/// An algorithm converges in a regime if on average at least this share of the repeats does.
const CONVERGED_SHARE: f64 = 0.9;

fn plan(_: &Data, size: RunSize) -> Result<RunPlan> {
    let shares: &[f64] = size.choose(&[0.1, 0.3, 0.7], &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]);
    let batches: &[usize] = size.choose(&[1, 20], &[1, 2, 5, 10, 20, 50, 100]);
    let mut builder = PlanBuilder::default();
    for rule in CALIBRATIONS {
        for variant in SAMPLED {
            for &inliers in shares {
                for &batch in batches {
                    let method = Method {
                        batch: Some(batch),
                        ..Method::from_paper(variant, 2_000)
                    };
                    let setting = Setting {
                        inliers,
                        ..Setting::from_paper(2_000, 20)
                    };
                    let repeats = size.choose(5, 10);
                    builder.add(setting, method, rule, Recorded::End, repeats)?;
                }
            }
        }
    }
    Ok(builder.plan)
}

/// A regime in which the paper sees an algorithm converge.
type Regime = (Variant, &'static str, fn(&Record) -> bool);

const REGIMES: [Regime; 3] = [
    (DP_SGD, "where at least 0.6 are inliers", |line| {
        line.number("inliers") >= 0.6
    }),
    (DP_SMD, "where at least 0.2 are inliers", |line| {
        line.number("inliers") >= 0.2
    }),
    (
        DP_SGGD,
        "for almost all shares where a batch has more than 2 rows",
        |line| line.number("batch") > 2.0,
    ),
];

fn check_claims(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    for rule in CALIBRATIONS {
        let grid = Grid::new(table, rule, "reached_mean");
        for (variant, says, regime) in REGIMES {
            let inside = grid.mean(variant, regime);
            let outside = grid.mean(variant, |line| !regime(line));
            verdict = verdict.with_claim(
                format!("{} converges {says} {}", variant.name(), noise_clause(rule)),
                inside >= CONVERGED_SHARE,
                format!(
                    "{} % of the repeats do there, {} % elsewhere; the true ε is {}",
                    digits(100.0 * inside, 2),
                    digits(100.0 * outside, 2),
                    grid.true_epsilons(variant)
                ),
            );
        }
    }
    verdict
}

fn to_svg(table: &Table) -> String {
    grid::svg(
        table,
        &SAMPLED,
        &Axes {
            down: ("inliers", "inliers"),
            across: ("batch", "B"),
            column: "reached_mean",
        },
        "Over the share of inliers and the batch: share of repeats that reach 10⁻²",
        "N = T = 2,000, D = 20; white: none, strong orange: all",
        |share| share,
    )
}

pub(crate) const FIGURE_5: Exhibit = Exhibit {
    id: "maunu-figure-5",
    item: "Figure 5",
    caption: "share of repeats that reach a squared distance of 10⁻², over inliers and batches, N = T = 2,000, D = 20",
    differs_from_paper: Some(
        "at most 10 repeats where the paper has 50; the axes' values are not in the text we have; a batch is a Poisson sample, \
         B its mean size",
    ),
    minutes: Minutes::new(0.4, 15.0),
    plan,
    check_claims,
    to_svg,
    to_markdown: |table| grid::markdown(table, &["inliers", "batch"], "reached"),
    ..FIGURE_2
};
