//! The iterate of both algorithms, from the random start to the answer.

use eigenveil_estimation::{
    linalg::{cross_product, fix_signs, top_k},
    models::uniform_frame,
};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::{
    CentralCalibration, Fit, Generator, Guarantee, Privacy, Request, Rows,
    oja::{DEFAULT_NUMERATOR, StepSize},
    parameter::{ITERATIONS, STEP},
    polar::polar,
    trace::Tracer,
};

/// The longest step of a run without noise: nearly a power step wherever variances are above 1/1,000.
const LONGEST_STEP: f64 = 1_000.0;
/// Part of the steps of an averaged run that is left out of the average, for the iterate to arrive.
const LEFT_OUT: f64 = 1.0 / 3.0;

/// η of every step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Steps {
    /// The same, as the paper takes it.
    Constant(f64),
    /// `c/(o + t)`.
    Falling(StepSize),
}

impl Steps {
    /// `share/R`, R a bound on the noise of a gradient: where a direction is to be found at all its variance is above R,
    /// and such a step is long. `noise` is of spectral norm, 0 for none.
    pub(super) fn for_noise(share: f64, noise: f64) -> Self {
        Self::Constant((share / noise).min(LONGEST_STEP))
    }

    /// What [`StepSize::for_variance`] gives: all of the schedule or its first step.
    pub(super) fn for_variance(variance: f64, falling: bool) -> Result<Self> {
        let usual = StepSize::for_variance(DEFAULT_NUMERATOR, variance)?;
        Ok(if falling {
            Self::Falling(usual)
        } else {
            Self::Constant(usual.at(1))
        })
    }

    /// η of step t, from 1.
    pub(super) fn at(self, t: usize) -> f64 {
        match self {
            Self::Constant(step) => step,
            Self::Falling(schedule) => schedule.at(t),
        }
    }
}

/// The step a user set, if any.
pub(super) fn step_set(step: Option<f64>) -> Result<Option<Steps>> {
    step.map(|step| STEP.check(step)).transpose()?;
    Ok(step.map(Steps::Constant))
}

/// `sd·(√p + √k)`: the usual spectral norm of a `p × k` matrix of independent `N(0, sd²)`.
pub(super) fn usual_norm(sd: f64, (p, k): (usize, usize)) -> f64 {
    sd * ((p as f64).sqrt() + (k as f64).sqrt())
}

/// Whether the paper's noise is wanted; its own numbers of steps and rows come with it.
pub(super) fn is_published(privacy: &Privacy) -> bool {
    privacy.calibration() == Some(CentralCalibration::AsPublished)
}

/// A frame that moves by noisy gradients and is made orthonormal by its polar factor.
pub(super) struct Course<'a> {
    rows: &'a Rows,
    frame: DMatrix<f64>,
    /// Average of `Vᵀ·gradient`, later ones weighing more: what orders the columns, at no cost of privacy.
    scatter: DMatrix<f64>,
    /// Sum of the later iterates, which the polar factor keeps from turning; their own polar factor is the answer.
    later: Option<DMatrix<f64>>,
    /// Steps before the first of these.
    left_out: usize,
    taken: usize,
    watched_every: usize,
    tracer: Tracer<'a>,
}

impl<'a> Course<'a> {
    /// At a uniformly random frame. `averaged`: the answer is the mean of the later iterates, in which the noise of the
    /// steps averages out, and not the last one.
    pub(super) fn start(
        rows: &'a Rows,
        request: &Request<'a>,
        steps: usize,
        averaged: bool,
        rng: &mut Generator,
    ) -> Result<Self> {
        ITERATIONS.check(steps)?;
        let (p, k) = (rows.dimension(), request.k);
        Ok(Self {
            rows,
            frame: uniform_frame(rng, p, k)?,
            scatter: DMatrix::zeros(k, k),
            later: averaged.then(|| DMatrix::zeros(p, k)),
            left_out: (steps as f64 * LEFT_OUT) as usize,
            taken: 0,
            // All of a short run, a hundred of a long one.
            watched_every: steps.div_ceil(100),
            tracer: Tracer::new(request.truth),
        })
    }

    /// `p × k`, orthonormal.
    pub(super) fn frame(&self) -> &DMatrix<f64> {
        &self.frame
    }

    /// `V ← polar(V + η·gradient)`; `passes` over the rows so far, for the trace.
    pub(super) fn step(&mut self, gradient: &DMatrix<f64>, size: f64, passes: f64) -> Result<()> {
        self.taken += 1;
        let seen = cross_product(&self.frame, gradient);
        self.scatter += (seen - &self.scatter) * (2.0 / (self.taken + 1) as f64);
        self.frame = polar(&(&self.frame + gradient * size))?;
        if let Some(later) = &mut self.later
            && self.taken > self.left_out
        {
            *later += &self.frame;
        }
        if self.tracer.is_on() && self.taken.is_multiple_of(self.watched_every) {
            let (rows, answer) = (self.rows, self.answer()?);
            self.tracer.record(self.taken, passes, &answer, |v| {
                Some(rows.multiply(v).dot(v) / rows.n() as f64)
            })?;
        }
        Ok(())
    }

    /// The mean of the iterates after the first third, if there are any and they are averaged, or the last one.
    fn answer(&self) -> Result<DMatrix<f64>> {
        match &self.later {
            Some(later) if self.taken > self.left_out => polar(later),
            _ => Ok(self.frame.clone()),
        }
    }

    /// The columns, leading first.
    pub(super) fn finish(
        self,
        privacy: Option<Guarantee>,
        facts: Vec<(&'static str, f64)>,
    ) -> Result<Fit> {
        let k = self.scatter.ncols();
        let symmetric = (&self.scatter + self.scatter.transpose()) * 0.5;
        let mut subspace = self.answer()? * top_k(&symmetric, k)?.vectors;
        fix_signs(&mut subspace);
        Ok(Fit {
            subspace,
            n: self.rows.n() as u64,
            privacy,
            trace: self.tracer.finish(),
            facts,
        })
    }
}
