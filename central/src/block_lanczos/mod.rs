//! Block Lanczos with full reorthogonalisation, of a matrix plus Gaussian noise that is drawn lazily: only where the
//! iteration needs it.

mod band;

use std::ops::Range;

use eigenveil_estimation::linalg::{
    RowBlock, StartVectors, Symmetric, SymmetricEigen, add_row_block_product, cross_product,
    fix_signs, row_block_cross_product,
};
use eigenveil_shared::Result;
use nalgebra::{DMatrix, DVector};
use rand::Rng;
use rand_distr::{ChiSquared, Distribution, StandardNormal};

use band::{Band, LeadingPairs};

/// A new direction shorter than this share of the matrix's norm is rounding error.
const DEPENDENCE_TOLERANCE: f64 = 1e-11;
/// A direction that retains this share of its length after projection is as orthogonal to the span as the span's own
/// basis. A shorter one is orthogonalised again; otherwise its error would be amplified from block to block.
const REORTHOGONALIZE_BELOW: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// A matrix W from the Gaussian orthogonal ensemble (GOE) that is drawn lazily: standard deviation `sd` along every
/// direction of unit Frobenius norm, which is `sd` on the diagonal and `sd/√2` off it.
///
/// Its distribution is the same in every orthonormal basis. So once `WQ` is known for orthonormal Q, the rest of W,
/// `(I − QQᵀ)W(I − QQᵀ)`, is again a GOE matrix, independent of everything drawn so far even if Q was chosen
/// adaptively. A Lanczos iteration on H + W may therefore draw the numbers of W as it needs them: everything it
/// computes has the same distribution as with W drawn at the start, and `p × m` numbers are drawn instead of `p × p`.
///
/// If H is zero outside d of the p dimensions, the other `beyond = p − d` are exchangeable: there `W·q` has a Gaussian
/// part G, `beyond × b`, of which only R of `G = FR` matters, since F is a uniformly distributed frame independent of
/// R. So R is drawn (Bartlett: `χ` on its diagonal, normal above), and F contributes b further coordinates. In
/// coordinates d + 1, d + 2, … a result is relative to any uniformly distributed frame of the dimensions beyond.
pub(crate) struct LazyGoe<'a> {
    /// Standard deviation along a direction of unit Frobenius norm.
    pub sd: f64,
    /// Further dimensions, in which the matrix is zero.
    pub beyond: usize,
    /// The random number generator.
    pub rng: &'a mut dyn Rng,
}

impl LazyGoe<'_> {
    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.rng)
    }

    /// W between the columns of a block of width `b`.
    fn draw_block(&mut self, b: usize) -> DMatrix<f64> {
        let off_diagonal = self.sd * std::f64::consts::FRAC_1_SQRT_2;
        let mut block = DMatrix::zeros(b, b);
        for j in 0..b {
            block[(j, j)] = self.sd * self.normal();
            for i in j + 1..b {
                block[(i, j)] = off_diagonal * self.normal();
                block[(j, i)] = block[(i, j)];
            }
        }
        block
    }

    /// Adds W·block to `image` (before projection onto the complement); appends rows for frame coordinates that first
    /// appear in this product.
    fn add_noise_product(&mut self, image: &mut DMatrix<f64>, left: usize) {
        let off_diagonal = self.sd * std::f64::consts::FRAC_1_SQRT_2;
        for entry in image.iter_mut() {
            *entry += off_diagonal * self.normal();
        }
        let (height, b) = image.shape();
        let reached = left.min(b);
        image.resize_vertically_mut(height + reached, 0.0);
        for i in 0..reached {
            // At least one degree of freedom; a NaN would show at the next Ritz pairs.
            let squared = ChiSquared::new((left - i) as f64)
                .map_or(f64::NAN, |distribution| distribution.sample(&mut self.rng));
            image[(height + i, i)] = off_diagonal * squared.sqrt();
            for j in i + 1..b {
                image[(height + i, j)] = off_diagonal * self.normal();
            }
        }
    }
}

