//! `sparse-pca` on real tables with thousands of columns: how much it captures, and how long it takes.

use std::time::Instant;

use eigenveil_central::{Baseline, Request, SparsePca, generator};
use eigenveil_shared::preprocess::Norm;

use crate::{common::shared_rows, tables::prepared};

/// A line for each table and setting, k = 10, unit rows: what `docs/central-power-oja.md` says of the starts.
/// `cargo test --release --workspace --test central sparse:: -- --ignored --nocapture`.
#[test]
#[ignore = "minutes; prints numbers"]
fn starts_on_real_tables() {
    for name in ["isolet", "pcmac", "leukemia", "arcene"] {
        let Some(raw) = shared_rows(&format!("{name}.npy")) else {
            continue;
        };
        let rows = prepared(&raw, Norm::Normalize);
        for (support, starts) in [
            (None, 1),
            (Some(20), 1),
            (Some(20), 50),
            (Some(100), 1),
            (Some(100), 50),
        ] {
            let method = SparsePca {
                support,
                starts,
                ..SparsePca::default()
            };
            let mut rng = generator(Some(1)).unwrap();
            let started = Instant::now();
            let fit = method.fit(&rows, &Request::plain(10), &mut rng).unwrap();
            println!(
                "{name} n = {} p = {} s = {support:?} starts = {starts}: captured {:.4}, {:.1} s, {:?}",
                rows.n(),
                rows.dimension(),
                rows.captured_variance(&fit.subspace).unwrap(),
                started.elapsed().as_secs_f64(),
                fit.facts
            );
        }
    }
}
