//! Block Lanczos with full reorthogonalisation: the leading part of the spectrum of a matrix given by its products.

use eigenveil_shared::Result;
use faer::MatRef;
use nalgebra::{DMatrix, DVector};

use super::{
    StartVectors, SymmetricEigen, cross_product, fix_signs,
    products::{add_tall_product, tall_cross},
    symmetric_eigen, symmetric_product, view, view_mut,
};

/// A new direction shorter than this share of the matrix's norm is rounding error.
const DEPENDENCE_TOLERANCE: f64 = 1e-11;
/// A direction that retains this share of its length after projection is as orthogonal to the span as the span's own
/// basis. A shorter one is orthogonalised again; otherwise its error would be amplified from block to block.
const REORTHOGONALIZE_BELOW: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// The space grows by one part in this many between two decompositions of T.
const GROWTH_PARTS: usize = 6;

/// A symmetric matrix as a linear operator, for Krylov methods.
pub trait Symmetric {
    /// Its dimension p.
    fn dimension(&self) -> usize;
    /// Its product with a `p × b` block.
    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64>;
}

/// The lower triangle counts.
impl Symmetric for DMatrix<f64> {
    fn dimension(&self) -> usize {
        self.nrows()
    }

    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        symmetric_product(self, block)
    }
}

/// The `k` algebraically largest eigenpairs of a symmetric matrix given by its products, by block Lanczos until each
/// residual ‖Av − θv‖ is below `accuracy` times the largest |θ|; signs as in [`top_k`](super::top_k). Unlike `top_k`,
/// this proves nothing: a block of `width` random vectors sees no more copies of a repeated eigenvalue than that. `None`
/// if a space of `max_dimension` dimensions is not enough.
pub fn leading_pairs(
    matrix: &dyn Symmetric,
    k: usize,
    width: usize,
    accuracy: f64,
    max_dimension: usize,
) -> Result<Option<SymmetricEigen>> {
    let pairs_and_scale = search(matrix, k, width, accuracy, max_dimension)?;
    Ok(pairs_and_scale.map(|(pairs, _)| pairs))
}

/// [`leading_pairs`], and the largest |θ|.
pub(super) fn search(
    matrix: &dyn Symmetric,
    k: usize,
    width: usize,
    accuracy: f64,
    max_dimension: usize,
) -> Result<Option<(SymmetricEigen, f64)>> {
    let p = matrix.dimension();
    let start = StartVectors::default().block(p, width.min(p));
    let mut lanczos = BlockLanczos::new(matrix, &start);
    let mut look_at = (2 * k + 8).max(4 * width);
    loop {
        let grown = lanczos.grow();
        let searched = lanczos.krylov_dimension();
        if grown && searched < look_at {
            continue;
        }
        let ritz = lanczos.ritz(|values| Ok(k.min(values.len())))?;
        let scale = ritz.values.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        if searched >= k && ritz.residuals.iter().all(|&r| r <= accuracy * scale) {
            let mut vectors = lanczos.vectors(&ritz.coordinates);
            fix_signs(&mut vectors);
            let values = DVector::from_column_slice(&ritz.values[..k]);
            return Ok(Some((SymmetricEigen { values, vectors }, scale)));
        }
        if !grown || searched > max_dimension {
            return Ok(None);
        }
        look_at = searched + searched / GROWTH_PARTS;
    }
}

/// `A·Q = Q·T + (the rest of the last block)` with T block tridiagonal, Q an orthonormal basis of the space that A makes
/// of the first block.
pub struct BlockLanczos<'a> {
    matrix: &'a dyn Symmetric,
    /// Q, in its leading `width` columns and `height` rows, of which those after the matrix's own dimensions were
    /// appended by [`BlockLanczos::grow_with`].
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

/// Rayleigh–Ritz in a Krylov space.
#[derive(Clone, Debug)]
pub struct Ritz {
    /// All Ritz values, descending.
    pub values: Vec<f64>,
    /// Coordinates in Q of the requested vectors, a column each.
    pub coordinates: DMatrix<f64>,
    /// ‖Av − θv‖ of each of these.
    pub residuals: Vec<f64>,
}

