//! Messages to people: studies by name, host names, closed pipes.

use std::process::Stdio;

use crate::harness::{Folder, program, refused, refuses, run, says, succeeded, words};

/// (Who is found by what: `client/src/study_name.rs`; unknown names: `bad_input.rs`.)
#[test]
fn studies_are_found_by_name_and_identifier_prefix() {
    let folder = Folder::new();
    let server = folder.server();
    let [wine, _] = ["wine", "twice"].map(|name| {
        server.cli_json(&format!("study create --name {name} --p 3 --epsilon 1"))["id"].clone()
    });
    let id = wine.as_str().unwrap();
    // Identifiers begin with the time, so two created at the same time share most digits.
    for text in ["wine", id, &id[..31]] {
        assert_eq!(server.cli_json(&format!("study show {text}"))["id"], wine);
    }
    assert_eq!(server.cli_json("study close wine")["state"], "closed");
    // A second study of one name needs a flag.
    let create = "study create --name wine --p 3 --epsilon 4";
    refused(&server.cli(create), 2, &["wine", "--same-name"]);
    succeeded(&server.cli(&format!("{create} --same-name")));
    // Neither of two is deleted; by its identifier one is, and then the name means the other.
    let one_of_two = server.cli("study delete wine --yes");
    refused(&one_of_two, 2, &["2 studies", id]);
    let delete = format!("study delete {} --yes", &id[..31]);
    assert_eq!(server.cli_json(&delete)["deleted"], wine);
    server.cli_json("study close wine");
    let other = server.cli_json("study delete wine --yes");
    assert_ne!(other["deleted"], wine);
}

#[test]
fn listen_accepts_host_names() {
    let folder = Folder::new();
    let data = folder.at("data");
    let check = format!("serve --data {data} --check-config --listen");
    succeeded(&run(&format!("{check} localhost:0")));
    let wrong = ["localhost", ":8080", "127.0.0.1:99999"];
    refuses(&check, &wrong.map(|address| (address, "localhost:8080")));
}

/// `eigenveil completions bash | head -3`: a reader that closes the pipe is neither a failure nor a panic.
#[test]
fn closed_pipes_are_not_errors() {
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
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message, "", "{line}");
        assert!(output.status.success(), "{line}");
    }
}

#[test]
fn printed_numbers_are_labelled() {
    // Six directions stand above the noise, and two components are requested.
    let text = succeeded(&run(
        "simulate --model spiked --p 12 --k 6 --n 200000 --spike 20 --epsilon 8 --repeats 2 --seed 1",
    ));
    let mut lines = text.lines();
    let above = lines
        .find(|line| line.starts_with("above the floor"))
        .unwrap();
    says(above, &["of all 12 eigenvalues", "k = 6"]);
    let plan = "plan --p 40 --k 4 --spectrum 0.2,0.15,0.1,0.08,0.02 --epsilon 2";
    for (more, says) in [
        ("--n 100000", " of at most 2.83, range "),
        ("--target-error 0.3", "error of 0.3 of at most 2.83:"),
    ] {
        let message = succeeded(&run(&format!("{plan} {more}")));
        assert!(message.contains(says), "{message}");
    }
}
