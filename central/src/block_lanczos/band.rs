//! Leading eigenpairs of a symmetric band matrix: all values from a tridiagonal matrix (Schwarz 1968,
//! *Tridiagonalization of a symmetric band matrix*), the requested vectors by inverse iteration (Parlett 1998, Section
//! 4.3).
//!
//! For bandwidth b and dimension m that is about `6bm²` operations, and `m(2b² + r)` for each of r vectors, where a
//! full decomposition takes `9m³`.

use eigenveil_estimation::linalg::{StartVectors, symmetric_eigen, tridiagonal_eigenvalues};
use eigenveil_shared::Result;
use nalgebra::{DMatrix, DVector};

/// Below this dimension, or if more than a third of the vectors is requested, a full decomposition is as fast.
const MIN_DIMENSION: usize = 256;
const MIN_DIMENSIONS_PER_VECTOR: usize = 3;
/// Range of the largest entry in which squares neither vanish nor overflow. The full decomposition scales its matrix.
const SAFE_RANGE: std::ops::Range<f64> = 1e-100..1e100;
/// Maximum ‖Tv − λv‖ of a pair, relative to the largest |λ|. If a vector does not reach it, a full decomposition is
/// made instead.
const RESIDUAL_TOLERANCE: f64 = 1e-12;
/// Linear solves before giving up on a vector.
const MAX_SOLVES: usize = 4;

/// A symmetric matrix whose entries further than b from the diagonal are zero.
pub(crate) struct Band {
    dimension: usize,
    width: usize,
    /// Column by column: entries `(j, j)` to `(j + b + 1, j)`, the last of which is workspace for the reduction.
    entries: Vec<f64>,
}

pub(crate) struct LeadingPairs {
    /// All eigenvalues, descending.
    pub(crate) values: Vec<f64>,
    /// The leading eigenvectors, one per column, orthonormal.
    pub(crate) vectors: DMatrix<f64>,
}

impl Band {
    pub(crate) fn zeros(dimension: usize, width: usize) -> Self {
        Self {
            dimension,
            width,
            entries: vec![0.0; dimension * (width + 2)],
        }
    }

    fn at(&self, i: usize, j: usize) -> usize {
        j * (self.width + 2) + (i - j)
    }

    /// Sets entry (i, j) and its mirror image, `j ≤ i ≤ j + b`.
    pub(crate) fn set(&mut self, i: usize, j: usize, value: f64) {
        let at = self.at(i, j);
        self.entries[at] = value;
    }

    fn lower(&self, i: usize, j: usize) -> f64 {
        self.entries[self.at(i, j)]
    }

    /// All eigenvalues, and the eigenvectors of the leading ones; `wanted` receives the eigenvalues and returns the
    /// number of vectors.
    pub(crate) fn leading(
        &self,
        wanted: impl FnOnce(&[f64]) -> Result<usize>,
    ) -> Result<LeadingPairs> {
        let use_band_solver =
            self.dimension >= MIN_DIMENSION && SAFE_RANGE.contains(&self.largest());
        let values = use_band_solver.then(|| self.values()).flatten();
        let (values, full) = match values {
            Some(values) => (values, None),
            None => {
                let full = symmetric_eigen(&self.dense())?;
                (full.values.as_slice().to_vec(), Some(full))
            }
        };
        let count = wanted(&values)?;
        let few = full.is_none() && count * MIN_DIMENSIONS_PER_VECTOR <= self.dimension;
        let vectors = few.then(|| self.vectors(&values, count)).flatten();
        let vectors = match (vectors, full) {
            (Some(vectors), _) => vectors,
            (None, Some(full)) => full.vectors.columns(0, count).into_owned(),
            (None, None) => {
                let full = symmetric_eigen(&self.dense())?;
                full.vectors.columns(0, count).into_owned()
            }
        };
        Ok(LeadingPairs { values, vectors })
    }

    fn largest(&self) -> f64 {
        self.entries.iter().fold(0.0, |m, x| m.max(x.abs()))
    }

    fn dense(&self) -> DMatrix<f64> {
        let mut dense = DMatrix::zeros(self.dimension, self.dimension);
        for j in 0..self.dimension {
            for i in j..self.dimension.min(j + self.width + 1) {
                dense[(i, j)] = self.lower(i, j);
            }
        }
        dense
    }

