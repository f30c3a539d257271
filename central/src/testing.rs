//! Rows for tests.

use eigenveil_shared::{
    Result,
    preprocess::{FeatureRow, Norm, Preprocessing, Row},
};
use rand::{SeedableRng, rngs::ChaCha20Rng};
use rand_distr::{Distribution, StandardNormal};

use crate::input::rows::Rows;

/// A row clipped at radius 1.
pub(crate) fn bounded(values: &[f64]) -> Result<FeatureRow> {
    let preprocessing = Preprocessing::new(values.len(), Norm::Clip { radius: 1.0 });
    preprocessing
        .preprocessor()?
        .prepare_features(&Row::new(values.to_vec()))
}

/// `n` Gaussian rows with these standard deviations per coordinate, clipped at radius 1.
pub(crate) fn gaussian_rows(n: usize, deviations: &[f64], seed: u64) -> Rows {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    Rows::collect((0..n).map(|_| {
        let row: Vec<f64> = deviations
            .iter()
            .map(|deviation| {
                let z: f64 = StandardNormal.sample(&mut rng);
                deviation * z
            })
            .collect();
        bounded(&row)
    }))
    .unwrap()
}