/// The `k` algebraically largest eigenpairs of a symmetric matrix given by its products, by block Lanczos until each
/// residual ‖Av − θv‖ is below `accuracy` times the largest |θ|; signs as in `top_k`. Unlike `top_k`, this cannot prove
/// that no pair was missed; with a block of random vectors that has probability zero. `None` if a space of
/// `max_dimension` dimensions is not enough.
pub(crate) fn leading_pairs(
    matrix: &dyn Symmetric,
    k: usize,
    accuracy: f64,
    max_dimension: usize,
) -> Result<Option<SymmetricEigen>> {
    let p = matrix.dimension();
    let width = (k + 2).max(8).min(p);
    let start = StartVectors::default().block(p, width);
    let mut lanczos = BlockLanczos::new(matrix, None, &start);
    let mut look_at = 4 * width;
    loop {
        let grown = lanczos.grow();
        if grown && lanczos.krylov_dimension() < look_at {
            continue;
        }
        let Ritz { pairs, residuals } = lanczos.ritz(|values| Ok(k.min(values.len())))?;
        let searched = lanczos.krylov_dimension();
        let allowed = accuracy * pairs.values.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        if searched >= k && residuals.iter().all(|&r| r <= allowed) {
            let mut vectors = lanczos.vectors(&pairs.vectors);
            fix_signs(&mut vectors);
            return Ok(Some(SymmetricEigen {
                values: DVector::from_row_slice(&pairs.values[..k]),
                vectors,
            }));
        }
        if !grown || searched > max_dimension {
            return Ok(None);
        }
        look_at = searched + searched / 4;
    }
}

/// `A = QTQᵀ + (residual of the last block)` with A = H + W, T block tridiagonal.
pub(crate) struct BlockLanczos<'a, 'n> {
    matrix: &'a dyn Symmetric,
    noise: Option<&'a mut LazyGoe<'n>>,
    /// Q, in its leading `width` columns and `height` rows; rows after the matrix's own dimensions are coordinates of
    /// the noise beyond it.
    basis: DMatrix<f64>,
    width: usize,
    height: usize,
    /// First column of the last block, which has not been multiplied by A yet.
    open: usize,
    /// The blocks of T on the diagonal, and below it.
    diagonal: Vec<DMatrix<f64>>,
    below: Vec<DMatrix<f64>>,
    /// Norm of the longest column of any product with A.
    scale: f64,
}

pub(crate) struct Ritz {
    /// All Ritz values, descending, and the coordinates in Q of the requested vectors.
    pub(crate) pairs: LeadingPairs,
    /// ‖Av − θv‖ of each of these.
    pub(crate) residuals: Vec<f64>,
}

impl<'a, 'n> BlockLanczos<'a, 'n> {
    /// Starts from the span of `start`, which must not depend on the noise.
    pub(crate) fn new(
        matrix: &'a dyn Symmetric,
        noise: Option<&'a mut LazyGoe<'n>>,
        start: &DMatrix<f64>,
    ) -> Self {
        let mut lanczos = Self {
            matrix,
            noise,
            basis: DMatrix::zeros(matrix.dimension(), 0),
            width: 0,
            height: matrix.dimension(),
            open: 0,
            diagonal: Vec::new(),
            below: Vec::new(),
            scale: start.column_iter().map(|c| c.norm()).fold(0.0, f64::max),
        };
        lanczos.append(start.clone());
        lanczos.scale = 0.0;
        lanczos
    }

    pub(crate) fn krylov_dimension(&self) -> usize {
        self.open
    }

    /// Whether a block gave fewer new directions than it has columns.
    pub(crate) fn is_rank_deficient(&self) -> bool {
        self.below.iter().any(|below| below.nrows() < below.ncols())
    }

    /// Multiplies the last block and appends the new directions; `false` if nothing is left to multiply.
    pub(crate) fn grow(&mut self) -> bool {
        let b = self.width - self.open;
        if b == 0 {
            return false;
        }
        let block = self
            .basis
            .view((0, self.open), (self.height, b))
            .into_owned();
        let own_dimension = self.matrix.dimension();
        let mut image = if self.height == own_dimension {
            self.matrix.times(&block)
        } else {
            self.matrix
                .times(&block.rows(0, own_dimension).into_owned())
        };
        image.resize_vertically_mut(self.height, 0.0);
        let mut within = cross_product(&block, &image);
        within = (&within + within.transpose()) * 0.5;
        if let Some(noise) = &mut self.noise {
            within += noise.draw_block(b);
            let left = noise.beyond - (self.height - own_dimension);
            noise.add_noise_product(&mut image, left);
            self.height = image.nrows();
        }
        let longest = image.column_iter().map(|c| c.norm()).fold(0.0, f64::max);
        self.scale = self.scale.max(longest);
        self.diagonal.push(within);
        self.open = self.width;
        // Q'AQ is known where the noise has been drawn; only the part outside the span is new.
        let out = self.append(image);
        self.below.push(out);
        true
    }

