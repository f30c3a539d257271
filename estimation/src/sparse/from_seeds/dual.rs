//! The dual matrix `M = S − Z` of the whole problem, made from the dual point of the candidates alone.
//!
//! With J the candidate rows, V the leading eigenvectors of `M_JJ` and `|Zᵢⱼ| ≤ λ`:
//!
//! ```text
//! J × J          Z of the solver
//! outside J      Z = clip(S, ±λ), so that M = soft(S, λ)
//! i × J, i ∉ J   the row r of M with |s − r| ≤ λ that is smallest among those with Vᵀr = 0
//! ```
//!
//! With plain clipping the rows across would tilt V and lift its eigenvalues (by 3 % of the optimum at p = 20,000);
//! with `Vᵀr = 0` the span of V is invariant, its eigenvalues are those of the candidates, and the certificate is
//! sharp whenever no row is missing. A row for which no such r exists belongs to the candidates.

use nalgebra::{Cholesky, DMatrix, DVector};

use super::matrix::LargeMatrix;
use crate::linalg::{Symmetric, parallel_for_each};

/// How much more than its length the part of a row along V weighs: it stays below 1e-8 of a row's length where it
/// can vanish.
const WEIGHT: f64 = 1e8;
/// Newton steps and halvings of one; a few of each are needed.
const STEPS: usize = 60;

/// A row not among the candidates.
const NOT_A_CANDIDATE: u32 = u32::MAX;

/// `M = S − Z − centre·I` as an operator.
pub(super) struct DualMatrix<'a> {
    moment: &'a LargeMatrix,
    lambda: f64,
    centre: f64,
    candidates: &'a [usize],
    /// Place among the candidates, or [`NOT_A_CANDIDATE`].
    place: Vec<u32>,
    /// `|J| × p`: rows J of M.
    rows: DMatrix<f64>,
}

impl<'a> DualMatrix<'a> {
    /// `soft(S − centre·I, λ)` off the diagonal: no row is a candidate yet. With λ = 0 it is S.
    pub(super) fn soft(moment: &'a LargeMatrix, lambda: f64, centre: f64) -> Self {
        Self {
            moment,
            lambda,
            centre,
            candidates: &[],
            place: vec![NOT_A_CANDIDATE; moment.dimension()],
            rows: DMatrix::zeros(0, moment.dimension()),
        }
    }

    /// From `inside`, M on the candidates (ascending), and the orthonormal columns V to keep invariant.
    pub(super) fn extend(
        moment: &'a LargeMatrix,
        lambda: f64,
        centre: f64,
        candidates: &'a [usize],
        inside: &DMatrix<f64>,
        protected: &DMatrix<f64>,
    ) -> Self {
        let mut matrix = Self::soft(moment, lambda, centre);
        for (at, &row) in (0..).zip(candidates) {
            matrix.place[row] = at;
        }
        let size = candidates.len();
        let mut rows = DMatrix::zeros(size, moment.dimension());
        let place = &matrix.place;
        let columns = rows.as_mut_slice().chunks_exact_mut(size.max(1));
        parallel_for_each(columns.enumerate(), |(i, column)| match place[i] {
            NOT_A_CANDIDATE => {
                for (out, &j) in column.iter_mut().zip(candidates) {
                    *out = moment.get(i, j);
                }
                min_row(column, protected, lambda);
            }
            at => column.copy_from_slice(inside.column(at as usize).as_slice()),
        });
        matrix.candidates = candidates;
        matrix.rows = rows;
        matrix
    }

    pub(super) fn has(&self, i: usize) -> bool {
        self.place[i] != NOT_A_CANDIDATE
    }

    /// The panel of M from row and column `from`: the lower triangle of its square, and all below it.
    pub(super) fn fill_panel(&self, from: usize, stored: &DMatrix<f32>, out: &mut DMatrix<f64>) {
        let (p, lambda) = (self.moment.dimension(), self.lambda);
        for (c, column) in out.column_iter_mut().enumerate() {
            let column = column.data.into_slice_mut();
            let whole = from + c;
            if let Some(at) = self.position(whole) {
                for (r, out) in column.iter_mut().enumerate().skip(c) {
                    *out = self.rows[(at, from + r)];
                }
                continue;
            }
            let source = &stored.as_slice()[c * stored.nrows()..][..p - from];
            for (out, &s) in column.iter_mut().zip(source) {
                let s = f64::from(s);
                *out = s - s.clamp(-lambda, lambda);
            }
            column[c] = self.moment.diagonal()[whole] - self.centre;
            let below = self.candidates.partition_point(|&row| row < whole);
            for (at, &row) in self.candidates.iter().enumerate().skip(below) {
                column[row - from] = self.rows[(at, whole)];
            }
        }
    }

    fn position(&self, row: usize) -> Option<usize> {
        (self.place[row] != NOT_A_CANDIDATE).then(|| self.place[row] as usize)
    }

