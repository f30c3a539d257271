//! The unperturbed power method on a table.

use std::ops::ControlFlow;

use eigenveil_estimation::{linalg::product, metrics::projector_distance, models::uniform_frame};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{PowerRun, block_settings::block_size, noisy_power};
use crate::{
    AlgorithmInfo, Fit, Generator, Options, Request, Rows,
    baseline::Run,
    parameter::{BLOCK_SIZE, ITERATIONS},
    parts::trace::Tracer,
};

/// The run has converged once a step moves the leading subspace by less than this.
const CONVERGENCE_TOLERANCE: f64 = 1e-11;

/// Steps expected until convergence, for choosing how to multiply.
const EXPECTED_STEPS: usize = 100;

const MAX_SETTLING_STEPS: usize = 5_000;

/// Largest dimension whose `d × d` sum is formed (0.5 GB).
const MAX_SUM_DIMENSION: usize = 8_000;

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "noisy-power",
    source: "Hardt & Price 2014, Figure 1",
    description: "block power method, X <- QR(AX + G); the library takes any G as a closure, here G = 0",
    guarantee: "none of its own: use private-power for privacy",
    parameters: &[ITERATIONS, BLOCK_SIZE],
    ..AlgorithmInfo::nonprivate(Run::Table(run_without_noise))
};

/// The meta-algorithm with G = 0, until convergence or for the set number of iterations.
pub(super) fn run_without_noise(
    options: &Options,
    rows: &Rows,
    request: &Request<'_>,
    rng: &mut Generator,
) -> Result<Fit> {
    let (d, k) = (rows.dimension(), request.k);
    let columns = block_size(options, k, d)?;
    let set = options.count(ITERATIONS);
    let multiply = multiplier(rows, columns, set.unwrap_or(EXPECTED_STEPS));
    let mut tracer = Tracer::new(request);
    let mut before: Option<DMatrix<f64>> = None;
    let run = noisy_power(
        uniform_frame(rng, d, columns)?,
        set.unwrap_or(MAX_SETTLING_STEPS),
        |_, x| Ok(multiply(x)),
        |run| {
            record(&mut tracer, run, &multiply, rows.n())?;
            if set.is_some() {
                return Ok(ControlFlow::Continue(()));
            }
            let (now, _) = run.leading(k)?;
            let settled = match &before {
                Some(before) => projector_distance(before, &now)? < CONVERGENCE_TOLERANCE,
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
        trace: tracer.finish(),
        diagnostics: vec![("steps", run.steps as f64), ("block_size", columns as f64)],
        ..Fit::plain(run.leading(k)?.0, rows.n() as u64)
    })
}

/// `X ↦ (Σxxᵀ)X` for `steps` matrices of `columns` columns: from the `d × d` sum if that fits and is less work than
/// multiplying by the rows (`n·d²` once against `4·n·d·m` a step).
pub(super) fn multiplier(
    rows: &Rows,
    columns: usize,
    steps: usize,
) -> impl Fn(&DMatrix<f64>) -> DMatrix<f64> {
    let d = rows.dimension();
    let pays = d <= MAX_SUM_DIMENSION && d < 4 * columns * steps && d < rows.n();
    let sum = pays.then(|| rows.sum_of_outer_products());
    move |x| match &sum {
        Some(sum) => product(sum, x),
        None => rows.multiply(x),
    }
}

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
