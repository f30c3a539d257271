//! No line of prose in the pages has more than 120 characters. Code, tables, comments and addresses are not prose.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};

const LONGEST: usize = 120;

/// Every Markdown page below a folder, but for what is built or git's.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && name != ".git" {
                pages(&path, found);
            }
        } else if path.extension().is_some_and(|kind| kind == "md") {
            found.push(path);
        }
    }
}

/// A line without its comments; `inside` says whether one goes on over its ends.
fn without_comments(line: &str, inside: &mut bool) -> String {
    let (mut kept, mut rest) = (String::new(), line);
    loop {
        let mark = if *inside { "-->" } else { "<!--" };
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        if !*inside {
            kept.push_str(before);
        }
        if before.len() == rest.len() {
            return kept;
        }
        *inside = !*inside;
        rest = after;
    }
}

fn begins_an_item(line: &str) -> bool {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = number.len() < line.len() && number.starts_with([')', '.']);
    line.starts_with(['*', '-', '+']) || numbered
}

/// Numbers and lengths of the lines of prose that are too long.
fn too_long(page: &str) -> Vec<(usize, usize)> {
    let (mut fence, mut comment, mut item) = (None, false, false);
    let mut found = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let text = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| text.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            _ => {}
        }
        if fence.is_some() || mark.is_some() {
            continue;
        }
        let line = without_comments(line, &mut comment);
        let text = line.trim();
        if !text.is_empty() && !line.starts_with(' ') {
            item = begins_an_item(text);
        }
        let code = line.starts_with("    ") && !item;
        let table = text.starts_with('|');
        let address = text.contains("://") && !text.contains(' ');
        let length = line.chars().count();
        if length > LONGEST && !code && !table && !address {
            found.push((number, length));
        }
    }
    found
}

#[test]
fn no_line_of_prose_is_longer_than_120_characters() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    pages(&root, &mut found);
    assert!(found.len() >= 20, "only {} pages", found.len());
    let mut problems = Vec::new();
    for page in found {
        let text = std::fs::read_to_string(&page).unwrap();
        for (number, length) in too_long(&text) {
            problems.push(format!("{}:{number}: {length} characters", page.display()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn long_prose_is_found_and_nothing_else() {
    let long = "word ".repeat(25);
    let lines = |page: &str| -> Vec<usize> {
        too_long(page)
            .into_iter()
            .map(|(number, _)| number)
            .collect()
    };
    // Characters count, not bytes.
    assert!(lines(&"ε".repeat(120)).is_empty());
    assert_eq!(lines(&"ε".repeat(121)), [1]);
    assert_eq!(
        lines(&format!("short\n{long}\n* {long}\n    {long}\n# {long}")),
        [2, 3, 4, 5]
    );
    assert_eq!(lines(&format!("```text\n{long}\n```\n{long}")), [4]);
    assert!(lines(&format!("| {long} |")).is_empty());
    assert!(lines(&format!("text\n\n    {long}")).is_empty());
    assert!(
        lines(&format!(
            "0.23<!-- from {long} -->,\n<!-- {long}\n{long}\n-->"
        ))
        .is_empty()
    );
    assert_eq!(lines(&format!("<!-- one\n--> {long}")), [2]);
    assert!(lines(&format!("https://example.org/{}", "a".repeat(120))).is_empty());
}
