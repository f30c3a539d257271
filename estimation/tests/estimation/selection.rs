//! The expected error of a sparse estimate, where noise chooses some of the features and hides others.

use std::path::Path;

use eigenveil_estimation::{
    Cancel,
    metrics::projector_distance,
    models::Model,
    simulate::{RowSource, SimulatedParticipants},
    sparse_components,
};
use eigenveil_shared::{
    api::{Lambda, SparseSettings},
    estimate::ComponentCount,
    mechanism::MechanismKind::{self, DoubleCap, IsotropicGaussian},
    preprocess::Row,
};
use rand::{SeedableRng, rngs::ChaCha8Rng};

use crate::common::{noisy_study, params};

/// Root mean squares of what 30 studies say within a fifth of those of their errors, and the share whose range holds
/// the latter. With the features taken as the right ones they were 0.58, 0.83 and 0.75 of them, and hardly a range
/// held.
#[test]
fn the_range_of_a_sparse_estimate_holds_its_error() {
    let sparse = Model::sparse;
    // Nothing is sparse: what is left out shows as soon as it matters.
    let dense = Model::spiked(30, 1, 20.0);
    let auto = Lambda::Auto;
    // Far above the noise features are left out.
    let far = Lambda::Fixed;
    for (model, mechanism, epsilon, n, lambda) in [
        (sparse(40, 1, 5, 20.0), DoubleCap, 4.0, 20_000, auto),
        (sparse(60, 3, 12, 30.0), DoubleCap, 2.0, 5_000, auto),
        (
            sparse(50, 2, 10, 20.0),
            IsotropicGaussian,
            4.0,
            60_000,
            auto,
        ),
        (dense, DoubleCap, 4.0, 2_000, auto),
        (dense, DoubleCap, 4.0, 20_000, auto),
        (sparse(24, 1, 6, 20.0), DoubleCap, 6.0, 16_000, far(0.06)),
    ] {
        let source = RowSource::Model(model);
        let outcome = says(
            &source,
            (model.p, model.k),
            mechanism,
            epsilon,
            n,
            lambda,
            30,
        );
        let studies = outcome.len() as f64;
        let root = |squares: f64| (squares / studies).sqrt();
        let error = root(outcome.iter().map(|s| s.error * s.error).sum());
        let expected = root(outcome.iter().map(|s| s.expected * s.expected).sum());
        // A fixed λ leaves out other features in each study, and each says what its own lack.
        let is_auto = matches!(lambda, Lambda::Auto);
        let held = outcome
            .iter()
            .filter(|s| s.holds(if is_auto { error } else { s.error }));
        let held = held.count() as f64 / studies;
        eprintln!(
            "{model:?} {mechanism} n = {n}, {lambda:?}: {expected:.3} said, {error:.3} true, held {held:.2}"
        );
        let ratio = expected / error;
        assert!((0.8..1.25).contains(&ratio), "{model:?}: {ratio}");
        assert!(held >= 0.9, "{model:?}: {held}");
    }
}

/// A feature that only the weaker component has is left out: of 40 studies 0.85 at least say a range that holds their
/// error. With the components' losses pooled they said 0.28 where the error was 0.44 (wine), and hardly a range held.
#[test]
fn a_feature_of_the_weaker_component_that_is_left_out_counts() {
    for (name, k, lambda) in [
        ("wine.csv", 2, 0.024),
        ("breast_cancer.csv", 2, 0.0092),
        ("breast_cancer.csv", 3, 0.0092),
    ] {
        let Some(rows) = standardized(name) else {
            return;
        };
        let (p, n) = (rows[0].values().len(), 20_000);
        let source = RowSource::Rows(&rows);
        let lambda = Lambda::Fixed(lambda);
        let mut outcome = says(&source, (p, k), DoubleCap, 4.0, n, lambda, 40);
        outcome.retain(|s| s.features < p);
        let studies = outcome.len() as f64;
        let held = outcome.iter().filter(|s| s.holds(s.error)).count() as f64 / studies;
        let mean = |of: fn(&Said) -> f64| outcome.iter().map(of).sum::<f64>() / studies;
        let (expected, error) = (mean(|s| s.expected), mean(|s| s.error));
        eprintln!(
            "{name}, k = {k}: {studies} of 40 leave features out, {expected:.3} said, {error:.3} true, held {held:.2}"
        );
        assert!(
            studies >= 20.0 && held >= 0.85,
            "{name}: {held} of {studies}"
        );
        assert!((0.85..1.15).contains(&(expected / error)), "{name}");
    }
}

/// The rows of a table beside the checkout, each column over its standard deviation around its mean; `None`, with a
/// message, without it.
fn standardized(name: &str) -> Option<Vec<Row>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/tables");
    let Ok(text) = std::fs::read_to_string(path.join(name)) else {
        eprintln!("SKIPPED: {} has no {name}", path.display());
        return None;
    };
    let lines = text.lines().skip(1);
    let number = |cell: &str| cell.parse::<f64>().unwrap();
    let rows: Vec<Vec<f64>> = lines
        .map(|line| line.split(',').map(number).collect())
        .collect();
    let n = rows.len() as f64;
    let column = |j: usize| rows.iter().map(move |row| row[j]);
    let constants: Vec<(f64, f64)> = (0..rows[0].len())
        .map(|j| {
            let mean = column(j).sum::<f64>() / n;
            let variance = column(j).map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            (mean, variance.sqrt())
        })
        .collect();
    let row = |row: &Vec<f64>| {
        let cells = row.iter().zip(&constants);
        Row::new(cells.map(|(x, (mean, sd))| (x - mean) / sd).collect())
    };
    Some(rows.iter().map(row).collect())
}

struct Said {
    error: f64,
    expected: f64,
    range: (f64, f64),
    features: usize,
}

impl Said {
    fn holds(&self, error: f64) -> bool {
        self.range.0 <= error && error <= self.range.1
    }
}

fn says(
    source: &RowSource<'_>,
    (p, k): (usize, usize),
    mechanism: MechanismKind,
    epsilon: f64,
    n: u64,
    lambda: Lambda,
    studies: u64,
) -> Vec<Said> {
    let params = params(p, mechanism, epsilon);
    let settings = SparseSettings {
        lambda,
        ..SparseSettings::default()
    };
    (0..studies)
        .map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut population = ChaCha8Rng::seed_from_u64(1);
            let people = SimulatedParticipants::draw(source, k, &params, &mut population).unwrap();
            let moment = noisy_study(&params, &people, n, &mut rng);
            let k = ComponentCount::Fixed(k);
            let report = sparse_components(&moment, k, &settings, "", Cancel::NEVER).unwrap();
            Said {
                error: projector_distance(&report.vectors, people.truth()).unwrap(),
                expected: report.floor_report.expected_error.unwrap(),
                range: report.floor_report.expected_error_range.unwrap(),
                features: report.sparse.unwrap().support.len(),
            }
        })
        .collect()
}
