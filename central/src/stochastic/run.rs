//! The iterate of both algorithms, from the random start to the result.

use eigenveil_estimation::{
    linalg::{cross_product, fix_signs, top_k},
    models::uniform_frame,
};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::{
    CentralCalibration, Fit, Generator, Privacy, Request, Rows, RunGuarantee,
    parts::{
        polar::polar,
        trace::{Tracer, is_recorded},
    },
};

/// Maximum step size of a run without noise: nearly a power step for variances above 1/1,000.
const MAX_STEP_SIZE: f64 = 1_000.0;
/// Share of the steps of an averaged run that the average omits.
const BURN_IN_SHARE: f64 = 1.0 / 3.0;

/// The step size `share/R`, R a bound on the noise of a gradient: a direction that can be found at all has a variance
/// above R, so such a step is long. `noise` is a spectral norm, 0 without noise.
pub(super) fn step_above_noise(share: f64, noise: f64) -> f64 {
    (share / noise).min(MAX_STEP_SIZE)
}

/// `sd·(√p + √k)`: the typical spectral norm of a `p × k` matrix of independent `N(0, sd²)`.
pub(super) fn typical_spectral_norm(sd: f64, (p, k): (usize, usize)) -> f64 {
    sd * ((p as f64).sqrt() + (k as f64).sqrt())
}

/// Whether the paper's noise is used, and with it the paper's numbers of steps and rows.
pub(super) fn is_as_published(privacy: &Privacy) -> bool {
    privacy.calibration() == Some(CentralCalibration::AsPublished)
}

/// A frame updated by noisy gradients and orthonormalised by its polar factor.
pub(super) struct StochasticRun<'a> {
    rows: &'a Rows,
    frame: DMatrix<f64>,
    /// Weighted average of `Vᵀ·gradient`, later ones weighing more: orders the columns at no privacy cost.
    scatter: DMatrix<f64>,
    /// Sum of the iterates after the burn-in, which the polar factor keeps aligned; its polar factor is the result.
    iterate_sum: Option<DMatrix<f64>>,
    /// Steps before the first of these.
    burn_in: usize,
    steps_done: usize,
    steps: usize,
    tracer: Tracer<'a>,
}

impl<'a> StochasticRun<'a> {
    /// Starts at a uniformly random frame. If `averaged`, the result is the mean of the iterates after the burn-in, in
    /// which the noise of the steps averages out, instead of the last one.
    pub(super) fn start(
        rows: &'a Rows,
        request: &Request<'a>,
        steps: usize,
        averaged: bool,
        rng: &mut Generator,
    ) -> Result<Self> {
        let (p, k) = (rows.dimension(), request.k);
        Ok(Self {
            rows,
            frame: uniform_frame(rng, p, k)?,
            scatter: DMatrix::zeros(k, k),
            iterate_sum: averaged.then(|| DMatrix::zeros(p, k)),
            burn_in: (steps as f64 * BURN_IN_SHARE) as usize,
            steps_done: 0,
            steps,
            tracer: Tracer::new(request),
        })
    }

    /// `p × k`, orthonormal.
    pub(super) fn frame(&self) -> &DMatrix<f64> {
        &self.frame
    }

    /// `V ← polar(V + η·gradient)`; `passes` is the number of passes over the rows so far, for the trace.
    pub(super) fn step(&mut self, gradient: &DMatrix<f64>, size: f64, passes: f64) -> Result<()> {
        self.tracer.check_cancelled()?;
        self.steps_done += 1;
        let projected = cross_product(&self.frame, gradient);
        self.scatter += (projected - &self.scatter) * (2.0 / (self.steps_done + 1) as f64);
        self.frame = polar(&(&self.frame + gradient * size))?;
        if let Some(iterate_sum) = &mut self.iterate_sum
            && self.steps_done > self.burn_in
        {
            *iterate_sum += &self.frame;
        }
        if self.tracer.is_on() && is_recorded(self.steps_done, self.steps) {
            let (rows, result) = (self.rows, self.result()?);
            self.tracer.record(self.steps_done, passes, &result, |v| {
                Some(rows.multiply(v).dot(v) / rows.n() as f64)
            })?;
        }
        Ok(())
    }

    /// The mean of the iterates after the burn-in if they are averaged, otherwise the last iterate.
    fn result(&self) -> Result<DMatrix<f64>> {
        match &self.iterate_sum {
            Some(iterate_sum) if self.steps_done > self.burn_in => polar(iterate_sum),
            _ => Ok(self.frame.clone()),
        }
    }

    /// The columns, leading first.
    pub(super) fn finish(
        self,
        privacy: Option<RunGuarantee>,
        diagnostics: Vec<(&'static str, f64)>,
    ) -> Result<Fit> {
        let k = self.scatter.ncols();
        let symmetric = (&self.scatter + self.scatter.transpose()) * 0.5;
        let mut subspace = self.result()? * top_k(&symmetric, k)?.vectors;
        fix_signs(&mut subspace);
        Ok(Fit {
            subspace,
            n: self.rows.n() as u64,
            privacy,
            trace: self.tracer.finish(),
            diagnostics,
        })
    }
}
