//! The noise floor: predicted and measured error over mechanisms and sizes, and its false alarms on pure noise.

use eigenveil_estimation::models::Model;
use eigenveil_figures::{Axis, LineStyle, Series};
use eigenveil_shared::{
    Result,
    mechanism::{Calibration, MechanismKind},
    preprocess::Norm,
};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, Record, RunPlan, RunSize, Table,
    number::digits,
    runs::{Source, params, study},
    sweep,
};

/// A component is clear if θ > 1.3 r: with Gaussian noise its expected squared cosine 1 − (r/θ)² is then above this.
const CLEAR_ALIGNMENT: f64 = 1.0 - 1.0 / (1.3 * 1.3);
/// Largest deviation of predicted from measured error where every component is clear.
const MAX_DEVIATION: f64 = 0.15;
/// Largest share of runs on pure noise in which `k = auto` may keep a component.
const MAX_FALSE_ALARMS: f64 = 0.05;

fn error(
    source: &Source,
    p: usize,
    k: usize,
    at: (MechanismKind, f64, u64),
    seed: u64,
) -> Result<Vec<Point>> {
    let (mechanism, epsilon, n) = at;
    let calibration = Calibration::Analytic;
    let params = params(p, Norm::Normalize, mechanism, calibration, epsilon, None)?;
    let summary = study(&params, source.rows(), n, k, None, seed)?;
    Ok(vec![Point::single([
        summary.error_mean,
        summary.predicted_error.unwrap_or(f64::NAN),
        summary.predicted_alignment.unwrap_or(f64::NAN),
        summary.expected_error.unwrap_or(f64::NAN),
        f64::from(u8::from(summary.components_above > 0.0)),
    ])])
}

fn add(plan: &mut RunPlan, source: &Source, p: usize, k: usize, size: RunSize, repeats: u64) {
    let budgets: &[f64] = size.choose(&[2.0, 8.0], &[1.0, 2.0, 4.0, 8.0]);
    let sizes: &[u64] = size.choose(&[10_000, 100_000], &[10_000, 100_000, 1_000_000]);
    for &mechanism in MechanismKind::ALL {
        for &epsilon in budgets {
            for &n in sizes {
                let source = source.clone();
                plan.cells.push(Cell::new(
                    [&mechanism, &p, &k, &epsilon, &n],
                    repeats,
                    move |repeat| error(&source, p, k, (mechanism, epsilon, n), repeat),
                ));
            }
        }
    }
}

fn floor(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let dimensions: &[usize] = size.choose(&[40], &[40, 200]);
    for &p in dimensions {
        let model = Source::Model(Model::spiked(p, 5, 20.0));
        add(&mut plan, &model, p, 5, size, size.choose(5, 20));
    }
    Ok(plan)
}

fn floor_digits(data: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let rows = Source::Rows(data.raw("digits.npy")?);
    for k in [3, 5] {
        add(&mut plan, &rows, 64, k, size, size.choose(5, 20));
    }
    Ok(plan)
}

fn pure_noise(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let dimensions: &[usize] = size.choose(&[40], &[40, 200]);
    for &p in dimensions {
        for &mechanism in MechanismKind::ALL {
            for epsilon in [1.0, 4.0] {
                for n in size.choose([1_000_u64, 4_000], [1_000, 10_000]) {
                    // A spike of 1e-9 stands for none.
                    let model = Source::Model(Model::spiked(p, 1, 1e-9));
                    plan.cells.push(Cell::new(
                        [&mechanism, &p, &1, &epsilon, &n],
                        size.choose(100, 400),
                        move |repeat| error(&model, p, 1, (mechanism, epsilon, n), repeat),
                    ));
                }
            }
        }
    }
    Ok(plan)
}

fn deviation(record: &Record) -> f64 {
    (record.number("predicted_mean") / record.number("error_mean") - 1.0).abs()
}

fn check_claims(table: &Table) -> PaperVerdict {
    let clear: Vec<&Record> = table
        .records()
        .iter()
        .filter(|record| record.number("alignment_mean") > CLEAR_ALIGNMENT)
        .collect();
    let worst = clear.iter().map(|r| deviation(r)).fold(0.0, f64::max);
    PaperVerdict::default().with_claim(
        "where every component is clear, the error predicted is the error measured, within 15 %",
        worst < MAX_DEVIATION && !clear.is_empty(),
        format!(
            "{} of {} settings are clear; the worst is {} % off",
            clear.len(),
            table.records().len(),
            digits(100.0 * worst, 2)
        ),
    )
}

