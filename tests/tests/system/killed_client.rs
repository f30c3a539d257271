//! SIGKILL of the client, several times during one upload of `eigenveil report`.

use std::{fmt::Write as _, process::Stdio, time::Duration};

use eigenveil_client::http::StudyClient;
use eigenveil_shared::codec::StudyShape;

use crate::{
    program::{ServerProcess, add_payload, assert_stored, one_json_line, program},
    proxy::Proxy,
};

const P: usize = 24;
const ROWS: usize = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_counted_once_and_always_sent_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut server = ServerProcess::start(&data);
    let id = server.create_study(&[
        "--p",
        "24",
        "--epsilon",
        "4",
        "--mechanism",
        "symmetric-gaussian",
    ]);
    let proxy = Proxy::before(&server.url).await;
    let checked = StudyClient::new(&server.url)
        .unwrap()
        .fetch_study(&id)
        .await
        .unwrap();
    proxy.record(StudyShape::new(checked.params()));

    let rows = folder.path().join("rows.csv");
    let mut text = String::new();
    for i in 0..ROWS {
        for j in 0..P {
            let comma = if j == 0 { "" } else { "," };
            write!(text, "{comma}{}", (i * 13 + j * 5) % 101).unwrap();
        }
        text.push('\n');
    }
    std::fs::write(&rows, text).unwrap();

    let (proxy_url, study_id) = (proxy.url.clone(), id.clone());
    let command = move || {
        let mut command = program();
        command
            .args([
                "report",
                "--header",
                "no",
                "--json",
                "--connections",
                "2",
                "--server",
                &proxy_url,
                "--study",
                &study_id,
                "--rows",
            ])
            .arg(&rows)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    // Killed while it reads, perturbs, syncs, sends and records; each run goes on where the disk says.
    let mut killed = 0;
    for pause in [30, 60, 90, 120, 150, 180, 210, 240] {
        let mut child = command().spawn().unwrap();
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if child.try_wait().unwrap().is_none() {
            killed += 1;
        }
        // Killing a child that has just ended is not a failure.
        let _ = child.kill();
        child.wait().unwrap();
    }
    assert!(
        killed >= 4,
        "only {killed} runs were killed before they ended"
    );
    let output = tokio::task::spawn_blocking(move || command().output().unwrap())
        .await
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let reported = one_json_line(&output.stdout);
    assert_eq!(reported["acknowledged"], ROWS as u64, "{reported}");
    assert_eq!(reported["pending"], 0);

    // One identifier a row, and never two different bodies for one identifier.
    let mut expected = vec![0.0; P * (P + 1) / 2];
    let seen = proxy.seen.lock().unwrap();
    assert_eq!(seen.len(), ROWS);
    for bodies in seen.values() {
        assert!(
            bodies.iter().all(|body| *body == bodies[0]),
            "a report was randomised again"
        );
        add_payload(&mut expected, &bodies[0]);
    }

    assert!(server.stop());
    assert_stored(&data, &id, ROWS as u64, &expected);
}
