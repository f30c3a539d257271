//! The power methods and Oja's at equal budgets.

use eigenveil_central::{Neighbours, NoiseRule, Options, Privacy, generator};
use eigenveil_estimation::models::Model;
use eigenveil_figures::{Axis, Figure, HorizontalLine, LineChart, LineStyle, Series};
use eigenveil_shared::Result;

use crate::{
    central::{fitted, model_rows, private, share_of_claim, true_epsilon},
    data::Data,
    exhibit::{Exhibit, Minutes, Paper},
    number::{digits, short},
    plan::{Cell, Plan, Point, Scale},
    sweep,
    table::Table,
    verdict::Verdict,
};

const P: usize = 40;
const K: usize = 2;
const MODEL: Model = Model::Spiked {
    p: P,
    k: K,
    spike: 8.0,
};
const DELTA: f64 = 1e-6;
const NONE: &str = "none";
const PLAIN: [&str; 4] = ["pca", "oja", "minibatch-oja", "streaming-power"];
const PRIVATE: [&str; 3] = ["private-power", "private-oja", "minibatch-oja"];
const BUDGETS: [f64; 2] = [1.0, 4.0];

fn error(
    algorithm: &str,
    n: usize,
    budget: Option<(f64, NoiseRule)>,
    repeat: u64,
) -> Result<Vec<Point>> {
    let mut rng = generator(Some(repeat))?;
    let rows = model_rows(&MODEL, n, &mut rng)?;
    let privacy = match budget {
        Some((epsilon, calibration)) => private(epsilon, DELTA, Neighbours::Replace, calibration)?,
        None => Privacy::None,
    };
    let (fit, error) = fitted(algorithm, &Options::default(), privacy, &rows, &mut rng)?;
    Ok(vec![Point::only([true_epsilon(&fit), error])])
}

fn plan(_: &Data, scale: Scale) -> Result<Plan> {
    let mut plan = Plan::default();
    let repeats = scale.choose(5, 10);
    for n in [10_000, 100_000] {
        for algorithm in PLAIN {
            plan.cells.push(Cell::new(
                [&algorithm, &NONE, &n, &NONE],
                repeats,
                move |repeat| error(algorithm, n, None, repeat),
            ));
        }
        for epsilon in BUDGETS {
            for algorithm in PRIVATE {
                for calibration in NoiseRule::ALL {
                    plan.cells.push(Cell::new(
                        [&algorithm, &calibration.as_str(), &n, &epsilon],
                        repeats,
                        move |repeat| error(algorithm, n, Some((epsilon, calibration)), repeat),
                    ));
                }
            }
        }
    }
    Ok(plan)
}

/// Smallest and largest true ε, as a multiple of the claimed one, of an algorithm's printed noise.
fn claimed(table: &Table, algorithm: &str) -> (f64, f64) {
    let wanted = [
        ("algorithm", algorithm),
        ("calibration", NoiseRule::AsPublished.as_str()),
    ];
    table
        .matching(&wanted)
        .map(share_of_claim)
        .fold((f64::INFINITY, 0.0), |(least, most), share| {
            (f64::min(least, share), f64::max(most, share))
        })
}

fn judge(table: &Table) -> Verdict {
    let accounted = NoiseRule::Accounted.as_str();
    // Of the power method and minibatches, and of minibatches and single rows.
    let (mut power, mut batches, mut settings) = (0.0_f64, 0.0_f64, 0);
    for n in table.values("n") {
        for epsilon in BUDGETS {
            let epsilon = short(epsilon);
            let at = |algorithm: &str| {
                table.number(
                    &[
                        ("algorithm", algorithm),
                        ("calibration", accounted),
                        ("n", n),
                        ("epsilon", &epsilon),
                    ],
                    "error_mean",
                )
            };
            settings += 1;
            power = power.max(at("private-power") / at("minibatch-oja"));
            batches = batches.max(at("minibatch-oja") / at("private-oja"));
        }
    }
    let rows = claimed(table, "private-oja");
    let minibatch = claimed(table, "minibatch-oja");
    let printed = claimed(table, "private-power");
    Verdict::default()
        .with(
            "private-power is ahead of minibatch-oja at equal accounted budgets",
            settings > 0 && power < 1.0,
            format!(
                "the largest ratio of errors in {settings} settings is {}",
                digits(power, 2)
            ),
        )
        .with(
            "minibatch-oja is ahead of private-oja",
            settings > 0 && batches < 1.0,
            format!("the largest ratio of errors is {}", digits(batches, 2)),
        )
        .with(
            "the printed noise of private-power keeps its ε",
            printed.1 > 0.0 && printed.1 <= 1.0,
            format!("the true ε is at most {} of it", digits(printed.1, 2)),
        )
        .with(
            "the printed noise of minibatch-oja keeps its ε",
            minibatch.1 > 0.0 && minibatch.1 <= 1.0,
            format!("the true ε is at most {} of it", digits(minibatch.1, 2)),
        )
        .with(
            "the printed noise of private-oja keeps its ε at ε ≥ 1, outside the range of its proof",
            rows.1 > 0.0 && rows.1 <= 1.0,
            format!(
                "the true ε is {} to {} times it",
                digits(rows.0, 2),
                digits(rows.1, 2)
            ),
        )
}

fn picture(table: &Table) -> String {
    let mut chart = LineChart::new(
        "Power methods and Oja's at equal accounted budgets",
        Axis::log("rows n"),
        Axis::log("error ‖V̂V̂ᵀ − VVᵀ‖_F"),
    );
    let mut add = |algorithm: &str, calibration: &str, epsilon: &str, place, style| {
        let wanted = [
            ("algorithm", algorithm),
            ("calibration", calibration),
            ("epsilon", epsilon),
        ];
        let name = match epsilon {
            NONE => format!("{algorithm}, no privacy"),
            _ => format!("{algorithm}, ε\u{a0}=\u{a0}{epsilon}"),
        };
        chart.series.push(
            Series::new(name, table.line(&wanted, "n", "error_mean"))
                .with_error_bars(table.matching(&wanted).map(|r| r.number("error_std")))
                .with_style(style)
                .with_colour_of(place),
        );
    };
    for (place, algorithm) in PRIVATE.into_iter().enumerate() {
        let accounted = NoiseRule::Accounted.as_str();
        add(algorithm, accounted, "1", place, LineStyle::Dashed);
        add(algorithm, accounted, "4", place, LineStyle::Solid);
    }
    add("pca", NONE, NONE, PRIVATE.len(), LineStyle::Solid);
    chart.reference_lines.push(HorizontalLine {
        y: (2.0 * K as f64 * (1.0 - K as f64 / P as f64)).sqrt(),
        label: "random subspace".into(),
    });
    chart.to_svg()
}

fn numbers(table: &Table) -> String {
    let rows = ["n", "epsilon", "calibration"];
    sweep::markdown(table, &rows, "algorithm", "error", &[])
}

pub(crate) const EQUAL_BUDGETS: Exhibit = Exhibit {
    id: "004-equal-budgets",
    paper: Paper::HardtPrice,
    item: "power methods and Oja at equal budgets (ours)",
    shows: "private-power, private-oja and minibatch-oja at the same ε, as accounted and as printed",
    data: &[],
    lacks: None,
    minutes: Minutes {
        quick: 0.3,
        full: 2.0,
    },
    columns: &["algorithm", "calibration", "n", "epsilon"],
    along: None,
    constants: &["true_epsilon"],
    measures: &["error"],
    plan,
    judge,
    picture,
    numbers,
};
