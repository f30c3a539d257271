//! The proof for the whole problem: `Σ_{i≤k} λᵢ(M)` from above, by a Cholesky factorisation of all p rows.

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{candidates::KRYLOV_DIMENSION, dual::DualMatrix};
use crate::{
    cancel::Cancel,
    linalg::{
        Definiteness, Panels, StartVectors, WorkLimit, add_outer_to_panel, blocked_cholesky,
        parallel_for_each, rounding_of_cholesky,
    },
    sparse::fantope::{Accuracy, LeadingSum, start_block},
};

/// Vectors beyond the k requested.
pub(super) const GUARD: usize = 6;
/// Products of M with a block of vectors for one set of Ritz pairs.
const PRODUCTS: usize = 40;

/// `Σ_{i≤k} λᵢ(M)` estimated from Ritz values, still to be proved.
pub(super) struct LeadingSumBound {
    sum: LeadingSum,
    k: usize,
    slack: f64,
}

pub(super) enum Proof {
    /// The sum is at most this.
    Proved(f64),
    /// The factorisation broke off: an eigenvalue was missed, or rounding hides the margin.
    Failed,
}

impl LeadingSumBound {
    /// Refines the bound: ten times as accurate, with new random vectors for directions it missed.
    pub(super) fn refine(
        &self,
        matrix: &DualMatrix<'_>,
        random: &mut StartVectors,
    ) -> Result<Self> {
        let accuracy = Accuracy {
            slack: self.slack,
            sharpen: 0.1,
        };
        Self::find(matrix, &self.sum.vectors, self.k, accuracy, random)
    }

    /// Ritz pairs of M from `known` (orthonormal, `p × j`) and random vectors.
    pub(super) fn find(
        matrix: &DualMatrix<'_>,
        known: &DMatrix<f64>,
        k: usize,
        accuracy: Accuracy,
        random: &mut StartVectors,
    ) -> Result<Self> {
        let start = start_block(known, (known.nrows(), known.ncols().max(k) + GUARD), random);
        let budget = WorkLimit {
            products: PRODUCTS,
            pairs: start.ncols(),
            dimension: KRYLOV_DIMENSION,
        };
        Ok(Self {
            sum: LeadingSum::find(matrix, &start, k, &accuracy, &budget)?,
            k,
            slack: accuracy.slack,
        })
    }

    /// A lower bound on the sum.
    pub(super) fn at_least(&self) -> f64 {
        self.sum.at_least
    }

    pub(super) fn leading(&self) -> DMatrix<f64> {
        self.sum.vectors.columns(0, self.k).into_owned()
    }

    /// Factorises `t·I − M + V·diag(w)·Vᵀ`: p³/3 multiplications and 4p² bytes. `loose` ≥ 1 multiplies the distance of
    /// t from the k-th value, when any bound is needed rather than a sharp one.
    pub(super) fn prove(
        &self,
        matrix: &DualMatrix<'_>,
        loose: f64,
        cancel: Cancel<'_>,
    ) -> Result<Proof> {
        let LeadingSum {
            t,
            weights,
            vectors,
            at_most,
            ..
        } = &self.sum;
        let stored = matrix.moment().panels();
        let p = stored.dimension();
        let raised = (loose - 1.0) * (t.abs() + self.slack);
        let t = t + raised;
        let mut shifted = Panels::zeros(p, stored.width());
        parallel_for_each(
            stored.iter().zip(shifted.iter_mut()),
            |((from, stored), (_, panel))| {
                matrix.fill_panel(from, stored, panel);
                panel.neg_mut();
                for c in 0..panel.ncols() {
                    panel[(c, c)] += t;
                }
                add_outer_to_panel(panel, from, vectors, weights);
            },
        );
        let allowance = rounding_allowance(&shifted, weights);
        for (_, panel) in shifted.iter_mut() {
            for c in 0..panel.ncols() {
                panel[(c, c)] -= allowance;
            }
        }
        Ok(match blocked_cholesky(&mut shifted, cancel)? {
            Definiteness::Definite => Proof::Proved(at_most + self.k as f64 * raised),
            Definiteness::NotShown => Proof::Failed,
        })
    }
}

/// An upper bound on the effect of rounding on the smallest eigenvalue: of the factorisation, and of computing the
/// matrix, whose entries are off by `(g+3)u` times the sum of their g+2 terms.
fn rounding_allowance(shifted: &Panels<f64>, weights: &[f64]) -> f64 {
    let (mut trace, mut squares) = (0.0, 0.0);
    for (_, panel) in shifted.iter() {
        for (c, column) in panel.column_iter().enumerate() {
            trace += column[c].abs();
            squares += 2.0 * column.iter().skip(c).map(|x| x * x).sum::<f64>();
        }
    }
    let heavy: f64 = weights.iter().map(|w| w.abs()).sum();
    let terms = weights.len() as f64 + 4.0;
    let making = terms * f64::EPSILON * (squares.sqrt() + 2.0 * heavy);
    1.01 * (rounding_of_cholesky(shifted.dimension(), trace) + making)
}
