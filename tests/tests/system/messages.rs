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

#[test]
fn a_second_study_on_one_outbox_is_told_both_studies_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(&folder.path().join("data"));
    let rows = folder.path().join("rows.csv");
    std::fs::write(&rows, "a,b,c\n1,2,3\n2,1,0\n").unwrap();
    let rows = rows.to_str().unwrap();
    let report = |study: &str, more: &[&str]| {
        let mut arguments = vec!["report", "--study", study, "--rows", rows];
        arguments.extend(["--header", "yes", "--in-order"]);
        arguments.extend(more);
        server.cli(&arguments)
    };
    let create = |name: &str| {
        let make = [
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
        let made = one_json_line(&server.cli(&make).stdout);
        made["id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (create("first"), create("second"));
    let done = report(&first, &[]);
    assert!(done.status.success(), "{done:?}");
    // A pure mechanism has no δ to show.
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(
        said.contains("epsilon 1.00000095367431") && said.contains("delta 0;"),
        "{said}"
    );
    assert!(!said.contains("0e0"), "{said}");
    let other = format!("{rows}.{second}");
    let refusal = report(&second, &[]);
    refused(&refusal, 1, &[&first, &second, "--state", &other]);
    // The way out is one.
    let done = report(&second, &["--state", &other]);
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn what_is_printed_beside_a_number_says_what_it_is() {
    // Six directions stand clear of the noise, and two components are asked for.
    let simulate = [
        "simulate", "--model", "spiked", "--p", "12", "--k", "6", "--n", "200000",
    ];
    let more = [
        "--spike",
        "20",
        "--epsilon",
        "8",
        "--repeats",
        "2",
        "--seed",
        "1",
    ];
    let output = run(&[&simulate[..], &more].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let above = text
        .lines()
        .find(|line| line.starts_with("above the floor"))
        .unwrap();
    assert!(
        above.contains("of all 12 eigenvalues") && above.contains("k = 6"),
        "{above}"
    );
    let plan = [
        "plan",
        "--p",
        "40",
        "--k",
        "4",
        "--spectrum",
        "0.2,0.15,0.1,0.08",
        "--epsilon",
        "2",
    ];
    let said = |more: &[&str]| {
        let output = run(&[&plan[..], more].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let reached = said(&["--n", "100000"]);
    assert!(reached.contains(" of at most 2.83."), "{reached}");
    let wanted = said(&["--target-error", "0.3"]);
    assert!(wanted.contains("error of 0.3 of at most 2.83:"), "{wanted}");
}
