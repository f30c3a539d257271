//! Tables and privacies for tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test uses part of it; a test fails by panicking"
)]

use eigenveil_central::{Neighbours, NoiseRule, Privacy, Rows, pca};
use eigenveil_shared::{
    preprocess::{Norm, Preprocessing, Row},
    privacy::Budget,
};
use nalgebra::DMatrix;

use crate::common::{digits, shared_rows};

/// Raw rows, prepared under this norm.
pub fn prepared(raw: &[Row], norm: Norm) -> Rows {
    let preprocessing = Preprocessing {
        dimension: raw[0].values().len(),
        features: None,
        norm,
        centring: None,
    };
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
    Privacy::Budget {
        budget: Budget::new(epsilon, delta).unwrap(),
        neighbours,
        calibration,
    }
}
