//! Every path, and every section of a page, that the repository cites is in it.
//!
//! What counts as a citation:
//!
//! * a path in backticks, from the root of the repository, the citing file's crate, or its folder; the name of a
//!   source file or page alone, which some file must have; `*` stands for any part of a name;
//! * a path without backticks that begins with a folder of the root and ends like a file;
//! * a relative link of a page, with the section after its `#`;
//! * a section in quotation marks behind a page: `docs/x.md`, "Section"; [text](x.md), "Section" and "Another"; or
//!   before it: "Section" in x.md. It must be a heading of that page, word for word.
//!
//! The changelog is left out: it speaks of what was.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// Endings of files that are read for citations.
const READ: [&str; 8] = ["rs", "md", "toml", "sh", "py", "yml", "service", "conf"];
/// Endings of what is ours under any name.
const SOURCES: [&str; 3] = ["rs", "md", "py"];
/// Endings of paths that are recognised without backticks.
const FILES: [&str; 14] = [
    "rs", "md", "py", "toml", "sh", "yml", "csv", "json", "svg", "png", "npy", "hex", "conf",
    "service",
];
/// Folders that are not ours, or made.
const LEFT_OUT: [&str; 4] = [".git", "target", "vendor", "__pycache__"];
/// Words of pages that are not in the repository.
const FORBIDDEN: [&str; 4] = [
    concat!("refe", "ree"),
    concat!("des", "ign/"),
    concat!("measure", "ments.md"),
    concat!("shared/", "vectors/"),
];

/// The files of a repository by path, with the text of those that are read.
struct Repository(BTreeMap<String, Option<String>>);

impl Repository {
    fn on_disk(root: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut folders = vec![String::new()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(root.join(&folder)).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().to_string_lossy().into_owned();
                let path = format!("{folder}{name}");
                if LEFT_OUT.contains(&name.as_str()) || name.starts_with("target-") {
                    continue;
                }
                if entry.file_type().unwrap().is_dir() {
                    folders.push(format!("{path}/"));
                } else {
                    let text = is_read(&path).then(|| std::fs::read_to_string(entry.path()));
                    files.insert(path, text.and_then(Result::ok));
                }
            }
        }
        Self(files)
    }

    /// Whether there is a file or a folder of this path, in which `*` stands for any part of a name.
    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if let Some((before, after)) = path.split_once('*') {
            return self.0.keys().any(|file| {
                let rest = file.strip_prefix(before);
                rest.is_some_and(|rest| rest.len() >= after.len() && rest.ends_with(after))
            });
        }
        let inside = format!("{path}/");
        self.0.contains_key(path) || self.0.keys().any(|file| file.starts_with(&inside))
    }

    /// The folders of the root.
    fn roots(&self) -> BTreeSet<&str> {
        self.0
            .keys()
            .filter_map(|file| Some(file.split_once('/')?.0))
            .collect()
    }

    /// The file that `path`, cited in `from`, means.
    fn resolve(&self, from: &str, path: &str) -> Option<String> {
        let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
        let home = from.split_once('/').map_or("", |(home, _)| home);
        [
            String::new(),
            folder.to_owned(),
            home.to_owned(),
            format!("{home}/src"),
        ]
        .iter()
        .map(|base| join(base, path))
        .find(|path| self.has(path))
        .or_else(|| {
            // A name alone: of any file.
            let named = |file: &&String| file.rsplit('/').next() == Some(path);
            self.0.keys().find(named).cloned()
        })
    }

    /// What is cited and not there, with file and line.
    fn faults(&self) -> Vec<String> {
        let roots = self.roots();
        let mut faults = Vec::new();
        for (file, text) in &self.0 {
            let Some(text) = text.as_ref().filter(|_| file != "CHANGELOG.md") else {
                continue;
            };
            let page = Page::new(text);
            let mut fault = |at: usize, why: String| {
                faults.push(format!("{file}:{}: {why}", page.line(at)));
            };
            let lower = page.text.to_ascii_lowercase();
            for word in FORBIDDEN {
                for (at, _) in lower.match_indices(word) {
                    let before = lower[..at].chars().next_back();
                    if !before.is_some_and(|c| c.is_alphanumeric() || c == '-') {
                        fault(at, format!("{word:?} is cited"));
                    }
                }
            }
            for citation in page.citations(&roots, file.ends_with(".md")) {
                let Citation { at, path, link, .. } = &citation;
                let target = if *link {
                    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
                    let target = join(folder, path);
                    let own = path.is_empty();
                    (own || self.has(&target)).then_some(if own { file.clone() } else { target })
                } else {
                    self.resolve(file, path)
                };
                let Some(target) = target else {
                    fault(*at, format!("there is no {path}"));
                    continue;
                };
                let headings = self.headings(&target);
                for section in &citation.sections {
                    if !headings.iter().any(|heading| heading == section) {
                        fault(*at, format!("{target} has no section {section:?}"));
                    }
                }
                if let Some(anchor) = &citation.anchor
                    && !headings.iter().any(|heading| slug(heading) == *anchor)
                {
                    fault(*at, format!("{target} has no section #{anchor}"));
                }
            }
        }
        faults
    }

    fn headings(&self, path: &str) -> Vec<String> {
        let text = self.0.get(path).and_then(Option::as_deref);
        let mut fenced = false;
        let mut headings = Vec::new();
        for line in text.unwrap_or_default().lines() {
            fenced ^= line.starts_with("```");
            if line.starts_with('#') && !fenced {
                headings.push(line.trim_start_matches('#').trim().replace('`', ""));
            }
        }
        headings
    }
}

