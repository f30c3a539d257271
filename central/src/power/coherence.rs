//! Coherence: how much a matrix's eigenvectors lean on single coordinates.

use eigenveil_estimation::linalg::symmetric_eigen;
use eigenveil_shared::Result;
use nalgebra::DMatrix;

/// Eigenvalues below this share of the largest are taken as zero: their eigenvectors are arbitrary.
const NEGLIGIBLE: f64 = 1e-10;

/// `μ(A) = d·max|Uᵢⱼ|²` over the eigenvectors of a symmetric `d × d` matrix whose eigenvalue is not zero (Hardt & Price
/// 2014, Definition 4.8): between 1 and d. **Not private**: it is made from A itself, for experiments.
///
/// With equal eigenvalues the eigenvectors, and so μ, are not unique.
///
/// # Errors
/// As [`symmetric_eigen`].
///
/// ```
/// use eigenveil_central::power::coherence;
/// use nalgebra::dmatrix;
/// assert!((coherence(&dmatrix![3.0, 1.0; 1.0, 3.0])? - 1.0).abs() < 1e-12);
/// assert!((coherence(&dmatrix![3.0, 0.0; 0.0, 1.0])? - 2.0).abs() < 1e-12);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
pub fn coherence(matrix: &DMatrix<f64>) -> Result<f64> {
    let eigen = symmetric_eigen(matrix)?;
    let floor = NEGLIGIBLE * eigen.values.amax();
    let columns = eigen.vectors.column_iter().zip(&eigen.values);
    let largest = columns
        .filter(|(_, value)| value.abs() > floor)
        .map(|(column, _)| column.amax())
        .fold(0.0, f64::max);
    Ok(matrix.nrows() as f64 * largest * largest)
}

/// `d·max|Xᵢⱼ|²` of an iterate: what stands for μ(A) in a private run, which may look at its own iterates only.
pub fn iterate_coherence(iterate: &DMatrix<f64>) -> f64 {
    iterate.nrows() as f64 * iterate.amax().powi(2)
}
