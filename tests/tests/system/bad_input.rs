//! Bad input on the command line: a stable code and a message that says what to do; the store is unchanged and the
//! server stays up. (All values out of range are in the tests of `shared`, all malformed bodies in those of the server.)

use crate::harness::{Folder, has, refused, run, says, stderr, succeeded};

#[test]
fn unusable_rows_and_files_are_refused_or_sent_as_zeros() {
    let folder = Folder::new();
    let server = folder.server();
    let id = server.create_study("--p 3 --epsilon 1");
    let report = |rows: &str| server.cli(&format!("report --header no --study {id} --rows {rows}"));
    let two = folder.write("two.csv", "1,2\n");
    let words = ["[wrong-dimension]", "2 columns", "3 features"];
    refused(&report(&two), 2, &words);
    refused(&report(&folder.write("empty.csv", "")), 2, &["no rows"]);
    refused(&report("/no/such/file.npy"), 2, &["/no/such/file.npy"]);
    refused(&report(&folder.at(".")), 2, &["is a folder"]);
    let bad = folder.write("bad.npy", "not numpy");
    let output = server.cli(&format!("report --study {id} --rows {bad}"));
    refused(&output, 2, &["not a .npy file"]);
    // An unusable row is sent as the zero row, and only this command's user sees it.
    let text = "1,2,3\n4,NaN,0.7391\n,1e999,1e200\n4,secretvalue,6\n";
    let nan = folder.write("nan.csv", text);
    let sent = server.report(&id, &nan);
    has(&sent, "accepted=4");
    let message = report(&folder.write("word.csv", "1,2,3\n4,secretvalue,6\n"));
    let on_error = stderr(&message);
    says(
        &on_error,
        &["sent as zero rows: 1 that", "line 2, column 2"],
    );
    let printed = succeeded(&message) + &on_error;
    assert!(!printed.contains("secretvalue"), "a value was shown");
    // A file that changed after its reports were made is not sent as other participants.
    folder.write("nan.csv", "1,2,3\n4,5,6\n");
    refused(&report(&nan), 2, &["have changed", "--ledger"]);
    assert_eq!(server.accepted(&id), 6);
}

#[test]
fn reports_to_unavailable_studies_are_refused() {
    let folder = Folder::new();
    let server = folder.server();
    let rows = folder.write("rows.csv", "1,2\n3,4\n");
    let report = |study: &str, more: &str| {
        server.cli(&format!(
            "report --header no --study {study} --rows {rows} {more}"
        ))
    };
    let create = |more: &str| server.create_study(&format!("--p 2 --epsilon 1 {more}"));
    let unknown = "0123456789abcdef0123456789abcdef";
    refused(&report(unknown, ""), 1, &["[study-not-found]"]);
    let show = |study: &str| server.cli(&format!("study show {study}"));
    refused(&show("no-id"), 2, &["\"no-id\"", "eigenveil study list"]);
    let words = ["[study-not-found]", "eigenveil study list"];
    refused(&show(unknown), 1, &words);
    let list = run(&format!("study list --server {}", server.url));
    refused(&list, 2, &["EIGENVEIL_TOKEN"]);
    let draft = create("--draft");
    refused(&report(&draft, ""), 1, &["[study-not-found]"]);
    let closed = create("");
    server.cli_json(&format!("study close {closed}"));
    let open = create("");
    let pinned = format!("--fingerprint {}", "00".repeat(32));
    let words = ["[wrong-fingerprint]", "do not take part"];
    refused(&report(&open, &pinned), 1, &words);
    for id in [&draft, &closed, &open] {
        assert_eq!(server.accepted(id), 0);
    }
    let estimate = server.cli(&format!("estimate --study {open} --k 0"));
    refused(&estimate, 2, &["whole number"]);
}
