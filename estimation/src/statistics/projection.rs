//! The nearest matrix that a population can have.

use eigenveil_shared::Result;
use nalgebra::DMatrix;

use crate::linalg::{outer_scaled, symmetric_eigen};

/// The positive semidefinite matrix of this trace (at least 0) that is nearest to a symmetric `p × p` one in the
/// Frobenius norm: its eigenvalues are projected to the simplex.
pub fn nearest_with_trace(matrix: &DMatrix<f64>, trace: f64) -> Result<DMatrix<f64>> {
    let eigen = symmetric_eigen(matrix)?;
    let shift = simplex_shift(eigen.values.as_slice(), trace);
    let shifted: Vec<f64> = eigen
        .values
        .iter()
        .map(|value| value - shift)
        .take_while(|value| *value > 0.0)
        .collect();
    let vectors = eigen.vectors.columns(0, shifted.len()).into_owned();
    Ok(outer_scaled(&vectors, &shifted))
}

/// θ with Σ max(value − θ, 0) = `total`, for descending values.
fn simplex_shift(values: &[f64], total: f64) -> f64 {
    let mut sum = 0.0;
    let mut shift = f64::NEG_INFINITY;
    for (count, value) in (1..).zip(values) {
        sum += value;
        let next = (sum - total) / f64::from(count);
        // The value itself must stay above the shift.
        if *value <= next {
            break;
        }
        shift = next;
    }
    if shift == f64::NEG_INFINITY {
        // Nothing stays: the total is 0.
        return values.first().copied().unwrap_or(0.0);
    }
    shift
}

#[cfg(test)]
mod tests {
    use nalgebra::dmatrix;
    use rand::{RngExt, SeedableRng, rngs::ChaCha20Rng};

    use super::*;

    /// The matrix is nearest if no other one of the set lies on the other side: `⟨S − X, Y − X⟩ ≤ 0` for all Y.
    #[test]
    fn no_other_matrix_of_the_set_is_nearer() {
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        for p in [1, 2, 5, 9] {
            for trace in [0.0, 0.3, 1.0, 7.0] {
                let a = DMatrix::from_fn(p, p, |_, _| rng.random::<f64>() - 0.6);
                let s = &a + a.transpose();
                let x = nearest_with_trace(&s, trace).unwrap();
                assert!((x.trace() - trace).abs() < 1e-12);
                let least = symmetric_eigen(&x).unwrap().values[p - 1];
                assert!(least > -1e-12, "{least}");
                for _ in 0..50 {
                    let b = DMatrix::from_fn(p, 2, |_, _| rng.random::<f64>() - 0.5);
                    let y = &b * b.transpose();
                    let y = &y * (trace / y.trace());
                    assert!((&s - &x).dot(&(y - &x)) < 1e-10, "p = {p}, trace {trace}");
                }
                // Noiseless: what is in the set stays.
                assert!((nearest_with_trace(&x, trace).unwrap() - &x).norm() < 1e-12);
            }
        }
    }

    #[test]
    fn a_trace_of_zero_leaves_nothing() {
        let projected = nearest_with_trace(&dmatrix![2.0, 1.0; 1.0, -3.0], 0.0).unwrap();
        assert_eq!(projected, DMatrix::zeros(2, 2));
    }
}
