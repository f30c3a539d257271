//! Tables and privacies for tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test uses part of it; a test fails by panicking"
)]

use eigenveil_central::{Card, Delta, Neighbours, NoiseRule, Privacy, Rows, parameter::ZETA, pca};
use eigenveil_shared::{
    preprocess::{Norm, Preprocessing, Row},
    privacy::Budget,
};
use nalgebra::DMatrix;

use crate::common::{digits, shared_rows};

/// Raw rows, prepared under this norm.
pub fn prepared(raw: &[Row], norm: Norm) -> Rows {
    let preprocessing = Preprocessing::new(raw[0].values().len(), norm);
    let preprocessor = preprocessing.preprocessor().unwrap();
    Rows::collect(raw.iter().map(|row| preprocessor.prepare_features(row))).unwrap()
}

/// Rows clipped at this radius.
pub fn clipped(raw: &[Vec<f64>], radius: f64) -> Rows {
    let raw: Vec<Row> = raw.iter().cloned().map(Row::new).collect();
    prepared(&raw, Norm::Clip { radius })
}

/// The shipped digits, and forest cover and speech data where they lie beside the checkout; unit rows.
pub fn real_tables() -> Vec<(&'static str, Rows)> {
    let mut tables = vec![("digits", prepared(&digits(), Norm::Normalize))];
    for name in ["covtype20k.npy", "isolet.npy"] {
        if let Some(raw) = shared_rows(name) {
            tables.push((name, prepared(&raw, Norm::Normalize)));
        }
    }
    tables
}

/// `n` zero rows: neighbours of every one-row data set.
pub fn table_of_zeros(d: usize, n: usize) -> Rows {
    clipped(&vec![vec![0.0; d]; n], 1.0)
}

/// The top-k subspace, exactly.
pub fn exact(rows: &Rows, k: usize) -> DMatrix<f64> {
    pca(rows.stream(), rows.dimension(), k).unwrap().subspace
}

/// A budget; pure for δ = 0.
pub fn private(
    epsilon: f64,
    delta: f64,
    neighbours: Neighbours,
    calibration: NoiseRule,
) -> Privacy {
    let budget = Budget::new(epsilon, delta).unwrap();
    Privacy::with_budget(budget, neighbours, calibration)
}

/// Whether it is `dp-pca`: only its private estimates have constants, and they take many rows.
pub fn has_constants(card: &Card) -> bool {
    card.parameters.iter().any(|own| own.name == ZETA.name)
}

/// Rows close to one another, so that the noise of `dp-pca` follows their spread.
pub fn few_rows(n: u32) -> Rows {
    let rows: Vec<Vec<f64>> = (0..n)
        .map(|i| {
            let noise = |times: f64| 0.003 * (times * f64::from(i)).sin();
            let rest = [1.1, 2.3, 3.1, 4.7].map(noise);
            [&[0.8 + noise(0.37)][..], &rest].concat()
        })
        .collect();
    clipped(&rows, 1.0)
}

/// As many as this algorithm needs for [`budget_of`].
pub fn rows_enough_for(card: &Card) -> Rows {
    few_rows(if has_constants(card) { 8_000 } else { 400 })
}

/// Budgets (ε, δ) of the kinds that it takes.
pub fn budget_of(card: &Card) -> Vec<(f64, f64)> {
    match card.delta {
        Delta::Positive if has_constants(card) => vec![(12.0, 1e-2)],
        Delta::Positive => vec![(1.0, 1e-6)],
        Delta::Any => vec![(1.0, 1e-6), (1.0, 0.0)],
        Delta::Zero => vec![(1.0, 0.0)],
    }
}
