use eigenveil_shared::{Error, Result};
use nalgebra::DMatrix;

use super::{
    problem::{Solution, embed},
    screening::Screen,
};
use crate::linalg::{submatrix, top_k};

/// PCA of the moment restricted to the selected rows, embedded back into all p: keeps the support
/// of the relaxed solution and removes its shrinkage.
///
/// # Errors
/// `invalid-request` when fewer than k rows are selected (no k orthonormal vectors live on them), or
/// an index is out of range; otherwise as [`top_k`].
pub fn refit(moment: &DMatrix<f64>, support: &[usize], k: usize) -> Result<DMatrix<f64>> {
    let p = moment.nrows();
    if support.len() < k {
        return Err(Error::invalid_request(format!(
            "{} rows are selected; k = {k} components need at least as many. Take a smaller lambda or k",
            support.len()
        )));
    }
    if let Some(row) = support.iter().find(|&&row| row >= p) {
        return Err(Error::invalid_request(format!(
            "row {row} is selected in dimension {p}"
        )));
    }
    let leading = top_k(&submatrix(moment, support), k)?;
    Ok(embed(&leading.vectors, support, p))
}

/// PCA of the moment within the blocks of rows that the relaxed solution connects: [`refit`] after setting to zero the
/// entries of the moment between rows that no chain of nonzero entries of Y connects, which are only noise.
///
/// If components have disjoint supports this omits the noise of those entries (k = 10 components on ten of 400 features
/// each, 2,000 rows of data: ‖V̂V̂ᵀ−VVᵀ‖_F 0.30, with [`refit`] 1.03); if all share one support it equals [`refit`].
///
/// # Errors
/// As [`refit`]; `invalid-request` if the solution and the moment have different sizes.
pub fn refit_within_blocks(moment: &DMatrix<f64>, solution: &Solution) -> Result<DMatrix<f64>> {
    let (p, k) = solution.vectors.shape();
    if moment.nrows() != p {
        return Err(Error::invalid_request(format!(
            "the relaxed solution has {p} rows and the moment {}; they must be equal",
            moment.nrows()
        )));
    }
    let support = &solution.support;
    // Every selected row must remain, so the screen retains as many single rows as possible.
    let chosen = submatrix(&solution.y, support);
    let blocks = Screen::new(&chosen, support.len(), solution.min_representable_entry());
    let mut within = submatrix(moment, support);
    blocks.pinch(&mut within);
    let leading = top_k(&within, k)?;
    Ok(embed(&leading.vectors, support, p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::Cancel;

    /// Two blocks with noise between them: the loadings are those of each block alone; one block: `refit`.
    #[test]
    fn blocks_are_refitted_separately() {
        use crate::sparse::fantope::{AdmmSettings, solve};
        let mut moment = DMatrix::from_element(7, 7, 0.05);
        for (rows, level) in [(0..3, 2.0), (3..6, 1.0)] {
            for i in rows.clone() {
                for j in rows.clone() {
                    moment[(i, j)] = level + if i == j { 0.2 * i as f64 } else { 0.0 };
                }
            }
        }
        let settings = AdmmSettings::default();
        let never = Cancel::NEVER;
        let solution = solve(&moment, 2, 0.1, &settings, never).unwrap();
        let apart = refit_within_blocks(&moment, &solution).unwrap();
        for (column, rows) in [(0, [0, 1, 2]), (1, [3, 4, 5])] {
            let alone = refit(&moment, &rows, 1).unwrap();
            assert!((apart.column(column) - alone.column(0)).amax() < 1e-12);
        }
        let together = refit(&moment, &solution.support, 2).unwrap();
        assert!((&apart - together).amax() > 1e-3);
        let joined = solve(&moment, 2, 0.01, &settings, never).unwrap();
        let (a, b) = (
            refit_within_blocks(&moment, &joined).unwrap(),
            refit(&moment, &joined.support, 2).unwrap(),
        );
        assert_eq!(a, b);
        assert!(refit_within_blocks(&DMatrix::identity(4, 4), &joined).is_err());
    }

    #[test]
    fn refit_uses_the_selected_features_only() {
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
