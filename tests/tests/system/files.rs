//! Studies and stores as files, by the command line: export, import, delete, backup, restore.

use std::fs;

use crate::program::{ServerProcess, refused};

#[test]
fn a_study_is_exported_imported_merged_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let rows: String = (0..40)
        .map(|i| format!("{},{},1\n", i % 7, i % 3))
        .collect();
    fs::write(at("rows.csv"), rows).unwrap();
    let (one, two) = (
        ServerProcess::start(&folder.path().join("one")),
        ServerProcess::start(&folder.path().join("two")),
    );
    let flags = ["--p", "3", "--epsilon", "4", "--k", "1"];
    let id = one.create_study(&flags);
    one.cli_json(&[
        "report",
        "--header",
        "no",
        "--json",
        "--study",
        &id,
        "--rows",
        &at("rows.csv"),
    ]);

    let exported = one.cli_json(&["study", "export", &id, "--out", &at("a.evstudy"), "--json"]);
    assert_eq!(
        exported["bytes"],
        fs::metadata(at("a.evstudy")).unwrap().len()
    );
    // What is there already is not written over.
    let again = one.cli(&["study", "export", &id, "--out", &at("a.evstudy")]);
    refused(&again, 2, &["exists", "a.evstudy"]);

    let created = two.cli_json(&["study", "import", &at("a.evstudy"), "--json"]);
    assert_eq!(
        (created["outcome"].as_str(), created["reports"].as_u64()),
        (Some("created"), Some(40))
    );
    assert_eq!(created["study"]["id"], id.as_str());
    let repeated = two.cli_json(&["study", "import", &at("a.evstudy"), "--json"]);
    assert_eq!(
        (repeated["outcome"].as_str(), repeated["reports"].as_u64()),
        (Some("already-imported"), Some(0))
    );

    // Two studies of the same parameters become one; a study of others is refused.
    let second = two.create_study(&flags);
    let merged = two.cli_json(&[
        "study",
        "import",
        &at("a.evstudy"),
        "--into",
        &second,
        "--json",
    ]);
    assert_eq!(merged["outcome"], "merged");
    assert_eq!(merged["study"]["reports_accepted"], 40);
    let other = two.create_study(&["--p", "3", "--epsilon", "1"]);
    let refusal = two.cli(&["study", "import", &at("a.evstudy"), "--into", &other]);
    refused(&refusal, 1, &["only studies of the same parameters"]);
    let own = two.cli(&["study", "import", &at("rows.csv")]);
    refused(&own, 1, &["not a complete export of a study"]);
    // The estimate of the imported study says what one report can do.
    let estimate = two.cli_json(&[
        "estimate",
        "--study",
        &id,
        "--wait",
        "--out",
        &at("result"),
        "--json",
    ]);
    assert!(estimate["influence"].as_f64().unwrap() > 0.0, "{estimate}");
    let shown = two.cli(&["estimate", "--study", &id, "--wait", "--out", &at("result")]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("influence: replacing one report"), "{shown}");

    // Deleting wants to be meant, and a closed study.
    refused(&two.cli(&["study", "delete", &id]), 2, &["--yes"]);
    refused(
        &two.cli(&["study", "delete", &id, "--yes"]),
        1,
        &["close it"],
    );
    two.cli_json(&["study", "close", &id, "--json"]);
    assert_eq!(
        two.cli_json(&["study", "delete", &id, "--yes", "--json"])["deleted"],
        id.as_str()
    );
    refused(&two.cli(&["study", "show", &id]), 1, &["there is no study"]);
    let left = two.cli_json(&["study", "list", "--json"]);
    assert_eq!(left["studies"].as_array().unwrap().len(), 2);
}

#[test]
fn a_backup_of_a_running_server_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut server = ServerProcess::start(&folder.path().join("data"));
    let id = server.create_study(&["--p", "3", "--epsilon", "4"]);
    fs::write(at("rows.csv"), "1,2,3\n4,5,6\n7,8,10\n").unwrap();
    server.cli_json(&[
        "report",
        "--header",
        "no",
        "--json",
        "--study",
        &id,
        "--rows",
        &at("rows.csv"),
    ]);
    let written = server.cli_json(&["backup", "--out", &at("backup.db"), "--json"]);
    assert_eq!(
        written["bytes"],
        fs::metadata(at("backup.db")).unwrap().len()
    );
    refused(
        &server.cli(&["backup", "--out", &at("backup.db")]),
        2,
        &["exists"],
    );
    let token = fs::read_to_string(server.token_file()).unwrap();
    server.kill();

    let restored = folder.path().join("restored");
    fs::create_dir(&restored).unwrap();
    fs::copy(at("backup.db"), restored.join("eigenveil.db")).unwrap();
    let server = ServerProcess::start(&restored);
    // The token is the same; its file is the operator's to keep.
    fs::write(server.token_file(), token).unwrap();
    let shown = server.cli_json(&["study", "show", &id, "--json"]);
    assert_eq!(shown["reports_accepted"], 3);
    server.cli_json(&["study", "close", &id, "--json"]);
}
