//! Agreement with the values computed independently (`../shared/vectors/reference.json`).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;

use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind, MechanismSpec},
    privacy::{
        Budget,
        gaussian::{SENSITIVITY, analytic_sigma, as_published_sigma, true_delta, true_epsilon},
    },
};

/// The independent values, or `None` with a loud word where the folder beside the checkout is absent.
fn reference() -> Option<serde_json::Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/reference.json");
    if !path.exists() {
        eprintln!(
            "SKIPPED: {} is absent, so nothing was compared with the independent values",
            path.display()
        );
        return None;
    }
    Some(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
}

fn close(what: &str, ours: f64, theirs: f64) {
    let relative = (ours / theirs - 1.0).abs();
    assert!(
        relative <= 1e-9,
        "{what}: {ours} against {theirs} ({relative:.1e})"
    );
}

#[test]
fn gaussian_calibration_agrees_to_1e_9() {
    let Some(reference) = reference() else { return };
    let rows = reference["gaussian_calibration"].as_array().unwrap();
    assert_eq!(rows.len(), 24);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        let (epsilon, delta) = (number("epsilon"), number("delta"));
        close("sensitivity", SENSITIVITY, number("sensitivity"));
        let budget = Budget::approximate(epsilon, delta).unwrap();
        close(
            "sigma_analytic",
            analytic_sigma(budget, SENSITIVITY).unwrap(),
            number("sigma_analytic"),
        );
        let printed = as_published_sigma(budget).unwrap();
        close("sigma_as_published", printed, number("sigma_as_published"));
        close(
            "true_delta",
            true_delta(printed, SENSITIVITY, epsilon),
            number("as_published_true_delta"),
        );
        close(
            "true_epsilon",
            true_epsilon(printed, SENSITIVITY, delta).unwrap(),
            number("as_published_true_epsilon"),
        );
        for &kind in MechanismKind::ALL {
            let spec = MechanismSpec::derive(kind, Calibration::Analytic, budget).unwrap();
            close("mechanism", spec.sigma(), number("sigma_analytic"));
        }
    }
}
