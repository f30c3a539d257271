//! The leading principal components of rows, without forming a large `p × p` sum.

use eigenveil_estimation::linalg::{
    HouseholderQr, MIN_RELATIVE_EIGENVALUE, RowFactor, Symmetric, SymmetricEigen, fix_signs,
    leading_pairs, require_rank, top_k,
};
use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use crate::Rows;

/// Up to this dimension forming the sum takes milliseconds.
const MAX_CHEAP_DIMENSION: usize = 300;
/// Maximum dimension whose sum is formed if there are at least as many rows: it takes 32 MB.
const MAX_SUM_DIMENSION: usize = 2_000;
/// Maximum number of values that a factor of the rows may have: it takes 1 GiB, and as much again for a time.
const MAX_FACTOR: usize = 1 << 27;
/// Accepted residuals ‖Av − θv‖, relative to the largest eigenvalue: as in [`top_k`].
const RESIDUAL: f64 = 1e-11;

/// The `k` largest eigenvalues of the rows' second moment `(1/n)Σxxᵀ`, descending, and their eigenvectors (`p × k`,
/// orthonormal, signs as [`top_k`] fixes them). **No privacy whatsoever.**
///
/// The sum is formed up to p = 300, and up to 2,000 if there are at least as many rows; otherwise the pairs come from
/// products with the rows, by block Lanczos to relative residuals of 1e-11. A pair that the sum has lost beside the first
/// (rows far from 0) comes from the rows themselves ([`RowFactor`]).
///
/// # Errors
/// `invalid-request` unless `1 ≤ k ≤ p`, and for such a pair of more than 2,000 rows and columns.
pub fn principal_components(rows: &Rows, k: usize) -> Result<SymmetricEigen> {
    let mut leading = leading_of_sum(rows, rows.n(), k, || rows.sum_of_outer_products())?;
    if leading.values[k - 1] < MIN_RELATIVE_EIGENVALUE * leading.values[0] {
        leading = leading_of_rows(rows, k)?;
    }
    leading.values /= rows.n() as f64;
    Ok(leading)
}

/// Leading pairs from the rows themselves, for those that the sum has lost.
fn leading_of_rows(rows: &Rows, k: usize) -> Result<SymmetricEigen> {
    let (n, p) = (rows.n(), rows.dimension());
    if n.min(p) > MAX_SUM_DIMENSION || n.min(p) * p > MAX_FACTOR {
        return Err(Error::invalid_request(format!(
            "component {k} has less than {MIN_RELATIVE_EIGENVALUE:e} of the first one's variance, which rounding hides in {n} rows of {p} columns; give centers and scales, or ask for fewer components"
        )));
    }
    if p <= n {
        let mut factor = RowFactor::new(p);
        rows.iter().for_each(|row| factor.add(row.as_slice()));
        return factor.top_k(k);
    }
    // Few rows: Xᵀ = QR, so that X has the right singular vectors of Rᵀ, turned by Q; beyond them there is no variance.
    let turned = HouseholderQr::new(&DMatrix::from_fn(p, n, |i, j| rows.row(j)[i]));
    let (r, within) = (turned.r(), k.min(n));
    let mut factor = RowFactor::new(n);
    r.column_iter()
        .for_each(|row| factor.add(row.clone_owned().as_slice()));
    let leading = factor.top_k(within)?;
    let mut block = DMatrix::zeros(p, k);
    block
        .view_mut((0, 0), (n, within))
        .copy_from(&leading.vectors);
    for j in within..k {
        block[(n + j - within, j)] = 1.0;
    }
    let mut vectors = turned.times(block);
    fix_signs(&mut vectors);
    Ok(SymmetricEigen {
        values: leading.values.resize_vertically(k, 0.0),
        vectors,
    })
}

/// Vectors of a block for k leading pairs that nothing proves complete: more than copies of an eigenvalue are likely.
pub(crate) fn safe_width(k: usize) -> usize {
    (k + 2).max(8)
}

/// The `k` leading eigenpairs of the sum of n outer products: `products` multiplies by it, `sum` forms it.
pub(crate) fn leading_of_sum(
    products: &dyn Symmetric,
    n: usize,
    k: usize,
    sum: impl FnOnce() -> DMatrix<f64>,
) -> Result<SymmetricEigen> {
    let p = products.dimension();
    if p <= MAX_CHEAP_DIMENSION || (p <= MAX_SUM_DIMENSION && p <= n) {
        return top_k(&sum(), k);
    }
    require_rank(k, p)?;
    // The Krylov space may grow to p dimensions: a spectrum without gaps needs thousands, which is still less work than
    // the sum.
    leading_pairs(products, k, safe_width(k), RESIDUAL, p)?.ok_or_else(|| {
        Error::estimate_failed(format!(
            "the {k} leading components of dimension {p} did not converge; use fewer components"
        ))
    })
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::metrics::projector_distance;

    use super::*;
    use crate::testing::gaussian_rows;

    /// Agrees with the full decomposition: more rows than columns or fewer, with a gap or without, more components than
    /// rows.
    #[test]
    fn products_agree_with_the_sum() {
        let mut deviations = vec![0.01; 330];
        for (deviation, value) in deviations.iter_mut().zip([0.5, 0.4, 0.3, 0.2, 0.1]) {
            *deviation = value;
        }
        for (n, k) in [(400, 3), (200, 5), (60, 8), (200, 1)] {
            let rows = gaussian_rows(n, &deviations, 7);
            let sum = rows.sum_of_outer_products();
            let exact = top_k(&sum, k).unwrap();
            let pairs = leading_pairs(&rows, k, safe_width(k), RESIDUAL, 330)
                .unwrap()
                .unwrap();
            let apart = projector_distance(&pairs.vectors, &exact.vectors).unwrap();
            // A residual of 1e-11 over a gap of a hundredth of the largest eigenvalue.
            assert!(apart < 1e-9, "n = {n}, k = {k}: {apart}");
            let chosen = principal_components(&rows, k).unwrap();
            assert!((chosen.values * n as f64 - &exact.values).amax() < 1e-11 * exact.values[0]);
        }
        // Three rows span three dimensions, so the other two components have variance 0.
        let few = gaussian_rows(3, &deviations, 8);
        let leading = principal_components(&few, 5).unwrap();
        assert!(
            leading.values[2] > 0.0
                && leading.values[3].abs() < 1e-15
                && leading.values[4].abs() < 1e-15
        );
        let sum = few.sum_of_outer_products();
        let image = sum * &leading.vectors;
        let values = nalgebra::DMatrix::from_diagonal(&(leading.values * 3.0));
        assert!((image - &leading.vectors * values).amax() < 1e-12);
        assert!(principal_components(&few, 0).is_err() && principal_components(&few, 331).is_err());
    }
}
