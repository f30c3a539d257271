//! Learning rates: the paper's are made of unknown quantities, and it says to search them.

use eigenveil_central::{
    Neighbours, NoiseRule, Options, generator, oja::DEFAULT_NUMERATOR, parameter::STEP,
};
use eigenveil_estimation::models::Model;
use eigenveil_figures::{Axis, Figure, LineChart, Series};
use eigenveil_shared::Result;

use crate::{
    central::{fitted, model_rows, private, true_epsilon},
    data::Data,
    exhibit::{Exhibit, Minutes, Paper},
    number::{digits, short},
    plan::{Cell, Plan, Point, Scale},
    sweep,
    table::Table,
    verdict::Verdict,
};

const MODEL: Model = Model::Spiked {
    p: 10,
    k: 1,
    spike: 8.0,
};
const N: usize = 50_000;
const EPSILON: f64 = 4.0;
const DELTA: f64 = 1e-6;
/// The algorithms with the constants of their step sizes where none is set; `dp-pca`'s is as its card has it.
const ALGORITHMS: [(&str, f64); 3] = [
    ("minibatch-oja", DEFAULT_NUMERATOR),
    ("private-oja", DEFAULT_NUMERATOR),
    ("dp-pca", 1_000.0),
];
/// The default may be so many times worse than the best of the grid.
const WITHIN: f64 = 1.5;

fn error(algorithm: &str, step: f64, repeat: u64) -> Result<Vec<Point>> {
    let mut rng = generator(Some(repeat))?;
    let rows = model_rows(&MODEL, N, &mut rng)?;
    let privacy = private(EPSILON, DELTA, Neighbours::Replace, NoiseRule::Accounted)?;
    let options = Options::default().with(STEP, step);
    let (fit, error) = fitted(algorithm, &options, privacy, &rows, &mut rng)?;
    Ok(vec![Point::only([step, true_epsilon(&fit), error])])
}

fn plan(_: &Data, scale: Scale) -> Result<Plan> {
    let mut plan = Plan::default();
    let factors: &[f64] = scale.choose(
        &[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0],
        &[
            0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0,
        ],
    );
    for (algorithm, default) in ALGORITHMS {
        for &factor in factors {
            plan.cells.push(Cell::new(
                [&algorithm, &short(factor)],
                scale.choose(5, 20),
                move |repeat| error(algorithm, factor * default, repeat),
            ));
        }
    }
    Ok(plan)
}

fn judge(table: &Table) -> Verdict {
    let mut verdict = Verdict::default();
    for (algorithm, _) in ALGORITHMS {
        let at = |factor: &str| {
            let wanted = [("algorithm", algorithm), ("times_default", factor)];
            (
                table.number(&wanted, "error_mean"),
                table.number(&wanted, "step"),
            )
        };
        let (default, step) = at("1");
        let best = table
            .values("times_default")
            .into_iter()
            .map(at)
            .filter(|(error, _)| error.is_finite())
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((f64::NAN, f64::NAN));
        verdict = verdict.with(
            format!("{algorithm} needs no search: its default is within {WITHIN} times the best of the grid"),
            default <= WITHIN * best.0,
            format!(
                "{} at the default {}, {} at {}",
                digits(default, 3),
                short(step),
                digits(best.0, 3),
                short(best.1)
            ),
        );
    }
    verdict
}

fn picture(table: &Table) -> String {
    let mut chart = LineChart::new(
        "The error over the constant of the step sizes",
        Axis::log("step constant, as a multiple of the default"),
        Axis::log("error ‖v̂v̂ᵀ − vvᵀ‖_F"),
    );
    for (algorithm, _) in ALGORITHMS {
        let wanted = [("algorithm", algorithm)];
        chart.series.push(
            Series::new(
                algorithm,
                table.line(&wanted, "times_default", "error_mean"),
            )
            .with_error_bars(table.matching(&wanted).map(|r| r.number("error_std"))),
        );
    }
    chart.to_svg()
}

fn numbers(table: &Table) -> String {
    sweep::markdown(table, &["times_default"], "algorithm", "error", &[])
}

pub(crate) const LEARNING_RATE: Exhibit = Exhibit {
    id: "003-learning-rate",
    paper: Paper::Liu,
    item: "learning rates (not a figure)",
    shows: "the error over the constant of the step sizes: spiked model, p = 10, k = 1, n = 50,000, ε = 4",
    data: &[],
    lacks: Some(
        "the paper searches no grid: its step sizes are made of quantities of the distribution that are not known, and \
         it says that they may be searched for; a search by the error of the rows themselves is not private",
    ),
    minutes: Minutes {
        quick: 0.2,
        full: 1.4,
    },
    columns: &["algorithm", "times_default"],
    along: None,
    constants: &["step", "true_epsilon"],
    measures: &["error"],
    plan,
    judge,
    picture,
    numbers,
};
