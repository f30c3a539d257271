//! `dp-pca`: minibatch ascent with private estimates in place of clipping (Liu et al. 2022, Algorithm 3).

mod budget;
mod constants;
mod estimates;
mod histogram;

use eigenveil_estimation::{
    linalg::{fix_signs, orthonormalize},
    models::uniform_frame,
};
use eigenveil_shared::{Error, Result};
use nalgebra::{DMatrix, DVector};

use self::{
    budget::StepBudget,
    constants::Constants,
    estimates::{mean, top_eigenvalue},
};
use crate::{
    AlgorithmInfo, Fit, Generator, Options, Privacy, Request, Rows,
    baseline::Run,
    input::stream::shuffled,
    oja::{StepSize, gradient_sensitivity},
    parameter::{BATCH, DEFLATION, GROUP_ROWS, GROUPS, STEP_SIZE, TAIL_POWER, TAIL_SCALE, ZETA},
    parts::trace::Tracer,
};

pub(crate) static INFO: AlgorithmInfo = AlgorithmInfo {
    name: "dp-pca",
    source: "Liu et al. 2022, Algorithm 3",
    description: "Oja over minibatches, each with a private estimate of its gradients' spread and then of their mean",
    guarantee: "accounted: (eps,delta), since batches and their halves are disjoint; the published split spends half of it",
    parameters: &[
        BATCH,
        STEP_SIZE.with_default(NUMERATOR),
        DEFLATION,
        ZETA.with_default(Constants::DEFAULT.zeta),
        TAIL_SCALE.with_default(Constants::DEFAULT.tail_scale),
        TAIL_POWER.with_default(Constants::DEFAULT.tail_power),
        GROUPS.with_default(Constants::DEFAULT.group_factor),
        GROUP_ROWS.with_default(Constants::DEFAULT.group_rows as f64),
    ],
    ..AlgorithmInfo::private(Run::Table(fit))
};

/// Number of steps when no batch size is given: noise decreases with the batch size, and few steps of nearly the power
/// method are better than many noisy ones.
const DEFAULT_STEPS: usize = 10;

/// c of the step sizes `c/t`: large enough that the few steps are nearly power steps.
const NUMERATOR: f64 = 1_000.0;

/// One ascent for all components or, with deflation, one per component over n/k rows.
struct Ascent {
    schedule: StepSize,
    budget: Option<StepBudget>,
    /// Steps and rows of each.
    sizes: (usize, usize),
}

/// Steps over `n` rows and rows of each.
fn sizes(n: usize, set: Option<usize>, budget: Option<&StepBudget>) -> Result<(usize, usize)> {
    let least = budget.map_or(1, StepBudget::min_rows);
    let default = n.div_ceil(DEFAULT_STEPS).max(least);
    let batch = set.unwrap_or(default);
    if batch < least {
        return Err(Error::invalid_request(format!(
            "a batch of {batch} rows; this budget needs {least} for the histograms to fill: use more, or a larger budget"
        )));
    }
    let steps = n / batch;
    if steps == 0 {
        return Err(Error::invalid_request(format!(
            "{n} rows for a component; one step needs {batch} at this budget: give n >= {batch} (times k with deflation), or a larger epsilon or delta"
        )));
    }
    Ok((steps, n / steps))
}

impl Ascent {
    /// `k` directions from these rows, orthogonal to `found`.
    fn ascend(
        &self,
        rows: &[DVector<f64>],
        found: &DMatrix<f64>,
        k: usize,
        tracer: &mut Tracer<'_>,
        rng: &mut Generator,
    ) -> Result<DMatrix<f64>> {
        let d = found.nrows();
        let (steps, batch) = self.sizes;
        let across = |w: DMatrix<f64>| &w - found * (found.transpose() * &w);
        let mut w = orthonormalize(across(uniform_frame(rng, d, k)?))?;
        for step in 0..steps {
            let part = &rows[step * batch..(step + 1) * batch];
            let gradient = self.gradient(part, &w, rng)?;
            let moved = &w + gradient * self.schedule.at(step + 1);
            w = orthonormalize(across(moved))?;
            tracer.check_cancelled()?;
            if found.ncols() == 0 {
                let passes = ((step + 1) * batch) as f64 / rows.len() as f64;
                tracer.record(step + 1, passes, &w, |_| None)?;
            }
        }
        Ok(w)
    }

