//! The spectral steps of the ADMM, by full decompositions or by a warm-started block of vectors.

use eigenveil_shared::Result;
use nalgebra::{DMatrix, DVector};

use super::projection::{positive, project_eigenvalues, project_onto_fantope};
use crate::linalg::{
    RitzPairs, RitzTarget, StartVectors, Symmetric, SymmetricEigen, WorkLimit, block_ritz,
    leading_columns, leading_values, spectrum_is_below, symmetric_eigen, symmetric_eigenvalues,
};

const GUARD: usize = 6;
/// The rank may be 1/6 of p, k a tenth; beyond that, or below this dimension, full decompositions win.
const MIN_PARTIAL_DIMENSION: usize = 80;
const RANK_SHARE: usize = 6;
/// Products with the block for one projection: about a third of the time of a full decomposition.
const PRODUCTS: usize = 12;
/// Products from a cold start.
const COLD_PRODUCTS: usize = 30;
/// A projection is proved complete at least this often.
const CERTIFY_EVERY: usize = 10;
/// Maximum number of consecutive full decompositions before the partial one is tried again.
const MAX_FULL_STEPS: usize = 16;

/// `V·diag(weights)·Vᵀ`.
pub(super) struct Factor {
    /// V: orthonormal columns.
    pub(super) vectors: DMatrix<f64>,
    /// One a column, in (0, 1].
    pub(super) weights: Vec<f64>,
}

pub(super) enum Bound {
    /// Proved, up to rounding.
    Proved(f64),
    /// A *lower* bound on the sum is above the caller's limit already.
    TooLarge,
}

/// The spectral work of the solver. Matrices come as lower triangles.
pub(super) trait SpectralSolver {
    /// The k leading pairs; values are never above the true ones, residuals about `accuracy` relative.
    fn leading(&mut self, matrix: &DMatrix<f64>, k: usize, accuracy: f64)
    -> Result<SymmetricEigen>;
    /// P_F, exactly feasible and within `accuracy` of exact.
    fn project(&mut self, matrix: &DMatrix<f64>, k: usize, accuracy: f64) -> Result<Factor>;
    /// `Σ_{i≤k} λᵢ` from above, at most about `k·slack` too large; not proved if it exceeds `limit`.
    fn bound(&mut self, matrix: &DMatrix<f64>, k: usize, slack: f64, limit: f64) -> Result<Bound>;
    /// Requests a proof that the next projection is complete.
    fn request_certificate(&mut self) {}
}

pub(super) struct FullSpectrum;

impl SpectralSolver for FullSpectrum {
    fn leading(&mut self, matrix: &DMatrix<f64>, k: usize, _: f64) -> Result<SymmetricEigen> {
        let eigen = symmetric_eigen(matrix)?;
        Ok(SymmetricEigen {
            values: leading_values(&eigen.values, k),
            vectors: leading_columns(&eigen.vectors, k),
        })
    }

    fn project(&mut self, matrix: &DMatrix<f64>, k: usize, _: f64) -> Result<Factor> {
        let (vectors, weights) = project_onto_fantope(matrix, k)?;
        Ok(Factor {
            vectors: leading_columns(&vectors, weights.len()),
            weights,
        })
    }

    fn bound(&mut self, matrix: &DMatrix<f64>, k: usize, _: f64, _: f64) -> Result<Bound> {
        let values = symmetric_eigenvalues(matrix)?;
        Ok(Bound::Proved(values.iter().take(k).sum()))
    }
}

/// Block Krylov from the vectors of the last call. X is feasible whatever was found; that nothing above θ was missed is
/// proved by Cholesky every few projections and on [`SpectralSolver::request_certificate`], and the bound, which proves
/// the solution optimal, always by Cholesky.
pub(super) struct WarmSpectrum {
    block: DMatrix<f64>,
    random: StartVectors,
    since_certified: usize,
    /// Full decompositions still to make, and how many after the next failure.
    full_steps_left: usize,
    next_full_steps: usize,
    scratch: DMatrix<f64>,
}

