//! `eigenveil account` as a process: what it says of several studies.

use crate::program::{run, run_json, succeeded};

/// What holds of studies that are fixed in advance does not hold of studies chosen from outcomes
/// (`shared/tests/shared/chosen_from_outcomes.rs`): every surface says which one it prints.
#[test]
fn account_says_what_is_fixed_in_advance() {
    let line = "account --epsilon 1 --studies 100";
    let text = succeeded(&run(line));
    assert!(
        text.contains("number and parameters fixed in advance"),
        "{text}"
    );
    assert!(text.contains("chosen from outcomes"), "{text}");
    let help = succeeded(&run("account --help"));
    for said in [&text, &help] {
        assert!(!said.to_lowercase().contains("adaptive"), "{said}");
    }
    let json = run_json(line);
    let (fixed, filter) = (&json["composed_epsilon"], &json["filter_epsilon"]);
    assert!(filter.as_f64().unwrap() > fixed.as_f64().unwrap(), "{json}");
}