    /// All eigenvalues, descending; `None` where the iteration does not converge to numbers.
    fn values(&self) -> Option<Vec<f64>> {
        let (diagonal, below) = self.tridiagonal();
        tridiagonal_eigenvalues(&diagonal, &below)
    }

    /// Diagonal and subdiagonal (with a last 0) of a similar tridiagonal matrix. Each entry outside is rotated to zero
    /// in the plane of two neighbouring rows, and the fill-in that this creates b rows further down is chased off the
    /// end.
    fn tridiagonal(&self) -> (Vec<f64>, Vec<f64>) {
        let (n, b) = (self.dimension, self.width);
        let mut work = Self {
            entries: self.entries.clone(),
            ..*self
        };
        for j in 0..n.saturating_sub(2) {
            for distance in (2..=b.min(n - 1 - j)).rev() {
                let (mut column, mut row) = (j, j + distance);
                while row < n && work.rotate(column, row) {
                    (column, row) = (row - 1, row + b);
                }
            }
        }
        let diagonal = (0..n).map(|i| work.lower(i, i)).collect();
        let below = (0..n)
            .map(|i| {
                if i + 1 < n && b > 0 {
                    work.lower(i + 1, i)
                } else {
                    0.0
                }
            })
            .collect();
        (diagonal, below)
    }

    /// Rotates rows and columns `row − 1` and `row` so that entry `(row, column)` becomes zero; `false` if it is zero
    /// already.
    fn rotate(&mut self, column: usize, row: usize) -> bool {
        let (n, b) = (self.dimension, self.width);
        let stride = b + 1;
        let first = self.at(row - 1, column);
        let (above, entry) = (self.entries[first], self.entries[first + 1]);
        if entry == 0.0 {
            return false;
        }
        let length = above.hypot(entry);
        let (c, s) = (above / length, entry / length);
        self.entries[first] = length;
        self.entries[first + 1] = 0.0;
        // The two rows left of the diagonal: neighbours in each column.
        let mut at = first;
        for _ in column + 1..row - 1 {
            at += stride;
            let (x, y) = (self.entries[at], self.entries[at + 1]);
            self.entries[at] = c * x + s * y;
            self.entries[at + 1] = c * y - s * x;
        }
        let (left, right) = (self.at(row - 1, row - 1), self.at(row, row));
        let (x, y, w) = (
            self.entries[left],
            self.entries[left + 1],
            self.entries[right],
        );
        let twist = 2.0 * c * s * y;
        self.entries[left] = c * c * x + s * s * w + twist;
        self.entries[right] = s * s * x + c * c * w - twist;
        self.entries[left + 1] = c * s * (w - x) + (c * c - s * s) * y;
        // The two columns below the diagonal, down to the entry just beyond the band.
        let count = (n - 1 - row).min(b);
        let (head, tail) = self.entries.split_at_mut(right);
        let columns = head[left + 2..].iter_mut().zip(&mut tail[1..]);
        for (x, y) in columns.take(count) {
            (*x, *y) = (c * *x + s * *y, c * *y - s * *x);
        }
        true
    }

    /// Orthonormal eigenvectors of the first `count` of `values`; `None` if one does not converge.
    fn vectors(&self, values: &[f64], count: usize) -> Option<DMatrix<f64>> {
        let n = self.dimension;
        let largest = values.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        let mut vectors = DMatrix::zeros(n, count);
        let mut random = StartVectors::default();
        for (j, &value) in values[..count].iter().enumerate() {
            let solver = Shifted::new(self, value, largest);
            let mut vector = random.draw(n);
            let mut found = false;
            for _ in 0..MAX_SOLVES {
                solver.solve(vector.as_mut_slice());
                let before = vectors.columns(0, j);
                // Twice: for a repeated eigenvalue most of the result may lie along the vectors found so far.
                for _ in 0..2 {
                    vector /= vector.norm();
                    let overlap = before.tr_mul(&vector);
                    vector.gemv(-1.0, &before, &overlap, 1.0);
                }
                vector /= vector.norm();
                found =
                    (self.times(&vector) - &vector * value).norm() <= RESIDUAL_TOLERANCE * largest;
                if found {
                    break;
                }
            }
            if !found {
                return None;
            }
            vectors.set_column(j, &vector);
        }
        Some(vectors)
    }

