//! Estimates as Eigenveil wrote them before 0.2.0 are read, every number under its name of today.

use eigenveil_shared::{estimate::Estimate, mechanism::NoiseModel};
use serde_json::Value;

/// Written by revision 6ef40d9 (`estimate --sparse --lambda path` and `cv`); the group was added by hand.
const PATH: &str = include_str!("../vectors/estimate_version_1_path.json");
const CROSS_VALIDATED: &str = include_str!("../vectors/estimate_version_1_cv.json");

/// Old and new JSON pointer of a value.
const MOVED: [(&str, &str); 20] = [
    ("/format", "/version"),
    ("/study", "/params"),
    ("/repeated_seeds", "/duplicate_seeds"),
    ("/groups/0/span_se", "/groups/0/subspace_se"),
    ("/floor/centre", "/floor/center"),
    ("/row_check/length", "/feasibility/length"),
    ("/row_check/seeds/found", "/feasibility/seeds/found"),
    (
        "/row_check/seeds/together",
        "/feasibility/seeds/is_subspace",
    ),
    (
        "/row_check/seeds/chance",
        "/feasibility/seeds/null_probability",
    ),
    ("/sparse/path/automatic", "/sparse/path/lambda_auto"),
    ("/sparse/path/chosen", "/sparse/path/lambda_chosen"),
    (
        "/sparse/path/most_variance",
        "/sparse/path/max_captured_variance",
    ),
    (
        "/sparse/path/points/0/support",
        "/sparse/path/points/0/support_size",
    ),
    (
        "/sparse/cross_validation/best",
        "/sparse/cross_validation/lambda_best",
    ),
    (
        "/sparse/cross_validation/chosen",
        "/sparse/cross_validation/lambda_1se",
    ),
    (
        "/sparse/cross_validation/path/0/behind",
        "/sparse/cross_validation/grid/0/score_deficit",
    ),
    (
        "/sparse/cross_validation/path/0/score",
        "/sparse/cross_validation/grid/0/score",
    ),
    ("/sparse/support", "/sparse/support"),
    ("/components", "/components"),
    ("/eigenvalues", "/eigenvalues"),
];

fn leaves(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(leaves).sum(),
        Value::Object(fields) => fields.values().map(leaves).sum(),
        _ => 1,
    }
}

#[test]
fn version_1_is_read_as_it_was_meant() {
    let mut seen = std::collections::BTreeSet::new();
    for text in [PATH, CROSS_VALIDATED] {
        let old: Value = serde_json::from_str(text).unwrap();
        let estimate: Estimate = serde_json::from_str(text).unwrap();
        let new = serde_json::to_value(&estimate).unwrap();
        // Three fields are newer: spectrum, k_is_open, expected_error_range.
        assert_eq!(leaves(&old) + 3, leaves(&new));
        assert_eq!(old["row_check"]["verdict"], "possible");
        assert_eq!(new["feasibility"]["verdict"], "feasible");
        for (before, now) in MOVED {
            if let Some(value) = old.pointer(before) {
                assert_eq!(new.pointer(now), Some(value), "{before}");
                seen.insert(before);
            }
        }
        // What it is written as is read again.
        assert_eq!(serde_json::from_value::<Estimate>(new).unwrap(), estimate);
    }
    assert_eq!(seen.len(), MOVED.len());
}

/// Estimates that a server stored before the noise had its present name.
#[test]
fn noise_of_private_centring_is_read_by_its_old_name() {
    let old = r#"{"family":"centred","dimension":3,"constant":2.0,"linear":0.0,"bilinear":0.0,"shift":0.0,"total_variance":null,"mean_ratio":0.5}"#;
    let read: NoiseModel = serde_json::from_str(old).unwrap();
    let NoiseModel::Transformed { edge_widening, .. } = read else {
        panic!("{read:?}");
    };
    assert_eq!(edge_widening, 1.0);
}
