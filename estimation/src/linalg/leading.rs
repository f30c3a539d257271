//! The leading eigenpairs of a matrix in memory, and the proof that none was missed.

use eigenveil_shared::Result;
use nalgebra::{DMatrix, DVector};

use super::{
    Definiteness, Panels, SymmetricEigen, add_outer_to_panel, blocked_cholesky, fix_signs,
    lanczos::search, leading_columns, leading_values, parallel_for_each, require_rank,
    require_square_and_finite, symmetric_eigen, symmetric_eigenvalues, symmetric_product,
};
use crate::cancel::Cancel;

/// Below this dimension a full decomposition costs a few milliseconds at most.
const MIN_PARTIAL_DIMENSION: usize = 300;
/// Krylov dimension at which the full decomposition is the better bet.
const MAX_BASIS: usize = 240;
/// Vectors of a block. A product is bound by memory, and the wider the block the more of them are needed: at p = 2,000
/// for ten spikes above noise and an error of 1e-12, 45 with one vector, 36 with two, 26 with ten, each of which takes
/// four times as long.
const WIDTH: usize = 1;
/// Residual `‖Av − θv‖` accepted, relative to the spectral norm.
const RESIDUAL_TOLERANCE: f64 = 1e-11;
/// Columns of a panel of the proof: in the square at the top of each, half of the work is for nothing.
const PROOF_PANEL: usize = 128;

/// The `k` algebraically largest eigenvalues of a symmetric `p × p` matrix, descending, with their
/// eigenvectors, signs fixed so that the loading of largest magnitude is positive.
///
/// For p ≥ 300 and k ≪ p they are searched for by Lanczos first. The result is used only if every residual is below
/// 1e-11 of the spectral norm *and* a Cholesky factorisation proves that no eigenvalue above the last one was missed (a
/// Krylov space cannot see a second copy of a repeated eigenvalue); otherwise the full decomposition is made. On
/// [`Threads::current`](super::Threads::current) threads.
pub fn top_k(matrix: &DMatrix<f64>, k: usize) -> Result<SymmetricEigen> {
    require_square_and_finite(matrix)?;
    let p = matrix.nrows();
    require_rank(k, p)?;
    if p >= MIN_PARTIAL_DIMENSION
        && k <= p / 10
        && let Some(leading) = proved_pairs(matrix, k)?
    {
        return Ok(leading);
    }
    Ok(leading_of(&symmetric_eigen(matrix)?, k))
}

/// The first k pairs of a full decomposition, signs fixed.
fn leading_of(all: &SymmetricEigen, k: usize) -> SymmetricEigen {
    let mut vectors = leading_columns(&all.vectors, k);
    fix_signs(&mut vectors);
    SymmetricEigen {
        values: leading_values(&all.values, k),
        vectors,
    }
}

/// All eigenvalues of a symmetric matrix, and its leading pairs when they are requested later: below p = 300 from
/// one decomposition, from there by [`symmetric_eigenvalues`] and [`top_k`], which together cost less.
#[derive(Clone, Debug)]
pub struct LazySpectrum<'a> {
    matrix: &'a DMatrix<f64>,
    found: CachedSpectrum,
}

#[derive(Clone, Debug)]
enum CachedSpectrum {
    All(SymmetricEigen),
    Values(DVector<f64>),
}

impl<'a> LazySpectrum<'a> {
    /// The spectrum of the symmetric `p × p` matrix.
    pub fn new(matrix: &'a DMatrix<f64>) -> Result<Self> {
        let leading = if matrix.nrows() < MIN_PARTIAL_DIMENSION {
            CachedSpectrum::All(symmetric_eigen(matrix)?)
        } else {
            CachedSpectrum::Values(symmetric_eigenvalues(matrix)?)
        };
        Ok(Self {
            matrix,
            found: leading,
        })
    }

    /// All p eigenvalues, descending.
    pub fn values(&self) -> &[f64] {
        match &self.found {
            CachedSpectrum::All(all) => all.values.as_slice(),
            CachedSpectrum::Values(values) => values.as_slice(),
        }
    }