impl WarmSpectrum {
    pub(super) fn new() -> Self {
        Self {
            block: DMatrix::zeros(0, 0),
            random: StartVectors::default(),
            since_certified: 0,
            full_steps_left: 0,
            next_full_steps: 1,
            scratch: DMatrix::zeros(0, 0),
        }
    }

    pub(super) fn is_worthwhile(p: usize, k: usize) -> bool {
        p >= MIN_PARTIAL_DIMENSION && k <= p / 10
    }

    /// [`start_block`] with the stored block.
    fn start(&mut self, p: usize, width: usize) -> DMatrix<f64> {
        start_block(&self.block, (p, width), &mut self.random)
    }

    fn scratch(&mut self, p: usize) {
        if self.scratch.nrows() != p {
            self.scratch = DMatrix::zeros(p, p);
        }
    }

    /// The partial projection, or `None` when the rank is large or something was or may be missed.
    fn project_partly(
        &mut self,
        matrix: &DMatrix<f64>,
        k: usize,
        accuracy: f64,
    ) -> Result<Option<Factor>> {
        let p = matrix.nrows();
        let start = self.start(p, self.block.ncols().max(k + GUARD));
        let budget = WorkLimit {
            products: PRODUCTS,
            pairs: (p / RANK_SHARE).max(k),
            dimension: 0,
        };
        // The projection is non-expansive: residuals R move X by at most √2‖R‖_F.
        let ritz = block_ritz(matrix, &start, &budget, &|values| {
            let projected = project_eigenvalues(values, k)?;
            Ok(RitzTarget {
                count: positive(&projected.values),
                accuracy: 0.7 * accuracy,
            })
        })?;
        let projected = project_eigenvalues(&ritz.values, k)?;
        let rank = positive(&projected.values);
        self.block = leading_columns(&ritz.vectors, (rank + GUARD).min(ritz.values.len()));
        if !ritz.converged || rank >= ritz.values.len() {
            return Ok(None);
        }
        let leading = leading_columns(&ritz.vectors, rank);
        self.since_certified += 1;
        if self.since_certified >= CERTIFY_EVERY {
            // At most `rank` eigenvalues are above the threshold: the ones found.
            let weights: Vec<f64> = ritz.values[..rank]
                .iter()
                .map(|value| value - projected.theta + 1.0)
                .collect();
            self.scratch(p);
            let threshold = projected.theta + accuracy;
            if !spectrum_is_below(threshold, matrix, &leading, &weights, &mut self.scratch) {
                return Ok(None);
            }
            self.since_certified = 0;
        }
        Ok(Some(Factor {
            vectors: leading,
            weights: projected.values[..rank].to_vec(),
        }))
    }
}

impl SpectralSolver for WarmSpectrum {
    fn leading(
        &mut self,
        matrix: &DMatrix<f64>,
        k: usize,
        accuracy: f64,
    ) -> Result<SymmetricEigen> {
        let p = matrix.nrows();
        let start = self.start(p, k + GUARD);
        let budget = WorkLimit {
            products: COLD_PRODUCTS,
            pairs: k,
            dimension: 0,
        };
        let ritz = block_ritz(matrix, &start, &budget, &|values| {
            let size = values.iter().take(k).map(|v| v * v).sum::<f64>().sqrt();
            Ok(RitzTarget {
                count: k,
                accuracy: accuracy * size,
            })
        })?;
        if !ritz.converged {
            return FullSpectrum.leading(matrix, k, accuracy);
        }
        let leading = SymmetricEigen {
            values: DVector::from_column_slice(&ritz.values[..k]),
            vectors: leading_columns(&ritz.vectors, k),
        };
        // The block of the first matrix is the one the iteration starts from.
        if self.block.is_empty() {
            self.block = ritz.vectors;
        }
        Ok(leading)
    }

