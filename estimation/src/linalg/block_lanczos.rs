//! Block Lanczos with full reorthogonalisation, of a matrix plus Gaussian noise that is drawn only where the iteration looks.

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{
    StartVectors, Symmetric, SymmetricEigen, cross_product, fix_signs, leading_columns,
    leading_values, symmetric_eigen,
    tall::{add_tall_product, tall_cross},
    view, view_mut,
};

/// A new direction smaller than this share of the matrix's size is rounding.
const DEPENDENT: f64 = 1e-11;

/// A symmetric Gaussian matrix W that nobody has looked at: standard deviation `sd` along every direction of unit Frobenius
/// norm, which is `sd` on the diagonal and `sd/√2` off it (the Gaussian orthogonal ensemble).
///
/// Its law is the same in every orthonormal basis. So once `WQ` is known for orthonormal Q, what W does between the other
/// directions, `(I − QQᵀ)W(I − QQᵀ)`, is such a matrix again and independent of all that was seen, also when Q was chosen by
/// looking. A Lanczos iteration on H + W may therefore draw the numbers of W as it comes to them: everything it computes
/// has the law it would have with W drawn at the start, and `p × m` numbers are drawn in place of `p × p`.
pub struct UnseenNoise<'a> {
    /// Standard deviation along a direction of unit Frobenius norm.
    pub sd: f64,
    /// Independent standard normal numbers.
    pub normal: &'a mut dyn FnMut() -> f64,
}

impl UnseenNoise<'_> {
    /// W between the columns of a block of width `b`.
    fn within(&mut self, b: usize) -> DMatrix<f64> {
        let off_diagonal = self.sd * std::f64::consts::FRAC_1_SQRT_2;
        let mut block = DMatrix::zeros(b, b);
        for j in 0..b {
            block[(j, j)] = self.sd * (self.normal)();
            for i in j + 1..b {
                block[(i, j)] = off_diagonal * (self.normal)();
                block[(j, i)] = block[(i, j)];
            }
        }
        block
    }

    /// Adds what W takes the columns of a block to, before the directions seen so far are taken out.
    fn add_across(&mut self, image: &mut DMatrix<f64>) {
        let off_diagonal = self.sd * std::f64::consts::FRAC_1_SQRT_2;
        for entry in image.iter_mut() {
            *entry += off_diagonal * (self.normal)();
        }
    }
}

/// The `k` algebraically largest eigenpairs of a symmetric matrix that is known by its products, by block Lanczos until each
/// residual ‖Av − θv‖ is below `accuracy` of the largest |θ|; signs as in [`top_k`](super::top_k). Unlike there nothing proves that none
/// was missed: with a block of random vectors that is an event of probability zero. `None` where a third of p
/// dimensions are not enough.
///
/// # Errors
/// Those of [`symmetric_eigen`].
pub fn leading_pairs(
    matrix: &dyn Symmetric,
    k: usize,
    accuracy: f64,
) -> Result<Option<SymmetricEigen>> {
    let p = matrix.dimension();
    let mut random = StartVectors::new();
    let columns: Vec<_> = (0..(k + 2).max(8).min(p)).map(|_| random.draw(p)).collect();
    let mut lanczos = BlockLanczos::new(matrix, None, &DMatrix::from_columns(&columns));
    let mut look_at = 4 * columns.len();
    loop {
        let grown = lanczos.grow();
        if grown && lanczos.multiplied() < look_at {
            continue;
        }
        let Ritz { pairs, residuals } = lanczos.ritz()?;
        let searched = lanczos.multiplied();
        let allowed = accuracy * pairs.values.amax();
        if searched >= k && residuals[..k].iter().all(|&r| r <= allowed) {
            let mut vectors = lanczos.vectors(&leading_columns(&pairs.vectors, k));
            fix_signs(&mut vectors);
            return Ok(Some(SymmetricEigen {
                values: leading_values(&pairs.values, k),
                vectors,
            }));
        }
        if !grown || searched > p / 3 {
            return Ok(None);
        }
        look_at = searched + searched / 4;
    }
}

