//! What trust in a curator is worth: the best central algorithm beside the local mechanisms, one budget, replace
//! neighbours on both sides.

use eigenveil_central::{
    AnalyzeGauss, Baseline, Neighbours, NoiseRule, Privacy, Request, Rows, generator,
};
use eigenveil_estimation::{
    metrics::projector_distance,
    models::Model,
    simulate::{Experiment, Path, RowSource, run},
};
use eigenveil_figures::{Axis, Figure, HorizontalLine, LineChart, LineStyle, Series};
use eigenveil_shared::{
    Result,
    mechanism::{Calibration, MechanismKind},
    preprocess::{Norm, Preprocessing, Row},
    privacy::Budget,
};

use super::params;
use crate::{
    data::Data,
    exhibit::{Exhibit, Minutes, Paper},
    number::digits,
    plan::{Cell, Plan, Point, Scale},
    sweep,
    table::Table,
    verdict::Verdict,
};

const P: usize = 40;
const K: usize = 5;
const DELTA: f64 = 1e-7;
const MODEL: Model = Model::Spiked {
    p: P,
    k: K,
    spike: 20.0,
};

/// Who adds the noise.
#[derive(Clone, Copy, PartialEq)]
enum Trust {
    Curator,
    DoubleCap,
    /// Algorithm 1 of Wang & Xu with its printed noise.
    Algorithm1,
}

impl Trust {
    const ALL: [Self; 3] = [Self::Curator, Self::DoubleCap, Self::Algorithm1];

    fn as_str(self) -> &'static str {
        match self {
            Self::Curator => "central analyze-gauss",
            Self::DoubleCap => "local double-cap",
            Self::Algorithm1 => "local Algorithm 1 as published",
        }
    }
}

fn central(n: u64, epsilon: f64, repeat: u64) -> Result<Vec<Point>> {
    let preprocessing = Preprocessing {
        dimension: P,
        features: None,
        norm: Norm::Normalize,
        centring: None,
    };
    let preprocessor = preprocessing.preprocessor()?;
    let mut rng = generator(Some(1))?;
    rng.set_stream(repeat);
    let population = MODEL.draw(&mut rng)?;
    let rows = Rows::collect(
        (0..n).map(|_| preprocessor.prepare_features(&Row::new(population.row(&mut rng)))),
    )?;
    let error = |privacy, rng: &mut _| {
        let fit = AnalyzeGauss.fit(&rows, &Request::new(K, privacy), rng)?;
        projector_distance(&fit.subspace, population.subspace())
    };
    let nonprivate = error(Privacy::None, &mut rng)?;
    let private = error(
        Privacy::Budget {
            budget: Budget::approximate(epsilon, DELTA)?,
            neighbours: Neighbours::Replace,
            calibration: NoiseRule::Accounted,
        },
        &mut rng,
    )?;
    Ok(vec![Point::only([epsilon, private, nonprivate])])
}

fn local(n: u64, epsilon: f64, trust: Trust, repeat: u64) -> Result<Vec<Point>> {
    // Algorithm 1 as printed; the other has no choice of calibration.
    let params = match trust {
        Trust::Algorithm1 => params(
            P,
            MechanismKind::SymmetricGaussian,
            Calibration::AsPublished,
            epsilon,
            Some(DELTA),
        )?,
        _ => params(
            P,
            MechanismKind::DoubleCap,
            Calibration::Analytic,
            epsilon,
            None,
        )?,
    };
    let experiment = Experiment {
        params: &params,
        source: RowSource::Model(MODEL),
        n,
        k: K,
        sparse: None,
        path: Path::Law,
        repeats: 1,
        seed: repeat,
    };
    let (_, summary) = run(&experiment, &mut |_| {})?;
    let holds = params.mechanism().true_epsilon(params.budget().delta());
    Ok(vec![Point::only([
        holds.unwrap_or(f64::NAN),
        summary.error_mean,
        summary.nonprivate_error,
    ])])
}

