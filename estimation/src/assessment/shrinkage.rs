//! Loadings that a sparse estimate leaves shrunk (`docs/derivations/selection.md`, "Shrunk loadings").

use eigenveil_shared::{Error, Result};
use nalgebra::{Cholesky, DMatrix, DVector};

use crate::{
    linalg::{leading_columns, submatrix, symmetric_eigen, top_k},
    sparse::fantope::Solution,
};

/// Tilts up to which the constraints of zero entries are taken into account: a matrix of so many rows is inverted.
const MAX_TILTS: usize = 300;
/// How stiff those constraints are, in units of θ.
const STIFFNESS: f64 = 30.0;
/// Least distance between eigenvalues, in units of θ.
const LEAST_GAP: f64 = 1e-3;

/// The solution of the Fantope problem on the m rows that it selected.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// PCA on these rows, `m × k`.
    refitted: DMatrix<f64>,
    /// S̃ − Z on them.
    shifted: DMatrix<f64>,
    /// Pairs of them whose entry of X is 0.
    zeros: Vec<(usize, usize)>,
}

/// `Σ` over tilts of `(θM − 1)/θ²`: how much more than refitted components the shrunk ones follow the noise.
pub(super) struct Divergence {
    pub(super) value: f64,
    /// The entries that are 0, which only make it smaller, were left out.
    pub(super) is_bound: bool,
}

impl Shrunk {
    /// `on_rows` is S̃ on the solution's support.
    ///
    /// # Errors
    /// As [`top_k`].
    pub fn new(solution: &Solution, on_rows: &DMatrix<f64>) -> Result<Self> {
        let rows = &solution.support;
        let y = submatrix(&solution.y, rows);
        let least = solution.min_representable_entry();
        let pairs = (0..rows.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
        Ok(Self {
            refitted: top_k(on_rows, solution.vectors.ncols())?.vectors,
            shifted: on_rows - submatrix(&solution.dual, rows),
            zeros: pairs.filter(|&pair| y[pair].abs() <= least).collect(),
        })
    }

    /// Squared sine between refitted component j and the space of the shrunk ones, `m × k`.
    pub(super) fn moved(&self, shrunk: &DMatrix<f64>, j: usize) -> f64 {
        (1.0 - shrunk.tr_mul(&self.refitted.column(j)).norm_squared()).max(0.0)
    }

    /// Divergence of these components, `m × k`, with these sizes θ.
    pub(super) fn divergence(&self, shrunk: &DMatrix<f64>, sizes: &[f64]) -> Result<Divergence> {
        let (m, k) = shrunk.shape();
        let (beside, mean) = (m - k, sizes.iter().sum::<f64>() / k as f64);
        let inverse = DVector::from_iterator(k, sizes.iter().map(|theta| 1.0 / theta));
        let refitted = beside as f64 * inverse.norm_squared();
        if beside == 0 {
            return Ok(Divergence {
                value: 0.0,
                is_bound: false,
            });
        }
        // Turned within their space, and beside it, so that S̃ − Z is diagonal on both.
        let along = symmetric_eigen(&(shrunk.transpose() * &self.shifted * shrunk))?;
        let turned = shrunk * &along.vectors;
        let projector = &turned * turned.transpose();
        let rest = DMatrix::identity(m, m) - &projector;
        let far = 1.0 + 2.0 * self.shifted.norm();
        let others = symmetric_eigen(&(&rest * &self.shifted * &rest - projector * far))?;
        let outside = leading_columns(&others.vectors, beside);
        let gap = |a: usize, j: usize| (along.values[j] - others.values[a]).max(LEAST_GAP * mean);
        let weights = along.vectors.transpose() * DMatrix::from_diagonal(&inverse) * &along.vectors;
        let tilts = beside * k;
        let is_bound = !self.zeros.is_empty() && tilts > MAX_TILTS;
        if self.zeros.is_empty() || is_bound {
            let each = |a: usize| (0..k).map(move |j| (a, j));
            let followed: f64 = (0..beside)
                .flat_map(each)
                .map(|(a, j)| weights[(j, j)] / gap(a, j))
                .sum();
            return Ok(Divergence {
                value: followed - refitted,
                is_bound,
            });
        }
        // What a tilt of component j towards direction a changes in the entries that stay 0.
        let changes = DMatrix::from_fn(self.zeros.len(), tilts, |zero, tilt| {
            let ((i, l), (a, j)) = (self.zeros[zero], (tilt / k, tilt % k));
            outside[(i, a)] * turned[(l, j)] + outside[(l, a)] * turned[(i, j)]
        });
        let mut stiffness = changes.tr_mul(&changes) * (STIFFNESS * mean);
        for tilt in 0..tilts {
            stiffness[(tilt, tilt)] += gap(tilt / k, tilt % k);
        }
        let response = Cholesky::new(stiffness)
            .ok_or_else(|| Error::estimate_failed("the shrinkage of the loadings is singular"))?
            .inverse();
        let followed: f64 = (0..beside)
            .map(|a| response.view((a * k, a * k), (k, k)).dot(&weights))
            .sum();
        Ok(Divergence {
            value: followed - refitted,
            is_bound: false,
        })
    }
}
