//! The initial subspace of the descent.

use std::ops::ControlFlow;

use eigenveil_estimation::{
    linalg::{Symmetric, cross_product, top_k},
    models::uniform_frame,
};
use eigenveil_shared::Result;
use nalgebra::DMatrix;

use super::table::Table;
use crate::{
    Generator,
    parts::{
        leading::leading_of_sum,
        noise::{EntryNoise, SymmetricNoise},
    },
    power::noisy_power,
};

const MAX_SUM_DIMENSION: usize = 2_000;

const POWER_STEPS: u64 = 4;

/// How the initial subspace is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// PCA; in a private run with the noise of Analyze Gauss on `Σxxᵀ`.
    AnalyzeGauss,
    /// PCA; in a private run four steps of the power method with noise on `p × k` numbers, so that no `p × p` matrix is
    /// formed.
    Power,
    /// A uniformly random frame, which spends no budget.
    Random,
}

impl Start {
    /// [`Start::AnalyzeGauss`] up to p = 2,000, [`Start::Power`] above.
    pub(super) fn by_dimension(p: usize) -> Self {
        if p <= MAX_SUM_DIMENSION {
            Self::AnalyzeGauss
        } else {
            Self::Power
        }
    }

    /// Number of releases of `Σxxᵀ` (times a frame) in a private run.
    pub(super) fn releases(self) -> u64 {
        match self {
            Self::Random => 0,
            Self::Power => POWER_STEPS,
            Self::AnalyzeGauss => 1,
        }
    }

    /// The frame, `p × k`; `noise` is that of one release, `None` without privacy. On the products of
    /// [`Start::Power`], which are not symmetric, it has its standard deviation on every entry.
    pub(super) fn frame(
        self,
        table: &Table,
        k: usize,
        noise: Option<SymmetricNoise>,
        rng: &mut Generator,
    ) -> Result<DMatrix<f64>> {
        let p = table.dimension();
        match (self, noise) {
            (Self::Random, _) => uniform_frame(rng, p, k),
            (_, None) => Ok(leading_of_sum(table, table.n(), k, || gram(table))?.vectors),
            (Self::Power, Some(noise)) => {
                let start = uniform_frame(rng, p, k)?;
                let noise = EntryNoise::Gaussian { sd: noise.sd() };
                let image = |_: usize, x: &DMatrix<f64>| {
                    let mut image = table.times(x);
                    noise.add_to(&mut image, rng);
                    Ok(image)
                };
                let run = noisy_power(start, POWER_STEPS as usize, image, |_| {
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok(run.basis)
            }
            (Self::AnalyzeGauss, Some(noise)) => {
                let mut sum = gram(table);
                noise.add_to(&mut sum, rng);
                Ok(top_k(&sum, k)?.vectors)
            }
        }
    }
}

/// `Σxxᵀ`.
fn gram(table: &Table) -> DMatrix<f64> {
    let transposed = table.columns().transpose();
    cross_product(&transposed, &transposed)
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::metrics::projector_distance;

    use super::*;
    use crate::{generator, testing::gaussian_rows};

    /// Equals PCA; the power start with negligible noise comes close to it.
    #[test]
    fn every_start_is_pca_without_noise() {
        let mut rng = generator(Some(2)).unwrap();
        for n in [8, 40] {
            let rows = gaussian_rows(
                n,
                &[0.9, 0.2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2],
                5,
            );
            let table = Table::spherised(&rows);
            let exact = top_k(&gram(&table), 2).unwrap().vectors;
            let noise = Some(SymmetricNoise::Isotropic(1e-9));
            for (start, noise, allowed) in [
                (Start::AnalyzeGauss, None, 1e-7),
                (Start::AnalyzeGauss, noise, 1e-6),
                (Start::Power, noise, 1e-3),
            ] {
                let frame = start.frame(&table, 2, noise, &mut rng).unwrap();
                let error = projector_distance(&frame, &exact).unwrap();
                assert!(error < allowed, "{start:?} {noise:?} {n}: {error}");
            }
        }
    }
}
