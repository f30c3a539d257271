use eigenveil_shared::packed::PackedSymmetric;
use nalgebra::DMatrix;

/// The full `p × p` matrix of a packed symmetric one.
pub fn packed_to_dense(packed: &PackedSymmetric) -> DMatrix<f64> {
    let p = packed.dimension();
    let mut dense = DMatrix::zeros(p, p);
    let mut rest = packed.as_slice();
    for i in 0..p {
        // Row i of the upper triangle is, mirrored, the tail of column i: contiguous in memory.
        let (line, tail) = rest.split_at(p - i);
        dense.column_mut(i).as_mut_slice()[i..].copy_from_slice(line);
        rest = tail;
    }
    dense.fill_upper_triangle_with_lower_triangle();
    dense
}

/// Rows and columns `indices` of a square matrix.
pub fn submatrix(matrix: &DMatrix<f64>, indices: &[usize]) -> DMatrix<f64> {
    DMatrix::from_fn(indices.len(), indices.len(), |a, b| {
        matrix[(indices[a], indices[b])]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_entries_land_on_both_sides() {
        let entries: Vec<f64> = (0..10).map(f64::from).collect();
        let packed = PackedSymmetric::from_entries(4, entries).unwrap();
        let dense = packed_to_dense(&packed);
        for i in 0..4 {
            for j in 0..4 {
                assert_eq!(dense[(i, j)], packed.get(i, j));
            }
        }
        assert_eq!(submatrix(&dense, &[3, 1])[(0, 1)], packed.get(1, 3));
    }
}
