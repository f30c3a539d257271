//! The constant of `--lambda auto`, by experiment over p, s, n, ε and two mechanisms (long: `--ignored`; rewrites
//! `docs/experiments/kappa.csv`):
//!
//! ```text
//! cargo test --workspace --test estimation kappa:: -- --ignored --nocapture
//! ```
//!
//! λ = κ·s·√(2 ln(p(p−1)/2)/n), s the off-diagonal standard deviation of one report. For each setting and κ: the
//! error of the relaxed solution and of PCA refitted on its rows, beside plain PCA on the same reports.

use std::fmt::Write;

use eigenveil_estimation::{
    Cancel,
    fantope::{
        self, AdmmSettings, automatic_lambda,
        lambda::{KAPPA, KAPPA_REFIT},
    },
    metrics::{projector_distance, support_score},
    models::Model,
    pca::pca,
    simulate::{Participants, Path, RowSource, noisy_sum},
};
use eigenveil_shared::mechanism::MechanismKind::{self, DoubleCap, IsotropicGaussian};
use rand::{SeedableRng, rngs::ChaCha20Rng};

use crate::common::{experiment_csv, params};

const KAPPAS: [f64; 7] = [0.15, 0.2, 0.25, 0.35, 0.5, 0.7, 1.0];
const REPEATS: u64 = 3;

/// mechanism, p, s, k, n, ε, spike: components from weak to strong.
type Setting = (MechanismKind, usize, usize, usize, u64, f64, f64);
const SETTINGS: [Setting; 16] = [
    (DoubleCap, 100, 10, 2, 20_000, 4.0, 20.0),
    (DoubleCap, 100, 10, 2, 50_000, 2.0, 60.0),
    (DoubleCap, 100, 30, 5, 100_000, 4.0, 60.0),
    (DoubleCap, 100, 30, 5, 100_000, 8.0, 20.0),
    (DoubleCap, 200, 15, 3, 30_000, 4.0, 60.0),
    (DoubleCap, 200, 15, 3, 100_000, 2.0, 60.0),
    (DoubleCap, 200, 15, 3, 100_000, 4.0, 20.0),
    (DoubleCap, 200, 30, 5, 50_000, 8.0, 20.0),
    (DoubleCap, 200, 30, 5, 100_000, 4.0, 60.0),
    (DoubleCap, 400, 20, 3, 100_000, 4.0, 60.0),
    (IsotropicGaussian, 100, 10, 2, 30_000, 4.0, 20.0),
    (IsotropicGaussian, 100, 10, 2, 300_000, 2.0, 20.0),
    (IsotropicGaussian, 100, 30, 5, 300_000, 8.0, 20.0),
    (IsotropicGaussian, 200, 15, 3, 100_000, 2.0, 60.0),
    (IsotropicGaussian, 200, 15, 3, 100_000, 4.0, 60.0),
    (IsotropicGaussian, 200, 15, 3, 1_000_000, 2.0, 20.0),
];

/// Mean errors (relaxed, refitted) for every κ.
fn errors(setting: &Setting, csv: &mut String) -> [(f64, f64); KAPPAS.len()] {
    let &(mechanism, p, s, k, n, epsilon, spike) = setting;
    let params = params(p, mechanism, epsilon);
    let mut sums = [(0.0, 0.0); KAPPAS.len()];
    let mut supports = [(0.0, 0.0); KAPPAS.len()];
    let mut plain = 0.0;
    for repeat in 0..REPEATS {
        let mut rng = ChaCha20Rng::seed_from_u64(2026 + repeat);
        let model = RowSource::Model(Model::Sparse { p, k, s, spike });
        let people = Participants::draw(&model, k, &params, &mut rng).unwrap();
        let (noisy, _) = noisy_sum(&params, &people, n, Path::Law, &mut rng, &mut |_| {}).unwrap();
        let moment = noisy.dense();
        let distance = |v: &_| projector_distance(v, people.truth()).unwrap() / REPEATS as f64;
        plain += distance(&pca(&moment, k).unwrap().vectors);
        let unit = automatic_lambda(noisy.noise(), p, n, false).unwrap() / KAPPA;
        let settings = AdmmSettings {
            tolerance: 1e-4,
            max_iterations: 400,
            ..AdmmSettings::default()
        };
        for (at, kappa) in KAPPAS.iter().enumerate() {
            let found = fantope::solve(&moment, k, kappa * unit, &settings, Cancel::NEVER).unwrap();
            let refitted = fantope::refit(&moment, &found.support, k).unwrap();
            let score = support_score(&found.support, people.support().unwrap());
            sums[at].0 += distance(&found.vectors);
            sums[at].1 += distance(&refitted);
            supports[at].0 += score.precision / REPEATS as f64;
            supports[at].1 += score.recall / REPEATS as f64;
        }
    }
    for ((kappa, (relaxed, refitted)), (precision, recall)) in KAPPAS.iter().zip(sums).zip(supports)
    {
        writeln!(
            csv,
            "{mechanism},{p},{s},{k},{n},{epsilon},{spike},{kappa},{plain:.4},{relaxed:.4},{refitted:.4},{precision:.3},{recall:.3}"
        )
        .unwrap();
    }
    sums
}

/// Geometric mean over the settings of the error over that of the setting's best κ.
fn loss(table: &[[f64; KAPPAS.len()]]) -> [f64; KAPPAS.len()] {
    let mut logarithms = [0.0; KAPPAS.len()];
    for row in table {
        let best = row.iter().copied().fold(f64::INFINITY, f64::min);
        for (sum, error) in logarithms.iter_mut().zip(row) {
            *sum += (error / best).ln() / table.len() as f64;
        }
    }
    logarithms.map(f64::exp)
}

#[test]
#[ignore = "ten minutes; see the top of the file"]
fn both_constants_are_within_a_tenth_of_the_best_of_the_grid() {
    let mut csv = String::from(
        "mechanism,p,s,k,n,epsilon,spike,kappa,plain_pca,relaxed,refit,precision,recall\n",
    );
    let (mut relaxed, mut refitted) = (Vec::new(), Vec::new());
    for setting in &SETTINGS {
        let errors = errors(setting, &mut csv);
        println!("{setting:?}: {errors:.3?}");
        relaxed.push(errors.map(|e| e.0));
        refitted.push(errors.map(|e| e.1));
        std::fs::write(experiment_csv("kappa"), &csv).unwrap();
    }
    for (name, table, chosen) in [
        ("relaxed", relaxed, KAPPA),
        ("refit", refitted, KAPPA_REFIT),
    ] {
        let losses = loss(&table);
        println!("{name}: κ {KAPPAS:?} → error over the best κ's {losses:.3?}");
        let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
        let at = KAPPAS.iter().position(|&kappa| kappa == chosen).unwrap();
        assert!(losses[at] < 1.1 * best, "{name}: κ = {chosen}: {losses:?}");
    }
}