    /// Leading pairs, as [`top_k`] of the matrix gives them.
    pub fn top_k(&self, k: usize) -> Result<SymmetricEigen> {
        match &self.found {
            CachedSpectrum::All(all) => {
                require_rank(k, self.matrix.nrows())?;
                Ok(leading_of(all, k))
            }
            CachedSpectrum::Values(_) => top_k(self.matrix, k),
        }
    }
}

/// The leading pairs, or `None` when they did not converge or could not be proved complete.
fn proved_pairs(matrix: &DMatrix<f64>, k: usize) -> Result<Option<SymmetricEigen>> {
    let max_dimension = MAX_BASIS.max(4 * k).min(matrix.nrows() / 2);
    // Half the tolerance, so that rounding cannot make the difference.
    let accuracy = 0.5 * RESIDUAL_TOLERANCE;
    let Some((leading, scale)) = search(matrix, k, WIDTH, accuracy, max_dimension)? else {
        return Ok(None);
    };
    let proved =
        residuals_hold(matrix, &leading, scale) && nothing_was_missed(matrix, &leading, scale)?;
    Ok(proved.then_some(leading))
}

/// The recomputed residuals: the recurrence's own estimate is not trusted.
fn residuals_hold(matrix: &DMatrix<f64>, leading: &SymmetricEigen, scale: f64) -> bool {
    let image = symmetric_product(matrix, &leading.vectors);
    leading.values.iter().enumerate().all(|(j, &value)| {
        (image.column(j) - leading.vectors.column(j) * value).norm() <= RESIDUAL_TOLERANCE * scale
    })
}