fn is_read(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    // This file tells what is forbidden, and its own test cites what is not there.
    let own = path == "tests/tests/citations.rs";
    match name.rsplit_once('.') {
        _ if own => false,
        Some((_, ending)) if !name.starts_with('.') => READ.contains(&ending),
        _ => path.starts_with(".ci/") || path.starts_with("packaging/") || name == "run",
    }
}

/// `path` from `folder`, with `..` taken out.
fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            // Out of the repository: kept, and found nowhere.
            ".." if parts.last().is_none_or(|last| *last == "..") => parts.push(".."),
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor of a heading.
fn slug(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let kept: String = heading.to_lowercase().chars().filter(kept).collect();
    kept.replace(' ', "-")
}

/// A file's text as one line, without the signs that begin its comments.
struct Page {
    text: String,
    /// Where each line begins.
    lines: Vec<usize>,
}

/// What a file says of another.
struct Citation {
    at: usize,
    path: String,
    sections: Vec<String>,
    anchor: Option<String>,
    /// Relative to the file alone.
    link: bool,
}

impl Page {
    fn new(text: &str) -> Self {
        let (mut joined, mut lines) = (String::new(), Vec::new());
        for line in text.lines() {
            lines.push(joined.len());
            let line = line.trim();
            let line = ["///", "//!", "//", "# "]
                .iter()
                .find_map(|sign| line.strip_prefix(sign))
                .unwrap_or(line);
            joined.push_str(line.trim());
            joined.push(' ');
        }
        Self {
            text: joined,
            lines,
        }
    }

    fn line(&self, at: usize) -> usize {
        self.lines.partition_point(|begin| *begin <= at)
    }

    fn citations(&self, roots: &BTreeSet<&str>, page: bool) -> Vec<Citation> {
        let text = &self.text;
        let mut found = Vec::new();
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_./-*".contains(c);
        let mut from = 0;
        while let Some(start) = text[from..].find(is_path).map(|start| from + start) {
            let length = text[start..].find(|c| !is_path(c));
            let end = length.map_or(text.len(), |length| start + length);
            from = end;
            let before = text[..start].chars().next_back();
            let after = text[end..].chars().next();
            let (link, quoted) = (
                page && text[..start].ends_with("](") && matches!(after, Some(')' | '#')),
                before == Some('`') && after == Some('`'),
            );
            let path = text[start..end].trim_end_matches('.');
            let first = path.split('/').next().unwrap_or_default();
            let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
            let whole = matches!(before, None | Some(' ' | '(' | '`' | '[' | '"' | '\''));
            let cited = if link {
                true
            } else if quoted && path.contains('/') {
                // A folder too; what programs write, and addresses, begin otherwise.
                roots.contains(first) && (FILES.contains(&ending) || path.len() > first.len() + 1)
                    || SOURCES.contains(&ending) && !path.starts_with('/')
            } else if path.contains('/') {
                whole && roots.contains(first) && FILES.contains(&ending)
            } else {
                whole && (quoted && SOURCES.contains(&ending) || ending == "md") && path.len() > 3
            };
            if !cited || path.contains("//") {
                continue;
            }
            let rest = &text[end..];
            let (anchor, rest) = match rest.strip_prefix('#').filter(|_| ending == "md") {
                Some(rest) => {
                    let length = rest.find(|c: char| !c.is_alphanumeric() && !"-_".contains(c));
                    let (anchor, rest) = rest.split_at(length.unwrap_or(rest.len()));
                    (Some(anchor.to_owned()), rest)
                }
                None => (None, rest),
            };
            let mut sections = Vec::new();
            if ending == "md" {
                sections.extend(sections_behind(rest));
                sections.extend(sections_before(&text[..start]));
            }
            found.push(Citation {
                at: start,
                path: path.to_owned(),
                sections,
                anchor,
                link,
            });
        }
        if page {
            // Of the page itself.
            for (at, _) in text.match_indices("](#") {
                let rest = &text[at + 3..];
                found.push(Citation {
                    at,
                    path: String::new(),
                    sections: Vec::new(),
                    anchor: rest.split(')').next().map(str::to_owned),
                    link: true,
                });
            }
        }
        found
    }
}

/// `, "One" and "Another"`.
fn sections_behind(mut rest: &str) -> Vec<String> {
    let mut sections = Vec::new();
    // An address has its page in quotation marks: nothing is cited behind it.
    rest = rest.trim_start_matches(['`', ')']);
    let mut signs: &[&str] = &[", \"", " \""];
    while let Some((section, left)) = signs
        .iter()
        .find_map(|sign| rest.strip_prefix(*sign))
        .and_then(|rest| rest.split_once('"'))
    {
        sections.push(section.replace('`', ""));
        signs = &[", \"", " and \"", ", and \""];
        rest = left;
    }
    sections
}