fn check_noise(table: &Table) -> PaperVerdict {
    let records = table.records();
    let kept_means = records.iter().map(|record| record.number("kept_mean"));
    let worst = kept_means.fold(0.0, f64::max);
    // Three standard errors of that many runs.
    let runs = records.first().map_or(1.0, |r| r.number("repeats"));
    let chance = 3.0 * (MAX_FALSE_ALARMS * (1.0 - MAX_FALSE_ALARMS) / runs).sqrt();
    PaperVerdict::default().with_claim(
        "of rows without a component `k = auto` keeps one in at most 5 % of runs",
        worst <= MAX_FALSE_ALARMS + chance,
        format!(
            "at most {} % of {runs} runs in any of {} settings",
            digits(100.0 * worst, 2),
            records.len()
        ),
    )
}

fn to_svg(table: &Table) -> String {
    let scatter = |mechanism| {
        let mut points = table.line(&[("mechanism", mechanism)], "error_mean", "predicted_mean");
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(mechanism, points).with_style(LineStyle::None)
    };
    let errors = || table.records().iter().map(|r| r.number("error_mean"));
    let low = errors().fold(f64::INFINITY, f64::min);
    let high = errors().fold(0.0, f64::max);
    let diagonal = Series::new("as predicted", [(low, low), (high, high)]);
    let scatters = table.values("mechanism").into_iter().map(scatter);
    sweep::chart(
        "The error that the noise floor predicts, over the error measured",
        Axis::log("error measured"),
        Axis::log("error predicted"),
        scatters.chain([diagonal.with_style(LineStyle::Dotted)]),
        [],
    )
}

fn svg_noise(table: &Table) -> String {
    let mut lines = Vec::new();
    let p = table.values("p").first().copied().unwrap_or("40");
    for mechanism in table.values("mechanism") {
        for epsilon in table.values("epsilon") {
            let wanted = [("mechanism", mechanism), ("epsilon", epsilon), ("p", p)];
            let points = table.line(&wanted, "n", "kept_mean");
            lines.push(Series::new(format!("{mechanism}, ε = {epsilon}"), points));
        }
    }
    sweep::chart(
        "Rows without a component: share of runs in which one is kept",
        Axis::log("participants n"),
        Axis::linear("share of runs"),
        lines,
        [("5 %".to_owned(), MAX_FALSE_ALARMS)],
    )
}

fn to_markdown(table: &Table) -> String {
    let rows = table.records().iter().map(|r| {
        let setting = ["mechanism", "p", "k", "epsilon", "n"].map(|column| r.text(column));
        format!(
            "{} | {} ± {} | {} | {}",
            setting.join(" | "),
            digits(r.number("error_mean"), 3),
            digits(r.number("error_sd"), 1),
            digits(r.number("predicted_mean"), 3),
            digits(r.number("alignment_mean"), 2)
        )
    });
    let heads = "mechanism | p | k | ε | n | measured | predicted | weakest alignment";
    sweep::grid(heads, rows)
}

fn markdown_noise(table: &Table) -> String {
    let rows = table.records().iter().map(|r| {
        let setting = ["mechanism", "p", "epsilon", "n"].map(|column| r.text(column));
        let kept_share = digits(100.0 * r.number("kept_mean"), 2);
        format!(
            "{} | {kept_share} % of {}",
            setting.join(" | "),
            r.text("repeats")
        )
    });
    sweep::grid("mechanism | p | ε | n | runs that keep one", rows)
}

pub(crate) const FLOOR: Exhibit = Exhibit {
    id: "own-floor",
    item: "the noise floor on a model (ours)",
    caption: "predicted and measured error over all mechanisms, ε and n",
    minutes: Minutes::new(0.2, 90.0),
    key_columns: "mechanism p k epsilon n",
    measures: "error predicted alignment expected kept",
    plan: floor,
    check_claims,
    to_svg,
    to_markdown,
    ..Exhibit::of_paper(Paper::Ours)
};

pub(crate) const FLOOR_DIGITS: Exhibit = Exhibit {
    id: "own-floor-digits",
    item: "the noise floor on digits (ours)",
    data: &["digits.npy"],
    plan: floor_digits,
    ..FLOOR
};

pub(crate) const PURE_NOISE: Exhibit = Exhibit {
    id: "own-pure-noise",
    item: "pure noise (ours)",
    caption: "how often a component is kept of rows that have none",
    plan: pure_noise,
    check_claims: check_noise,
    to_svg: svg_noise,
    to_markdown: markdown_noise,
    ..FLOOR
};
