//! No figure and no table of the papers is left out.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeSet, path::Path};

use eigenveil_papers::{ALL, Paper};

/// The captions that the papers have, as `papers/items.txt` lists them: "wang-xu Table 1".
fn listed() -> BTreeSet<String> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("items.txt");
    let text = std::fs::read_to_string(list).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// What the names of the papers' texts begin with.
const FILES: [(&str, Paper); 5] = [
    ("000", Paper::Maunu),
    ("001", Paper::Shang),
    ("002", Paper::WangXu),
    ("003", Paper::Liu),
    ("004", Paper::HardtPrice),
];

/// What no exhibit runs yet.
const NOT_YET: [&str; 2] = ["shang Table 1", "shang Table 3"];

#[test]
fn every_figure_and_table_is_an_exhibit_but_those_that_are_named() {
    let ours: BTreeSet<String> = ALL
        .iter()
        .map(|exhibit| format!("{} {}", exhibit.paper.slug(), exhibit.item))
        .collect();
    let missing: Vec<_> = listed().difference(&ours).cloned().collect();
    assert_eq!(missing, NOT_YET, "no exhibit for these");
    for exhibit in ALL {
        // What is no caption of a paper says so.
        let item = format!("{} {}", exhibit.paper.slug(), exhibit.item);
        let is_caption = ["Figure ", "Table "]
            .iter()
            .any(|kind| exhibit.item.starts_with(kind));
        assert_eq!(listed().contains(&item), is_caption, "{item}");
    }
}

/// "Figure 3:" and "Table 1:" in the papers' text, where it lies beside the checkout.
#[test]
fn the_list_is_that_of_the_captions() {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/papers");
    let Ok(files) = std::fs::read_dir(&papers) else {
        eprintln!("SKIPPED: {} is absent", papers.display());
        return;
    };
    let mut found = BTreeSet::new();
    for file in files {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some((_, paper)) = FILES.iter().find(|(number, _)| name.starts_with(number)) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).unwrap();
        for kind in ["Figure ", "Table "] {
            for (place, _) in text.match_indices(kind) {
                let rest = &text[place + kind.len()..];
                let digits = rest.chars().take_while(char::is_ascii_digit).count();
                if digits > 0 && rest[digits..].starts_with(':') {
                    found.insert(format!("{} {kind}{}", paper.slug(), &rest[..digits]));
                }
            }
        }
    }
    assert_eq!(found, listed());
}
