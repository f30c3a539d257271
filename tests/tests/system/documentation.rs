//! The commands that README and docs print are run as they are printed.

use std::{path::Path, process::Command};

use crate::program::ServerProcess;

/// The lines of every `console` block of a page, prompts removed; one that ends with a backslash goes on in the next.
fn console_lines(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if inside => match lines
                .last_mut()
                .filter(|last: &&mut String| last.ends_with('\\'))
            {
                Some(last) => {
                    last.pop();
                    last.push_str(line.trim_start());
                }
                None => lines.push(line.strip_prefix("$ ").unwrap_or(line).to_owned()),
            },
            _ => {}
        }
    }
    lines
}

/// What the pages about studies end with.
const STUDY_FILES: [&str; 2] = ["scores.csv", "result/estimate.json"];

/// Runs the printed commands of a page against a server of our own, with `eigenveil` meaning the
/// program under test and `ID` the study that was created; they leave the files `made`.
fn follow(page: &str, made: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(
        env!("CARGO_BIN_EXE_eigenveil-under-test"),
        bin.join("eigenveil"),
    )
    .unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data");
    for (file, called) in [
        ("digits.npy", "rows.npy"),
        ("wine.csv", "wine.csv"),
        ("wine_features.csv", "features.csv"),
    ] {
        std::fs::copy(data.join(file), folder.path().join(called)).unwrap();
    }
    let mut id = String::from("ID");
    let mut ran = 0;
    for line in console_lines(page) {
        // The server is already there, on a port and a directory of its own.
        let line = line
            .replace("http://127.0.0.1:8080", &server.url)
            .replace(" ID", &format!(" {id}"));
        let runs = line.starts_with("eigenveil ") || line.starts_with("awk ");
        if !runs || line.starts_with("eigenveil serve") {
            continue;
        }
        let output = Command::new("bash")
            .arg("-c")
            .arg(&line)
            .current_dir(folder.path())
            .env(
                "PATH",
                format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()),
            )
            .env("EIGENVEIL_SERVER", &server.url)
            .env(
                "EIGENVEIL_TOKEN",
                std::fs::read_to_string(server.token_file()).unwrap().trim(),
            )
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{page}: {line}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        if line.contains("study create") {
            id = stdout
                .lines()
                .next()
                .unwrap()
                .trim_start_matches("study")
                .trim()
                .to_owned();
            assert_eq!(id.len(), 32, "{stdout}");
        }
        ran += 1;
    }
    assert!(ran >= 3, "{page} has only {ran} commands");
    for file in made {
        assert!(folder.path().join(file).exists(), "{page}: {file}");
    }
}

#[test]
fn the_readmes_commands_work() {
    follow("README.md", &STUDY_FILES);
    // The two commands of the first screen are run by .ci/run; here only that they are there.
    let lines = console_lines("README.md");
    assert!(lines.contains(&"cargo run --release -p eigenveil -- demo".to_owned()));
    assert!(lines.contains(&"cargo test --workspace".to_owned()));
}

#[test]
fn the_operations_guides_commands_work() {
    follow("docs/operations.md", &STUDY_FILES);
}

#[test]
fn the_tutorial_can_be_followed() {
    let made = ["constants.csv", "scatter.svg"];
    follow("docs/tutorial.md", &[&STUDY_FILES[..], &made].concat());
}

#[test]
fn the_commands_of_the_page_on_tables_work() {
    follow("docs/tables.md", &STUDY_FILES);
}

#[test]
fn the_central_pages_commands_work() {
    follow("docs/central.md", &["components.csv"]);
    follow("docs/central-robust.md", &[]);
    follow("docs/central-power-oja.md", &[]);
}

/// What a link to this heading is called.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || *c == '-' || *c == ' ')
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn pictures_and_pages_that_are_linked_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for page in [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/protocol.md",
        "docs/limitations.md",
        "docs/tables.md",
        "docs/central.md",
        "docs/central-robust.md",
    ] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if target.starts_with("http") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let linked = match file {
                "" => root.join(page),
                file => root.join(page).parent().unwrap().join(file),
            };
            assert!(linked.exists(), "{page} links to {target}");
            if !heading.is_empty() {
                let text = std::fs::read_to_string(linked).unwrap();
                let found = text
                    .lines()
                    .any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(found, "{page} links to {target}");
            }
        }
    }
}
