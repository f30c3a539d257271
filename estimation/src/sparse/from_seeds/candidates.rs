//! The choice of the candidate rows.

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{certificate::GUARD, dual::DualMatrix, matrix::LargeMatrix};
use crate::linalg::{
    RitzPairs, RitzTarget, StartVectors, Symmetric, WorkLimit, block_ritz, parallel_for_each,
};

/// Number of rows chosen by the leading vectors of soft(S̃, λ), and by their entries above the noise.
const CANDIDATES_BY_VECTORS: usize = 192;
const CANDIDATES_BY_ENERGY: usize = 64;
/// Dimension at which a Krylov space is restarted: the larger it is, the fewer products, each of which reads the whole
/// triangle, and its vectors are small beside that.
pub(super) const KRYLOV_DIMENSION: usize = 240;
/// Matrix products for the first choice, which need not be accurate.
const PRODUCTS: usize = 16;

/// k leading Ritz pairs of `matrix`, with residuals of about `accuracy` times their size, or the best after `products`
/// products.
pub(super) fn leading_pairs(
    matrix: &DualMatrix<'_>,
    k: usize,
    accuracy: f64,
    products: usize,
    random: &mut StartVectors,
) -> Result<RitzPairs> {
    let p = matrix.dimension();
    let start = random.block(p, (k + GUARD).min(p));
    let limit = WorkLimit {
        products,
        pairs: start.ncols(),
        dimension: KRYLOV_DIMENSION,
    };
    block_ritz(matrix, &start, &limit, &|values| {
        let size = values.iter().take(k).map(|v| v * v).sum::<f64>().sqrt();
        Ok(RitzTarget {
            count: k,
            accuracy: accuracy * size,
        })
    })
}

/// The first candidate rows, ascending: those with the largest entries of the leading vectors of soft(S̃, λ), and those
/// with most energy above `largest_noise_entry`, the magnitude of the largest noise entry.
pub(super) fn first_candidates(
    moment: &LargeMatrix,
    k: usize,
    lambda: f64,
    largest_noise_entry: f64,
    random: &mut StartVectors,
) -> Result<Vec<usize>> {
    let p = moment.dimension();
    if p <= CANDIDATES_BY_VECTORS.max(4 * k) {
        return Ok((0..p).collect());
    }
    let soft = DualMatrix::soft(moment, lambda, moment.trace() / p as f64);
    let pairs = leading_pairs(&soft, k, 0.05, PRODUCTS, random)?;
    let mut rows = largest(&mass(&pairs.vectors, k), CANDIDATES_BY_VECTORS.max(4 * k));
    rows.extend(largest(
        &energies(moment, largest_noise_entry),
        CANDIDATES_BY_ENERGY.max(2 * k),
    ));
    rows.sort_unstable();
    rows.dedup();
    Ok(rows)
}

/// `Σ_{j<k} vᵢⱼ²` of every row i.
pub(super) fn mass(vectors: &DMatrix<f64>, k: usize) -> Vec<f64> {
    let k = k.min(vectors.ncols());
    vectors
        .row_iter()
        .map(|row| row.iter().take(k).map(|v| v * v).sum())
        .collect()
}

/// The rows of the `count` largest positive scores.
pub(super) fn largest(scores: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).filter(|&i| scores[i] > 0.0).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
    order.truncate(count);
    order
}

/// `Σ_{j≠i} soft(Sᵢⱼ, level)²` of every row i.
fn energies(moment: &LargeMatrix, level: f64) -> Vec<f64> {
    let p = moment.dimension();
    let level = level as f32;
    let panels: Vec<_> = moment.panels().iter().collect();
    let mut shares = vec![Vec::new(); panels.len()];
    parallel_for_each(panels.iter().zip(&mut shares), |((_, panel), share)| {
        // `sums[r]` belongs to row r of the panel.
        let mut sums = vec![0.0; panel.nrows()];
        for (c, column) in panel.column_iter().enumerate() {
            for (r, &s) in column.iter().enumerate().skip(c + 1) {
                let beyond = s.abs() - level;
                if beyond > 0.0 {
                    let energy = f64::from(beyond) * f64::from(beyond);
                    sums[r] += energy;
                    sums[c] += energy;
                }
            }
        }
        *share = sums;
    });
    let mut energies = vec![0.0; p];
    for ((from, _), share) in panels.iter().zip(&shares) {
        for (sum, part) in energies[*from..].iter_mut().zip(share) {
            *sum += part;
        }
    }
    energies
}
