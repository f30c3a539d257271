//! The average iterate of REAPER, without a `p × p` matrix while its factors are smaller than one.

use eigenveil_estimation::linalg::{Symmetric, add_outer_lower, leading_pairs, top_k};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::{MIN_PARTIAL_DIMENSION, projection::FantopeFactor};
use crate::parts::leading::safe_width;

/// `P̄ = (1/t)Σ P_s` of t points of the Fantope, itself a point of it: the solution of the relaxation before it is
/// rounded to a subspace.
///
/// Stored as the points' factors `V·diag(w)·Vᵀ` until they have p columns in total, then as a matrix.
#[derive(Clone, Debug)]
pub struct AverageIterate {
    dimension: usize,
    count: usize,
    /// In order of arrival; empty once there is a matrix.
    factors: Vec<FantopeFactor>,
    /// Lower triangle of the sum.
    lower: Option<DMatrix<f64>>,
}

impl AverageIterate {
    pub(super) fn new(dimension: usize) -> Self {
        Self {
            dimension,
            count: 0,
            factors: Vec::new(),
            lower: None,
        }
    }

    pub(super) fn add(&mut self, point: &FantopeFactor) {
        self.count += 1;
        let columns: usize = self.factors.iter().map(|f| f.weights.len()).sum();
        if self.lower.is_none() && columns + point.weights.len() <= self.dimension {
            self.factors.push(point.clone());
        } else {
            add_outer_lower(self.as_matrix(), &point.vectors, &point.weights);
        }
    }

    pub(super) fn add_matrix(&mut self, point: &DMatrix<f64>) {
        self.count += 1;
        *self.as_matrix() += point;
    }

    fn as_matrix(&mut self) -> &mut DMatrix<f64> {
        let factors = std::mem::take(&mut self.factors);
        self.lower
            .get_or_insert_with(|| sum_of(self.dimension, &factors))
    }

    /// `P̄`, `p × p`.
    pub fn matrix(&self) -> DMatrix<f64> {
        let count = self.count.max(1) as f64;
        let mut average = match &self.lower {
            Some(lower) => lower / count,
            None => sum_of(self.dimension, &self.factors) / count,
        };
        average.fill_upper_triangle_with_lower_triangle();
        average
    }

    /// tr P̄, which is k to rounding.
    pub fn trace(&self) -> f64 {
        let from_factors: f64 = self.factors.iter().flat_map(|f| &f.weights).sum();
        let sum = from_factors + self.lower.as_ref().map_or(0.0, DMatrix::trace);
        sum / self.count.max(1) as f64
    }

    /// The k leading eigenvectors, `p × k`. From p = 500 they are computed from products, without the matrix, to
    /// residuals of `accuracy` relative to the largest eigenvalue; below, or if a third of p dimensions is not enough,
    /// by a full decomposition.
    pub fn leading(&self, k: usize, accuracy: f64) -> Result<DMatrix<f64>> {
        let leading = if self.dimension >= MIN_PARTIAL_DIMENSION {
            leading_pairs(self, k, safe_width(k), accuracy, self.dimension / 3)?
        } else {
            None
        };
        match leading {
            Some(pairs) => Ok(pairs.vectors),
            None => Ok(top_k(&self.matrix(), k)?.vectors),
        }
    }
}

/// Lower triangle of the sum.
fn sum_of(dimension: usize, factors: &[FantopeFactor]) -> DMatrix<f64> {
    let mut lower = DMatrix::zeros(dimension, dimension);
    for factor in factors {
        add_outer_lower(&mut lower, &factor.vectors, &factor.weights);
    }
    lower
}

impl Symmetric for AverageIterate {
    fn dimension(&self) -> usize {
        self.dimension
    }

    fn times(&self, block: &DMatrix<f64>) -> DMatrix<f64> {
        let mut sum = match &self.lower {
            Some(lower) => lower.times(block),
            None => DMatrix::zeros(self.dimension, block.ncols()),
        };
        for factor in &self.factors {
            sum += factor.times(block);
        }
        sum / self.count.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::models::uniform_frame;

    use super::*;
    use crate::generator;

    /// Equals the mean of the matrices, stored as factors or as a matrix.
    #[test]
    fn average_is_the_mean_of_the_points() {
        let (p, mut rng) = (12, generator(Some(1)).unwrap());
        let mut average = AverageIterate::new(p);
        let mut sum = DMatrix::zeros(p, p);
        let block = uniform_frame(&mut rng, p, 3).unwrap();
        for count in 1..=6 {
            let vectors = uniform_frame(&mut rng, p, 3).unwrap();
            let weights = vec![1.0, 0.75, 0.25];
            sum += &vectors
                * DMatrix::from_diagonal(&nalgebra::DVector::from_row_slice(&weights))
                * vectors.transpose();
            average.add(&FantopeFactor::new(vectors, weights));
            assert_eq!(average.lower.is_some(), count > 4);
            assert_eq!(average.factors.is_empty(), count > 4);
            let mean = &sum / f64::from(count);
            assert!((average.matrix() - &mean).amax() < 1e-15);
            assert!((average.times(&block) - &mean * &block).amax() < 1e-15);
            assert!((average.trace() - 2.0).abs() < 1e-14);
            let leading = top_k(&mean, 2).unwrap().vectors;
            let by_products = leading_pairs(&average, 2, 8, 1e-9, average.dimension / 3).unwrap();
            for found in [
                average.leading(2, 1e-9).unwrap(),
                by_products.unwrap().vectors,
            ] {
                let overlap = (leading.transpose() * found).map(f64::abs);
                assert!((overlap - DMatrix::identity(2, 2)).amax() < 1e-8);
            }
        }
        // One point is given as a matrix.
        for before in [0, 1, 6] {
            let (point, mut sum) = (DMatrix::identity(p, p) / 6.0, DMatrix::zeros(p, p));
            let mut average = AverageIterate::new(p);
            for _ in 0..before {
                let vectors = uniform_frame(&mut rng, p, 2).unwrap();
                let factor = FantopeFactor::new(vectors, vec![1.0, 1.0]);
                sum += &factor.vectors * factor.vectors.transpose();
                average.add(&factor);
            }
            average.add_matrix(&point);
            let mean = (sum + &point) / f64::from(before + 1);
            assert!((average.matrix() - &mean).amax() < 1e-15);
            assert!((average.times(&block) - mean * &block).amax() < 1e-15);
            assert!((average.trace() - 2.0).abs() < 1e-14);
        }
    }
}
