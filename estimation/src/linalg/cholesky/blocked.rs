//! Cholesky factorisation of a matrix too large to be stored as a full square, as a proof of definiteness.

use eigenveil_shared::Result;
use faer::{
    Accum, Par,
    linalg::{matmul::matmul, triangular_solve::solve_lower_triangular_in_place},
};
use nalgebra::DMatrix;

use super::{factor::factorises, panels::Panels};
use crate::{
    cancel::Cancel,
    linalg::{kernels::kernels, parallel::chunks_of_rows, parallel_for_each, view, view_mut},
};

/// Rows of a panel that one thread solves for at a time.
const ROWS: usize = 1_024;

/// The finding of a factorisation in floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Definiteness {
    /// `A + E` is positive semidefinite for an E within [`rounding_of_cholesky`].
    Definite,
    /// A pivot was not a positive finite number.
    NotShown,
}

/// By how much, in spectral norm, a matrix of this dimension and trace whose factorisation succeeded may be away
/// from a positive semidefinite one: `tr(A)·γ/(1−γ)`, `γ = (p+1)u/(1−(p+1)u)`, whatever the order of the sums
/// (Higham 2002, theorem 10.3 with `‖|R|ᵀ|R|‖₂ ≤ tr(A)/(1−γ)`), twice: the kernels multiply by reciprocals.
pub(crate) fn rounding_of_cholesky(p: usize, trace: f64) -> f64 {
    let u = 0.5 * f64::EPSILON * (p as f64 + 1.0);
    let gamma = u / (1.0 - u);
    2.0 * gamma / (1.0 - 2.0 * gamma) * trace.abs()
}

/// Factorises the matrix in place, panel by panel: p³/3 multiplications, with the updates distributed over the threads.
/// `cancel` is checked before every panel.
pub(crate) fn blocked_cholesky(
    matrix: &mut Panels<f64>,
    cancel: Cancel<'_>,
) -> Result<Definiteness> {
    let width = matrix.width();
    let mut j = 0;
    while let Some((panel, later)) = matrix.split_at_mut(j) {
        cancel.check()?;
        let panel_width = panel.ncols();
        let mut corner: DMatrix<f64> = panel.rows(0, panel_width).into_owned();
        if !factorises(&mut corner) {
            return Ok(Definiteness::NotShown);
        }
        let below =
            view_mut(panel).subrows_mut(panel_width, later.first().map_or(0, DMatrix::nrows));
        parallel_for_each(chunks_of_rows(below, ROWS), |(_, rows)| {
            let solve = solve_lower_triangular_in_place;
            kernels(|| solve(view(&corner), rows.transpose_mut(), Par::Seq));
        });
        let below = view(panel).subrows(panel_width, later.first().map_or(0, DMatrix::nrows));
        parallel_for_each(later.iter_mut().enumerate(), |(i, target)| {
            let left = below.subrows(i * width, target.nrows());
            let right = left.subrows(0, target.ncols()).transpose();
            kernels(|| matmul(view_mut(target), Accum::Add, left, right, -1.0, Par::Seq));
        });
        j += 1;
    }
    Ok(Definiteness::Definite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::Threads;

    fn panels_of(matrix: &DMatrix<f64>, width: usize) -> Panels<f64> {
        let mut panels = Panels::zeros(matrix.nrows(), width);
        for (from, panel) in panels.iter_mut() {
            for j in 0..panel.ncols() {
                for i in j..panel.nrows() {
                    panel[(i, j)] = matrix[(from + i, from + j)];
                }
                // Entries above the diagonal are ignored.
                for i in 0..j {
                    panel[(i, j)] = f64::MAX;
                }
            }
        }
        panels
    }

    /// The factor is the one of the plain algorithm, in every width and with several threads.
    #[test]
    fn agrees_with_the_plain_factorisation() {
        let p = 61;
        let base = DMatrix::from_fn(p, p, |i, j| ((i * 7 + j * 11) % 13) as f64 - 6.0);
        let matrix = &base * base.transpose() + DMatrix::identity(p, p);
        let factor = nalgebra::Cholesky::new(matrix.clone()).unwrap().unpack();
        for width in [1, 8, 61, 100] {
            for threads in [1, 3] {
                let mut panels = panels_of(&matrix, width);
                let definiteness = Threads::new(threads)
                    .unwrap()
                    .run(|| blocked_cholesky(&mut panels, Cancel::NEVER).unwrap());
                assert_eq!(definiteness, Definiteness::Definite);
                // The squares at the top are factorised in a copy: compare what is below them.
                for j in 0..p {
                    for i in (j / width + 1) * width..p {
                        assert!((panels.get(i, j) - factor[(i, j)]).abs() < 1e-9);
                    }
                }
            }
        }
    }

    #[test]
    fn one_negative_eigenvalue_is_detected_anywhere() {
        let p = 40;
        for place in [0, 7, 8, 39] {
            let mut vector = nalgebra::DVector::from_fn(p, |i, _| 0.01 * (i as f64 + 1.0).sin());
            vector[place] = 1.0;
            vector /= vector.norm();
            let shift =
                |value: f64| DMatrix::identity(p, p) + &vector * vector.transpose() * (value - 1.0);
            let definiteness =
                |value| blocked_cholesky(&mut panels_of(&shift(value), 8), Cancel::NEVER).unwrap();
            assert_eq!(definiteness(1e-9), Definiteness::Definite);
            assert_eq!(definiteness(-1e-9), Definiteness::NotShown);
            assert_eq!(definiteness(f64::NAN), Definiteness::NotShown);
        }
        assert!(rounding_of_cholesky(40, 40.0) < 1e-12);
        let mut identity = panels_of(&DMatrix::identity(p, p), 8);
        let asked = std::cell::Cell::new(0);
        let is_cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        blocked_cholesky(&mut identity, Cancel::when(&is_cancelled)).unwrap_err();
        assert_eq!(asked.get(), 3);
    }
}