    /// Projects the span so far out of `directions`, appends an orthonormal basis B of the rest, and returns R with
    /// `(I − QQᵀ)·directions = B·R`.
    fn append(&mut self, mut directions: DMatrix<f64>) -> DMatrix<f64> {
        let smallest = DEPENDENCE_TOLERANCE * self.scale;
        // Nearly all of the part in the span lies along the last two blocks; once these are removed, one pass over the
        // whole span is mostly enough.
        let recent = 2 * self.diagonal.first().map_or(0, DMatrix::ncols);
        self.orthogonalize(&mut directions, self.width.saturating_sub(recent));
        let lengths: Vec<f64> = directions.column_iter().map(|c| c.norm()).collect();
        self.orthogonalize(&mut directions, 0);
        let (mut r, left) = orthonormal_part(&mut directions, smallest);
        // A short column has been scaled up, and with it its rounding error along the span. Twice is enough (Parlett
        // 1998, Section 6.9).
        if left
            .iter()
            .zip(&lengths)
            .any(|(left, all)| *left < REORTHOGONALIZE_BELOW * all)
        {
            self.orthogonalize(&mut directions, 0);
            r = orthonormal_part(&mut directions, 0.5).0 * r;
        }
        let b = directions.ncols();
        if self.width + b > self.basis.ncols() {
            let room = (2 * self.basis.ncols()).clamp(self.width + b, self.width + b + 1024);
            // There are no more coordinates beyond the matrix than directions.
            let beyond = self.noise.as_ref().map_or(0, |noise| noise.beyond);
            let rows = self.matrix.dimension() + beyond.min(room);
            self.basis.resize_mut(rows, room, 0.0);
        }
        let mut appended = self.basis.view_mut((0, self.width), directions.shape());
        appended.copy_from(&directions);
        self.width += b;
        r
    }

    fn basis_block(&self, columns: Range<usize>) -> RowBlock<'_> {
        RowBlock {
            matrix: &self.basis,
            rows: self.height,
            columns,
        }
    }

    /// Projects the basis from column `from` on out of `directions`.
    fn orthogonalize(&self, directions: &mut DMatrix<f64>, from: usize) {
        let count = self.width - from;
        if count == 0 || directions.ncols() == 0 {
            return;
        }
        let basis = self.basis_block(from..self.width);
        let overlap = row_block_cross_product(&basis, directions);
        add_row_block_product(directions, &basis, &overlap, -1.0);
    }

    /// All values of T, and as many leading pairs as `wanted` returns when given them.
    pub(crate) fn ritz(&self, wanted: impl FnOnce(&[f64]) -> Result<usize>) -> Result<Ritz> {
        let m = self.open;
        let pairs = self.projected(m).leading(wanted)?;
        let residuals = match (self.diagonal.last(), self.below.last()) {
            (Some(diagonal), Some(below)) => {
                let b = diagonal.ncols();
                let tails = pairs.vectors.rows(m - b, b).into_owned();
                (below * tails).column_iter().map(|c| c.norm()).collect()
            }
            _ => Vec::new(),
        };
        Ok(Ritz { pairs, residuals })
    }

    /// T, whose blocks below the diagonal are upper triangular.
    fn projected(&self, m: usize) -> Band {
        let widest = self.diagonal.iter().map(DMatrix::ncols).max();
        let mut t = Band::zeros(m, widest.unwrap_or(0));
        let mut at = 0;
        for (diagonal, below) in self.diagonal.iter().zip(&self.below) {
            let b = diagonal.ncols();
            for j in 0..b {
                for i in j..b {
                    t.set(at + i, at + j, diagonal[(i, j)]);
                }
                for i in 0..below.nrows().min(j + 1) {
                    if at + b + i < m {
                        t.set(at + b + i, at + j, below[(i, j)]);
                    }
                }
            }
            at += b;
        }
        t
    }

    /// `Q·coordinates`: one row for each dimension of the matrix, and one for each coordinate of the noise beyond it.
    pub(crate) fn vectors(&self, coordinates: &DMatrix<f64>) -> DMatrix<f64> {
        let mut out = DMatrix::zeros(self.height, coordinates.ncols());
        add_row_block_product(
            &mut out,
            &self.basis_block(0..coordinates.nrows()),
            coordinates,
            1.0,
        );
        out
    }
}

