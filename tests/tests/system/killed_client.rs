//! SIGKILL of the client, several times during one upload of `eigenveil report`.

use std::{fmt::Write as _, process::Stdio};

use eigenveil_shared::codec::ReportFormat;

use crate::{
    harness::{Folder, add_payload, assert_stored, json_of, program, words},
    proxy::Proxy,
    waiting::until,
};

const P: usize = 24;
const ROWS: usize = 4_000;

#[tokio::test(flavor = "multi_thread")]
async fn after_sigkill_every_row_is_counted_once_with_the_same_bytes() {
    let folder = Folder::new();
    let mut server = folder.server();
    let id = server.create_study("--p 24 --epsilon 4 --mechanism symmetric-gaussian");
    let checked = server.client().fetch_study(&id).await.unwrap();
    let shape = ReportFormat::new(checked.params());
    let proxy = Proxy::gated(&server.url, Some(shape)).await;

    let mut text = String::new();
    for i in 0..ROWS {
        for j in 0..P {
            let comma = if j == 0 { "" } else { "," };
            write!(text, "{comma}{}", (i * 13 + j * 5) % 101).unwrap();
        }
        text.push('\n');
    }
    let rows = folder.write("rows.csv", text);
    let report = || {
        let mut command = program();
        command
            .args(words(&format!(
                "report --header no --json --connections 2 --server {} --study {id} --rows {rows}",
                proxy.url
            )))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    // Each run resumes from the ledger. None can finish before it is killed: the proxy lets a number of requests
    // through and then holds one, before or after the server has received it. The first run is killed as soon as a
    // report is on disk.
    let ledger = folder.path().join("rows.csv.ledger");
    for passed in [0, 0, 1, 2, 4, 7, 11] {
        let first = !ledger.exists();
        proxy.let_through(passed);
        let mut child = report().spawn().unwrap();
        until("a run to be killed", async || {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            match first {
                true => std::fs::metadata(&ledger).is_ok_and(|file| file.len() > 200_000),
                false => proxy.is_holding(),
            }
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        until("the connections to be gone", async || !proxy.is_holding()).await;
    }
    proxy.let_through(1_000_000);
    let output = tokio::task::block_in_place(|| report().output().unwrap());
    let reported = json_of(&output);
    assert_eq!(reported["acknowledged"], ROWS as u64, "{reported}");
    assert_eq!(reported["pending"], 0);

    // One identifier for each row, and never two different bodies for one identifier.
    let mut expected = vec![0.0; P * (P + 1) / 2];
    let seen = proxy.state.seen.lock().unwrap();
    assert_eq!(seen.len(), ROWS);
    assert!(seen.values().any(|bodies| bodies.len() > 1), "none twice");
    for bodies in seen.values() {
        assert!(
            bodies.iter().all(|body| *body == bodies[0]),
            "a report was randomised again"
        );
        add_payload(&mut expected, &bodies[0]);
    }

    assert!(server.stop());
    assert_stored(&server.data, &id, ROWS as u64, &expected);
}
