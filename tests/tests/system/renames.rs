//! The table of renames in CHANGELOG.md: an old name is refused with an error that names the new one.

use crate::harness::{Folder, PROGRAM, refused, run, stderr};

/// Kind, old name and new name of every rename; a row may list several of one kind.
fn renames() -> Vec<(String, String, String)> {
    let changelog =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../CHANGELOG.md")).unwrap();
    let section = changelog.split("### Renamed").nth(1).unwrap();
    let section = section.split("\n### ").next().unwrap();
    let names = |cell: &str| -> Vec<String> {
        let parts = cell.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    };
    let mut all = Vec::new();
    for line in section.lines().filter(|line| line.contains('`')) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [kind, before, now] = cells[..] else {
            panic!("{line}");
        };
        let (before, now) = (names(before), names(now));
        assert_eq!(before.len(), now.len(), "{line}");
        let pairs = before.into_iter().zip(now);
        all.extend(pairs.map(|(before, now)| (kind.to_owned(), before, now)));
    }
    all
}

#[test]
fn old_names_are_refused_with_the_new_one() {
    let folder = Folder::new();
    let mut checked = Vec::new();
    for (kind, before, now) in renames() {
        let output = match kind.as_str() {
            "flag" | "value" | "exhibit" => run(&before),
            "key" => {
                let config = folder.write("eigenveil.toml", format!("{before} = 1\n"));
                let data = folder.at("data");
                run(&format!(
                    "serve --check-config --data {data} --config {config}"
                ))
            }
            // JSON, columns and code are tested where they are read.
            _ => continue,
        };
        let message = stderr(&output);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{PROGRAM} {before}: {message}"
        );
        let new = now.split(' ').next_back().unwrap();
        assert!(message.contains(new), "{before} became {now}: {message}");
        checked.push(kind);
    }
    for flag in ["--outbox", "--state"] {
        let gone = run(&format!("report --study x --rows rows.csv {flag} box"));
        refused(&gone, 2, &[flag, "is gone", "--ledger"]);
    }
    for kind in ["flag", "value", "exhibit", "key"] {
        assert!(checked.iter().any(|of| of == kind), "no {kind} was checked");
    }
}
