//! What is asked of a baseline and what it answers.

use nalgebra::DMatrix;

use crate::privacy::{RunGuarantee, Privacy};

/// What is asked of a baseline.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Components wanted, `1 ≤ k ≤ p`.
    pub k: usize,
    /// With or without noise.
    pub privacy: Privacy,
    /// Where given (`p × k`), [`Fit::trace`] is filled, with errors against this subspace. The trace is made
    /// from the rows and from this truth: it is for experiments and is **never private**.
    pub truth: Option<&'a DMatrix<f64>>,
}

impl Request<'_> {
    /// `k` components without privacy and without a trace.
    pub fn nonprivate(k: usize) -> Self {
        Self {
            k,
            privacy: Privacy::None,
            truth: None,
        }
    }

    /// `k` components with this privacy, without a trace.
    pub fn new(k: usize, privacy: Privacy) -> Self {
        Self {
            k,
            privacy,
            truth: None,
        }
    }
}

/// What a baseline found.
#[derive(Clone, Debug)]
pub struct Fit {
    /// `p × k` orthonormal loadings, leading first.
    pub subspace: DMatrix<f64>,
    /// Rows seen.
    pub n: u64,
    /// What the noise gives; `None` for a run without any.
    pub privacy: Option<RunGuarantee>,
    /// Error and objective after each iteration, where a truth was given and there are iterations.
    pub trace: Vec<TracePoint>,
    /// Numbers of the run worth showing: noise scales, steps, coherence; each with its name.
    pub diagnostics: Vec<(&'static str, f64)>,
}

/// One iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
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