/// `A = QTQᵀ + (the last block's way out)` with A = H + W, T block tridiagonal.
pub(crate) struct BlockLanczos<'a, 'n> {
    matrix: &'a dyn Symmetric,
    noise: Option<&'a mut UnseenNoise<'n>>,
    /// Q, in the leading `width` of its columns.
    basis: DMatrix<f64>,
    width: usize,
    /// First column of the last block, whose product with A is not known yet.
    open: usize,
    /// The blocks of T on the diagonal, and below it.
    diagonal: Vec<DMatrix<f64>>,
    below: Vec<DMatrix<f64>>,
    /// Norm of the longest column that A has given.
    scale: f64,
}

/// Ritz pairs in the coordinates of the basis.
pub(crate) struct Ritz {
    /// All Ritz values, descending, and the vectors' coordinates in Q.
    pub(crate) pairs: SymmetricEigen,
    /// ‖Av − θv‖ of each.
    pub(crate) residuals: Vec<f64>,
}

impl<'a, 'n> BlockLanczos<'a, 'n> {
    /// From the span of `start`, which must not depend on the noise.
    pub(crate) fn new(
        matrix: &'a dyn Symmetric,
        noise: Option<&'a mut UnseenNoise<'n>>,
        start: &DMatrix<f64>,
    ) -> Self {
        let mut lanczos = Self {
            matrix,
            noise,
            basis: DMatrix::zeros(matrix.dimension(), 0),
            width: 0,
            open: 0,
            diagonal: Vec::new(),
            below: Vec::new(),
            scale: start.column_iter().map(|c| c.norm()).fold(0.0, f64::max),
        };
        lanczos.append(start.clone());
        lanczos.scale = 0.0;
        lanczos
    }

    /// Dimension of the space that was multiplied.
    pub(crate) fn multiplied(&self) -> usize {
        self.open
    }

    /// Whether a block gave fewer new directions than it has columns.
    pub(crate) fn lost_directions(&self) -> bool {
        self.below.iter().any(|below| below.nrows() < below.ncols())
    }

    /// Multiplies the last block and appends what is new; `false` when there is nothing left to multiply.
    pub(crate) fn grow(&mut self) -> bool {
        let b = self.width - self.open;
        if b == 0 {
            return false;
        }
        let block = self.basis.columns(self.open, b).into_owned();
        let mut image = self.matrix.times(&block);
        let mut within = cross_product(&block, &image);
        within = (&within + within.transpose()) * 0.5;
        if let Some(noise) = &mut self.noise {
            within += noise.within(b);
            noise.add_across(&mut image);
        }
        let longest = image.column_iter().map(|c| c.norm()).fold(0.0, f64::max);
        self.scale = self.scale.max(longest);
        self.diagonal.push(within);
        self.open = self.width;
        // Q'AQ is known where the noise has been seen; only the way out of the span is new.
        let out = self.append(image);
        self.below.push(out);
        true
    }

    /// Takes the span so far out of `directions`, appends an orthonormal basis B of the rest, and gives R with
    /// `(I − QQᵀ)·directions = B·R`.
    fn append(&mut self, mut directions: DMatrix<f64>) -> DMatrix<f64> {
        let smallest = DEPENDENT * self.scale;
        self.take_out(&mut directions);
        self.take_out(&mut directions);
        let first = orthonormal_part(&mut directions, smallest);
        // A short column has been blown up, and with it its rounding along the span.
        self.take_out(&mut directions);
        let second = orthonormal_part(&mut directions, 0.5);
        let b = directions.ncols();
        if self.width + b > self.basis.ncols() {
            let room = (2 * self.basis.ncols()).clamp(self.width + b, self.width + b + 1024);
            self.basis.resize_horizontally_mut(room, 0.0);
        }
        self.basis.columns_mut(self.width, b).copy_from(&directions);
        self.width += b;
        second * first
    }

    fn take_out(&self, directions: &mut DMatrix<f64>) {
        if self.width == 0 || directions.ncols() == 0 {
            return;
        }
        let basis = view(&self.basis).subcols(0, self.width);
        let mut overlap = DMatrix::zeros(self.width, directions.ncols());
        tall_cross(view_mut(&mut overlap), basis, view(directions));
        add_tall_product(view_mut(directions), basis, view(&overlap), -1.0);
    }

