//! What the program says to people: studies by name, numbers below zero, flags without effect, closed pipes.

use std::process::Stdio;

use crate::program::{ServerProcess, one_json_line, program, refused, run};

#[test]
fn studies_are_found_by_name_and_by_how_their_identifiers_begin() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let create = |name: &str| {
        let arguments = [
            "study",
            "create",
            "--name",
            name,
            "--p",
            "3",
            "--epsilon",
            "1",
            "--json",
        ];
        let made = one_json_line(&server.cli(&arguments).stdout);
        made["id"].as_str().unwrap().to_owned()
    };
    let (wine, twice) = (create("wine"), create("twice"));
    create("twice");
    let shown = |text: &str| {
        let output = server.cli(&["study", "show", text, "--json"]);
        one_json_line(&output.stdout)["id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(shown("wine"), wine);
    assert_eq!(shown(&wine), wine);
    // Identifiers begin with the time: two made in one moment share most digits.
    assert_eq!(shown(&wine[..31]), wine);
    refused(
        &server.cli(&["study", "show", "twice"]),
        2,
        &["2 studies", &twice],
    );
    refused(
        &server.cli(&["study", "close", "beer"]),
        2,
        &["\"beer\"", "eigenveil study list"],
    );
    let closed = server.cli(&["study", "close", "wine", "--json"]);
    assert_eq!(one_json_line(&closed.stdout)["state"], "closed");
}

#[test]
fn what_a_flag_is_given_is_read_and_used() {
    let simulate = |more: &[&str]| {
        let mut arguments = vec!["simulate", "--model", "spiked", "--p", "4", "--k", "1"];
        arguments.extend(["--n", "50", "--seed", "1"]);
        arguments.extend(more);
        run(&arguments)
    };
    refused(&simulate(&["--epsilon", "-1"]), 2, &["epsilon is -1"]);
    refused(
        &simulate(&["--epsilon", "1", "--radius", "3"]),
        2,
        &["--radius 3 is not used", "--norm clip"],
    );
    let one = simulate(&["--epsilon", "1", "--repeats", "1"]);
    let text = String::from_utf8(one.stdout).unwrap();
    let error = text.lines().find(|line| line.starts_with("error")).unwrap();
    assert!(!error.contains('±'), "one run has no deviation: {error}");
    let two = simulate(&["--epsilon", "1", "--repeats", "2"]);
    assert!(String::from_utf8(two.stdout).unwrap().contains('±'));
}

#[test]
fn an_address_to_listen_on_may_be_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let check = |address: &str| {
        run(&[
            "serve",
            "--data",
            data.to_str().unwrap(),
            "--listen",
            address,
            "--check-config",
        ])
    };
    let output = check("localhost:0");
    assert!(output.status.success(), "{output:?}");
    for wrong in ["localhost", ":8080", "127.0.0.1:99999"] {
        refused(&check(wrong), 2, &["localhost:8080"]);
    }
}

/// `eigenveil completions bash | head -3` and its like: a reader that has had enough is no failure, and no panic.
#[test]
fn a_reader_may_close_the_pipe() {
    for arguments in [
        &["completions", "bash"][..],
        &["--help"],
        &["central", "list"],
    ] {
        let mut child = program()
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "", "{arguments:?}");
        assert!(output.status.success(), "{arguments:?}");
    }
}
