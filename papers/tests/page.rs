//! `docs/papers.md` and its figures are generated from the tables in `docs/papers`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};

use eigenveil_papers::{ALL, Exhibit, Table, page};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn stored_table(exhibit: &Exhibit) -> Option<Table> {
    let path = docs().join("papers").join(format!("{}.csv", exhibit.id));
    let text = std::fs::read_to_string(path).ok()?;
    Some(exhibit.parse(&text).unwrap())
}

#[test]
fn the_page_matches_the_tables() {
    let path = docs().join("papers.md");
    let written = std::fs::read_to_string(path).unwrap();
    let fresh_page = page(stored_table);
    for (number, (fresh_page, written)) in (1..).zip(fresh_page.lines().zip(written.lines())) {
        assert_eq!(
            fresh_page, written,
            "docs/papers.md, line {number}; make it again: eigenveil reproduce page --results docs/papers --out docs/papers.md"
        );
    }
    assert_eq!(fresh_page.lines().count(), written.lines().count());
}

#[test]
fn figures_match_the_tables() {
    for exhibit in ALL {
        let Some(table) = stored_table(exhibit) else {
            continue;
        };
        let path = docs().join("papers").join(format!("{}.svg", exhibit.id));
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(
            written.trim_end() == (exhibit.to_svg)(&table).trim_end(),
            "{} is not what its table makes: eigenveil reproduce {}",
            path.display(),
            exhibit.id
        );
        // At least five seeds for whatever is random.
        for record in table.records() {
            let repeats = record.number("repeats");
            assert!(
                repeats >= 5.0 || repeats == 1.0,
                "{}: {record:?}",
                exhibit.id
            );
        }
    }
}
