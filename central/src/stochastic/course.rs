//! The iterate of both algorithms, from the random start to the answer.

use eigenveil_estimation::{
    linalg::{cross_product, fix_signs, top_k},
    models::uniform_frame,
};
use eigenveil_shared::{Error, ErrorCode, Result};
use nalgebra::DMatrix;

use crate::{
    Calibration, Fit, Generator, Guarantee, Privacy, Request, Rows,
    oja::{DEFAULT_NUMERATOR, StepSize},
    polar::polar,
    trace::Tracer,
};

/// η of every step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Steps {
    /// The same, as the paper takes it.
    Constant(f64),
    /// `c/(o + t)`.
    Falling(StepSize),
}

impl Steps {
    /// Where `set` is none, what [`StepSize::for_variance`] gives: all of the schedule or its first step.
    ///
    /// # Errors
    /// `invalid-request` unless the step set is positive and finite.
    pub(super) fn new(set: Option<f64>, variance: f64, falling: bool) -> Result<Self> {
        let usual = StepSize::for_variance(DEFAULT_NUMERATOR, variance)?;
        match set {
            Some(step) if step.is_finite() && step > 0.0 => Ok(Self::Constant(step)),
            Some(step) => Err(Error::new(
                ErrorCode::InvalidRequest,
                format!("the step is {step}; it must be positive and finite"),
            )),
            None if falling => Ok(Self::Falling(usual)),
            None => Ok(Self::Constant(usual.at(1))),
        }
    }

    /// η of step t, from 1.
    pub(super) fn at(self, t: usize) -> f64 {
        match self {
            Self::Constant(step) => step,
            Self::Falling(schedule) => schedule.at(t),
        }
    }
}

/// Whether the paper's noise is wanted; its own numbers of steps and rows come with it.
pub(super) fn is_published(privacy: &Privacy) -> bool {
    matches!(
        privacy,
        Privacy::Budget {
            calibration: Calibration::AsPublished,
            ..
        }
    )
}

/// A frame that moves by noisy gradients and is made orthonormal by its polar factor.
pub(super) struct Course<'a> {
    rows: &'a Rows,
    frame: DMatrix<f64>,
    /// Average of `Vᵀ·gradient`, later ones weighing more: what orders the columns, at no cost of privacy.
    scatter: DMatrix<f64>,
    taken: usize,
    watched_every: usize,
    tracer: Tracer<'a>,
}

impl<'a> Course<'a> {
    /// At a uniformly random frame.
    ///
    /// # Errors
    /// `invalid-request` for no step.
    pub(super) fn start(
        rows: &'a Rows,
        request: &Request<'a>,
        steps: usize,
        rng: &mut Generator,
    ) -> Result<Self> {
        if steps == 0 {
            return Err(Error::new(
                ErrorCode::InvalidRequest,
                "the number of steps is 0; take at least one",
            ));
        }
        Ok(Self {
            rows,
            frame: uniform_frame(rng, rows.dimension(), request.k)?,
            scatter: DMatrix::zeros(request.k, request.k),
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
        if self.taken.is_multiple_of(self.watched_every) {
            let rows = self.rows;
            self.tracer.record(self.taken, passes, &self.frame, |v| {
                Some(rows.multiply(v).dot(v) / rows.n() as f64)
            })?;
        }
        Ok(())
    }

    /// The columns, leading first.
    pub(super) fn finish(
        self,
        privacy: Option<Guarantee>,
        facts: Vec<(&'static str, f64)>,
    ) -> Result<Fit> {
        let k = self.scatter.ncols();
        let symmetric = (&self.scatter + self.scatter.transpose()) * 0.5;
        let mut subspace = self.frame * top_k(&symmetric, k)?.vectors;
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