    /// The (private) mean of `x(xᵀW)` over the second part of a batch.
    fn gradient(
        &self,
        rows: &[DVector<f64>],
        w: &DMatrix<f64>,
        rng: &mut Generator,
    ) -> Result<DMatrix<f64>> {
        let (d, k) = w.shape();
        let flat = |rows: &[DVector<f64>]| {
            let mut gradients = DMatrix::zeros(d * k, rows.len());
            for (x, mut column) in rows.iter().zip(gradients.column_iter_mut()) {
                column.copy_from_slice((x * (x.transpose() * w)).as_slice());
            }
            gradients
        };
        let Some(budget) = &self.budget else {
            return Ok(DMatrix::from_column_slice(
                d,
                k,
                flat(rows).column_mean().as_slice(),
            ));
        };
        let (first, second) = rows.split_at(budget.eigenvalue_rows());
        let unfilled = |what: &str| {
            Error::estimate_failed(format!(
                "{what} has no bin above its threshold in a batch of {} rows; take a batch of {} or more, or a larger budget",
                rows.len(),
                2 * rows.len()
            ))
        };
        let eigenvalue = top_eigenvalue(&flat(first), budget, rng)?
            .ok_or_else(|| unfilled("the gradients' spread"))?;
        // The factor of two is the paper's.
        let mean = mean(&flat(second), 2.0 * eigenvalue, budget, rng)
            .ok_or_else(|| unfilled("the gradients' mean"))?;
        Ok(DMatrix::from_column_slice(d, k, mean.as_slice()))
    }
}

/// Its noise scales with the spread of a batch's gradients, not their length, so it vanishes if rows agree. It needs
/// many rows: each estimate is a histogram that must fill. Fails with `invalid-request` that names the rows needed, and
/// `estimate-failed` where a histogram does not fill.
fn fit(options: &Options, rows: &Rows, request: &Request<'_>, rng: &mut Generator) -> Result<Fit> {
    let (n, d, k) = (rows.n(), rows.dimension(), request.k);
    // All at once, an orthonormal block whose gradient is one vector of p·k numbers, or one after another.
    let (runs, block) = match options.is_set(DEFLATION) {
        false => (1, k),
        true => (k, 1),
    };
    let (budget, promised) = match request.privacy {
        Privacy::None => (None, None),
        Privacy::Private(target) => {
            let step = StepBudget::new(
                target.budget,
                target.calibration,
                d * block,
                gradient_sensitivity(target.neighbours, 1.0, block),
                Constants::from_options(options),
            )?;
            // Every row is used in one part of one step of one run.
            let promised = target.guarantee(Some(step.epsilon), None);
            (Some(step), Some(promised))
        }
    };
    let each = n / runs;
    let sizes = sizes(each, options.count(BATCH), budget.as_ref())?;
    let numerator = options.number(STEP_SIZE).unwrap_or(NUMERATOR);
    let ascent = Ascent {
        schedule: StepSize::new(numerator, 0.0)?,
        budget,
        sizes,
    };
    let table: Vec<DVector<f64>> = shuffled(rows, rng)
        .map(|row| Ok(DVector::from_column_slice(row?.as_slice())))
        .collect::<Result<_>>()?;
    let mut tracer = Tracer::new(&Request {
        truth: request.truth.filter(|_| runs == 1),
        ..*request
    });
    let mut components = DMatrix::zeros(d, 0);
    for run in 0..runs {
        let part = &table[run * each..(run + 1) * each];
        let next = ascent.ascend(part, &components, block, &mut tracer, rng)?;
        let columns: Vec<_> = components.column_iter().chain(next.column_iter()).collect();
        components = DMatrix::from_columns(&columns);
    }
    fix_signs(&mut components);
    Ok(Fit {
        privacy: promised,
        trace: tracer.finish(),
        diagnostics: vec![("steps", sizes.0 as f64), ("batch", sizes.1 as f64)],
        ..Fit::plain(components, n as u64)
    })
}