impl<'a> BlockLanczos<'a> {
    /// Starts from the span of `start`, `p × b`.
    pub fn new(matrix: &'a dyn Symmetric, start: &DMatrix<f64>) -> Self {
        let mut lanczos = Self {
            matrix,
            basis: DMatrix::zeros(matrix.dimension(), 0),
            width: 0,
            height: matrix.dimension(),
            open: 0,
            diagonal: Vec::new(),
            below: Vec::new(),
            scale: longest(start),
        };
        lanczos.append(start.clone());
        lanczos.scale = 0.0;
        lanczos
    }

    /// Dimension of the space in which T is known.
    pub fn krylov_dimension(&self) -> usize {
        self.open
    }

    /// Whether a block gave fewer new directions than it has columns, before any restart.
    pub fn is_rank_deficient(&self) -> bool {
        self.below.iter().any(|below| below.nrows() < below.ncols())
    }

    /// Multiplies the last block and appends the new directions; `false` if nothing is left to multiply.
    pub fn grow(&mut self) -> bool {
        self.grow_with(|_, _| {})
    }

    /// [`grow`](Self::grow) for A the sum of the matrix and a part whose product with the block `add` adds to the
    /// matrix's: to `BᵀAB`, and to `AB` what is outside the span so far, with further rows where A reaches dimensions
    /// that the matrix has not.
    pub fn grow_with(&mut self, add: impl FnOnce(&mut DMatrix<f64>, &mut DMatrix<f64>)) -> bool {
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
        add(&mut within, &mut image);
        self.height = image.nrows();
        self.scale = self.scale.max(longest(&image));
        self.diagonal.push(within);
        self.open = self.width;
        // Q'AQ is known; only the part outside the span is new.
        let out = self.append(image);
        self.below.push(out);
        true
    }

    /// Projects the span so far out of `directions`, appends an orthonormal basis B of the rest, and returns R with
    /// `(I − QQᵀ)·directions = B·R`.
    fn append(&mut self, mut directions: DMatrix<f64>) -> DMatrix<f64> {
        self.reserve(directions.nrows(), directions.ncols());
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
        let mut appended = self.basis.view_mut((0, self.width), directions.shape());
        appended.copy_from(&directions);
        self.width += directions.ncols();
        r
    }

    /// Makes room for b more columns of this height.
    fn reserve(&mut self, height: usize, b: usize) {
        let needed = self.width + b;
        let (rows, columns) = self.basis.shape();
        if needed <= columns && height <= rows {
            return;
        }
        let columns = (2 * columns).clamp(needed, needed + 1024);
        // No product has reached more further dimensions than it has columns.
        let p = self.matrix.dimension();
        let rows = if height > p { p + columns } else { p };
        self.basis.resize_mut(rows, columns, 0.0);
    }

    /// Goes on from these Ritz vectors and the block that has not been multiplied, in a space of their dimension
    /// (Wu & Simon 2000).
    pub(super) fn restart(&mut self, ritz: &Ritz) {
        let Some(below) = self.below.last() else {
            return;
        };
        let (b, kept) = (below.ncols(), ritz.coordinates.ncols());
        let coupling = below * ritz.coordinates.rows(self.open - b, b);
        let vectors = self.vectors(&ritz.coordinates);
        let waiting = self.width - self.open;
        let shape = (self.height, waiting);
        let block = self.basis.view((0, self.open), shape).into_owned();
        self.basis
            .view_mut((0, 0), (self.height, kept))
            .copy_from(&vectors);
        self.basis.view_mut((0, kept), shape).copy_from(&block);
        let values = DVector::from_column_slice(&ritz.values[..kept]);
        self.diagonal = vec![DMatrix::from_diagonal(&values)];
        self.below = vec![coupling];
        self.open = kept;
        self.width = kept + waiting;
    }

