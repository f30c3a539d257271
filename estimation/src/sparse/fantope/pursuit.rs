//! Sparse orthogonal iteration: a power method whose iterates have s rows.

use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use crate::linalg::{Symmetric, orthonormalize};

/// Number of iterations without a change after which the rows count as settled.
const MAX_ITERATIONS_WITHOUT_GAIN: usize = 5;
const MAX_ITERATIONS: usize = 1_000;

/// Sparse orthogonal iteration pursuit (Wang, Lu & Liu 2014, Algorithm 1) from `start` (`p × k`): keep the `rows` rows
/// of largest norm, orthonormalise, multiply by the matrix, orthonormalise, and repeat until the rows are stable. The
/// paper's matrix is positive semidefinite: an eigenvalue far below zero would attract the iteration too.
///
/// Returns the initial support and the final support, each ascending. The result depends on the start: it is a local
/// optimum at best, so a caller without a good start tries several.
///
/// # Errors
/// `invalid-request` unless `k ≤ rows ≤ p` and the start has the matrix's dimension.
pub fn pursue(
    matrix: &dyn Symmetric,
    start: &DMatrix<f64>,
    rows: usize,
) -> Result<[Vec<usize>; 2]> {
    let (p, k) = start.shape();
    let reject = |detail: String| Err(Error::invalid_request(detail));
    if matrix.dimension() != p {
        return reject(format!(
            "the start has {p} rows and the matrix {}; they must be equal",
            matrix.dimension()
        ));
    }
    if rows < k || rows > p {
        return reject(format!(
            "{rows} rows are requested; k = {k} components need between {k} and p = {p}"
        ));
    }
    let first = largest_rows(start, rows);
    let mut support = first.clone();
    let mut vectors = truncated(start, &support)?;
    let mut unchanged = 0;
    for _ in 0..MAX_ITERATIONS {
        let image = filled_basis(&matrix.times(&vectors), &support)?;
        let next = largest_rows(&image, rows);
        vectors = truncated(&image, &next)?;
        unchanged = if next == support { unchanged + 1 } else { 0 };
        support = next;
        if unchanged == MAX_ITERATIONS_WITHOUT_GAIN {
            break;
        }
    }
    Ok([first, support])
}

/// The `count` rows of largest norm, ascending; of equal ones the first.
fn largest_rows(vectors: &DMatrix<f64>, count: usize) -> Vec<usize> {
    let norms: Vec<f64> = vectors.row_iter().map(|row| row.norm_squared()).collect();
    let mut order: Vec<usize> = (0..norms.len()).collect();
    order.sort_by(|&a, &b| norms[b].total_cmp(&norms[a]).then(a.cmp(&b)));
    order.truncate(count);
    order.sort_unstable();
    order
}

/// An orthonormal basis of the columns with the other rows set to zero.
fn truncated(vectors: &DMatrix<f64>, support: &[usize]) -> Result<DMatrix<f64>> {
    let (p, k) = vectors.shape();
    let mut truncated_rows = DMatrix::zeros(p, k);
    for &row in support {
        truncated_rows.set_row(row, &vectors.row(row));
    }
    filled_basis(&truncated_rows, support)
}

/// An orthonormal basis with as many vectors as columns; if the columns span fewer dimensions, unit vectors of these
/// rows complete it.
fn filled_basis(columns: &DMatrix<f64>, rows: &[usize]) -> Result<DMatrix<f64>> {
    if let Ok(basis) = orthonormalize(columns.clone()) {
        return Ok(basis);
    }
    let (p, k) = columns.shape();
    let mut basis = DMatrix::zeros(p, 0);
    let axes = rows.iter().map(|&row| {
        let mut axis = nalgebra::DVector::zeros(p);
        axis[row] = 1.0;
        axis
    });
    let own_columns = (0..k).map(|j| columns.column(j).into_owned());
    for column in own_columns.chain(axes) {
        if basis.ncols() == k {
            break;
        }
        let width = basis.ncols();
        let mut longer = basis.clone().resize_horizontally(width + 1, 0.0);
        longer.set_column(width, &column);
        // A dependent column is left out.
        if let Ok(orthonormal) = orthonormalize(longer) {
            basis = orthonormal;
        }
    }
    Ok(basis)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;
    use rand::{SeedableRng, rngs::ChaCha8Rng};

    use super::*;
    use crate::{
        cancel::Cancel,
        metrics::projector_distance,
        models::Model,
        sparse::fantope::{AdmmSettings, refit, solve},
    };

    fn relaxed(moment: &DMatrix<f64>, lambda: f64) -> DMatrix<f64> {
        let settings = AdmmSettings::default();
        let solution = solve(moment, 3, lambda, &settings, Cancel::NEVER);
        solution.unwrap().vectors
    }

    /// From a relaxed solution, which is shrunk, to the planted rows; out of range is rejected.
    #[test]
    fn planted_rows_are_found_from_the_relaxed_solution() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let population = Model::sparse(90, 3, 12, 3.0).draw(&mut rng).unwrap();
        let (moment, truth) = (population.covariance(), population.subspace());
        let start = relaxed(&moment, 0.05);
        let [_, found] = pursue(&moment, &start, 12).unwrap();
        assert_eq!(found, population.support());
        let vectors = refit(&moment, &found, 3).unwrap();
        assert!(projector_distance(&vectors, truth).unwrap() < 1e-10);
        assert!(projector_distance(&start, truth).unwrap() > 1e-4);
        for (matrix, rows) in [(&moment, 2), (&moment, 91), (&DMatrix::identity(4, 4), 3)] {
            let error = pursue(matrix, &start, rows).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
        }
    }

    /// The first row maps to zero, leaving two of three directions; a unit vector completes the basis.
    #[test]
    fn missing_directions_are_filled_up() {
        let diagonal = DMatrix::from_diagonal(&nalgebra::DVector::from_fn(90, |i, _| -(i as f64)));
        let [_, kept] = pursue(&diagonal, &relaxed(&diagonal, 1.0), 3).unwrap();
        assert_eq!(kept, [0, 1, 2]);
    }
}
