//! The problem in the units the solver works in, on the rows that matter, and the way back.

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::screening::Screen;
use crate::linalg::{cross_product, fix_signs, product, submatrix, symmetric_eigen, top_k};

/// Entries of Y below this share of the largest are round-off.
const PRUNE: f64 = 1e-10;

/// Off-diagonal entries of Y up to this are not distinguished from zero.
fn min_representable_entry(y: &DMatrix<f64>, primal_residual: f64) -> f64 {
    primal_residual.max(PRUNE * y.amax())
}

/// Why the solver stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The gap is within tolerance, and so are the residuals or 200 iterations have been made.
    Converged,
    /// The iteration cap was reached; the gap bounds the distance from the optimum.
    IterationCap,
    /// The gap is below [`AdmmSettings::noise_gap`](super::AdmmSettings::noise_gap) and convergence is slow: more iterations would fit the
    /// noise more exactly.
    WithinNoise,
}

/// The solver's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// X: `p × p`, in the Fantope; what objective and gap are evaluated at.
    pub x: DMatrix<f64>,
    /// Y: `p × p`, exactly sparse, equal to X up to the primal residual.
    pub y: DMatrix<f64>,
    /// V: `p × k`, orthonormal, rows outside the support exactly zero. The top-k eigenvectors of Y on
    /// the support (of Y, because X has round-off everywhere), turned within their span so that
    /// `VᵀS̃V` is diagonal and descending: X is close to a projector, whose own eigenvectors are arbitrary.
    pub vectors: DMatrix<f64>,
    /// Rows with a nonzero loading, ascending; at least k of them.
    pub support: Vec<usize>,
    /// Z: `p × p`, the dual point of the gap, zero on the diagonal and at most λ off it; in units of the moment.
    pub dual: DMatrix<f64>,
    /// The λ used.
    pub lambda: f64,
    /// `⟨S̃,X⟩ − λ‖X‖₁,₁`.
    pub objective: f64,
    /// Proved upper bound on the optimum minus `objective`, in its units; ≥ 0 up to rounding.
    pub gap: f64,
    /// The gap relative to `Σ_{i≤k} λᵢ(S̃ − (tr S̃/p)·I)`, which no offset of S̃ changes, over the rows that
    /// λ does not rule out (so never smaller than relative to all rows).
    pub relative_gap: f64,
    /// ‖X−Y‖_F.
    pub primal_residual: f64,
    /// ρ‖Y−Y_prev‖_F, in units of the moment's entries.
    pub dual_residual: f64,
    /// Iterations made.
    pub iterations: usize,
    /// ρ at the end, in units of the moment's entries.
    pub rho: f64,
    /// Why it stopped.
    pub stop: Stop,
}

impl Solution {
    /// Whether gap and residuals are within tolerance.
    pub fn converged(&self) -> bool {
        self.stop == Stop::Converged
    }

    pub(crate) fn min_representable_entry(&self) -> f64 {
        min_representable_entry(&self.y, self.primal_residual)
    }
}

/// The problem on the rows the [`Screen`] keeps, with the mean eigenvalue of the whole moment subtracted
/// and the largest entry brought to 1: every constant of the iteration is then a pure number, and S̃ of
/// size 1e-6 or 1e6 behaves the same.
pub(super) struct ScaledProblem {
    pub(super) k: usize,
    pub(super) s: DMatrix<f64>,
    pub(super) lambda: f64,
    pub(super) scale: f64,
    pub(super) screen: Screen,
    original_lambda: f64,
    centre: f64,
}

/// An (X, Y) pair on the screened rows, with its certificate, in scaled units.
pub(super) struct ScaledSolution {
    pub(super) x: DMatrix<f64>,
    pub(super) y: DMatrix<f64>,
    pub(super) z: DMatrix<f64>,
    /// Upper bound on the optimum; `None` where X is known to be optimal.
    pub(super) bound: Option<f64>,
    /// Unit of the relative gap.
    pub(super) unit: f64,
    pub(super) primal_residual: f64,
    pub(super) dual_residual: f64,
    pub(super) iterations: usize,
    pub(super) rho: f64,
    pub(super) stop: Stop,
}

