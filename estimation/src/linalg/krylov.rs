//! The leading part of a spectrum by block Krylov with Rayleigh–Ritz and a thick restart, started from
//! vectors that are nearly right.

use eigenveil_shared::Result;
use nalgebra::{DMatrix, DVector};

use super::{Symmetric, cross_product, leading_columns, product, symmetric_eigen, view, view_mut};

/// A new direction smaller than this share of the residual it came from is rounding error.
const DEPENDENCE_TOLERANCE: f64 = 1e-8;

/// Ritz pairs: each value is a *lower* bound on the eigenvalue of its rank.
pub(crate) struct RitzPairs {
    /// Descending.
    pub(crate) values: Vec<f64>,
    /// Orthonormal, one column a value.
    pub(crate) vectors: DMatrix<f64>,
    pub(crate) converged: bool,
}

/// The part of the spectrum that a caller needs, chosen from the Ritz values so far.
pub(crate) struct RitzTarget {
    /// How many leading pairs.
    pub(crate) count: usize,
    /// ‖residuals‖_F of those pairs to reach.
    pub(crate) accuracy: f64,
}

pub(crate) struct WorkLimit {
    /// Products of the matrix with a block.
    pub(crate) products: usize,
    /// Number of pairs beyond which the search stops.
    pub(crate) pairs: usize,
}

/// Ritz pairs of the symmetric `matrix` from the span of `start`: one product with the block, then the residuals of the
/// leading pairs join the basis until `wanted` is met or the budget is spent. At most three blocks are held.
pub(crate) fn block_ritz(
    matrix: &dyn Symmetric,
    start: &DMatrix<f64>,
    budget: &WorkLimit,
    wanted: &dyn Fn(&[f64]) -> Result<RitzTarget>,
) -> Result<RitzPairs> {
    let guard = start.ncols();
    let mut basis = DMatrix::zeros(matrix.dimension(), 0);
    append_orthonormal(&mut basis, start.clone());
    let mut image = matrix.times(&basis);
    let mut products = 1;
    loop {
        let width = basis.ncols();
        let small = symmetric_eigen(&cross_product(&basis, &image))?;
        let RitzTarget { count, accuracy } = wanted(small.values.as_slice())?;
        let kept_columns = guard.max(count + 2).min(width);
        let turn = leading_columns(&small.vectors, kept_columns);
        let vectors = product(&basis, &turn);
        let rotated = product(&image, &turn);
        let mut residuals = rotated.clone();
        for (j, mut column) in residuals.column_iter_mut().enumerate() {
            column.axpy(-small.values[j], &vectors.column(j), 1.0);
        }
        let norms: Vec<f64> = residuals.column_iter().map(|c| c.norm()).collect();
        let met = count < kept_columns
            && norms[..count].iter().map(|r| r * r).sum::<f64>().sqrt() <= accuracy;
        let spent = products >= budget.products || count > budget.pairs;
        let open = 0.1 * accuracy / (count.max(1) as f64).sqrt();
        let useful: Vec<usize> = (0..kept_columns).filter(|&j| norms[j] > open).collect();
        if met || spent || useful.is_empty() {
            return Ok(RitzPairs {
                values: small.values.as_slice()[..kept_columns].to_vec(),
                vectors,
                converged: met,
            });
        }
        if width + useful.len() > 3 * guard.max(kept_columns) {
            (basis, image) = (vectors, rotated);
        }
        let before = basis.ncols();
        let directions = residuals.select_columns(&useful);
        append_orthonormal(&mut basis, directions);
        let added = basis.ncols() - before;
        if added == 0 {
            products = budget.products;
            continue;
        }
        let fresh = matrix.times(&basis.columns(before, added).into_owned());
        products += 1;
        image.resize_horizontally_mut(before + added, 0.0);
        image.columns_mut(before, added).copy_from(&fresh);
    }
}