/// Replaces the columns by an orthonormal basis B of their span and returns R with `old = B·R`, and the length of each
/// column orthogonal to the earlier ones; a column with at most `smallest` adds no direction.
fn orthonormal_part(columns: &mut DMatrix<f64>, smallest: f64) -> (DMatrix<f64>, Vec<f64>) {
    let b = columns.ncols();
    let mut r = DMatrix::zeros(b, b);
    let mut across = Vec::with_capacity(b);
    let mut done = 0;
    for j in 0..b {
        for _ in 0..2 {
            for i in 0..done {
                let (basis, mut column) = columns.columns_range_pair_mut(i, j);
                let overlap = basis.dot(&column);
                column.axpy(-overlap, &basis, 1.0);
                r[(i, j)] += overlap;
            }
        }
        let norm = columns.column(j).norm();
        across.push(norm);
        // Written so that a NaN norm adds no direction.
        if norm > smallest {
            r[(done, j)] = norm;
            let unit = columns.column(j) / norm;
            columns.set_column(done, &unit);
            done += 1;
        }
    }
    *columns = columns.columns(0, done).into_owned();
    (r.rows(0, done).into_owned(), across)
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::linalg::{
        orthonormality_defect, orthonormalize, outer_scaled, top_k,
    };

    use super::*;

    #[test]
    fn the_leading_pairs_are_those_of_the_full_decomposition() {
        let p = 320;
        let mut random = StartVectors::default();
        let vectors = orthonormalize(random.block(p, p)).unwrap();
        // Two equal leading eigenvalues, and a decaying tail.
        let values: Vec<f64> = (0..p)
            .map(|i| {
                if i < 4 {
                    5.0 - (i / 2) as f64
                } else {
                    3.0 / i as f64
                }
            })
            .collect();
        let matrix = outer_scaled(&vectors, &values);
        for k in [1, 2, 4, 6] {
            let pairs = leading_pairs(&matrix, k, 1e-11, p / 3).unwrap().unwrap();
            let expected = top_k(&matrix, k).unwrap();
            assert!((&pairs.values - &expected.values).amax() < 1e-12);
            assert!(orthonormality_defect(&pairs.vectors) < 1e-12);
            let image = &matrix * &pairs.vectors;
            for j in 0..k {
                let residual = image.column(j) - pairs.vectors.column(j) * pairs.values[j];
                assert!(residual.norm() < 1e-10);
            }
        }
        // Too many components for a third of the dimensions.
        let evenly = DMatrix::from_diagonal(&nalgebra::DVector::from_fn(p, |i, _| i as f64));
        assert!(leading_pairs(&evenly, 30, 1e-11, p / 3).unwrap().is_none());
    }

    /// A multiple of the identity shifts the values and changes nothing else, however large it is compared with the
    /// rest: the part of a block outside the span is then short, and its part in the span must not be amplified from
    /// block to block.
    #[test]
    fn a_shift_costs_no_orthogonality() {
        let p = 600;
        let mut random = StartVectors::default();
        let half = random.block(p, p);
        let matrix = &half + half.transpose();
        let start = random.block(p, 8);
        let leading = |shift: f64| {
            let shifted = &matrix + DMatrix::from_diagonal_element(p, p, shift);
            let mut lanczos = BlockLanczos::new(&shifted, None, &start);
            while lanczos.krylov_dimension() < 240 {
                assert!(lanczos.grow());
            }
            let basis = lanczos.vectors(&DMatrix::identity(240, 240));
            assert!(orthonormality_defect(&basis) < 1e-13);
            lanczos.ritz(|_| Ok(0)).unwrap().pairs.values[0] - shift
        };
        let unshifted = leading(0.0);
        for shift in [-8.5, 1e4] {
            assert!((leading(shift) - unshifted).abs() < 1e-12 * (1.0 + shift.abs()));
        }
    }

    /// The basis stays orthonormal and T is the matrix restricted to it, also if the space becomes invariant before it
    /// is full.
    #[test]
    fn the_factorisation_holds() {
        let p = 60;
        let mut random = StartVectors::default();
        let vectors = orthonormalize(random.block(p, 20)).unwrap();
        let weights: Vec<f64> = (0..20).map(|i| 1.5_f64.powi(-i)).collect();
        let matrix = outer_scaled(&vectors, &weights);
        let start = random.block(p, 3);
        let mut lanczos = BlockLanczos::new(&matrix, None, &start);
        while lanczos.grow() {}
        // The range has 20 dimensions, the start three more.
        assert!(lanczos.krylov_dimension() >= 20 && lanczos.krylov_dimension() <= 26);
        let searched = lanczos.krylov_dimension();
        let basis = lanczos.vectors(&DMatrix::identity(searched, searched));
        assert!(orthonormality_defect(&basis) < 1e-13);
        let pairs = lanczos.ritz(|values| Ok(values.len())).unwrap().pairs;
        let rebuilt = outer_scaled(&lanczos.vectors(&pairs.vectors), &pairs.values);
        assert!((rebuilt - matrix).amax() < 1e-9);
    }
}