impl ScaledProblem {
    pub(super) fn new(moment: &DMatrix<f64>, k: usize, lambda: f64, screen: Screen) -> Self {
        let p = moment.nrows();
        // Summed as shares, so that entries near the largest double do not overflow.
        let centre: f64 = moment.diagonal().iter().map(|x| x / p as f64).sum();
        let mut s = if screen.rows.len() == p {
            moment.clone()
        } else {
            submatrix(moment, &screen.rows)
        };
        for i in 0..s.nrows() {
            s[(i, i)] -= centre;
        }
        let largest = s.amax();
        let scale = if largest > 0.0 { largest } else { 1.0 };
        // Not `s /= scale`, which multiplies by an inverse that can overflow.
        s.apply(|entry| *entry /= scale);
        Self {
            k,
            s,
            lambda: lambda / scale,
            scale,
            screen,
            original_lambda: lambda,
            centre,
        }
    }

    pub(super) fn closed_form(&self) -> Option<ScaledSolution> {
        let m = self.s.nrows();
        let chosen: Vec<usize> = if self.k == m {
            (0..m).collect()
        } else if !self.screen.joined {
            // Z = the off-diagonal of S̃ is dual feasible: the k largest diagonal entries are optimal.
            let mut order: Vec<usize> = (0..m).collect();
            order.sort_by(|&a, &b| self.s[(b, b)].total_cmp(&self.s[(a, a)]).then(a.cmp(&b)));
            order.truncate(self.k);
            order
        } else {
            return None;
        };
        let mut x = DMatrix::zeros(m, m);
        for i in chosen {
            x[(i, i)] = 1.0;
        }
        Some(ScaledSolution {
            y: x.clone(),
            x,
            z: self.clipped(),
            bound: None,
            unit: 1.0,
            primal_residual: 0.0,
            dual_residual: 0.0,
            iterations: 0,
            rho: 1.0,
            stop: Stop::Converged,
        })
    }

    /// `clip(S, ±λ)` off the diagonal, zero on it.
    pub(super) fn clipped(&self) -> DMatrix<f64> {
        let mut z = self.s.map(|entry| entry.clamp(-self.lambda, self.lambda));
        z.fill_diagonal(0.0);
        z
    }

    /// `⟨S,X⟩ − λ Σ_{i≠j}|Xᵢⱼ|`.
    fn objective(&self, x: &DMatrix<f64>) -> f64 {
        let penalty: f64 = x.iter().map(|v| v.abs()).sum::<f64>()
            - x.diagonal().iter().map(|v| v.abs()).sum::<f64>();
        self.s.dot(x) - self.lambda * penalty
    }

    /// Back to all rows and to the units of the moment, with loadings and support.
    pub(super) fn finish(
        self,
        moment: &DMatrix<f64>,
        mut found: ScaledSolution,
    ) -> Result<Solution> {
        let p = moment.nrows();
        self.screen.pinch(&mut found.x);
        self.screen.pinch(&mut found.y);
        let support = self.support(&found);
        let on_support = top_k(&submatrix(&found.y, &support), self.k)?.vectors;
        let within = cross_product(
            &on_support,
            &product(&submatrix(&self.s, &support), &on_support),
        );
        let turned = product(&on_support, &symmetric_eigen(&within)?.vectors);
        let support: Vec<usize> = support.iter().map(|&row| self.screen.rows[row]).collect();
        let mut vectors = embed(&turned, &support, p);
        fix_signs(&mut vectors);
        let objective = self.objective(&found.x);
        let rounding = 1e-14 * self.k as f64 * found.unit.max(1.0);
        let gap = match found.bound {
            Some(bound) if (bound - objective).abs() > rounding => bound - objective,
            Some(bound) => (bound - objective).max(0.0),
            None => 0.0,
        };
        // Σ|Xᵢᵢ| = k times λ is the constant that the scaled problem leaves out.
        let offset = (self.centre - self.original_lambda) * self.k as f64;
        found.z *= self.scale;
        let (x, y, dual) = if self.screen.keeps_every_row(p) {
            (found.x, found.y, found.z)
        } else {
            let lambda = self.original_lambda;
            let mut dual = moment.map(|entry| entry.clamp(-lambda, lambda));
            dual.fill_diagonal(0.0);
            let (mut x, mut y) = (DMatrix::zeros(p, p), DMatrix::zeros(p, p));
            self.screen.embed(&found.z, &mut dual);
            self.screen.embed(&found.x, &mut x);
            self.screen.embed(&found.y, &mut y);
            (x, y, dual)
        };
        Ok(Solution {
            objective: self.scale * objective + offset,
            vectors,
            support,
            lambda: self.original_lambda,
            gap: self.scale * gap,
            relative_gap: gap / found.unit,
            primal_residual: found.primal_residual,
            dual_residual: self.scale * found.dual_residual,
            iterations: found.iterations,
            rho: self.scale * found.rho,
            stop: found.stop,
            dual,
            x,
            y,
        })
    }

