//! The leading part of a spectrum that a caller chooses from the Ritz values, by block Lanczos with thick restarts, mostly
//! started from vectors that are nearly right.

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{BlockLanczos, Symmetric};

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
    /// Dimension of the space that is not exceeded, but for three blocks.
    pub(crate) dimension: usize,
}

/// Ritz pairs of the symmetric `matrix` from the span of `start`, after each product with a block, until `wanted` is met
/// or the budget is spent.
pub(crate) fn block_ritz(
    matrix: &dyn Symmetric,
    start: &DMatrix<f64>,
    budget: &WorkLimit,
    wanted: &dyn Fn(&[f64]) -> Result<RitzTarget>,
) -> Result<RitzPairs> {
    let guard = start.ncols();
    let mut lanczos = BlockLanczos::new(matrix, start);
    let mut products = 0;
    loop {
        let grown = lanczos.grow();
        products += 1;
        let mut count = 0;
        let mut accuracy = 0.0;
        let ritz = lanczos.ritz(|values| {
            RitzTarget { count, accuracy } = wanted(values)?;
            Ok(guard.max(count + 2).min(values.len()))
        })?;
        let ritz_count = ritz.residuals.len();
        let squares = ritz.residuals.iter().take(count).map(|r| r * r);
        let met = count < ritz_count && squares.sum::<f64>().sqrt() <= accuracy;
        if met || !grown || products >= budget.products || count > budget.pairs {
            return Ok(RitzPairs {
                vectors: lanczos.vectors(&ritz.coordinates),
                values: ritz.values[..ritz_count].to_vec(),
                converged: met,
            });
        }
        if lanczos.krylov_dimension() + guard > budget.dimension.max(3 * guard.max(ritz_count)) {
            lanczos.restart(&ritz);
        }
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::DVector;

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
            dimension: 0,
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
            dimension: 0,
        };
        let again = block_ritz(&matrix, &ritz.vectors, &once, &wanted).unwrap();
        assert!(again.converged);
        let mut poor = start.clone();
        poor.set_column(1, &start.column(0));
        poor.fill_column(2, 0.0);
        let ritz = block_ritz(&matrix, &poor, &budget, &wanted).unwrap();
        assert!(ritz.converged && orthonormality_defect(&ritz.vectors) < 1e-12);
        // A budget that is too small is reported.
        let ritz = block_ritz(&matrix, &start, &once, &wanted).unwrap();
        assert!(!ritz.converged);
        let few = WorkLimit {
            products: 40,
            pairs: 5,
            dimension: 0,
        };
        let ritz = block_ritz(&matrix, &start, &few, &wanted).unwrap();
        assert!(!ritz.converged);
        let zero = DMatrix::zeros(p, p);
        let ritz = block_ritz(&zero, &start, &budget, &wanted).unwrap();
        assert!(ritz.converged);
    }
}