    /// The pairs of T.
    pub(crate) fn ritz(&self) -> Result<Ritz> {
        let m = self.open;
        let mut t = DMatrix::zeros(m, m);
        let mut at = 0;
        for (diagonal, below) in self.diagonal.iter().zip(&self.below) {
            let b = diagonal.ncols();
            t.view_mut((at, at), (b, b)).copy_from(diagonal);
            let next = at + b;
            if next < m {
                t.view_mut((next, at), below.shape()).copy_from(below);
            }
            at = next;
        }
        let pairs = symmetric_eigen(&t)?;
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

    /// `Q·coordinates`.
    pub(crate) fn vectors(&self, coordinates: &DMatrix<f64>) -> DMatrix<f64> {
        let mut out = DMatrix::zeros(self.basis.nrows(), coordinates.ncols());
        let basis = view(&self.basis).subcols(0, coordinates.nrows());
        add_tall_product(view_mut(&mut out), basis, view(coordinates), 1.0);
        out
    }
}

/// Replaces the columns by an orthonormal basis B of their span and gives R with `old = B·R`; a column whose part across the
/// ones before it is not longer than `smallest` gives none.
fn orthonormal_part(columns: &mut DMatrix<f64>, smallest: f64) -> DMatrix<f64> {
    let b = columns.ncols();
    let mut r = DMatrix::zeros(b, b);
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
        // Written so that NaN gives none.
        if norm > smallest {
            r[(done, j)] = norm;
            let unit = columns.column(j) / norm;
            columns.set_column(done, &unit);
            done += 1;
        }
    }
    *columns = leading_columns(columns, done);
    r.rows(0, done).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::{orthonormality_defect, outer_scaled, top_k};

    #[test]
    fn the_leading_pairs_are_those_of_the_full_decomposition() {
        let p = 320;
        let mut random = StartVectors::new();
        let frame: Vec<_> = (0..p).map(|_| random.draw(p)).collect();
        let vectors = crate::linalg::orthonormalize(DMatrix::from_columns(&frame)).unwrap();
        // Two alike among the leading ones, and a tail that decays.
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
            let found = leading_pairs(&matrix, k, 1e-11).unwrap().unwrap();
            let expected = top_k(&matrix, k).unwrap();
            assert!((&found.values - &expected.values).amax() < 1e-12);
            assert!(orthonormality_defect(&found.vectors) < 1e-12);
            let image = &matrix * &found.vectors;
            for j in 0..k {
                let residual = image.column(j) - found.vectors.column(j) * found.values[j];
                assert!(residual.norm() < 1e-10);
            }
        }
        // Too many for a third of the dimensions.
        let evenly = DMatrix::from_diagonal(&nalgebra::DVector::from_fn(p, |i, _| i as f64));
        assert!(leading_pairs(&evenly, 30, 1e-11).unwrap().is_none());
    }

    /// The basis stays orthonormal, and T is what the matrix is on it, also when the space is invariant before it is full.
    #[test]
    fn the_factorisation_holds() {
        let p = 60;
        let mut random = StartVectors::new();
        let frame: Vec<_> = (0..20).map(|_| random.draw(p)).collect();
        let vectors = crate::linalg::orthonormalize(DMatrix::from_columns(&frame)).unwrap();
        let weights: Vec<f64> = (0..20).map(|i| 1.5_f64.powi(-i)).collect();
        let matrix = outer_scaled(&vectors, &weights);
        let start = DMatrix::from_columns(&[random.draw(p), random.draw(p), random.draw(p)]);
        let mut lanczos = BlockLanczos::new(&matrix, None, &start);
        while lanczos.grow() {}
        // The range has 20 dimensions, the start three more.
        assert!(lanczos.multiplied() >= 20 && lanczos.multiplied() <= 26);
        let basis = lanczos.vectors(&DMatrix::identity(
            lanczos.multiplied(),
            lanczos.multiplied(),
        ));
        assert!(orthonormality_defect(&basis) < 1e-13);
        let pairs = lanczos.ritz().unwrap().pairs;
        let rebuilt = outer_scaled(&lanczos.vectors(&pairs.vectors), pairs.values.as_slice());
        assert!((rebuilt - matrix).amax() < 1e-9);
    }
}
