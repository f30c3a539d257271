//! The request to a baseline and its result.

use eigenveil_estimation::Cancel;
use nalgebra::DMatrix;
use serde::Serialize;

use crate::privacy::{Privacy, RunGuarantee};

/// A request to a baseline.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Components requested, `1 ≤ k ≤ p`.
    pub k: usize,
    /// With or without noise.
    pub privacy: Privacy,
    /// If given (`p × k`), [`Fit::trace`] is filled with errors against this subspace. The trace is computed from the
    /// rows and this truth: it is for experiments and is **never private**.
    pub truth: Option<&'a DMatrix<f64>>,
    /// Cancellation, checked between steps.
    pub cancel: Cancel<'a>,
}

impl Request<'_> {
    /// `k` components without privacy and without a trace.
    pub fn nonprivate(k: usize) -> Self {
        Self::new(k, Privacy::None)
    }

    /// `k` components with this privacy, without a trace.
    pub fn new(k: usize, privacy: Privacy) -> Self {
        Self {
            k,
            privacy,
            truth: None,
            cancel: Cancel::NEVER,
        }
    }
}

/// The result of a baseline.
#[derive(Clone, Debug)]
pub struct Fit {
    /// `p × k` orthonormal loadings, leading first.
    pub subspace: DMatrix<f64>,
    /// Rows used.
    pub n: u64,
    /// The guarantee of the noise; `None` without noise.
    pub privacy: Option<RunGuarantee>,
    /// Error and objective after each iteration, if a truth was given and the algorithm iterates.
    pub trace: Vec<TracePoint>,
    /// Named diagnostics of the run: noise scales, steps, coherence.
    pub diagnostics: Vec<(&'static str, f64)>,
}

impl Fit {
    /// Without privacy, trace and diagnostics.
    pub(crate) fn plain(subspace: DMatrix<f64>, n: u64) -> Self {
        Self {
            subspace,
            n,
            privacy: None,
            trace: Vec::new(),
            diagnostics: Vec::new(),
        }
    }
}

/// One iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TracePoint {
    /// Iterations done.
    pub iteration: usize,
    /// Rows consumed so far divided by n.
    pub passes: f64,
    /// `‖V̂V̂ᵀ − VVᵀ‖_F`.
    pub error: f64,
    /// The algorithm's own objective; `tr(V̂ᵀAV̂)/n` where it maximises variance.
    pub objective: Option<f64>,
}