    /// Rows of Y with an off-diagonal entry larger than ‖X−Y‖_F, or a diagonal one ten times that.
    ///
    /// An entry below the primal residual is not distinguished from zero: at a gap of 1e-6 the iterates still had up to
    /// fifty rows of such entries in addition to the fifteen that matter; with this rule the support at 1e-6 equalled
    /// the one at 1e-9 in every case tried. As the residual vanishes only round-off is pruned. The trace is k and no
    /// diagonal entry of X exceeds 1, so at least k rows are nonzero; an iterate that stops far from the optimum is
    /// completed with the rows of largest diagonal.
    fn support(&self, found: &ScaledSolution) -> Vec<usize> {
        let m = self.s.nrows();
        let off_diagonal = min_representable_entry(&found.y, found.primal_residual);
        let diagonal = 1e-6_f64.max(10.0 * found.primal_residual);
        let mut active: Vec<bool> = (0..m)
            .map(|j| {
                let column = found.y.column(j);
                column
                    .iter()
                    .enumerate()
                    .any(|(i, &y)| i != j && y.abs() > off_diagonal)
                    || column[j] > diagonal
            })
            .collect();
        let mut order: Vec<usize> = (0..m).collect();
        order.sort_by(|&a, &b| found.x[(b, b)].total_cmp(&found.x[(a, a)]).then(a.cmp(&b)));
        let mut missing = self
            .k
            .saturating_sub(active.iter().filter(|&&on| on).count());
        for row in order {
            if missing > 0 && !active[row] {
                active[row] = true;
                missing -= 1;
            }
        }
        (0..m).filter(|&row| active[row]).collect()
    }
}

/// Rows of `vectors` placed at `support` in `p` rows of zeros.
pub fn embed(vectors: &DMatrix<f64>, support: &[usize], p: usize) -> DMatrix<f64> {
    let mut embedded = DMatrix::zeros(p, vectors.ncols());
    for (a, &row) in support.iter().enumerate() {
        embedded.set_row(row, &vectors.row(a));
    }
    embedded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(k: usize) -> ScaledProblem {
        ScaledProblem::new(&DMatrix::zeros(4, 4), k, 0.0, Screen::keep_every_row(4))
    }

    fn scaled_solution(y: DMatrix<f64>, primal_residual: f64) -> ScaledSolution {
        ScaledSolution {
            x: y.clone(),
            z: DMatrix::zeros(y.nrows(), y.ncols()),
            y,
            bound: None,
            unit: 1.0,
            primal_residual,
            dual_residual: 0.0,
            iterations: 1,
            rho: 1.0,
            stop: Stop::IterationCap,
        }
    }

    /// A row is selected only if the residual distinguishes it from zero.
    #[test]
    fn support_depends_on_the_residual_reached() {
        let problem = problem(1);
        let mut y = DMatrix::zeros(4, 4);
        (y[(0, 0)], y[(2, 2)]) = (0.5, 0.5);
        (y[(0, 2)], y[(2, 0)]) = (0.5, 0.5);
        (y[(0, 3)], y[(3, 0)]) = (1e-5, 1e-5);
        (y[(0, 1)], y[(1, 0)]) = (1e-12, 1e-12);
        assert_eq!(problem.support(&scaled_solution(y.clone(), 1e-4)), [0, 2]);
        assert_eq!(
            problem.support(&scaled_solution(y.clone(), 1e-6)),
            [0, 2, 3]
        );
        // Round-off stays out however small the residual.
        assert_eq!(problem.support(&scaled_solution(y, 0.0)), [0, 2, 3]);
    }

    /// An iterate too far from the optimum to show k rows is filled up, never an error.
    #[test]
    fn a_short_support_is_completed() {
        let mut y = DMatrix::zeros(4, 4);
        (y[(1, 1)], y[(3, 3)], y[(0, 0)]) = (1.0, 1e-9, 1e-8);
        assert_eq!(problem(3).support(&scaled_solution(y, 1e-3)), [0, 1, 3]);
    }
}
