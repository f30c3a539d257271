//! Tables and privacy settings for tests.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test uses part of it; a test fails by panicking"
)]

use eigenveil_central::{
    AlgorithmInfo, Baseline,
    CentralCalibration::{self, Accounted},
    DeltaSupport, Fit, Generator, Neighbours, Options, Privacy, Request, Rows, find, generator,
    parameter::ZETA,
};
use eigenveil_estimation::{models::Model, pca::pca_of_rows};
use eigenveil_shared::{
    preprocess::{FeatureRow, Norm, Preprocessing, Row},
    privacy::Budget,
};
use nalgebra::DMatrix;
use rand::RngExt;
use rand_distr::StandardNormal;

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

/// The shipped digits, and forest cover and speech data if present next to the checkout; unit rows.
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

/// The exact top-k subspace.
pub fn exact(rows: &Rows, k: usize) -> DMatrix<f64> {
    let slices = rows.iter().map(FeatureRow::as_slice);
    let leading = pca_of_rows(&slices, rows.dimension(), false, k);
    leading.unwrap().vectors
}

/// A generator with this seed.
pub fn seeded(seed: u64) -> Generator {
    generator(Some(seed)).unwrap()
}

/// The algorithm of this name with these parameters.
pub fn built(name: &str, options: &Options) -> Baseline {
    find(name).unwrap().build(options).unwrap()
}

/// The algorithm of this name with its defaults.
pub fn default(name: &str) -> Baseline {
    built(name, &Options::default())
}

/// A run with this seed.
pub fn fitted(method: &Baseline, rows: &Rows, request: &Request<'_>, seed: u64) -> Fit {
    method.fit(rows, request, &mut seeded(seed)).unwrap()
}

/// A diagnostic of a run, by name.
pub fn diagnostic(fit: &Fit, name: &str) -> f64 {
    fit.diagnostics
        .iter()
        .find(|(diagnostic, _)| *diagnostic == name)
        .unwrap()
        .1
}

/// `n` rows of a population of this model, and its subspace.
pub fn drawn(model: Model, n: usize, rng: &mut Generator) -> (Vec<Vec<f64>>, DMatrix<f64>) {
    let population = model.draw(rng).unwrap();
    let raw = (0..n).map(|_| population.row(rng)).collect();
    (raw, population.subspace().clone())
}

/// `n` rows of independent Gaussians of these standard deviations.
pub fn gaussian(n: usize, deviations: &[f64], rng: &mut Generator) -> Vec<Vec<f64>> {
    let mut value = |sd: &f64| sd * rng.sample::<f64, _>(StandardNormal);
    (0..n)
        .map(|_| deviations.iter().map(&mut value).collect())
        .collect()
}

/// A budget of (ε, 1e-6) between tables that differ in one row, with accounted noise.
pub fn accounted(epsilon: f64) -> Privacy {
    private(epsilon, 1e-6, Neighbours::Replace, Accounted)
}

/// A budget; pure for δ = 0.
pub fn private(
    epsilon: f64,
    delta: f64,
    neighbours: Neighbours,
    calibration: CentralCalibration,
) -> Privacy {
    let budget = Budget::new(epsilon, delta).unwrap();
    Privacy::with_budget(budget, neighbours, calibration)
}

/// Whether it is `dp-pca`: only its private estimates have constants, and they need many rows.
pub fn has_constants(info: &AlgorithmInfo) -> bool {
    info.parameters.iter().any(|own| own.name == ZETA.name)
}

/// Rows close to each other, so that the noise of `dp-pca` scales with their spread.
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

/// Enough rows for this algorithm with [`budget_of`].
pub fn rows_enough_for(info: &AlgorithmInfo) -> Rows {
    few_rows(if has_constants(info) { 8_000 } else { 400 })
}

/// Budgets (ε, δ) of the kinds that it supports.
pub fn budget_of(info: &AlgorithmInfo) -> Vec<(f64, f64)> {
    match info.delta {
        DeltaSupport::Positive if has_constants(info) => vec![(12.0, 1e-2)],
        DeltaSupport::Positive => vec![(1.0, 1e-6)],
        DeltaSupport::Any => vec![(1.0, 1e-6), (1.0, 0.0)],
        DeltaSupport::Zero => vec![(1.0, 0.0)],
    }
}