    /// The panels of the moment, to be filled.
    pub(super) fn moment(&self) -> &LargeMatrix {
        self.moment
    }
}

impl Symmetric for DualMatrix<'_> {
    fn dimension(&self) -> usize {
        self.moment.dimension()
    }

    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let fill = |from: usize, stored: &DMatrix<f32>, tile: &mut DMatrix<f64>| {
            self.fill_panel(from, stored, tile);
        };
        self.moment.panels().times_filled(fill, block)
    }
}

/// Replaces a row s by the r with `|s − r| ≤ λ` that minimises `½‖r‖² + (w/2)‖Vᵀr‖²`, w = [`WEIGHT`].
///
/// The minimiser is `r = Π(Vμ)`, Π the clamp to `[s − λ, s + λ]`, where μ minimises the convex
/// `‖μ‖²/(2w) + Σ (cⱼyⱼ − ½cⱼ²)`, `y = Vμ`, `c = Π(y)`: a semismooth Newton method in as many unknowns as V has
/// columns.
fn min_row(row: &mut [f64], v: &DMatrix<f64>, lambda: f64) {
    let k = v.ncols();
    let s = row.to_vec();
    let value = |mu: &DVector<f64>, r: &mut [f64], free: &mut [bool]| {
        let y = v * mu;
        let mut total = mu.norm_squared() / (2.0 * WEIGHT);
        for (j, &y) in y.iter().enumerate() {
            r[j] = y.clamp(s[j] - lambda, s[j] + lambda);
            free[j] = (y - s[j]).abs() < lambda;
            total += r[j] * (y - 0.5 * r[j]);
        }
        total
    };
    let mut free = vec![false; s.len()];
    let mut mu = DVector::zeros(k);
    let mut current = value(&mu, row, &mut free);
    let small = 1e-14 * s.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    for _ in 0..STEPS {
        let gradient = &mu / WEIGHT + v.tr_mul(&DVector::from_column_slice(row));
        if gradient.norm() <= small {
            return;
        }
        let mut hessian = DMatrix::from_diagonal_element(k, k, 1.0 / WEIGHT);
        for (j, _) in free.iter().enumerate().filter(|(_, free)| **free) {
            let line = v.row(j);
            for b in 0..k {
                for a in 0..k {
                    hessian[(a, b)] += line[a] * line[b];
                }
            }
        }
        let Some(step) = Cholesky::new(hessian).map(|factor| factor.solve(&gradient)) else {
            return;
        };
        let slope = gradient.dot(&step);
        let mut length = 1.0;
        let (mut next_row, mut next_free) = (row.to_vec(), free.clone());
        loop {
            let next = &mu - &step * length;
            let reached = value(&next, &mut next_row, &mut next_free);
            if reached <= current - 1e-4 * length * slope {
                (mu, current) = (next, reached);
                row.copy_from_slice(&next_row);
                free.copy_from_slice(&next_free);
                break;
            }
            length *= 0.5;
            if length < 1e-9 {
                // What is gained is below rounding; any row of the box is dual feasible.
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{StartVectors, orthonormalize};

    /// Within the box, across V, and no feasible row is shorter: the optimality conditions.
    #[test]
    fn the_smallest_row_across_the_leading_directions() {
        let (rows, k) = (40, 3);
        let all = StartVectors::default().block(rows, 60);
        let v = orthonormalize(all.columns(0, k).into_owned()).unwrap();
        for j in k..60 {
            let s: Vec<f64> = all.column(j).iter().copied().collect();
            for lambda in [0.05, 0.2, 1.0] {
                let mut r = s.clone();
                min_row(&mut r, &v, lambda);
                let mut pairs = r.iter().zip(&s);
                assert!(pairs.all(|(r, s)| (r - s).abs() <= lambda + 1e-15));
                let along = v.tr_mul(&DVector::from_column_slice(&r));
                // Where λ is too small for any such row, less of it is along V than with plain clipping.
                if lambda < 0.1 {
                    let soft = DVector::from_fn(rows, |j, _| s[j] - s[j].clamp(-lambda, lambda));
                    assert!(along.norm() <= v.tr_mul(&soft).norm());
                    continue;
                }
                // y with r = Π(y), y in the span of V: the condition that the penalty implies.
                let y = &v * &along * -WEIGHT;
                let mut worst = 0.0_f64;
                for ((y, r), s) in y.iter().zip(&r).zip(&s) {
                    worst = worst.max((y.clamp(s - lambda, s + lambda) - r).abs());
                }
                assert!(worst < 1e-6, "{worst} at {lambda}");
                assert!(along.norm() < 1e-8, "{along}");
            }
            // Nothing can be moved: the row stays.
            let mut r = s.clone();
            min_row(&mut r, &v, 0.0);
            assert_eq!(r, s);
        }
    }
}
