//! Mirror descent in von Neumann entropy: P and its logarithm.

use eigenveil_estimation::linalg::{add_outer_lower, symmetric_eigen, tall_cross_product};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{
    MIN_PARTIAL_DIMENSION,
    average::AverageIterate,
    exponential::symmetric_exponential,
    iterate::Iterate,
    projection::FantopeFactor,
    simplex::{log_scale, log_scale_from_leading},
};
use crate::block_lanczos::{leading_pairs, spectrum_edges};

/// No eigenvalue is capped if the largest one of P is below this; it is known to a few hundredths of the width of the
/// spectrum.
const UNCAPPED_BELOW: f64 = 0.3;

/// A point of the Fantope, represented by its logarithm, which the descent updates.
pub(super) struct Mirror {
    /// Lower triangle of log P.
    pub(super) logarithm: DMatrix<f64>,
    point: Point,
    /// Whether eigenvalues were capped in the last projection.
    is_capped: bool,
}

enum Point {
    /// Eigenvectors.
    Factor(Iterate),
    /// A full matrix.
    Matrix(DMatrix<f64>),
}

impl Mirror {
    /// `(k/p)I`.
    pub(super) fn start(k: usize, p: usize) -> Self {
        Self {
            logarithm: DMatrix::from_diagonal_element(p, p, (k as f64 / p as f64).ln()),
            point: Point::Factor(Iterate::start(k, p)),
            is_capped: false,
        }
    }

    /// `P·block`.
    pub(super) fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        match &self.point {
            Point::Factor(iterate) => iterate.times(block),
            // The symmetric matrix is used transposed, so that it is read only once.
            Point::Matrix(matrix) => tall_cross_product(matrix, block),
        }
    }

    pub(super) fn add_to(&self, average: &mut AverageIterate) {
        match &self.point {
            Point::Factor(iterate) => average.add(&iterate.factor),
            Point::Matrix(matrix) => average.add_matrix(matrix),
        }
    }

    /// Makes P the projection of `exp(logarithm)` onto `F^k` in the relative entropy, and the logarithm that of P.
    ///
    /// That is `min(logarithm + log c, 0)` in the eigenvalues: all but the capped ones, k at most, only shift by log c.
    /// So if none is capped, P is a multiple of the exponential, which is cheaper than a decomposition; it is accurate
    /// to `accuracy` of its largest eigenvalue.
    pub(super) fn project(&mut self, k: usize, accuracy: f64) -> Result<()> {
        // Free its memory first.
        self.point = Point::Factor(Iterate::start(k, 0));
        if self.logarithm.nrows() >= MIN_PARTIAL_DIMENSION
            && let Some(matrix) = self.by_products(k, accuracy)?
        {
            self.point = Point::Matrix(matrix);
            return Ok(());
        }
        self.point = Point::Factor(self.by_eigenvectors(k)?);
        Ok(())
    }

    fn move_by(&mut self, log_c: f64) {
        for i in 0..self.logarithm.nrows() {
            self.logarithm[(i, i)] += log_c;
        }
    }

    fn by_eigenvectors(&mut self, k: usize) -> Result<Iterate> {
        let mut eigen = symmetric_eigen(&self.logarithm)?;
        let log_c = log_scale(eigen.values.as_slice(), k)?;
        let logarithms = eigen.values.map(|value| value + log_c);
        self.move_by(log_c);
        let capped = logarithms.iter().take_while(|&&l| l > 0.0).count();
        self.is_capped = capped > 0;
        let excess: Vec<f64> = logarithms.iter().take(capped).map(|l| -l).collect();
        let vectors = eigen.vectors.columns(0, capped).into_owned();
        add_outer_lower(&mut self.logarithm, &vectors, &excess);
        let weights: Vec<f64> = logarithms
            .iter()
            .map(|l| l.min(0.0).exp())
            .take_while(|&w| w > 0.0)
            .collect();
        eigen.vectors.resize_horizontally_mut(weights.len(), 0.0);
        Ok(FantopeFactor::new(eigen.vectors, weights).into())
    }

    /// P; `None` if finding the ends of the spectrum would take too long.
    fn by_products(&mut self, k: usize, accuracy: f64) -> Result<Option<DMatrix<f64>>> {
        let Some((bottom, top)) = spectrum_edges(&self.logarithm)? else {
            return Ok(None);
        };
        if !self.is_capped {
            let exponential = symmetric_exponential(&self.logarithm, bottom, top, accuracy);
            let c = k as f64 / exponential.trace();
            if c <= UNCAPPED_BELOW {
                self.move_by(c.ln() - top);
                return Ok(Some(exponential * c));
            }
        }
        let Some(pairs) = leading_pairs(
            &self.logarithm,
            k,
            0.1 * accuracy,
            self.logarithm.nrows() / 3,
        )?
        else {
            return Ok(None);
        };
        // The k leading eigenvalues are moved to the other end, so that the rest keeps its precision.
        let leading = &pairs.vectors;
        let mut lowered = self.logarithm.clone();
        let down: Vec<f64> = pairs.values.iter().map(|value| bottom - value).collect();
        add_outer_lower(&mut lowered, leading, &down);
        let Some((_, others)) = spectrum_edges(&lowered)? else {
            return Ok(None);
        };
        let above: Vec<f64> = pairs.values.iter().map(|value| value - others).collect();
        let mut matrix = symmetric_exponential(&lowered, bottom, others, accuracy);
        drop(lowered);
        let least = (bottom - others).exp();
        let rest = (matrix.trace() - k as f64 * least).ln();
        let log_c = log_scale_from_leading(&above, rest);
        let c = log_c.exp();
        let logarithms = above.iter().map(|l| l + log_c);
        self.move_by(log_c - others);
        let excess: Vec<f64> = logarithms.clone().map(|l| -l.max(0.0)).collect();
        self.is_capped = excess.iter().any(|&e| e < 0.0);
        add_outer_lower(&mut self.logarithm, leading, &excess);
        matrix *= c;
        let more: Vec<f64> = logarithms.map(|l| l.min(0.0).exp() - c * least).collect();
        add_outer_lower(&mut matrix, leading, &more);
        matrix.fill_upper_triangle_with_lower_triangle();
        Ok(Some(matrix))
    }
}

