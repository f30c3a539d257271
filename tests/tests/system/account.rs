//! `eigenveil account` as a process: the composition of several studies.

use crate::harness::{refused, run, run_json, succeeded};

/// ε adds up for pure reports, μ² for Gaussian ones (50-digit arithmetic), ρ for discrete ones; the plain sum is
/// printed too.
#[test]
fn accountant_composes_several_studies() {
    for (mechanism, delta, together) in [
        ("double-cap", "", 5.0..5.000_01),
        (
            "isotropic-gaussian",
            "--delta 1e-6",
            2.399_712_349..2.399_713,
        ),
        ("discrete-gaussian", "--delta 1e-6", 2.86..2.93),
    ] {
        let line = format!("account --mechanism {mechanism} --epsilon 1 --studies 5");
        let account = run_json(&format!("{line} {delta}"));
        let value = |key: &str| account[key].as_f64().unwrap();
        let composed = value("composed_epsilon");
        assert!(together.contains(&composed), "{account}");
        assert_eq!(value("filter_epsilon"), composed);
        assert!((4.99..5.0001).contains(&value("sum_epsilon")), "{account}");
        let pure = delta.is_empty();
        assert_eq!(account["composed_pure_epsilon"].is_null(), !pure);
        assert_eq!(value("delta") == 0.0, pure);
        if pure {
            refused(
                &run(&format!("{line} --delta 1e-6")),
                2,
                &["leave delta out"],
            );
        }
        assert_eq!(value("sum_delta") == 0.0, pure);
    }
    let two = succeeded(&run(
        "account --mechanism isotropic-gaussian --epsilon 1 --studies 2",
    ));
    assert!(two.contains("at delta 2.00e-6"), "{two}");
}
