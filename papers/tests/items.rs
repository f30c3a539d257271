//! Every figure and table of the papers has an exhibit.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeSet, path::Path};

use eigenveil_papers::ALL;

/// The captions of the papers, as listed in `papers/items.txt`: "wang-xu Table 1".
fn listed() -> BTreeSet<String> {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("items.txt");
    let text = std::fs::read_to_string(list).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Items without an exhibit.
const NOT_COVERED: [&str; 2] = ["shang Table 1", "shang Table 3"];

#[test]
fn every_figure_and_table_has_an_exhibit_except_the_named_ones() {
    let ours: BTreeSet<String> = ALL
        .iter()
        .map(|exhibit| format!("{} {}", exhibit.paper.slug(), exhibit.item))
        .collect();
    let missing: Vec<_> = listed().difference(&ours).cloned().collect();
    assert_eq!(missing, NOT_COVERED, "no exhibit for these");
    for exhibit in ALL {
        // An item that is not a caption must not be named like one.
        let item = format!("{} {}", exhibit.paper.slug(), exhibit.item);
        let is_caption = ["Figure ", "Table "]
            .iter()
            .any(|kind| exhibit.item.starts_with(kind));
        assert_eq!(listed().contains(&item), is_caption, "{item}");
    }
}

/// Looks for "Figure 3:" and "Table 1:" in the papers' texts, if they are beside the checkout.
#[test]
fn items_txt_lists_the_captions_of_the_papers() {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/papers");
    let Ok(files) = std::fs::read_dir(&papers) else {
        eprintln!("SKIPPED: {} is absent", papers.display());
        return;
    };
    let mut captions = BTreeSet::new();
    for file in files {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let numbered = ["maunu", "shang", "wang-xu", "liu", "hardt-price"];
        let number = name
            .get(..3)
            .and_then(|digits| digits.parse::<usize>().ok());
        let Some(paper) = number.and_then(|number| numbered.get(number)) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).unwrap();
        for kind in ["Figure ", "Table "] {
            for (place, _) in text.match_indices(kind) {
                let rest = &text[place + kind.len()..];
                let digits = rest.chars().take_while(char::is_ascii_digit).count();
                if digits > 0 && rest[digits..].starts_with(':') {
                    captions.insert(format!("{paper} {kind}{}", &rest[..digits]));
                }
            }
        }
    }
    assert_eq!(captions, listed());
}