    fn times(&self, vector: &DVector<f64>) -> DVector<f64> {
        let n = self.dimension;
        let mut image = DVector::zeros(n);
        for j in 0..n {
            let start = self.at(j, j);
            image[j] += self.entries[start] * vector[j];
            for step in 1..=self.width.min(n - 1 - j) {
                let entry = self.entries[start + step];
                image[j + step] += entry * vector[j];
                image[j] += entry * vector[j + step];
            }
        }
        image
    }
}

/// `T − λI` in triangular factors, with partial pivoting.
struct Shifted {
    dimension: usize,
    width: usize,
    /// Row by row: columns `i − b` to `i + 2b`, multipliers left of the diagonal.
    rows: Vec<f64>,
    /// The row that each row was exchanged with.
    pivots: Vec<usize>,
}

impl Shifted {
    fn new(matrix: &Band, value: f64, largest: f64) -> Self {
        let (n, b) = (matrix.dimension, matrix.width);
        let line = 3 * b + 1;
        let mut rows = vec![0.0; n * line];
        for j in 0..n {
            for i in j..n.min(j + b + 1) {
                let entry = matrix.lower(i, j);
                rows[i * line + j + b - i] = entry;
                rows[j * line + i + b - j] = entry;
            }
            rows[j * line + b] -= value;
        }
        // λ is an eigenvalue up to rounding, so a pivot may be zero: replace it by rounding noise.
        let smallest = f64::EPSILON * largest.max(f64::MIN_POSITIVE / f64::EPSILON);
        let mut pivots = Vec::with_capacity(n);
        for k in 0..n {
            let last = (n - 1).min(k + b);
            let entry = |i: usize| i * line + k + b - i;
            let mut pivot = k;
            for i in k + 1..=last {
                if rows[entry(i)].abs() > rows[entry(pivot)].abs() {
                    pivot = i;
                }
            }
            let reach = (n - k).min(2 * b + 1);
            let (mine, other) = (entry(k), entry(pivot));
            if pivot != k {
                for step in 0..reach {
                    rows.swap(mine + step, other + step);
                }
            }
            if rows[mine].abs() < smallest {
                rows[mine] = smallest;
            }
            for i in k + 1..=last {
                let (upper, lower) = rows.split_at_mut(i * line);
                let pivot_row = &upper[mine..mine + reach];
                let row = &mut lower[k + b - i..][..reach];
                let factor = row[0] / pivot_row[0];
                row[0] = factor;
                for (x, y) in row[1..].iter_mut().zip(&pivot_row[1..]) {
                    *x -= factor * y;
                }
            }
            pivots.push(pivot);
        }
        Self {
            dimension: n,
            width: b,
            rows,
            pivots,
        }
    }

