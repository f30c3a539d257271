//! Mirror descent in von Neumann entropy: P and its logarithm.

use eigenveil_estimation::linalg::{
    add_outer_lower, outer_scaled, symmetric_eigen, tall_cross_product,
};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::simplex::log_scale;

/// A point of the Fantope, represented by its logarithm, which the descent updates.
pub(super) struct Mirror {
    /// Lower triangle of log P.
    pub(super) logarithm: DMatrix<f64>,
    /// P.
    pub(super) point: DMatrix<f64>,
}

impl Mirror {
    /// `(k/p)I`.
    pub(super) fn start(k: usize, p: usize) -> Self {
        let weight = k as f64 / p as f64;
        Self {
            logarithm: DMatrix::from_diagonal_element(p, p, weight.ln()),
            point: DMatrix::from_diagonal_element(p, p, weight),
        }
    }

    /// `P·block`. The symmetric matrix is used transposed, so that it is read only once.
    pub(super) fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        tall_cross_product(&self.point, block)
    }

    /// Makes P the projection of `exp(logarithm)` onto `F^k` in the relative entropy, and the logarithm that of P.
    ///
    /// That is `min(logarithm + log c, 0)` in the eigenvalues: all but the capped ones, k at most, only shift by log c.
    pub(super) fn project(&mut self, k: usize) -> Result<()> {
        // Free its memory first.
        self.point = DMatrix::zeros(0, 0);
        let eigen = symmetric_eigen(&self.logarithm)?;
        let log_c = log_scale(eigen.values.as_slice(), k)?;
        let logarithms = eigen.values.add_scalar(log_c);
        for i in 0..logarithms.len() {
            self.logarithm[(i, i)] += log_c;
        }
        let excess: Vec<f64> = logarithms
            .iter()
            .take_while(|&&l| l > 0.0)
            .map(|l| -l)
            .collect();
        let capped = eigen.vectors.columns(0, excess.len()).into_owned();
        add_outer_lower(&mut self.logarithm, &capped, &excess);
        let weights: Vec<f64> = logarithms.iter().map(|l| l.min(0.0).exp()).collect();
        self.point = outer_scaled(&eigen.vectors, &weights);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::models::uniform_frame;

    use super::*;
    use crate::generator;

    /// exp(logarithm) is P, with zero, one and two eigenvalues capped.
    #[test]
    fn the_logarithm_is_that_of_the_point() {
        let (p, k) = (12, 3);
        let frame = uniform_frame(&mut generator(Some(5)).unwrap(), p, p).unwrap();
        for (top, capped) in [([-1.0, -1.2], 0), ([9.0, 0.0], 1), ([9.0, 8.0], 2)] {
            let mut values = vec![-2.0; p];
            values[..2].copy_from_slice(&top);
            let mut mirror = Mirror {
                logarithm: outer_scaled(&frame, &values),
                point: DMatrix::zeros(0, 0),
            };
            mirror.project(k).unwrap();
            assert!((mirror.point.trace() - k as f64).abs() < 1e-12);
            let of_point = symmetric_eigen(&mirror.point).unwrap();
            let at_cap = of_point.values.iter().filter(|&&w| w > 1.0 - 1e-9);
            assert_eq!(at_cap.count(), capped);
            let logarithms: Vec<f64> = of_point.values.iter().map(|w| w.ln()).collect();
            let expected = outer_scaled(&of_point.vectors, &logarithms);
            let apart = (&mirror.logarithm - expected).lower_triangle().amax();
            assert!(apart < 1e-9, "{top:?}: {apart}");
            assert!((mirror.times(&frame) - &mirror.point * &frame).amax() < 1e-14);
        }
    }
}
