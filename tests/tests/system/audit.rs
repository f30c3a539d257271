//! `eigenveil audit` as a process.

use crate::harness::{has, has_keys, refuses, run_json};

const KEYS: &str = "mechanism epsilon delta epsilon_lower_bound method trials verdict calibration p true_epsilon \
    model_based event_epsilon_lower_bound transcript_epsilon_lower_bound observed randomness max_provable_epsilon confidence pair \
    pairs attempts_p_value attempts finding seconds seed";

#[test]
fn audit_prints_the_agreed_keys_and_refuses_wrong_usage() {
    let audit = |mechanism: &str| {
        let result = run_json(&format!("audit --p 4 --trials 2000 {mechanism}"));
        has_keys(&result, KEYS);
        assert_eq!(result["trials"], 2000, "{result}");
        result
    };
    let cap = audit("--randomness seeded --mechanism double-cap --epsilon 1");
    has(&cap, "method=event verdict=consistent delta=0.0");
    let pairs = cap["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 16);
    let bounds = "name epsilon_lower_bound transcript_epsilon_lower_bound";
    pairs.iter().for_each(|pair| has_keys(pair, bounds));
    let keys = "p_value false_alarm verdict trials pair mean";
    has_keys(&cap["attempts"], keys);
    has(&cap, "attempts.verdict=same-for-every-row calibration=null");
    let published = audit(
        "--randomness seeded --mechanism symmetric-gaussian --calibration as-published --epsilon 12 --pair axes",
    );
    has(&published, "method=mu-gdp model_based=true pair=axes");
    has(&published, "verdict=refuted attempts=null");
    // The same seed gives the same numbers.
    let again = audit("--randomness seeded --epsilon 1");
    for key in ["epsilon_lower_bound", "transcript_epsilon_lower_bound"] {
        assert_eq!(again[key], cap[key]);
    }
    // The default is the device's own randomness: a false alarm once in 10⁶ runs.
    let released = audit("--epsilon 1 --confidence 0.999999");
    has(&released, "randomness=system verdict=consistent");
    has(&released, "confidence=0.999999");
    refuses(
        "audit --p 4",
        &[
            ("--epsilon 1 --delta 1e-6", "is always 0"),
            ("--epsilon 17", "at most 16"),
            ("--epsilon 1 --trials 999", "1000 to"),
            (
                "--epsilon 1 --method mu-gdp",
                "could refute a correct mechanism",
            ),
            ("--epsilon 1 --pair twins", "twins"),
            ("--epsilon 1 --randomness dice", "dice"),
            ("--epsilon 1 --confidence 1", "below 1"),
            ("", "--epsilon"),
        ],
    );
    refuses("audit", &[("--p 1 --epsilon 1", "dimension is 1")]);
}

#[test]
fn audit_of_tables_has_pairs_of_its_own() {
    let audit = "audit --p 3 --trials 2000 --epsilon 4 --max-rows 1000 --randomness seeded";
    let report = run_json(&format!("{audit} --confidence 0.999999"));
    has_keys(&report, KEYS);
    has(
        &report,
        "mechanism=discrete-gaussian max_rows=1000 attempts=null",
    );
    has(&report, "method=mu-gdp verdict=consistent");
    let pairs = report["pairs"].as_array().unwrap();
    assert!(pairs.len() == 11 && pairs[0]["name"] == "row-replaced");
    refuses(
        audit,
        &[
            ("--mechanism double-cap", "over tables"),
            ("--calibration as-published", "--calibration has no effect"),
            ("--pair axes", "leave --max-rows out"),
        ],
    );
    refuses(
        "audit --p 3 --epsilon 4",
        &[
            ("--max-rows 12", "--max-rows is 12; it must be 41"),
            ("--pair row-added", "give --max-rows"),
        ],
    );
}
