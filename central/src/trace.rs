//! The trace of a run.

use eigenveil_estimation::metrics::projector_distance;
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::TracePoint;

/// Whether step t of `steps` gets a trace point: every step of a short run, a hundred of a long one.
pub(crate) fn is_recorded(t: usize, steps: usize) -> bool {
    t.is_multiple_of(steps.div_ceil(100)) || t == steps
}

/// Collects trace points if a truth is given, and costs nothing otherwise.
pub(crate) struct Tracer<'a> {
    truth: Option<&'a DMatrix<f64>>,
    points: Vec<TracePoint>,
}

impl<'a> Tracer<'a> {
    pub(crate) fn new(truth: Option<&'a DMatrix<f64>>) -> Self {
        Self {
            truth,
            points: Vec::new(),
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.truth.is_some()
    }

    /// Records the leading k columns of `basis`; `objective` is evaluated only if it is recorded.
    pub(crate) fn record(
        &mut self,
        iteration: usize,
        passes: f64,
        basis: &DMatrix<f64>,
        objective: impl FnOnce(&DMatrix<f64>) -> Option<f64>,
    ) -> Result<()> {
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