/// Whether `t·I − (A − V(Θ − t₀)Vᵀ)` is positive definite, `t` slightly above the last leading value: then every other
/// eigenvalue is below `t`. About p³/3 operations, most of the time of [`top_k`].
fn nothing_was_missed(matrix: &DMatrix<f64>, leading: &SymmetricEigen, scale: f64) -> Result<bool> {
    let last = leading.values[leading.values.len() - 1];
    let threshold = last + 1e-9 * scale;
    let weights: Vec<f64> = leading
        .values
        .iter()
        .map(|&value| value - last + scale)
        .collect();
    let mut rest = Panels::zeros(matrix.nrows(), PROOF_PANEL);
    parallel_for_each(rest.iter_mut(), |(from, panel)| {
        let shape = panel.shape();
        panel.copy_from(&matrix.view((from, from), shape));
        panel.neg_mut();
        for j in 0..panel.ncols() {
            panel[(j, j)] += threshold;
        }
        add_outer_to_panel(panel, from, &leading.vectors, &weights);
    });
    Ok(blocked_cholesky(&mut rest, Cancel::NEVER)? == Definiteness::Definite)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;
    use crate::linalg::{
        StartVectors, Threads, orthonormality_defect, orthonormalize, outer_scaled,
    };

    /// Spikes of the given sizes on coordinate-mixing directions over a noise-like bulk.
    fn spiked(p: usize, spikes: &[f64], bulk: f64) -> DMatrix<f64> {
        let mut generator = StartVectors::default();
        let mut matrix = DMatrix::zeros(p, p);
        for i in 0..p {
            let column = generator.draw(p) * (bulk * 0.5);
            for j in i..p {
                matrix[(i, j)] = column[j];
                matrix[(j, i)] = column[j];
            }
        }
        let directions = orthonormalize(generator.block(p, spikes.len())).unwrap();
        matrix + outer_scaled(&directions, spikes)
    }

    #[test]
    fn agrees_with_the_full_decomposition() {
        for scale in [1.0, 1e-6, 1e6] {
            let matrix = spiked(320, &[5.0, 4.0, 3.0, 2.5], 1.0) * scale;
            let partial = proved_pairs(&matrix, 4)
                .unwrap()
                .expect("clear spikes converge");
            let full = symmetric_eigen(&matrix).unwrap();
            for j in 0..4 {
                assert!((partial.values[j] - full.values[j]).abs() < 1e-11 * 5.0 * scale);
                let cosine = partial.vectors.column(j).dot(&full.vectors.column(j)).abs();
                assert!(1.0 - cosine < 1e-12, "{cosine}");
            }
        }
    }

    #[test]
    fn the_same_bits_on_any_number_of_threads() {
        let matrix = spiked(1_100, &[5.0, 4.0], 1.0);
        let pairs_on = |threads| {
            let threads = Threads::new(threads).unwrap();
            threads.run(|| proved_pairs(&matrix, 2).unwrap())
        };
        let one = pairs_on(1);
        assert!(one.is_some() && one == pairs_on(3));
    }

    #[test]
    fn a_repeated_leading_eigenvalue_is_not_lost() {
        let p = 310;
        let mut diagonal = DVector::from_fn(p, |i, _| i as f64 / p as f64);
        for i in [3, 77, 200] {
            diagonal[i] = 10.0;
        }
        let matrix = DMatrix::from_diagonal(&diagonal);
        let leading = top_k(&matrix, 4).unwrap();
        let values = &leading.values;
        assert!(
            values.iter().take(3).all(|v| (v - 10.0).abs() < 1e-9),
            "{values}"
        );
        assert!((leading.values[3] - 309.0 / 310.0).abs() < 1e-9);
        // The proof must fail if one copy is removed from the result.
        let short = SymmetricEigen {
            values: DVector::from_vec(vec![10.0, 309.0 / 310.0]),
            vectors: DMatrix::from_fn(p, 2, |i, j| f64::from(i == if j == 0 { 3 } else { p - 1 })),
        };
        assert!(residuals_hold(&matrix, &short, 10.0));
        assert!(!nothing_was_missed(&matrix, &short, 10.0).unwrap());
    }

    /// Top eigenvalue twice, others just below: the Krylov space converges on single copies before
    /// rounding reveals the second one, for several sizes of the gaps, so that passing by luck is unlikely.
    #[test]
    fn accepted_lanczos_pairs_are_complete() {
        let p = 300;
        for k in 2..8 {
            for top in [1.2, 1.4, 1.6, 2.0, 3.0] {
                let mut diagonal = DVector::from_fn(p, |i, _| i as f64 / p as f64);
                for (j, place) in (0..=k).map(|j| (j, 17 * j + 5)) {
                    diagonal[place] = top - 0.02 * (j.max(1) - 1) as f64;
                }
                let matrix = DMatrix::from_diagonal(&diagonal);
                let Some(leading) = proved_pairs(&matrix, k).unwrap() else {
                    continue;
                };
                for j in 0..k {
                    let exact = top - 0.02 * (j.max(1) - 1) as f64;
                    assert!((leading.values[j] - exact).abs() < 1e-9, "{leading:?}");
                }
            }
        }
    }

    #[test]
    fn nasty_large_matrices_fall_back_to_the_full_decomposition() {
        let p = 305;
        for matrix in [
            DMatrix::zeros(p, p),
            DMatrix::identity(p, p),
            -DMatrix::<f64>::identity(p, p),
            DMatrix::from_element(p, p, 1.0),
        ] {
            let leading = top_k(&matrix, 3).unwrap();
            let full = symmetric_eigen(&matrix).unwrap();
            for j in 0..3 {
                assert!((leading.values[j] - full.values[j]).abs() < 1e-9);
            }
            assert!(orthonormality_defect(&leading.vectors) < 1e-10);
        }
    }

    /// On both sides of the dimension where one decomposition becomes two.
    #[test]
    fn lazy_spectrum_equals_eigenvalues_and_top_k() {
        for p in [40, MIN_PARTIAL_DIMENSION - 1, MIN_PARTIAL_DIMENSION] {
            let matrix = spiked(p, &[5.0, 4.0, 3.0], 1.0);
            let spectrum = LazySpectrum::new(&matrix).unwrap();
            let values = symmetric_eigenvalues(&matrix).unwrap();
            let mut pairs = spectrum.values().iter().zip(values.iter());
            assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-12 * p as f64));
            assert_eq!(spectrum.top_k(3).unwrap(), top_k(&matrix, 3).unwrap());
            assert!(spectrum.top_k(0).is_err() && spectrum.top_k(p + 1).is_err());
        }
        assert!(LazySpectrum::new(&DMatrix::zeros(2, 3)).is_err());
    }

    #[test]
    fn k_out_of_range_is_rejected() {
        let matrix = DMatrix::identity(3, 3);
        for k in [0, 4] {
            let error = top_k(&matrix, k).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
        }
        let all = top_k(&matrix, 3).unwrap();
        assert_eq!(all.values, DVector::from_element(3, 1.0));
    }
}
