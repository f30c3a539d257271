//! Example 4.1, where signal and noise are separate: how much `dp-pca` gains from the separation.

use eigenveil_central::{CentralCalibration, Options, Rows, generator};
use eigenveil_estimation::models::uniform_frame;
use eigenveil_figures::Axis;
use eigenveil_shared::{
    Result,
    preprocess::{Norm, Row},
};
use nalgebra::DMatrix;
use rand_distr::{Distribution, StandardNormal};

use crate::{
    Cell, Data, Exhibit, Minutes, Paper, PaperVerdict, Point, RunPlan, RunSize, Table,
    data::prepared,
    number::{digits, short},
    runs::{first_and_last, fit_with_error, private, true_epsilon},
    sweep,
};

const P: usize = 10;
const N: usize = 20_000;
const EPSILON: f64 = 2.0;
const DELTA: f64 = 1e-6;
const ALGORITHMS: [&str; 3] = ["dp-pca", "private-oja", "minibatch-oja"];

/// Rows ±v + σ·noise, divided by 1.5 and clipped to the unit ball (the signal, of length 2/3, is well inside); and v.
fn example(sigma: f64, repeat: u64) -> Result<(Rows, DMatrix<f64>)> {
    let mut rng = generator(Some(100 + repeat))?;
    let v = uniform_frame(&mut rng, P, 1)?;
    let raw: Vec<Row> = (0..N)
        .map(|i| {
            let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
            let noisy = v.iter().map(|v| {
                let z: f64 = StandardNormal.sample(&mut rng);
                sign * v + sigma * z
            });
            Row::new(noisy.collect())
        })
        .collect();
    Ok((prepared(&raw, Norm::Clip { radius: 1.5 })?, v))
}

fn error(algorithm: &str, sigma: f64, repeat: u64) -> Result<Vec<Point>> {
    let privacy = private(EPSILON, DELTA, CentralCalibration::Accounted)?;
    let rows = example(sigma, repeat)?;
    let mut rng = generator(Some(repeat))?;
    let (fit, error) = fit_with_error(algorithm, &Options::default(), privacy, &rows, &mut rng)?;
    Ok(vec![Point::single([true_epsilon(&fit), error])])
}

fn plan(_: &Data, size: RunSize) -> Result<RunPlan> {
    let mut plan = RunPlan::default();
    let sigmas: &[f64] = size.choose(
        &[1e-1, 1e-2, 1e-3, 1e-4, 1e-6],
        &[1e-1, 3e-2, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6],
    );
    for algorithm in ALGORITHMS {
        for &sigma in sigmas {
            plan.cells.push(Cell::new(
                [&algorithm, &short(sigma)],
                size.choose(5, 20),
                move |repeat| error(algorithm, sigma, repeat),
            ));
        }
    }
    Ok(plan)
}

fn check_claims(table: &Table) -> PaperVerdict {
    let mut verdict = PaperVerdict::default();
    for algorithm in ALGORITHMS {
        let wanted = [("algorithm", algorithm)];
        let ((little, small), (much, large)) =
            first_and_last(table, &wanted, "sigma", "error_mean");
        let evidence = format!(
            "{} at σ = {}, {} at σ = {}",
            digits(large, 3),
            short(much),
            digits(small, 3),
            short(little)
        );
        let ratio = small / large;
        verdict = if algorithm == "dp-pca" {
            verdict.with_claim(
                format!("{algorithm}'s error vanishes with σ"),
                ratio < 0.01,
                evidence,
            )
        } else {
            verdict.with_claim(
                format!("{algorithm}'s error does not vanish with σ"),
                ratio > 0.5,
                evidence,
            )
        };
    }
    verdict
}

fn to_svg(table: &Table) -> String {
    let line = |name| sweep::series(table, name, &[("algorithm", name)], "sigma", "error");
    sweep::chart(
        "Example 4.1: rows ±v + σ·noise",
        Axis::log("σ"),
        Axis::log("error ‖v̂v̂ᵀ − vvᵀ‖_F"),
        ALGORITHMS.map(line),
        [],
    )
}

pub(crate) const EXAMPLE_4_1: Exhibit = Exhibit {
    id: "liu-example-4-1",
    item: "Example 4.1 (not a figure)",
    caption: "the errors of dp-pca, private-oja and minibatch-oja where signal and noise are apart, ε = 2",
    differs_from_paper: Some(
        "the paper's rows are not bounded; here they are divided by 1.5 and clipped to the unit ball. Its β and step \
         sizes, made of unknown constants, are the defaults",
    ),
    minutes: Minutes::new(0.05, 0.3),
    key_columns: "algorithm sigma",
    per_cell: "true_epsilon",
    plan,
    check_claims,
    to_svg,
    to_markdown: |table| sweep::markdown(table, &["algorithm"], "sigma", "error", &[]),
    ..Exhibit::of_paper(Paper::Liu)
};