    fn project(&mut self, matrix: &DMatrix<f64>, k: usize, accuracy: f64) -> Result<Factor> {
        let p = matrix.nrows();
        if self.full_steps_left > 0 {
            self.full_steps_left -= 1;
        } else if let Some(factor) = self.project_partly(matrix, k, accuracy)? {
            self.next_full_steps = 1;
            return Ok(factor);
        } else {
            self.full_steps_left = self.next_full_steps;
            self.next_full_steps = (2 * self.next_full_steps).min(MAX_FULL_STEPS);
        }
        let (vectors, weights) = project_onto_fantope(matrix, k)?;
        let rank = weights.len();
        if rank > p / RANK_SHARE {
            self.full_steps_left = self.full_steps_left.max(1);
        } else {
            // The rank is known to be small: if only the residuals failed, a few full decompositions are enough.
            self.full_steps_left = self.full_steps_left.min(4);
        }
        self.block = leading_columns(&vectors, (rank.min(p / RANK_SHARE) + GUARD).min(p));
        self.since_certified = 0;
        Ok(Factor {
            vectors: leading_columns(&vectors, rank),
            weights,
        })
    }

    fn bound(&mut self, matrix: &DMatrix<f64>, k: usize, slack: f64, limit: f64) -> Result<Bound> {
        let p = matrix.nrows();
        self.scratch(p);
        let mut start = self.start(p, self.block.ncols().max(k + GUARD));
        let budget = WorkLimit {
            products: PRODUCTS,
            pairs: p / RANK_SHARE,
            dimension: 0,
        };
        // Twice: if the proof fails, from vectors ten times as accurate.
        for sharpen in [1.0, 0.1] {
            let accuracy = Accuracy { slack, sharpen };
            let candidate = LeadingSum::find(matrix, &start, k, &accuracy, &budget)?;
            if candidate.at_least > limit {
                return Ok(Bound::TooLarge);
            }
            let LeadingSum { t, weights, .. } = &candidate;
            let vectors = &candidate.vectors;
            if spectrum_is_below(*t, matrix, vectors, weights, &mut self.scratch) {
                return Ok(Bound::Proved(candidate.at_most));
            }
            start = candidate.vectors;
        }
        FullSpectrum.bound(matrix, k, slack, limit)
    }

    fn request_certificate(&mut self) {
        self.since_certified = CERTIFY_EVERY;
    }
}

/// `known` and random columns, `width` together (at most p); of several the last is always random: a direction orthogonal to the
/// known ones would never be found.
pub(crate) fn start_block(
    known: &DMatrix<f64>,
    (p, width): (usize, usize),
    random: &mut StartVectors,
) -> DMatrix<f64> {
    let width = width.min(p);
    let known_columns = known.ncols().min(width.saturating_sub(1).max(1));
    let mut start = DMatrix::zeros(p, width);
    for j in 0..width {
        if j < known_columns {
            start.set_column(j, &known.column(j));
        } else {
            start.set_column(j, &random.draw(p));
        }
    }
    start
}

#[derive(Clone, Copy)]
pub(crate) struct Accuracy {
    /// Maximum overstatement of each of the k eigenvalues.
    pub(crate) slack: f64,
    /// Factor on the required residuals: below 1 for a second attempt.
    pub(crate) sharpen: f64,
}

/// The sum of the k largest eigenvalues of A from both sides, the upper one on the condition that
/// `A − V·diag(weights)·Vᵀ ≺ t·I` is proved.
pub(crate) struct LeadingSum {
    /// The sum of Ritz values.
    pub(crate) at_least: f64,
    /// The upper bound, valid under the condition.
    pub(crate) at_most: f64,
    /// t of the condition.
    pub(crate) t: f64,
    /// One a column of `vectors`.
    pub(crate) weights: Vec<f64>,
    /// V: orthonormal.
    pub(crate) vectors: DMatrix<f64>,
}

