//! The power method on a table, without a perturbation.

use std::ops::ControlFlow;

use eigenveil_estimation::{linalg::product, metrics::projector_distance, models::uniform_frame};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{PowerRun, Shape, noisy_power, settings::SETTLING_STEPS};
use crate::{
    Baseline, Card, Fit, Generator, Request, Rows, check,
    parameter::{COLUMNS, ITERATIONS},
    trace::Tracer,
};

/// A step that moves the leading subspace by less than this has settled.
const SETTLED: f64 = 1e-11;

/// Steps a run that waits to settle is expected to make, for planning its products.
const LIKELY_STEPS: usize = 100;

/// Largest dimension whose `d × d` sum is formed (0.5 GB).
const LARGEST_SUM: usize = 8_000;

pub(crate) static CARD: Card = Card {
    name: "noisy-power",
    source: "Hardt & Price 2014, Figure 1",
    description: "block power method, X <- QR(AX + G); with any G as a closure in the library, without one here",
    guarantee: "none of its own: use private-power for privacy",
    parameters: &[ITERATIONS, COLUMNS],
    ..Card::plain(|options| {
        Ok(Box::new(NoisyPower {
            shape: Shape::set(options),
        }))
    })
};

/// `noisy-power`: the meta-algorithm with G = 0, until it settles or for [`Shape::iterations`] steps where they are set.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoisyPower {
    /// Steps and columns.
    pub shape: Shape,
}

impl Baseline for NoisyPower {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn fit(&self, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
        check(&CARD, rows.dimension(), rows.n() as u64, request)?;
        run_without_noise(self.shape, rows, request, rng)
    }
}

/// The power method on the rows, without noise.
pub(super) fn run_without_noise(
    shape: Shape,
    rows: &Rows,
    request: &Request<'_>,
    rng: &mut Generator,
) -> Result<Fit> {
    let (d, k) = (rows.dimension(), request.k);
    let columns = shape.columns(k, d)?;
    let multiply = multiplier(rows, columns, shape.iterations.unwrap_or(LIKELY_STEPS));
    let mut tracer = Tracer::new(request.truth);
    let mut before: Option<DMatrix<f64>> = None;
    let run = noisy_power(
        uniform_frame(rng, d, columns)?,
        shape.iterations.unwrap_or(SETTLING_STEPS),
        |_, x| Ok(multiply(x)),
        |run| {
            record(&mut tracer, run, &multiply, rows.n())?;
            if shape.iterations.is_some() {
                return Ok(ControlFlow::Continue(()));
            }
            let (now, _) = run.leading(k)?;
            let settled = match &before {
                Some(before) => projector_distance(before, &now)? < SETTLED,
                None => false,
            };
            before = Some(now);
            Ok(if settled {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        },
    )?;
    Ok(Fit {
        subspace: run.leading(k)?.0,
        n: rows.n() as u64,
        privacy: None,
        trace: tracer.finish(),
        facts: vec![("steps", run.steps as f64), ("columns", columns as f64)],
    })
}

/// `X ↦ (Σxxᵀ)X` for `steps` matrices of `columns` columns: by the `d × d` sum where that is less work than the rows
/// each time (`n·d²` once against `4·n·d·m` a step), and fits.
pub(super) fn multiplier(
    rows: &Rows,
    columns: usize,
    steps: usize,
) -> impl Fn(&DMatrix<f64>) -> DMatrix<f64> {
    let d = rows.dimension();
    let pays = d <= LARGEST_SUM && d < 4 * columns * steps && d < rows.n();
    let sum = pays.then(|| rows.sum_of_outer_products());
    move |x| match &sum {
        Some(sum) => product(sum, x),
        None => rows.multiply(x),
    }
}

/// Records a step of a run over the whole table.
pub(super) fn record(
    tracer: &mut Tracer<'_>,
    run: &PowerRun,
    multiply: impl Fn(&DMatrix<f64>) -> DMatrix<f64>,
    n: usize,
) -> Result<()> {
    tracer.record(run.steps, run.steps as f64, &run.basis, |leading| {
        Some(multiply(leading).dot(leading) / n as f64)
    })
}