fn plan(_: &Data, scale: Scale) -> Result<Plan> {
    let mut plan = Plan::default();
    let sizes: &[u64] = scale.choose(&[10_000, 100_000], &[10_000, 100_000, 1_000_000]);
    let budgets: &[f64] = scale.choose(&[1.0, 4.0], &[1.0, 2.0, 4.0, 8.0]);
    for trust in Trust::ALL {
        for &epsilon in budgets {
            for &n in sizes {
                plan.cells.push(Cell::new(
                    [&trust.as_str(), &epsilon, &n],
                    scale.choose(5, 10),
                    move |repeat| match trust {
                        Trust::Curator => central(n, epsilon, repeat),
                        _ => local(n, epsilon, trust, repeat),
                    },
                ));
            }
        }
    }
    Ok(plan)
}

fn judge(table: &Table) -> Verdict {
    let mut verdict = Verdict::default();
    let (mut worst, mut settings) = (f64::INFINITY, 0);
    for epsilon in table.values("epsilon") {
        for n in table.values("n") {
            let at = |trust: Trust, column| {
                table.number(
                    &[("trust", trust.as_str()), ("epsilon", epsilon), ("n", n)],
                    column,
                )
            };
            let curator = at(Trust::Curator, "error_mean");
            for trust in [Trust::DoubleCap, Trust::Algorithm1] {
                settings += 1;
                worst = f64::min(worst, at(trust, "error_mean") / curator);
            }
        }
    }
    verdict = verdict.with(
        "nowhere is a local mechanism better than a trusted curator",
        worst >= 1.0,
        format!(
            "the smallest ratio of errors in {settings} settings is {}",
            digits(worst, 3)
        ),
    );
    let last = |column: &str| table.values(column).last().map(|value| (*value).to_owned());
    if let (Some(epsilon), Some(n)) = (last("epsilon"), last("n")) {
        let at = |trust: Trust| {
            table.number(
                &[("trust", trust.as_str()), ("epsilon", &epsilon), ("n", &n)],
                "error_mean",
            )
        };
        let (cap, paper) = (at(Trust::DoubleCap), at(Trust::Algorithm1));
        verdict = verdict.with(
            "double-cap is ahead of Algorithm 1 with its printed noise",
            cap < paper,
            format!(
                "{} against {} at ε = {epsilon}, n = {n}",
                digits(cap, 3),
                digits(paper, 3)
            ),
        );
    }
    verdict
}

fn picture(table: &Table) -> String {
    let mut chart = LineChart::new(
        "What a trusted curator saves",
        Axis::log("participants n"),
        Axis::log("error ‖V̂V̂ᵀ − VVᵀ‖_F"),
    );
    for (place, trust) in Trust::ALL.into_iter().enumerate() {
        for (epsilon, style) in [("1", LineStyle::Dashed), ("4", LineStyle::Solid)] {
            let wanted = [("trust", trust.as_str()), ("epsilon", epsilon)];
            chart.series.push(
                Series::new(
                    format!("{}, ε\u{a0}=\u{a0}{epsilon}", trust.as_str()),
                    table.line(&wanted, "n", "error_mean"),
                )
                .with_error_bars(table.matching(&wanted).map(|r| r.number("error_std")))
                .with_style(style)
                .with_colour_of(place),
            );
        }
    }
    chart.reference_lines.push(HorizontalLine {
        y: (2.0 * K as f64 * (1.0 - K as f64 / P as f64)).sqrt(),
        label: "random subspace".into(),
    });
    chart.to_svg()
}

fn numbers(table: &Table) -> String {
    sweep::markdown(table, &["n", "epsilon"], "trust", "error", &[])
}

pub(crate) const CENTRAL_VS_LOCAL: Exhibit = Exhibit {
    id: "own-central-vs-local",
    paper: Paper::Ours,
    item: "central beside local (ours)",
    shows: "a trusted curator beside the local mechanisms at the same ε, replace neighbours",
    data: &[],
    lacks: None,
    minutes: Minutes {
        quick: 0.1,
        full: 6.0,
    },
    columns: &["trust", "epsilon", "n"],
    along: None,
    constants: &["true_epsilon"],
    measures: &["error", "nonprivate_error"],
    plan,
    judge,
    picture,
    numbers,
};