    fn columns(&self, from: usize, count: usize) -> MatRef<'_, f64> {
        view(&self.basis).submatrix(0, from, self.height, count)
    }

    /// Projects the basis from column `from` on out of `directions`.
    fn orthogonalize(&self, directions: &mut DMatrix<f64>, from: usize) {
        let count = self.width - from;
        if count == 0 || directions.ncols() == 0 {
            return;
        }
        let basis = self.columns(from, count);
        let overlap = tall_cross(basis, view(directions));
        add_tall_product(view_mut(directions), basis, view(&overlap), -1.0);
    }

    /// All values of T, and as many leading vectors as `wanted` returns when given them.
    pub fn ritz(&self, wanted: impl FnOnce(&[f64]) -> Result<usize>) -> Result<Ritz> {
        let all = symmetric_eigen(&self.projected())?;
        let values = all.values.as_slice().to_vec();
        let count = wanted(&values)?;
        let coordinates = all.vectors.columns(0, count).into_owned();
        let residuals = match self.below.last() {
            Some(below) => {
                let b = below.ncols();
                let tails = coordinates.rows(self.open - b, b).into_owned();
                (below * tails).column_iter().map(|c| c.norm()).collect()
            }
            None => Vec::new(),
        };
        Ok(Ritz {
            values,
            coordinates,
            residuals,
        })
    }

    /// T, in its lower triangle.
    fn projected(&self) -> DMatrix<f64> {
        let m = self.open;
        let mut t = DMatrix::zeros(m, m);
        let mut at = 0;
        for (diagonal, below) in self.diagonal.iter().zip(&self.below) {
            let b = diagonal.ncols();
            t.view_mut((at, at), (b, b)).copy_from(diagonal);
            at += b;
            // What lies below the last block is not part of T.
            let rows = below.nrows().min(m - at);
            let mut next = t.view_mut((at, at - b), (rows, b));
            next.copy_from(&below.rows(0, rows));
        }
        t
    }

    /// `Q·coordinates`: one row for each dimension of the matrix, and one for each that was appended.
    pub fn vectors(&self, coordinates: &DMatrix<f64>) -> DMatrix<f64> {
        let mut out = DMatrix::zeros(self.height, coordinates.ncols());
        let basis = self.columns(0, coordinates.nrows());
        add_tall_product(view_mut(&mut out), basis, view(coordinates), 1.0);
        out
    }
}

/// Norm of the longest column.
fn longest(columns: &DMatrix<f64>) -> f64 {
    columns.column_iter().map(|c| c.norm()).fold(0.0, f64::max)
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
    use super::*;
    use crate::linalg::{orthonormality_defect, orthonormalize, outer_scaled, top_k};

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
            let pairs = leading_pairs(&matrix, k, 8, 1e-11, p / 3).unwrap().unwrap();
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
        let evenly = DMatrix::from_diagonal(&DVector::from_fn(p, |i, _| i as f64));
        assert!(
            leading_pairs(&evenly, 30, 32, 1e-11, p / 3)
                .unwrap()
                .is_none()
        );
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
            let mut lanczos = BlockLanczos::new(&shifted, &start);
            while lanczos.krylov_dimension() < 240 {
                assert!(lanczos.grow());
            }
            let basis = lanczos.vectors(&DMatrix::identity(240, 240));
            assert!(orthonormality_defect(&basis) < 1e-13);
            lanczos.ritz(|_| Ok(0)).unwrap().values[0] - shift
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
        let mut lanczos = BlockLanczos::new(&matrix, &start);
        while lanczos.grow() {}
        // The range has 20 dimensions, the start three more.
        assert!(lanczos.krylov_dimension() >= 20 && lanczos.krylov_dimension() <= 26);
        let searched = lanczos.krylov_dimension();
        let basis = lanczos.vectors(&DMatrix::identity(searched, searched));
        assert!(orthonormality_defect(&basis) < 1e-13);
        let ritz = lanczos.ritz(|values| Ok(values.len())).unwrap();
        let rebuilt = outer_scaled(&lanczos.vectors(&ritz.coordinates), &ritz.values);
        assert!((rebuilt - matrix).amax() < 1e-9);
    }
}
