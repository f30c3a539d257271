//! `eigenveil account` as a process: the composition of several studies.

use crate::harness::run_json;

/// ε adds up for pure reports, μ² for Gaussian ones (50-digit arithmetic), ρ for discrete ones; the plain sum is
/// printed too.
#[test]
fn accountant_composes_several_studies() {
    let five = |mechanism: &str| {
        run_json(&format!(
            "account --mechanism {mechanism} --epsilon 1 --delta 1e-6 --studies 5"
        ))
    };
    for (mechanism, together) in [
        ("double-cap", 5.0..5.000_01),
        ("isotropic-gaussian", 2.399_712_349..2.399_713),
        ("discrete-gaussian", 2.86..2.93),
    ] {
        let account = five(mechanism);
        let value = |key: &str| account[key].as_f64().unwrap();
        let composed = value("composed_epsilon");
        assert!(together.contains(&composed), "{account}");
        assert_eq!(value("filter_epsilon"), composed);
        assert!((4.99..5.0001).contains(&value("sum_epsilon")), "{account}");
        let pure = mechanism == "double-cap";
        assert_eq!(account["composed_pure_epsilon"].is_null(), !pure);
        assert_eq!(value("sum_delta") == 0.0, pure);
    }
}
