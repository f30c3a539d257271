//! Symmetric matrices as their packed upper triangle.

/// Length of the packed upper triangle of a `p × p` symmetric matrix, diagonal included: `p(p+1)/2`.
pub const fn packed_len(p: usize) -> usize {
    p * (p + 1) / 2
}

/// Position of entry `(i, j)` (either order) in the packed upper triangle of a `p × p` matrix, row by row.
pub const fn packed_index(p: usize, i: usize, j: usize) -> usize {
    let (i, j) = if i <= j { (i, j) } else { (j, i) };
    i * p - i * (i + 1) / 2 + j
}

/// A symmetric `p × p` matrix stored as `tri(M)`: the upper triangle row by row, diagonal included.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedSymmetric {
    dimension: usize,
    entries: Vec<f64>,
}

impl PackedSymmetric {
    /// The zero matrix of dimension `p`.
    pub fn zeros(p: usize) -> Self {
        Self {
            dimension: p,
            entries: vec![0.0; packed_len(p)],
        }
    }

    /// The matrix whose packed upper triangle is `entries`; `None` when the length is not `p(p+1)/2`.
    pub fn from_entries(p: usize, entries: Vec<f64>) -> Option<Self> {
        (entries.len() == packed_len(p)).then_some(Self {
            dimension: p,
            entries,
        })
    }

    /// The dimension `p`.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// The packed upper triangle.
    pub fn as_slice(&self) -> &[f64] {
        &self.entries
    }

    /// The packed upper triangle, to be written to.
    pub fn as_mut_slice(&mut self) -> &mut [f64] {
        &mut self.entries
    }

    /// Entry `(i, j)`.
    ///
    /// # Panics
    /// If `i` or `j` is not below the dimension.
    pub fn get(&self, i: usize, j: usize) -> f64 {
        let inside = i < self.dimension && j < self.dimension;
        assert!(inside, "entry outside the matrix");
        self.entries[packed_index(self.dimension, i, j)]
    }

    /// The trace.
    pub fn trace(&self) -> f64 {
        (0..self.dimension).map(|i| self.get(i, i)).sum()
    }

    /// Adds `weight · x xᵀ`.
    ///
    /// # Panics
    /// If the length of `x` differs from the dimension.
    pub fn add_outer(&mut self, x: &[f64], weight: f64) {
        assert_eq!(x.len(), self.dimension, "row of another dimension");
        let mut rest = self.entries.as_mut_slice();
        for (i, &xi) in x.iter().enumerate() {
            let (line, tail) = rest.split_at_mut(self.dimension - i);
            let wxi = weight * xi;
            for (entry, &xj) in line.iter_mut().zip(&x[i..]) {
                *entry += wxi * xj;
            }
            rest = tail;
        }
    }

    /// Adds another matrix of the same dimension.
    ///
    /// # Panics
    /// If the dimensions differ.
    pub fn add(&mut self, other: &Self) {
        let p = other.dimension;
        assert_eq!(self.dimension, p, "matrices of different dimensions");
        for (a, b) in self.entries.iter_mut().zip(&other.entries) {
            *a += b;
        }
    }

    /// Multiplies every entry by `factor`.
    pub fn scale(&mut self, factor: f64) {
        for entry in &mut self.entries {
            *entry *= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_walks_the_triangle_row_by_row() {
        for p in 1..7 {
            let mut expected = 0;
            for i in 0..p {
                for j in i..p {
                    assert_eq!(packed_index(p, i, j), expected);
                    assert_eq!(packed_index(p, j, i), expected);
                    expected += 1;
                }
            }
            assert_eq!(expected, packed_len(p));
        }
    }

    #[test]
    fn outer_products_sum() {
        let mut m = PackedSymmetric::zeros(3);
        m.add_outer(&[1.0, -2.0, 3.0], 2.0);
        m.add_outer(&[0.0, 1.0, 0.0], 1.0);
        assert_eq!(m.as_slice(), &[2.0, -4.0, 6.0, 9.0, -12.0, 18.0]);
        assert_eq!(m.trace(), 29.0);
        let mut twice = m.clone();
        twice.add(&m);
        m.scale(2.0);
        assert_eq!(twice, m);
    }

    #[test]
    fn wrong_length_is_refused() {
        assert!(PackedSymmetric::from_entries(3, vec![0.0; 5]).is_none());
        assert!(PackedSymmetric::from_entries(3, vec![0.0; 6]).is_some());
    }
}
