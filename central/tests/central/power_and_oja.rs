//! The table of docs/central-power-oja.md.

use std::fmt::Write as _;

use eigenveil_central::{Neighbours, NoiseRule, Options, Privacy, Request, find, generator};
use eigenveil_estimation::{metrics::projector_distance, models::Model};
use eigenveil_shared::preprocess::{Norm, Row};

use crate::{
    common,
    tables::{prepared, private},
};

const REPEATS: u64 = 10;

/// Error against the true subspace of the spiked model (p = 40, k = 2, spike 8, unit rows), replace neighbours,
/// δ = 1e-6: mean and standard deviation over ten draws of the model. Writes the CSV.
///
/// `cargo test --workspace --test central power_and_oja:: -- --ignored --nocapture`
#[test]
#[ignore = "an experiment: a minute"]
fn errors_of_the_private_forms() {
    let mut table =
        String::from("algorithm,calibration,n,epsilon,error_mean,error_std,true_epsilon\n");
    for n in [10_000, 100_000] {
        for (epsilon, algorithms) in [
            (
                f64::INFINITY,
                &["pca", "oja", "minibatch-oja", "streaming-power"][..],
            ),
            (1.0, &["private-power", "private-oja", "minibatch-oja"]),
            (4.0, &["private-power", "private-oja", "minibatch-oja"]),
        ] {
            for name in algorithms {
                for calibration in NoiseRule::ALL {
                    if epsilon.is_infinite() && calibration == NoiseRule::AsPublished {
                        continue;
                    }
                    let privacy = if epsilon.is_finite() {
                        private(epsilon, 1e-6, Neighbours::Replace, calibration)
                    } else {
                        Privacy::None
                    };
                    let (mut errors, mut true_epsilon) = (Vec::new(), None);
                    for seed in 0..REPEATS {
                        let mut rng = generator(Some(seed)).unwrap();
                        let model = Model::Spiked {
                            p: 40,
                            k: 2,
                            spike: 8.0,
                        };
                        let population = model.draw(&mut rng).unwrap();
                        let raw: Vec<Row> =
                            (0..n).map(|_| Row::new(population.row(&mut rng))).collect();
                        let rows = prepared(&raw, Norm::Normalize);
                        let algorithm = find(name).unwrap().build(&Options::default()).unwrap();
                        let fit = algorithm
                            .fit(&rows, &Request::new(2, privacy), &mut rng)
                            .unwrap();
                        true_epsilon = fit.privacy.and_then(|promised| promised.true_epsilon);
                        errors.push(
                            projector_distance(&fit.subspace, population.subspace()).unwrap(),
                        );
                    }
                    let mean = errors.iter().sum::<f64>() / REPEATS as f64;
                    let squares: f64 = errors.iter().map(|error| (error - mean).powi(2)).sum();
                    let deviation = (squares / (REPEATS - 1) as f64).sqrt();
                    let (calibration, epsilon, holds) = match true_epsilon {
                        Some(holds) => (
                            calibration.as_str(),
                            epsilon.to_string(),
                            format!("{holds:.3}"),
                        ),
                        None => ("none", String::new(), String::new()),
                    };
                    writeln!(
                        table,
                        "{name},{calibration},{n},{epsilon},{mean:.4},{deviation:.4},{holds}"
                    )
                    .unwrap();
                }
            }
        }
    }
    print!("{table}");
    std::fs::write(common::experiment_csv("central_power_oja"), table).unwrap();
}
