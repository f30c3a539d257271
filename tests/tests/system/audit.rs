//! `eigenveil audit` as a process.

use crate::program::{has_keys, refused, run, run_json};

#[test]
fn audit_prints_the_agreed_keys_and_refuses_wrong_usage() {
    let wanted = [
        "mechanism",
        "epsilon",
        "delta",
        "epsilon_lower_bound",
        "method",
        "trials",
        "verdict",
        "calibration",
        "p",
        "true_epsilon",
        "model_based",
        "event_epsilon_lower_bound",
        "joint_epsilon_lower_bound",
        "observed",
        "source",
        "epsilon_provable",
        "confidence",
        "pair",
        "pairs",
        "tries_p_value",
        "tries",
        "finding",
        "seconds",
        "seed",
    ];
    let audit = |mechanism: &[&str]| {
        let mut arguments = vec!["audit", "--json", "--p", "4", "--trials", "2000"];
        arguments.extend(["--source", "seeded"]);
        arguments.extend(mechanism);
        let result = run_json(&arguments);
        has_keys(&result, &wanted);
        assert_eq!(result["trials"], 2000, "{result}");
        result
    };
    let cap = audit(&["--mechanism", "double-cap", "--epsilon", "1"]);
    assert_eq!(
        (&cap["method"], &cap["verdict"], &cap["delta"]),
        (&"event".into(), &"consistent".into(), &0.0.into())
    );
    let pairs = cap["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 9);
    for pair in pairs {
        has_keys(
            pair,
            &["name", "epsilon_lower_bound", "joint_epsilon_lower_bound"],
        );
    }
    has_keys(
        &cap["tries"],
        &[
            "p_value",
            "false_alarm",
            "verdict",
            "trials",
            "pair",
            "mean",
        ],
    );
    assert_eq!(cap["tries"]["verdict"], "same-for-every-row");
    assert!(cap["calibration"].is_null());
    let published = audit(&[
        "--mechanism",
        "symmetric-gaussian",
        "--calibration",
        "as-published",
        "--epsilon",
        "12",
        "--pair",
        "axes",
    ]);
    assert_eq!(
        (
            &published["method"],
            &published["model_based"],
            &published["verdict"],
            &published["pair"],
        ),
        (
            &"mu-gdp".into(),
            &true.into(),
            &"convicted".into(),
            &"axes".into()
        )
    );
    assert!(published["tries"].is_null());
    // A seed gives the same numbers.
    let again = audit(&["--epsilon", "1"]);
    assert_eq!(again["epsilon_lower_bound"], cap["epsilon_lower_bound"]);
    assert_eq!(
        again["joint_epsilon_lower_bound"],
        cap["joint_epsilon_lower_bound"]
    );
    // The device's own release, by default: a false alarm once in 10⁶ runs.
    let released = run_json(&[
        "audit",
        "--json",
        "--p",
        "4",
        "--trials",
        "2000",
        "--epsilon",
        "1",
        "--confidence",
        "0.999999",
    ]);
    assert_eq!(
        (&released["source"], &released["verdict"]),
        (&"system".into(), &"consistent".into())
    );
    assert_eq!(released["confidence"], 0.999_999);
    let arguments = |more: &[&'static str]| [&["audit", "--p", "4"], more].concat();
    for (wrong, says) in [
        (
            arguments(&["--epsilon", "1", "--delta", "1e-6"]),
            "is always 0",
        ),
        (arguments(&["--epsilon", "17"]), "at most 16"),
        (
            vec!["audit", "--p", "1", "--epsilon", "1"],
            "dimension is 1",
        ),
        (arguments(&["--epsilon", "1", "--trials", "999"]), "1000 to"),
        (
            arguments(&["--epsilon", "1", "--method", "mu-gdp"]),
            "would convict a correct mechanism",
        ),
        (
            arguments(&["--epsilon", "1", "--calibration", "as-published"]),
            "no calibration",
        ),
        (arguments(&["--epsilon", "1", "--pair", "twins"]), "twins"),
        (arguments(&["--epsilon", "1", "--source", "dice"]), "dice"),
        (
            arguments(&["--epsilon", "1", "--confidence", "1"]),
            "below 1",
        ),
        (arguments(&[]), "--epsilon"),
    ] {
        eprintln!("{wrong:?}");
        refused(&run(&wrong), 2, &[says]);
    }
}
