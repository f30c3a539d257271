//! What the program says to people: studies by name, numbers below zero, flags without effect, closed pipes.

use std::process::Stdio;

use crate::program::{Folder, ServerProcess, program, refused, refuses, run, succeeded, words};

fn create(server: &ServerProcess, name: &str) -> String {
    let made = server.cli_json(&format!("study create --name {name} --p 3 --epsilon 1"));
    made["id"].as_str().unwrap().to_owned()
}

#[test]
fn studies_are_found_by_name_and_by_how_their_identifiers_begin() {
    let folder = Folder::new();
    let server = folder.server();
    let [wine, twice, _] = ["wine", "twice", "twice"].map(|name| create(&server, name));
    // Identifiers begin with the time: two made in one moment share most digits.
    for text in ["wine", &wine, &wine[..31]] {
        assert_eq!(
            server.cli_json(&format!("study show {text}"))["id"],
            wine.as_str()
        );
    }
    let ambiguous = server.cli("study show twice");
    refused(&ambiguous, 2, &["2 studies", &twice]);
    let unknown = server.cli("study close beer");
    refused(&unknown, 2, &["\"beer\"", "eigenveil study list"]);
    assert_eq!(server.cli_json("study close wine")["state"], "closed");
}

#[test]
fn what_a_flag_is_given_is_read_and_used() {
    let simulate = "simulate --model spiked --p 4 --k 1 --n 50 --seed 1";
    refuses(
        simulate,
        &[
            ("--epsilon -1", "epsilon is -1"),
            ("--epsilon 1 --radius 3", "--radius 3 is not used"),
            ("--epsilon 1 --radius 3", "--norm clip"),
        ],
    );
    let repeated = |times| succeeded(&run(&format!("{simulate} --epsilon 1 --repeats {times}")));
    let one = repeated(1);
    let error = one.lines().find(|line| line.starts_with("error")).unwrap();
    assert!(!error.contains('±'), "one run has no deviation: {error}");
    assert!(repeated(2).contains('±'));
}

#[test]
fn an_address_to_listen_on_may_be_a_name() {
    let folder = Folder::new();
    let data = folder.at("data");
    let check = format!("serve --data {data} --check-config --listen");
    succeeded(&run(&format!("{check} localhost:0")));
    let wrong = ["localhost", ":8080", "127.0.0.1:99999"];
    refuses(&check, &wrong.map(|address| (address, "localhost:8080")));
}

/// `eigenveil completions bash | head -3` and its like: a reader that has had enough is no failure, and no panic.
#[test]
fn a_reader_may_close_the_pipe() {
    for line in ["completions bash", "--help", "central list"] {
        let mut child = program()
            .args(words(line))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, "", "{line}");
        assert!(output.status.success(), "{line}");
    }
}

#[test]
fn a_second_study_on_one_outbox_is_told_both_studies_and_the_way_out() {
    let folder = Folder::new();
    let server = folder.server();
    let rows = folder.write("rows.csv", "a,b,c\n1,2,3\n2,1,0\n");
    let report = |study: &str, more: &str| {
        let flags = format!("--header yes --by-position {more}");
        server.cli(&format!("report --study {study} --rows {rows} {flags}"))
    };
    let [first, second] = ["first", "second"].map(|name| create(&server, name));
    let said = succeeded(&report(&first, ""));
    // A pure mechanism has no δ to show.
    assert!(
        said.contains("epsilon 1.00000095367431") && said.contains("delta 0;"),
        "{said}"
    );
    assert!(!said.contains("0e0"), "{said}");
    let other = format!("{rows}.{second}");
    let refusal = report(&second, "");
    refused(&refusal, 1, &[&first, &second, "--state", &other]);
    // The way out is one.
    succeeded(&report(&second, &format!("--state {other}")));
}

#[test]
fn what_is_printed_beside_a_number_says_what_it_is() {
    // Six directions stand clear of the noise, and two components are asked for.
    let text = succeeded(&run(
        "simulate --model spiked --p 12 --k 6 --n 200000 --spike 20 --epsilon 8 --repeats 2 --seed 1",
    ));
    let mut lines = text.lines();
    let above = lines
        .find(|line| line.starts_with("above the floor"))
        .unwrap();
    assert!(
        above.contains("of all 12 eigenvalues") && above.contains("k = 6"),
        "{above}"
    );
    let plan = "plan --p 40 --k 4 --spectrum 0.2,0.15,0.1,0.08 --epsilon 2";
    for (more, says) in [
        ("--n 100000", " of at most 2.83."),
        ("--target-error 0.3", "error of 0.3 of at most 2.83:"),
    ] {
        let said = succeeded(&run(&format!("{plan} {more}")));
        assert!(said.contains(says), "{said}");
    }
}