/// Appends what is new in `directions`, each projected twice, leaving out what is dependent.
fn append_orthonormal(basis: &mut DMatrix<f64>, mut directions: DMatrix<f64>) {
    let before = basis.ncols();
    for mut column in directions.column_iter_mut() {
        let norm = column.norm();
        if norm > 0.0 {
            column /= norm;
        }
    }
    if before > 0 {
        for _ in 0..2 {
            let overlap = cross_product(basis, &directions);
            faer::linalg::matmul::matmul(
                view_mut(&mut directions),
                faer::Accum::Add,
                view(basis),
                view(&overlap),
                -1.0,
                faer::Par::Seq,
            );
        }
    }
    let mut done = Vec::new();
    for j in 0..directions.ncols() {
        let mut column: DVector<f64> = directions.column(j).into_owned();
        for pass in 0..2 {
            for &i in &done {
                let other = directions.column(i);
                let overlap = other.dot(&column);
                column.axpy(-overlap, &other, 1.0);
            }
            // After cancellation the part along the old basis has to be taken out again.
            if pass == 0 && before > 0 {
                let overlap = basis.tr_mul(&column);
                column.gemv(-1.0, basis, &overlap, 1.0);
            }
        }
        let norm = column.norm();
        if norm > DEPENDENCE_TOLERANCE {
            column /= norm;
            directions.set_column(j, &column);
            done.push(j);
        }
    }
    basis.resize_horizontally_mut(before + done.len(), 0.0);
    for (place, &j) in done.iter().enumerate() {
        basis.set_column(before + place, &directions.column(j));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{StartVectors, orthonormality_defect};

    fn graded(p: usize) -> DMatrix<f64> {
        let mut vectors = StartVectors::default();
        let mut matrix = DMatrix::from_diagonal(&DVector::from_fn(p, |i, _| {
            if i < 6 {
                3.0 - 0.2 * i as f64
            } else {
                -0.5 + i as f64 / p as f64
            }
        }));
        // Two reflections hide the axes.
        for _ in 0..2 {
            let v = vectors.draw(p);
            let h = DMatrix::identity(p, p) - &v * v.transpose() * 2.0;
            matrix = &h * matrix * &h;
        }
        (&matrix + matrix.transpose()) * 0.5
    }

    #[test]
    fn finds_the_leading_pairs() {
        let p = 150;
        let matrix = graded(p);
        let start = StartVectors::default().block(p, 9);
        let wanted = |_: &[f64]| {
            Ok(RitzTarget {
                count: 6,
                accuracy: 1e-9,
            })
        };
        let budget = WorkLimit {
            products: 40,
            pairs: 20,
        };
        let lower = DMatrix::from_fn(p, p, |i, j| if i >= j { matrix[(i, j)] } else { f64::MAX });
        let ritz = block_ritz(&lower, &start, &budget, &wanted).unwrap();
        assert!(ritz.converged);
        for j in 0..6 {
            assert!((ritz.values[j] - (3.0 - 0.2 * j as f64)).abs() < 1e-12);
        }
        assert!(orthonormality_defect(&ritz.vectors) < 1e-12);
        // From there one product is enough; a repeated or zero start column does no harm.
        let once = WorkLimit {
            products: 1,
            pairs: 20,
        };
        let again = block_ritz(&matrix, &ritz.vectors, &once, &wanted).unwrap();
        assert!(again.converged);
        let mut poor = start.clone();
        poor.set_column(1, &start.column(0));
        poor.fill_column(2, 0.0);
        let ritz = block_ritz(&matrix, &poor, &budget, &wanted).unwrap();
        assert!(ritz.converged && orthonormality_defect(&ritz.vectors) < 1e-12);
        // A budget that is too small is reported.
        let found = block_ritz(&matrix, &start, &once, &wanted).unwrap();
        assert!(!found.converged);
        let few = WorkLimit {
            products: 40,
            pairs: 5,
        };
        let found = block_ritz(&matrix, &start, &few, &wanted).unwrap();
        assert!(!found.converged);
        let zero = DMatrix::zeros(p, p);
        let found = block_ritz(&zero, &start, &budget, &wanted).unwrap();
        assert!(found.converged);
    }
}