/// `"One", "Another" in `.
fn sections_before(before: &str) -> Vec<String> {
    let before = before.trim_end_matches(['`', '(', ']']);
    // A link has its words between.
    let before = before.rsplit_once('[').map_or(before, |(outside, words)| {
        if words.len() < 40 && !words.contains('"') {
            outside
        } else {
            before
        }
    });
    let mut sections = Vec::new();
    let mut left = before.strip_suffix(" in ").unwrap_or_default();
    while let Some((outside, section)) = left
        .strip_suffix('"')
        .and_then(|inside| inside.rsplit_once('"'))
    {
        sections.push(section.replace('`', ""));
        left = [", ", " and "]
            .iter()
            .find_map(|sign| outside.strip_suffix(sign))
            .unwrap_or_default();
    }
    sections
}

#[test]
fn every_path_and_section_cited_is_there() {
    let repository = Repository::on_disk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let roots = repository.roots();
    let (mut paths, mut sections) = (0, 0);
    for (file, text) in &repository.0 {
        if let Some(text) = text {
            for citation in Page::new(text).citations(&roots, file.ends_with(".md")) {
                paths += 1;
                sections += citation.sections.len() + usize::from(citation.anchor.is_some());
            }
        }
    }
    println!("{paths} citations, {sections} of them with a section");
    assert!(
        paths > 300 && sections > 20,
        "the test reads less than there is"
    );
    let faults = repository.faults();
    assert!(
        faults.is_empty(),
        "{} citations lead nowhere:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn what_is_planted_is_found() {
    let page = "# A page\n\n## The `one` section\n\n```text\n# no heading\n```\n";
    let lines: [(&str, &str, &[&str]); 14] = [
        ("src/a.rs", "// `docs/page.md`, \"The one section\".", &[]),
        (
            "src/b.rs",
            "/// `docs/page.md`,\n/// \"The one\n/// section\" and \"A page\"",
            &[],
        ),
        (
            "src/c.rs",
            "//! (`docs/page.md`,\n//! \"Another\")",
            &["src/c.rs:1: docs/page.md has no section \"Another\""],
        ),
        (
            "src/d.rs",
            "// See docs/pages.md.",
            &["src/d.rs:1: there is no docs/pages.md"],
        ),
        (
            "src/e.rs",
            "\n// `src/gone.rs`, `gone.rs`, `sub/gone.rs`, `out/made.csv`, `src/a.rs`, `a.rs`",
            &[
                "src/e.rs:2: there is no src/gone.rs",
                "src/e.rs:2: there is no gone.rs",
                "src/e.rs:2: there is no sub/gone.rs",
            ],
        ),
        (
            "src/f.rs",
            "// `docs/*.svg` `docs/p*.md` `src/nowhere`",
            &[
                "src/f.rs:1: there is no docs/*.svg",
                "src/f.rs:1: there is no src/nowhere",
            ],
        ),
        (
            "docs/a.md",
            "[x](page.md), \"The one section\" and [y](../src/a.rs) and [z](page.md#a-page) and [o](#own)\n# Own",
            &[],
        ),
        (
            "docs/b.md",
            "[x](docs/page.md) [y](page.md#nothing) [z](#nothing)",
            &[
                "docs/b.md:1: there is no docs/page.md",
                "docs/b.md:1: docs/page.md has no section #nothing",
                "docs/b.md:1: docs/b.md has no section #nothing",
            ],
        ),
        (
            "docs/c.md",
            "(\"A page\", \"no heading\" in page.md) and \"Else\" in [page](page.md).",
            &[
                "docs/c.md:1: docs/page.md has no section \"no heading\"",
                "docs/c.md:1: docs/page.md has no section \"Else\"",
            ],
        ),
        (
            "packaging/unit",
            "# (docs/page.md, \"Log\"); docs/page.md \"A page\" too",
            &["packaging/unit:1: docs/page.md has no section \"Log\""],
        ),
        (
            "src/g.rs",
            concat!("// what the Refe", "ree says in des", "ign/x"),
            &[
                concat!("src/g.rs:1: \"refe", "ree\" is cited"),
                concat!("src/g.rs:1: \"des", "ign/\" is cited"),
            ],
        ),
        (
            "src/h.rs",
            "// https://example.org/docs/no.md, `/docs/no.json`, `docs/page.md`",
            &[],
        ),
        ("CHANGELOG.md", "`docs/no.md`", &[]),
        ("docs/page.md", page, &[]),
    ];
    let files = lines.map(|(path, text, _)| {
        assert!(is_read(path));
        (path.to_owned(), Some(text.to_owned()))
    });
    let mut found = Repository(BTreeMap::from(files)).faults();
    found.sort();
    let mut wanted: Vec<&str> = lines
        .iter()
        .flat_map(|(_, _, faults)| *faults)
        .copied()
        .collect();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
}
