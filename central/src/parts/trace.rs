//! The trace of a run.

use eigenveil_estimation::{Cancel, metrics::projector_distance};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::{Request, TracePoint};

/// Whether step t of `steps` gets a trace point: every step of a short run, a hundred of a long one.
pub(crate) fn is_recorded(t: usize, steps: usize) -> bool {
    t.is_multiple_of(steps.div_ceil(100)) || t == steps
}

/// Collects trace points if a truth is given, and ends a run that was cancelled.
pub(crate) struct Tracer<'a> {
    truth: Option<&'a DMatrix<f64>>,
    cancel: Cancel<'a>,
    points: Vec<TracePoint>,
}

impl<'a> Tracer<'a> {
    pub(crate) fn new(request: &Request<'a>) -> Self {
        Self {
            truth: request.truth,
            cancel: request.cancel,
            points: Vec::new(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.truth.is_some()
    }

    /// # Errors
    /// When the run was cancelled.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        self.cancel.check()
    }

    /// Records the leading k columns of `basis`; `objective` is evaluated only if it is recorded.
    pub(crate) fn record(
        &mut self,
        iteration: usize,
        passes: f64,
        basis: &DMatrix<f64>,
        objective: impl FnOnce(&DMatrix<f64>) -> Option<f64>,
    ) -> Result<()> {
        self.check_cancelled()?;
        if let Some(truth) = self.truth {
            let leading = basis.columns(0, truth.ncols()).into_owned();
            self.points.push(TracePoint {
                iteration,
                passes,
                error: projector_distance(&leading, truth)?,
                objective: objective(&leading),
            });
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Vec<TracePoint> {
        self.points
    }
}