    /// Replaces `x` by the solution, scaled to stay finite.
    fn solve(&self, x: &mut [f64]) {
        let (n, b) = (self.dimension, self.width);
        let line = 3 * b + 1;
        for k in 0..n {
            x.swap(k, self.pivots[k]);
            for i in k + 1..=(n - 1).min(k + b) {
                x[i] -= self.rows[i * line + k + b - i] * x[k];
            }
        }
        // Solutions grow by the inverse pivots, one of which is tiny.
        let scale = f64::EPSILON;
        for k in (0..n).rev() {
            let reach = (n - k).min(2 * b + 1);
            let row = &self.rows[k * line + b..][..reach];
            let known: f64 = row[1..].iter().zip(&x[k + 1..]).map(|(a, y)| a * y).sum();
            x[k] = (x[k] * scale - known) / row[0];
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use eigenveil_estimation::linalg::orthonormality_defect;

    fn random(n: usize, b: usize, scale: f64) -> Band {
        let mut draw = StartVectors::default();
        let mut band = Band::zeros(n, b);
        for j in 0..n {
            let column = draw.draw(b + 1);
            for i in j..n.min(j + b + 1) {
                band.set(i, j, column[i - j] * scale);
            }
        }
        band
    }

    fn assert_is_decomposed(band: &Band, values: &[f64], vectors: &DMatrix<f64>) {
        // The full decomposition is off by 6e-12 on numbers of 1e-9.
        let unit = band.largest().max(f64::MIN_POSITIVE);
        let mut dense = band.dense() / unit;
        let full = symmetric_eigen(&dense).unwrap();
        let scale = full.values.amax();
        for (found, expected) in values.iter().zip(full.values.iter()) {
            let scaled = found / unit;
            assert!(
                (scaled - expected).abs() <= 2e-13 * scale,
                "{scaled} {expected}"
            );
        }
        if vectors.ncols() > 0 {
            assert!(orthonormality_defect(vectors) < 1e-12);
        }
        dense.fill_upper_triangle_with_lower_triangle();
        for (column, value) in vectors.column_iter().zip(values) {
            let residual = &dense * column - column * (*value / unit);
            assert!(residual.norm() <= 2.0 * RESIDUAL_TOLERANCE * scale);
        }
    }

    #[test]
    fn band_agrees_with_the_full_decomposition() {
        for (n, b) in [(300, 7), (400, 16), (257, 1), (300, 0)] {
            for scale in [1.0, 1e-9, 1e9] {
                let band = random(n, b, scale);
                let leading = band.leading(|values| Ok(values.len() / 6)).unwrap();
                assert_eq!(leading.vectors.ncols(), n / 6);
                assert_is_decomposed(&band, &leading.values, &leading.vectors);
            }
        }
        // Most of the vectors, and a small dimension.
        for (n, count) in [(300, 290), (40, 3)] {
            let band = random(n, 5, 1.0);
            let found = band.leading(|_| Ok(count)).unwrap();
            assert_is_decomposed(&band, &found.values, &found.vectors);
        }
    }

    /// Uncoupled copies of one block, so that every eigenvalue occurs six times; and a zero matrix.
    #[test]
    fn repeated_values_have_as_many_vectors() {
        let (copies, size, b) = (6, 50, 4);
        let one = random(size, b, 1.0);
        let mut band = Band::zeros(copies * size, b);
        for copy in 0..copies {
            for j in 0..size {
                for i in j..size.min(j + b + 1) {
                    band.set(copy * size + i, copy * size + j, one.lower(i, j));
                }
            }
        }
        let values = band.values().unwrap();
        let vectors = band.vectors(&values, 40).expect("by inverse iteration");
        assert_is_decomposed(&band, &values, &vectors);
        let nothing = Band::zeros(300, 3).leading(|_| Ok(4)).unwrap();
        assert!(nothing.values.iter().all(|&v| v == 0.0));
        assert!(orthonormality_defect(&nothing.vectors) < 1e-12);
    }

    /// Numbers near the limits of the range are left to the full decomposition, which scales them.
    #[test]
    fn extreme_numbers_are_decomposed() {
        for scale in [1e-300, 1e300] {
            let band = random(300, 3, scale);
            let leading = band.leading(|_| Ok(2)).unwrap();
            assert!(orthonormality_defect(&leading.vectors) < 1e-12);
            let full = symmetric_eigen(&band.dense()).unwrap();
            let apart = leading.values[0] / full.values[0] - 1.0;
            assert!(apart.abs() < 1e-12, "{apart}");
        }
    }

    proptest! {
        /// Small matrices, some with a band wider than the matrix, with many zero or equal entries.
        #[test]
        fn small_matrices_are_decomposed(n in 1_usize..24, b in 0_usize..8, entries in proptest::collection::vec(-2_i8..3, 24 * 9)) {
            let mut band = Band::zeros(n, b);
            let mut next = entries.iter();
            for j in 0..n {
                for i in j..n.min(j + b + 1) {
                    band.set(i, j, f64::from(*next.next().unwrap()));
                }
            }
            let values = band.values().unwrap();
            let none = DMatrix::zeros(n, 0);
            assert_is_decomposed(&band, &values, &none);
            if let Some(vectors) = band.vectors(&values, n) {
                assert_is_decomposed(&band, &values, &vectors);
            }
        }
    }
}
