//! Tokens on the command line: made, read from a file, spent once each; analysts' tokens, and the operator's new one.

use crate::harness::{Folder, ServerProcess, mode_of, refused, run_json, says, stderr, succeeded};

/// Makes tokens of a study in `tokens.txt`.
fn make_tokens(folder: &Folder, server: &ServerProcess, id: &str, count: usize) {
    let file = folder.at("tokens.txt");
    let made = server.cli_json(&format!("study tokens {id} --count {count} --out {file}"));
    assert_eq!(made["count"], count);
    assert_eq!(mode_of(&file), 0o600);
    assert_eq!(folder.read("tokens.txt").lines().count(), count);
}

#[track_caller]
fn counted(server: &ServerProcess, id: &str, issued: u64, spent: u64) {
    let counts = server.cli_json(&format!("study tokens {id}"));
    assert_eq!(
        counts,
        serde_json::json!({ "issued": issued, "spent": spent })
    );
}

#[test]
fn rows_are_reported_with_tokens_from_a_file() {
    let folder = Folder::new();
    let server = folder.server();
    let flags = "--p 2 --epsilon 4 --enrolment token";
    let id = server.create_study(flags);
    let rows = folder.write("rows.csv", "1,2\n3,4\n5,6\n");
    let report = |more: &str| {
        server.cli(&format!(
            "report --header no --study {id} --rows {rows} {more}"
        ))
    };
    let with = |tokens: &str| report(&format!("--tokens {tokens}"));
    // Without tokens, and with too few, nothing is perturbed or charged.
    for check in ["", "--check"] {
        refused(&report(check), 2, &["none for 3 of", "--tokens FILE"]);
    }
    let few = folder.write("few.txt", "ab".repeat(32));
    refused(&with(&few), 2, &["1 token for 3 rows"]);
    let bad = with(&folder.write("bad.txt", "not-a-token\n"));
    refused(&bad, 2, &["token 1", "64 hexadecimal digits"]);
    assert!(!stderr(&bad).contains("not-a-token"));
    // One token for two rows: one of the two reports would be charged and never counted.
    let (one, other) = ("ab".repeat(32), "cd".repeat(32));
    let twice = format!("{one}\n{other}\n\n{}\n", one.to_uppercase());
    let twice = folder.write("twice.txt", twice);
    for check in ["", "--check"] {
        let output = report(&format!("--tokens {twice} {check}"));
        refused(&output, 2, &["lines 1 and 4", "the same token"]);
        assert!(!stderr(&output).to_lowercase().contains(&one));
    }
    assert!(!std::fs::exists(format!("{rows}.ledger")).unwrap());
    // Tokens of another study are refused; then the right ones work.
    let other = server.create_study(flags);
    let tokens = folder.at("tokens.txt");
    make_tokens(&folder, &server, &other, 4);
    let unknown = with(&tokens);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(
        stderr(&unknown).contains("participant-token-unknown"),
        "{unknown:?}"
    );
    let checked = report("--check");
    assert_eq!(checked.status.code(), Some(1), "{checked:?}");
    says(
        &stderr(&checked),
        &["the server refused 3 reports", "--resend-refused"],
    );
    std::fs::remove_file(&tokens).unwrap();
    make_tokens(&folder, &server, &id, 4);
    succeeded(&with(&tokens));
    succeeded(&report("--check"));
    // Again, without --tokens.
    succeeded(&report(""));
    counted(&server, &id, 4, 3);
}

#[test]
fn analyst_tokens_and_rotation_work() {
    let folder = Folder::new();
    let mut server = folder.server();
    let id = server.create_study("--p 2 --epsilon 4");
    server.report(&id, &folder.write("rows.csv", "1,2\n3,4\n5,6\n"));
    let started = server.cli_json(&format!("estimate --study {id} --k 1"));
    assert_eq!(started["job"], 1);
    let alice = folder.at("alice");
    let made = server.cli_json(&format!(
        "token create --name alice --study {id} --out {alice}"
    ));
    assert_eq!(mode_of(&alice), 0o600);
    let listed = server.cli_json("token list");
    assert_eq!(listed["tokens"][0]["name"], "alice");
    assert_eq!(listed["tokens"][0]["study"], id.as_str());
    let hers = format!("estimate --study {id} --token-file {alice}");
    let fetch = format!(
        "{hers} --job 1 --wait --out {} --overwrite",
        folder.at("hers")
    );
    succeeded(&server.cli(&fetch));
    refused(&server.cli(&format!("{hers} --k 1")), 1, &["[forbidden]"]);
    let token = made["id"].as_str().unwrap();
    server.cli_json(&format!("token revoke {token}"));
    refused(&server.cli(&fetch), 1, &["[forbidden]"]);

    let old = folder.write("old", server.token());
    server.cli_json(&format!("token rotate --out {}", folder.at("operator")));
    let new = std::fs::read_to_string(server.token_file()).unwrap();
    assert_ne!(folder.read("old"), new.trim());
    assert_eq!(folder.read("operator"), new);
    assert_eq!(mode_of(server.token_file()), 0o600);
    let revoked = server.cli(&format!("token list --token-file {old}"));
    refused(&revoked, 1, &["[forbidden]"]);
    let offline = format!("token rotate --data {}", folder.at("data"));
    refused(&server.cli(&offline), 1, &["another server"]);
    assert!(server.stop());
    let rotated = run_json(&offline);
    assert_eq!(rotated["token_file"], server.token_file().to_str().unwrap());
    succeeded(&folder.server().cli("token list"));
}
