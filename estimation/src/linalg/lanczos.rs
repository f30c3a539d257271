//! The leading eigenpairs by Lanczos with full reorthogonalisation, and the proof that none was missed.

use eigenveil_shared::Result;
use faer::{Accum, Par, linalg::matmul::matmul};
use nalgebra::{DMatrix, DVector};

use super::{
    SymmetricEigen, cholesky::factorises, fix_signs, leading_columns, leading_values, outer_scaled,
    product, products::product_of_views, require_rank, require_square_and_finite, symmetric_eigen,
    symmetric_eigenvalues, view,
};

/// Below this dimension a full decomposition costs a few milliseconds at most.
const MIN_PARTIAL_DIMENSION: usize = 300;
/// Krylov dimension at which the full decomposition is the better bet.
const MAX_BASIS: usize = 240;
/// Residual `‖Av − θv‖` accepted, relative to the spectral norm.
const RESIDUAL_TOLERANCE: f64 = 1e-11;

/// The `k` algebraically largest eigenvalues of a symmetric `p × p` matrix, descending, with their
/// eigenvectors, signs fixed so that the loading of largest magnitude is positive.
///
/// For p ≥ 300 and k ≪ p single-vector Lanczos with full reorthogonalisation is tried first. Its result is used only if
/// every residual is below 1e-11 of the spectral norm *and* a Cholesky factorisation proves that no eigenvalue above
/// the last one was missed (a Krylov space cannot see a second copy of a repeated eigenvalue); otherwise the full
/// decomposition is made.
pub fn top_k(matrix: &DMatrix<f64>, k: usize) -> Result<SymmetricEigen> {
    require_square_and_finite(matrix)?;
    let p = matrix.nrows();
    require_rank(k, p)?;
    let partial = if p >= MIN_PARTIAL_DIMENSION && k <= p / 10 {
        lanczos(matrix, k)?
    } else {
        None
    };
    match partial {
        Some(mut leading) => {
            fix_signs(&mut leading.vectors);
            Ok(leading)
        }
        None => Ok(leading_of(&symmetric_eigen(matrix)?, k)),
    }
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
fn lanczos(matrix: &DMatrix<f64>, k: usize) -> Result<Option<SymmetricEigen>> {
    let p = matrix.nrows();
    let max_basis = MAX_BASIS.max(4 * k).min(p / 2);
    let mut basis = DMatrix::zeros(p, max_basis);
    let (mut alpha, mut beta) = (Vec::new(), Vec::new());
    let mut generator = StartVectors::default();
    let mut next = generator.draw(p);
    let mut check_at = (2 * k + 8).min(max_basis);
    for step in 0..max_basis {
        basis.set_column(step, &next);
        let mut w = matrix_vector(matrix, &next);
        alpha.push(next.dot(&w));
        let width = step + 1;
        // Twice is enough: one pass leaves components of the size of the cancellation.
        orthogonalise(&basis, width, &mut w);
        orthogonalise(&basis, width, &mut w);
        let mut norm = w.norm();
        // Of the size of the spectral norm of the tridiagonal matrix so far.
        let scale = alpha
            .iter()
            .chain(&beta)
            .fold(0.0_f64, |m, x| m.max(x.abs()));
        if norm <= 1e-14 * scale || scale == 0.0 {
            // The basis spans an invariant subspace: go on from a fresh direction, uncoupled.
            norm = 0.0;
            w = generator.draw(p);
            orthogonalise(&basis, width, &mut w);
            orthogonalise(&basis, width, &mut w);
            let fresh = w.norm();
            if fresh <= 1e-10 {
                return Ok(None);
            }
            w /= fresh;
        } else {
            w /= norm;
        }
        next = w;
        if width == check_at || width == max_basis {
            let ritz = tridiagonal_eigen(&alpha, &beta)?;
            let scale = ritz.values.amax();
            let settled = (0..k).all(|j| {
                norm * ritz.vectors[(width - 1, j)].abs() <= 0.1 * RESIDUAL_TOLERANCE * scale
            });
            // A zero coupling makes every residual vanish although the space may hold too few copies.
            if settled && norm > 0.0 {
                let vectors = product(
                    &basis.columns(0, width).into_owned(),
                    &leading_columns(&ritz.vectors, k),
                );
                let leading = SymmetricEigen {
                    values: leading_values(&ritz.values, k),
                    vectors,
                };
                let proved = residuals_hold(matrix, &leading, scale)
                    && nothing_was_missed(matrix, &leading, scale);
                return Ok(proved.then_some(leading));
            }
            check_at = (width + width / 4 + 8).min(max_basis);
        }
        beta.push(norm);
    }
    Ok(None)
}

/// The recomputed residuals: the recurrence's own estimate is not trusted.
fn residuals_hold(matrix: &DMatrix<f64>, leading: &SymmetricEigen, scale: f64) -> bool {
    let image = product(matrix, &leading.vectors);
    leading.values.iter().enumerate().all(|(j, &value)| {
        (image.column(j) - leading.vectors.column(j) * value).norm() <= RESIDUAL_TOLERANCE * scale
    })
}

/// Whether `t·I − (A − V(Θ − t₀)Vᵀ)` is positive definite, `t` slightly above the last leading value: then every other
/// eigenvalue is below `t`.
fn nothing_was_missed(matrix: &DMatrix<f64>, leading: &SymmetricEigen, scale: f64) -> bool {
    let last = leading.values[leading.values.len() - 1];
    let threshold = last + 1e-9 * scale;
    let weights: Vec<f64> = leading
        .values
        .iter()
        .map(|&value| value - last + scale)
        .collect();
    let mut rest = outer_scaled(&leading.vectors, &weights);
    rest -= matrix;
    for i in 0..rest.nrows() {
        rest[(i, i)] += threshold;
    }
    factorises(&mut rest)
}

fn matrix_vector(matrix: &DMatrix<f64>, x: &DVector<f64>) -> DVector<f64> {
    let x = faer::MatRef::from_column_major_slice(x.as_slice(), x.len(), 1);
    product_of_views(view(matrix), x).column(0).into_owned()
}

fn orthogonalise(basis: &DMatrix<f64>, width: usize, w: &mut DVector<f64>) {
    let p = basis.nrows();
    let used = view(basis).subcols(0, width);
    let column = faer::MatRef::from_column_major_slice(w.as_slice(), p, 1);
    let overlaps = product_of_views(used.transpose(), column);
    let target = faer::MatMut::from_column_major_slice_mut(w.as_mut_slice(), p, 1);
    matmul(target, Accum::Add, used, view(&overlaps), -1.0, Par::Seq);
}

fn tridiagonal_eigen(alpha: &[f64], beta: &[f64]) -> Result<SymmetricEigen> {
    let m = alpha.len();
    let mut t = DMatrix::from_diagonal(&DVector::from_column_slice(alpha));
    for (i, &b) in beta.iter().enumerate().take(m - 1) {
        t[(i + 1, i)] = b;
        t[(i, i + 1)] = b;
    }
    symmetric_eigen(&t)
}

/// Unit start vectors that depend on nothing: the same matrix gives the same digits.
#[derive(Debug)]
pub struct StartVectors {
    state: u64,
}

impl Default for StartVectors {
    fn default() -> Self {
        Self {
            state: 0x9E37_79B9_7F4A_7C15,
        }
    }
}

impl StartVectors {
    /// The next start vector, of p numbers.
    pub fn draw(&mut self, p: usize) -> DVector<f64> {
        let vector = DVector::from_fn(p, |_, _| {
            // splitmix64: enough to be in general position to any eigenvector.
            self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.state;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            (z >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
        });
        let norm = vector.norm();
        vector / norm
    }

    /// `p × width`, drawn column by column.
    pub fn block(&mut self, p: usize, width: usize) -> DMatrix<f64> {
        let mut block = DMatrix::zeros(p, width);
        for mut column in block.column_iter_mut() {
            column.copy_from(&self.draw(p));
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;
    use crate::linalg::{orthonormality_defect, orthonormalize};

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
            let partial = lanczos(&matrix, 4).unwrap().expect("clear spikes converge");
            let full = symmetric_eigen(&matrix).unwrap();
            for j in 0..4 {
                assert!((partial.values[j] - full.values[j]).abs() < 1e-11 * 5.0 * scale);
                let cosine = partial.vectors.column(j).dot(&full.vectors.column(j)).abs();
                assert!(1.0 - cosine < 1e-12, "{cosine}");
            }
        }
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
        let found = &leading.values;
        assert!(
            found.iter().take(3).all(|v| (v - 10.0).abs() < 1e-9),
            "{found}"
        );
        assert!((leading.values[3] - 309.0 / 310.0).abs() < 1e-9);
        // The proof must fail if one copy is removed from the result.
        let short = SymmetricEigen {
            values: DVector::from_vec(vec![10.0, 309.0 / 310.0]),
            vectors: DMatrix::from_fn(p, 2, |i, j| f64::from(i == if j == 0 { 3 } else { p - 1 })),
        };
        assert!(residuals_hold(&matrix, &short, 10.0));
        assert!(!nothing_was_missed(&matrix, &short, 10.0));
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
                let Some(leading) = lanczos(&matrix, k).unwrap() else {
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