impl LeadingSum {
    pub(crate) fn find(
        matrix: &dyn Symmetric,
        start: &DMatrix<f64>,
        k: usize,
        accuracy: &Accuracy,
        budget: &WorkLimit,
    ) -> Result<Self> {
        let Accuracy { slack, sharpen } = *accuracy;
        let RitzPairs {
            values, vectors, ..
        } = block_ritz(matrix, start, budget, &|values| {
            // R² ≤ slack · (distance to the rest) is what the factorisation needs.
            let distance = (values[k - 1] - values.get(k).unwrap_or(&values[k - 1])).max(slack);
            Ok(RitzTarget {
                count: k,
                accuracy: 0.3 * sharpen * (slack * distance).sqrt(),
            })
        })?;
        // A ≼ tI + V·diag((θᵢ−t)₊ + slack)·Vᵀ, whose k largest eigenvalues are known.
        let next = values.get(k).copied().unwrap_or(values[k - 1]);
        // Near the k-th value: the next one is a Ritz value too and may be far too small.
        let t = (next + slack).max(0.1 * next + 0.9 * values[k - 1]);
        let weights: Vec<f64> = values.iter().map(|v| (v - t).max(0.0) + slack).collect();
        Ok(Self {
            at_least: values.iter().take(k).sum(),
            at_most: k as f64 * t + weights.iter().take(k).sum::<f64>(),
            t,
            weights,
            vectors,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::outer_scaled;

    fn random_symmetric(p: usize, seed: u64) -> DMatrix<f64> {
        let mut random = StartVectors::default();
        for _ in 0..seed {
            random.draw(3);
        }
        let mut matrix = DMatrix::zeros(p, p);
        for j in 0..p {
            matrix.set_column(j, &random.draw(p));
        }
        (&matrix + matrix.transpose()) * 2.0
    }

    /// ‖difference of the projections‖_F.
    fn projection_distance(
        warm: &mut WarmSpectrum,
        matrix: &DMatrix<f64>,
        k: usize,
        accuracy: f64,
    ) -> f64 {
        let dense = |factor: Factor| outer_scaled(&factor.vectors, &factor.weights);
        let ours = dense(warm.project(matrix, k, accuracy).unwrap());
        (ours - dense(FullSpectrum.project(matrix, k, 0.0).unwrap())).norm()
    }

    /// Random matrices with and without a gap: the projection and the bound are those of the full one.
    #[test]
    fn agrees_with_full_decompositions() {
        for seed in 0..12_u64 {
            let (p, k) = (90 + 7 * seed as usize, 1 + seed as usize % 6);
            let mut matrix = random_symmetric(p, seed);
            if seed % 3 != 0 {
                for i in 0..k + 2 {
                    matrix[(i, i)] += 6.0 + 0.3 * i as f64;
                }
            }
            let mut warm = WarmSpectrum::new();
            for round in 0..3 {
                if round == 1 {
                    warm.request_certificate();
                }
                let apart = projection_distance(&mut warm, &matrix, k, 1e-7);
                assert!(apart < 1e-6, "{p} {k}: {apart}");
                let Bound::Proved(ours) = warm.bound(&matrix, k, 1e-6, f64::INFINITY).unwrap()
                else {
                    unreachable!("no limit")
                };
                let exact: f64 = symmetric_eigenvalues(&matrix).unwrap().iter().take(k).sum();
                assert!(
                    ours >= exact && ours < exact + 2e-6 * k as f64,
                    "{ours} {exact}"
                );
                matrix += random_symmetric(p, seed + 50 + round) * 0.01;
            }
        }
    }

    /// A block orthogonal to the leading direction is detected.
    #[test]
    fn a_missed_direction_is_detected() {
        let p = 100;
        let mut matrix = DMatrix::from_diagonal(&nalgebra::DVector::from_fn(p, |i, _| {
            if i < 3 {
                4.0
            } else {
                -0.1 * i as f64 / p as f64
            }
        }));
        matrix[(50, 50)] = 9.0;
        let vectors = DMatrix::identity(p, 3);
        let missing =
            |t| spectrum_is_below(t, &matrix, &vectors, &[5.0; 3], &mut DMatrix::zeros(p, p));
        assert!(!missing(3.0) && missing(9.1));
        let mut warm = WarmSpectrum::new();
        warm.block = vectors.clone();
        warm.request_certificate();
        assert!(projection_distance(&mut warm, &matrix, 2, 1e-8) < 1e-7);
    }
}
