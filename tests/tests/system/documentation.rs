//! Runs the commands of README and docs exactly as printed.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::{Folder, PROGRAM, stderr, without_settings};

/// The lines of every `console` block of a page without prompts; a line that ends with a backslash continues in the
/// next.
fn console_lines(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = std::fs::read_to_string(path).unwrap().replace("\\\n", "");
    let blocks = text.split("```console\n").skip(1);
    let lines = blocks.flat_map(|rest| rest.split("```").next().unwrap_or_default().lines());
    lines
        .map(|line| line.strip_prefix("$ ").unwrap_or(line).to_owned())
        .collect()
}

/// A printed command, run in this folder, where `eigenveil` is the program under test.
pub(crate) fn as_typed(folder: &Folder, line: &str) -> Command {
    let bin = folder.at("bin");
    if std::fs::create_dir(&bin).is_ok() {
        std::os::unix::fs::symlink(PROGRAM, format!("{bin}/eigenveil")).unwrap();
    }
    let mut command = without_settings(Command::new("bash"));
    command
        .args(["-c", line])
        .current_dir(folder.path())
        .env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()));
    command
}

/// Files that the pages about studies produce.
const STUDY_FILES: [&str; 2] = ["scores.csv", "result/estimate.json"];

/// README's commands that `readme_numbers.rs` runs, and the one that `reproduce.rs` starts and kills.
const RUN_ELSEWHERE: [&str; 4] = [
    "eigenveil simulate ",
    "eigenveil plan ",
    "eigenveil central analyze-gauss ",
    "eigenveil reproduce wang-xu-figure-3",
];

/// Runs the printed commands of a page against a server of the test, with `eigenveil` replaced by the program under
/// test and `ID` by the created study; afterwards the files `made` must exist.
fn follow(page: &str, made: &[&str]) {
    let folder = Folder::new();
    let server = folder.server();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data");
    // docs/moment.md continues in the tutorial's folder.
    let (constants, features) = match page {
        "docs/moment.md" => ("wine_features.csv", "constants.csv"),
        "docs/sites.md" => ("digits_features.csv", "features.csv"),
        _ => ("wine_features.csv", "features.csv"),
    };
    for (file, called) in [
        ("digits.npy", "rows.npy"),
        ("wine.csv", "wine.csv"),
        ("wine_columns.csv", "columns.csv"),
        (constants, features),
    ] {
        std::fs::copy(data.join(file), folder.path().join(called)).unwrap();
    }
    let mut id = String::from("ID");
    let mut ran = 0;
    for line in console_lines(page) {
        // The server already runs, on its own port and directory.
        let line = line
            .replace("http://127.0.0.1:8080", &server.url)
            // Fewer trials, to save time.
            .replace("--trials 100000", "--trials 1000")
            .replace(" ID", &format!(" {id}"));
        let is = |beginning: &&str| line.starts_with(*beginning);
        let runs = ["eigenveil ", "awk "].iter().any(is);
        let elsewhere = page == "README.md" && RUN_ELSEWHERE.iter().any(is);
        if !runs || elsewhere || is(&"eigenveil serve") {
            continue;
        }
        let output = as_typed(&folder, &line)
            .env("EIGENVEIL_SERVER", &server.url)
            .env("EIGENVEIL_TOKEN", server.token())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{page}: {line}\n{}",
            stderr(&output)
        );
        let stdout = String::from_utf8(output.stdout).unwrap();
        if line.contains("study create") {
            let first = stdout.lines().next().unwrap();
            id = first.trim_start_matches("study").trim().to_owned();
            assert_eq!(id.len(), 32, "{stdout}");
        }
        ran += 1;
    }
    assert!(ran > 0, "{page} has no commands");
    for file in made {
        assert!(folder.path().join(file).exists(), "{page}: {file}");
    }
}

#[test]
fn readme_commands_work() {
    follow("README.md", &STUDY_FILES);
    // .ci/run executes the first screen's two commands; here we only check that they are printed.
    let lines = console_lines("README.md");
    assert!(lines.contains(&"cargo run --release -p eigenveil -- demo".to_owned()));
    assert!(lines.contains(&"cargo test --workspace".to_owned()));
}

#[test]
fn server_and_study_guide_commands_work() {
    follow("docs/run-a-study.md", &STUDY_FILES);
    let files = ["eigenveil-backup.db", "alice.token"];
    follow("docs/run-a-server.md", &files);
}

#[test]
fn tutorial_commands_work() {
    let files = ["constants.csv", "scatter.svg"];
    follow("docs/tutorial.md", &[&STUDY_FILES[..], &files].concat());
}

#[test]
fn moment_page_commands_work() {
    let files = ["moment/correlation.csv", "moment/mean.csv"];
    follow("docs/moment.md", &files);
}

#[test]
fn tables_page_commands_work() {
    follow("docs/tables.md", &STUDY_FILES);
}

#[test]
fn preparation_page_commands_work() {
    let files = ["first-round.csv", "constants.csv", "result/estimate.json"];
    follow("docs/preparation.md", &files);
}

#[test]
fn sites_page_commands_work() {
    follow("docs/sites.md", &["Coast.ledger", "patients.ledger"]);
}

#[test]
fn central_page_commands_work() {
    follow("docs/central.md", &["components.csv"]);
    follow("docs/central-robust.md", &[]);
    follow("docs/central-power-oja.md", &[]);
}

#[test]
fn audit_page_commands_work() {
    follow("docs/audit.md", &[]);
}

/// A page with commands is followed by a test above.
#[test]
fn every_page_with_commands_is_run() {
    let mut guides = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    pages(&root.join("docs"), 0, &mut guides);
    let run = include_str!("documentation.rs");
    for page in guides {
        let name = page.file_name().unwrap().to_str().unwrap();
        let lines = console_lines(&format!("docs/{name}"));
        if lines.iter().any(|line| line.starts_with("eigenveil ")) {
            assert!(
                run.contains(&format!("\"docs/{name}\"")),
                "{name} is not run"
            );
        }
    }
}

fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// All pages: at the top, in the crates' folders, and in `docs`.
fn pages(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            let deeper = if name == "docs" { usize::MAX } else { depth };
            if deeper > 0 {
                pages(&path, deeper - 1, found);
            }
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
}

#[test]
fn linked_pages_and_figures_exist() {
    let mut found = Vec::new();
    pages(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join(".."),
        2,
        &mut found,
    );
    assert!(found.len() > 20, "{found:?}");
    let mut wrong = Vec::new();
    for page in &found {
        let text = std::fs::read_to_string(page).unwrap();
        let links = text.split("](").skip(1);
        for target in links.filter_map(|rest| rest.split([')', ' ']).next()) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let is_there = || {
                heading.is_empty()
                    || std::fs::read_to_string(&linked).is_ok_and(|text| {
                        let mut lines = text.lines();
                        lines.any(|line| line.starts_with('#') && anchor(line) == heading)
                    })
            };
            let good = target.starts_with("http") || (linked.exists() && is_there());
            if !good {
                wrong.push(format!("{} links to {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
