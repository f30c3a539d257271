use eigenveil_shared::{Error, ErrorCode, Result};
use nalgebra::DMatrix;

use crate::linalg::{submatrix, top_k};

/// PCA of the moment restricted to the selected rows, embedded back into all p: keeps the support
/// of the relaxed solution and removes its shrinkage.
///
/// # Errors
/// `InvalidRequest` when fewer than k rows are selected (no k orthonormal vectors live on them), or
/// an index is out of range; otherwise as [`top_k`].
pub fn refit(moment: &DMatrix<f64>, support: &[usize], k: usize) -> Result<DMatrix<f64>> {
    let p = moment.nrows();
    if support.len() < k {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!(
                "{} rows are selected; k = {k} components need at least as many. Take a smaller lambda or k",
                support.len()
            ),
        ));
    }
    if let Some(row) = support.iter().find(|&&row| row >= p) {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("row {row} is selected in dimension {p}"),
        ));
    }
    let leading = top_k(&submatrix(moment, support), k)?;
    Ok(embed(&leading.vectors, support, p))
}

/// Rows of `vectors` placed at `support` in `p` rows of zeros.
pub(crate) fn embed(vectors: &DMatrix<f64>, support: &[usize], p: usize) -> DMatrix<f64> {
    let mut embedded = DMatrix::zeros(p, vectors.ncols());
    for (a, &row) in support.iter().enumerate() {
        embedded.set_row(row, &vectors.row(a));
    }
    embedded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refits_on_the_rows_alone() {
        let mut moment = DMatrix::from_diagonal(&nalgebra::dvector![1.0, 100.0, 2.0, 1.0]);
        (moment[(0, 2)], moment[(2, 0)]) = (0.7, 0.7);
        let vectors = refit(&moment, &[0, 2], 1).unwrap();
        let direct = top_k(&nalgebra::dmatrix![1.0, 0.7; 0.7, 2.0], 1)
            .unwrap()
            .vectors;
        assert_eq!(vectors.as_slice(), &[direct[0], 0.0, direct[1], 0.0]);
        assert!(refit(&moment, &[1], 2).is_err());
        assert!(refit(&moment, &[4], 1).is_err());
    }
}
