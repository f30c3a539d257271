//! Dense linear algebra: the only module that names the kernel library (`faer`).
//!
//! Everything public speaks [`nalgebra`]'s column-major matrices; `faer` sees the same memory. Single routines run on
//! the calling thread: measured, two threads pay only from about p = 2,000 and cost 0–70 % below p = 400, so
//! independent chunks of work run in parallel instead (the panels of a large matrix, the jackknife), on
//! [`Threads::current`] threads.

mod cholesky;
mod convert;
mod eigen;
mod householder;
mod kernels;
mod krylov;
mod lanczos;
mod leading;
mod orthonormal;
mod parallel;
mod products;
mod row_factor;
mod start_vectors;
mod threads;

pub use convert::{packed_to_dense, submatrix};
pub use eigen::{SymmetricEigen, symmetric_eigen, symmetric_eigenvalues};
pub use householder::HouseholderQr;
pub use lanczos::{BlockLanczos, Ritz, Symmetric, leading_pairs};
pub use leading::{LazySpectrum, top_k};
pub use orthonormal::{orthonormality_defect, orthonormalize};
pub use products::{
    GramSum, Precision, add_outer_lower, add_symmetrised_outer_lower, cross_product, outer_scaled,
    product, tall_cross_product, tall_product,
};
pub use row_factor::{MIN_RELATIVE_EIGENVALUE, RowFactor};
pub use start_vectors::StartVectors;
pub use threads::Threads;

pub(crate) use cholesky::{
    Definiteness, PANEL_WIDTH, Panels, add_outer_to_panel, blocked_cholesky, factorises,
    rounding_of_cholesky, spectrum_is_below,
};
pub(crate) use krylov::{RitzPairs, RitzTarget, WorkLimit, block_ritz};
pub(crate) use parallel::{cancellable_map, parallel_for_each};
pub(crate) use products::{outer_columns_lower, symmetric_product};

use eigenveil_shared::{Error, Result, error};
use nalgebra::{DMatrix, DVector};

pub(crate) fn view<T: nalgebra::Scalar>(matrix: &DMatrix<T>) -> faer::MatRef<'_, T> {
    faer::MatRef::from_column_major_slice(matrix.as_slice(), matrix.nrows(), matrix.ncols())
}

pub(crate) fn view_mut<T: nalgebra::Scalar>(matrix: &mut DMatrix<T>) -> faer::MatMut<'_, T> {
    let (rows, columns) = matrix.shape();
    faer::MatMut::from_column_major_slice_mut(matrix.as_mut_slice(), rows, columns)
}

/// `invalid-request` unless `1 ≤ k ≤ p`.
pub fn require_rank(k: usize, p: usize) -> Result<()> {
    if k == 0 || k > p {
        return Err(Error::invalid_request(format!(
            "k is {k}; it must be between 1 and p = {p}"
        )));
    }
    Ok(())
}

pub(crate) fn require_square_and_finite(matrix: &DMatrix<f64>) -> Result<()> {
    let (rows, columns) = matrix.shape();
    if rows != columns {
        return Err(Error::invalid_request(format!(
            "the matrix is {rows} × {columns}; a symmetric problem needs a square one"
        )));
    }
    if rows == 0 {
        return Err(error!(InvalidDimension, "the matrix has no rows"));
    }
    if !matrix.iter().all(|entry| entry.is_finite()) {
        return Err(Error::estimate_failed(
            "the matrix has an entry that is not a finite number, so it has no eigenvalues",
        ));
    }
    Ok(())
}

/// Turns every column so that its loading of largest magnitude is positive.
///
/// Among loadings equal to the largest within 1e-9 relative the first decides, so that rounding
/// cannot flip a vector whose leading loadings are tied.
pub fn fix_signs(vectors: &mut DMatrix<f64>) {
    for mut column in vectors.column_iter_mut() {
        let largest = column.amax();
        let leading = column
            .iter()
            .copied()
            .find(|x| x.abs() >= largest * (1.0 - 1e-9));
        if leading.is_some_and(|x| x < 0.0) {
            column.neg_mut();
        }
    }
}

pub(crate) fn leading_columns(vectors: &DMatrix<f64>, k: usize) -> DMatrix<f64> {
    vectors.columns(0, k).into_owned()
}

pub(crate) fn leading_values(values: &DVector<f64>, k: usize) -> DVector<f64> {
    values.rows(0, k).into_owned()
}
