//! REAPER: objective, gradient, and descent over the Fantope.

use eigenveil_estimation::{
    fantope::project_onto_fantope,
    linalg::{outer_scaled, product, symmetric_eigen},
};
use eigenveil_shared::{Error, ErrorCode, Result};
use nalgebra::DMatrix;

use super::{sampling::Steps, simplex::project_entropy, table::Table};
use crate::{Generator, noise::add_symmetric_noise};

/// As for GLAD: there 0 is a subgradient.
const ON_THE_SUBSPACE: f64 = 1e-14;

/// Which geometry a step is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Geometry {
    /// `P ← P_F(P − ηG)`, the Euclidean projection onto the Fantope.
    Euclidean,
    /// `P ← exp(log P − ηG)`, then the projection in von Neumann entropy.
    Entropy,
}

/// `(1/N)Σ‖(I − P)x‖`.
pub(super) fn objective(table: &Table, p: &DMatrix<f64>) -> f64 {
    let mut sum = 0.0;
    table.for_each_block(|block| {
        let residuals = block - product(p, block);
        sum += residuals.column_iter().map(|r| r.norm()).sum::<f64>();
    });
    sum / table.n() as f64
}

/// As [`objective`] with P checked.
pub(super) fn checked_objective(table: &Table, p: &DMatrix<f64>) -> Result<f64> {
    let d = table.dimension();
    if p.shape() != (d, d) || (p - p.transpose()).amax() > 1e-9 {
        return Err(Error::new(
            ErrorCode::InvalidRequest,
            format!("P is {:?}; it must be {d} × {d} and symmetric", p.shape()),
        ));
    }
    Ok(objective(table, p))
}

/// `Σ (Qx·xᵀ + x·(Qx)ᵀ)/2‖Qx‖` over the columns of `block`, Q = I − P: minus equation 4.1. Every summand has squared
/// Frobenius norm `(1 + ⟨x, Qx⟩²/‖Qx‖²)/2 ≤ 1`.
pub(super) fn descent_direction(block: &DMatrix<f64>, p: &DMatrix<f64>) -> DMatrix<f64> {
    let mut residuals = block - product(p, block);
    for mut residual in residuals.column_iter_mut() {
        let norm = residual.norm();
        if norm > ON_THE_SUBSPACE {
            residual /= 2.0 * norm;
        } else {
            residual.fill(0.0);
        }
    }
    let half = product(&residuals, &block.transpose());
    &half + half.transpose()
}

/// Subgradient descent from `(r/p)I`, in one of two geometries, with the average of the iterates as its answer.
pub(super) struct Descent {
    pub(super) geometry: Geometry,
    pub(super) steps: Steps,
    /// c of the step sizes `c/√t`.
    pub(super) step: f64,
    /// Standard deviations of the noise on the *sum* of gradients: off the diagonal, and on it.
    pub(super) noise_sd: (f64, f64),
}

impl Descent {
    /// The average of the iterates; `watch` sees the iteration and the average so far.
    pub(super) fn run(
        &self,
        table: &Table,
        rank: usize,
        rng: &mut Generator,
        mut watch: impl FnMut(usize, &DMatrix<f64>) -> Result<()>,
    ) -> Result<DMatrix<f64>> {
        let d = table.dimension();
        let mut p = DMatrix::from_diagonal_element(d, d, rank as f64 / d as f64);
        let mut log_p = DMatrix::zeros(0, 0);
        if self.geometry == Geometry::Entropy {
            log_p = DMatrix::from_diagonal_element(d, d, (rank as f64 / d as f64).ln());
        }
        let mut average = DMatrix::zeros(d, d);
        for t in 1..=self.steps.count {
            let mut sum = self
                .steps
                .sum(table, rng, |block| descent_direction(block, &p));
            let (off_diagonal, diagonal) = self.noise_sd;
            if off_diagonal > 0.0 {
                add_symmetric_noise(&mut sum, off_diagonal, diagonal, rng);
            }
            sum *= self.step / ((t as f64).sqrt() * self.steps.denominator(table.n()));
            match self.geometry {
                Geometry::Euclidean => p = project_onto_fantope(&(p + sum), rank)?.matrix,
                Geometry::Entropy => {
                    let eigen = symmetric_eigen(&(log_p + sum))?;
                    let values = project_entropy(eigen.values.as_slice(), rank)?;
                    let logs: Vec<f64> = values
                        .iter()
                        .map(|&g| g.max(f64::MIN_POSITIVE).ln())
                        .collect();
                    p = outer_scaled(&eigen.vectors, &values);
                    log_p = outer_scaled(&eigen.vectors, &logs);
                }
            }
            average += (&p - &average) / t as f64;
            watch(t, &average)?;
        }
        Ok(average)
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::models::uniform_frame;
    use proptest::prelude::*;

    use super::*;
    use crate::generator;

    proptest! {
        /// One row moves the sum by at most 1 in Frobenius norm, and the zero row by nothing.
        #[test]
        fn a_row_moves_the_sum_by_at_most_one(seed in 0_u64..1000, d in 2_usize..10) {
            let mut rng = generator(Some(seed)).unwrap();
            let turn = uniform_frame(&mut rng, d, d).unwrap();
            let values: Vec<f64> = (0..d).map(|i| if i == 0 { 1.0 } else { 0.7 / d as f64 }).collect();
            let p = outer_scaled(&turn, &values);
            let mut x = uniform_frame(&mut rng, d, 1).unwrap();
            for _ in 0..2 {
                prop_assert!(descent_direction(&x, &p).norm() <= 1.0 + 1e-12);
                // And on the direction that P keeps.
                x = turn.columns(0, 1).into_owned();
            }
            prop_assert!(descent_direction(&DMatrix::zeros(d, 1), &p).amax() == 0.0);
        }
    }
}