#[cfg(test)]
mod tests {
    use rand_distr::{Distribution, StandardNormal};

    use super::*;
    use crate::{Generator, generator, parts::noise::SymmetricNoise};

    /// A logarithm with three directions `strength` above noise with this spectral edge.
    fn logarithm(p: usize, edge: f64, strength: f64, rng: &mut Generator) -> DMatrix<f64> {
        let mut matrix = DMatrix::zeros(p, p);
        let sd = edge / (2.0 * p as f64).sqrt();
        SymmetricNoise::Isotropic(sd).add_to_lower(&mut matrix, 1.0, rng);
        let frame = DMatrix::from_fn(p, 3, |_, _| StandardNormal.sample(rng));
        let frame = eigenveil_estimation::linalg::orthonormalize(frame).unwrap();
        let weights = [strength, 0.9 * strength, 0.6 * strength];
        add_outer_lower(&mut matrix, &frame, &weights);
        matrix
    }

    /// Products and eigenvectors give the same P and logarithm, with zero, one and two eigenvalues capped.
    #[test]
    fn products_agree_with_eigenvectors() {
        let p = MIN_PARTIAL_DIMENSION + 20;
        let mut rng = generator(Some(5)).unwrap();
        let mut numbers_capped = [false; 3];
        for (edge, strength, k) in [
            (4.0, 0.0, 2),
            (10.0, 3.0, 2),
            (1.0, 9.0, 2),
            (1.0, 30.0, 2),
            (1.0, 8.0, 3),
            (0.01, 60.0, 1),
        ] {
            let logarithm = logarithm(p, edge, strength, &mut rng);
            let start = |is_capped| Mirror {
                logarithm: logarithm.clone(),
                point: Point::Factor(Iterate::start(k, p)),
                is_capped,
            };
            let mut expected = start(false);
            let iterate = expected.by_eigenvectors(k).unwrap();
            for is_capped in [false, true] {
                let mut state = start(is_capped);
                let Some(matrix) = state.by_products(k, 1e-10).unwrap() else {
                    assert!(
                        is_capped && strength < edge,
                        "eigenvectors are used only for the edge of noise"
                    );
                    continue;
                };
                let mut dense = DMatrix::zeros(p, p);
                iterate.add_to_lower(&mut dense);
                dense.fill_upper_triangle_with_lower_triangle();
                let distance = (&matrix - dense).norm();
                assert!(
                    distance < 1e-8,
                    "edge {edge}, strength {strength}: {distance}"
                );
                assert!((matrix.trace() - k as f64).abs() < 1e-8);
                let count = iterate.factor.weights.iter().filter(|&&w| w == 1.0).count();
                numbers_capped[count] = true;
                let difference = &state.logarithm - &expected.logarithm;
                let distance = difference.lower_triangle().amax();
                assert!(
                    distance < 1e-7,
                    "edge {edge}, strength {strength}: {distance}"
                );
            }
        }
        assert_eq!(numbers_capped, [true; 3]);
    }
}
