//! `docs/papers.md` and its pictures are made from the tables in `docs/papers`, and by nobody's hand.
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

fn kept(exhibit: &Exhibit) -> Option<Table> {
    let path = docs().join("papers").join(format!("{}.csv", exhibit.id));
    let text = std::fs::read_to_string(path).ok()?;
    Some(Table::parse(exhibit, &text).unwrap())
}

#[test]
fn the_page_is_the_one_that_the_tables_make() {
    let path = docs().join("papers.md");
    let written = std::fs::read_to_string(path).unwrap();
    let made = page(kept);
    for (number, (made, written)) in (1..).zip(made.lines().zip(written.lines())) {
        assert_eq!(
            made, written,
            "docs/papers.md, line {number}; make it again: eigenveil reproduce page --results docs/papers --out docs/papers.md"
        );
    }
    assert_eq!(made.lines().count(), written.lines().count());
}

#[test]
fn pictures_are_those_of_the_tables() {
    for exhibit in ALL {
        let Some(table) = kept(exhibit) else {
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
        // At least five seeds wherever something is drawn at random.
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
