//! Agreement with the values computed independently (`shared/tests/vectors/reference.json`).

use eigenveil_shared::{
    mechanism::{Calibration, Mechanism, MechanismKind, double_cap::DoubleCapParameters},
    privacy::{
        Budget,
        gaussian::{SENSITIVITY, analytic_sigma, as_published_sigma, true_delta, true_epsilon},
    },
};

fn reference() -> serde_json::Value {
    serde_json::from_str(include_str!("../vectors/reference.json")).unwrap()
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
    let reference = reference();
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
        for kind in [
            MechanismKind::SymmetricGaussian,
            MechanismKind::IsotropicGaussian,
        ] {
            let mechanism = Mechanism::derive(kind, Calibration::Analytic, 40, budget).unwrap();
            let sigma = mechanism.gaussian_noise().unwrap().sigma();
            close("mechanism", sigma, number("sigma_analytic"));
        }
    }
}

/// The reference's own optimiser is flat at the maximum: its threshold and cap probability are good to
/// 1e-6 only (`docs/derivations/double-cap.md`, "Independent values").
#[test]
fn double_cap_constants_agree() {
    let reference = reference();
    let rows = reference["double_cap"].as_array().unwrap();
    assert_eq!(rows.len(), 48);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        let p = row["p"].as_u64().unwrap() as usize;
        let ours = DoubleCapParameters::derive(p, number("epsilon")).unwrap();
        let variance = ours.scale.powi(2) / (p * (p + 2)) as f64;
        for (what, value, theirs, tolerance) in [
            ("threshold", ours.threshold, number("threshold"), 1e-6),
            (
                "cap probability",
                ours.cap_probability,
                number("cap_probability"),
                1e-6,
            ),
            ("signal", ours.signal, number("gain_m"), 1e-9),
            ("scale", ours.scale, number("scale_c"), 1e-9),
            ("variance", variance, number("offdiag_variance"), 1e-9),
            (
                "tries",
                ours.expected_attempts(),
                number("expected_tries"),
                1e-6,
            ),
        ] {
            let relative = (value / theirs - 1.0).abs();
            assert!(
                relative <= tolerance,
                "{what} at {row}: {value} ({relative:.1e})"
            );
        }
    }
}
