//! Who gets in: guesses behind the operator's own address, connections that take every descriptor, a disk that is full.

use std::{io::Write as _, path::PathBuf, time::Duration};

use eigenveil_shared::{
    api::{REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE, StudyDocument},
    codec::{self, StudyShape},
    report::{Report, ReportId},
};
use tokio::task::JoinSet;

use crate::{Target, program::ServerProcess, wire::Wire, withstand};

/// The address of honest devices, of the operator and of the attacker: one proxy before them all.
const HOME: [u8; 4] = [127, 0, 0, 1];

/// Wrong tokens by the thousand, spelt in every way, from the operator's address: the operator is let in every time.
#[test]
#[ignore = "half a minute of two processors"]
fn guesses_from_the_operators_address() {
    withstand("wrong tokens", "", |target: Target, begun| async move {
        let mut guessers = JoinSet::new();
        for guesser in 0..8 {
            let server = target.address;
            guessers.spawn(async move {
                let mut wire = Wire::connect(server, HOME).await.unwrap();
                for guess in 0_u64.. {
                    let scheme = ["Bearer", "bearer", "BEARER "][guess as usize % 3];
                    let head = format!("authorization: {scheme} {guesser}-{guess}\r\n");
                    let answer = wire.send("GET", "/v1/tokens", &head, b"").await.unwrap();
                    assert!([403, 429].contains(&answer.status), "{answer:?}");
                }
            });
        }
        let mut operator = Wire::connect(target.address, HOME).await.unwrap();
        let head = format!("authorization: Bearer {}\r\n", target.token);
        let mut begun = Some(begun);
        for asked in 0_u64.. {
            let answer = operator.send("GET", "/v1/tokens", &head, b"").await;
            assert_eq!(answer.unwrap().status, 200);
            if asked == 100 {
                begun.take().unwrap().send(()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// More connections than there are descriptors: the store still opens what it needs, and an estimate is made.
#[test]
#[ignore = "half a minute of two processors"]
fn connections_take_every_descriptor() {
    withstand("300 connections", "", |target: Target, begun| async move {
        let mut operator = Wire::connect(target.address, HOME).await.unwrap();
        let path = format!("/v1/studies/{}", target.seeds.id);
        let report = codec::encode_report(&Report {
            id: ReportId::from_parts(1_700_000_000_000, [7; 16]),
            fingerprint: StudyShape::of(&target.seeds.params).fingerprint,
            payload: vec![5; 16],
        });
        let head = format!("content-type: {REPORT_MEDIA_TYPE}\r\n");
        let sent = operator
            .send("POST", &format!("{path}/reports"), &head, &report)
            .await;
        assert_eq!(sent.unwrap().status, 201);
        let mut held = Vec::new();
        for number in 0..300_u16 {
            let from = [127, 0, 2, u8::try_from(number % 250).unwrap() + 1];
            held.push(Wire::connect(target.address, from).await.unwrap());
        }
        begun.send(()).unwrap();
        let token = format!("authorization: Bearer {}\r\n", target.token);
        let head = format!("{token}content-type: application/json\r\n");
        let asked = operator
            .send("POST", &format!("{path}/estimates"), &head, b"{}")
            .await;
        assert_eq!(asked.unwrap().status, 202);
        loop {
            let answer = operator
                .send("GET", &format!("{path}/estimates/1"), &token, b"")
                .await
                .unwrap();
            let document: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            match document["state"].as_str().unwrap() {
                "running" => tokio::time::sleep(Duration::from_millis(100)).await,
                state => {
                    assert_eq!(state, "done", "{document}");
                    break;
                }
            }
        }
        // Until the end.
        std::future::pending::<()>().await;
        drop(held);
    });
}

/// A file system of 40 MiB of the server's own is filled to the last byte: closing and deleting a study goes through,
/// by what was kept back, and the other study takes reports again.
#[test]
#[ignore = "needs user namespaces (unshare -rm)"]
fn a_full_file_system_is_emptied_by_deleting() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, log) = (folder.path().join("disk"), folder.path().join("log"));
    std::fs::create_dir(&disk).unwrap();
    let own = format!(
        "exec unshare -rm sh -c 'mount -t tmpfs -o size=40m none {} && exec \"$0\" \"$@\" 2>\"$EIGENVEIL_LOG\"' \"$0\" \"$@\"",
        disk.display()
    );
    let mut server = ServerProcess::start_limited(&disk.join("data"), &own, &[], &log);
    // The disk as the server sees it.
    let seen = PathBuf::from(format!("/proc/{}/root{}", server.id(), disk.display()));
    server.data = seen.join("data");
    let runtime = crate::runtime();
    let address = server.listen().parse().unwrap();
    let [large, small] = [(); 2].map(|()| {
        let id = server.create_study(&["--p", "16", "--epsilon", "4"]);
        runtime.block_on(crate::study(address, &id))
    });
    let mut number = 0_u64;
    let mut send = |study: &StudyDocument| {
        let mut reports = Vec::new();
        for _ in 0..1_000 {
            number += 1;
            let random = [[0; 8], number.to_be_bytes()].concat().try_into().unwrap();
            reports.push(ReportId::from_parts(1_700_000_000_000, random));
        }
        let seed = [5; 16];
        let pairs = reports.iter().map(|id| (*id, seed.as_slice()));
        let body = codec::encode_batch(&StudyShape::of(&study.params), pairs).unwrap();
        let path = format!("/v1/studies/{}/reports", study.id);
        let head = format!("content-type: {REPORT_BATCH_MEDIA_TYPE}\r\n");
        runtime.block_on(async {
            let mut wire = Wire::connect(address, HOME).await.unwrap();
            wire.send("POST", &path, &head, &body).await.unwrap().status
        })
    };
    let mut acknowledged = 0;
    for _ in 0..20 {
        assert_eq!(send(&large), 200);
        acknowledged += 1_000;
    }
    let mut ballast = std::fs::File::create(seen.join("ballast")).unwrap();
    while ballast.write(&[1; 4_096]).is_ok_and(|written| written > 0) {}
    let mut refused = 0;
    for _ in 0..200 {
        match send(&large) {
            200 => acknowledged += 1_000,
            _ => refused += 1,
        }
        if refused == 3 {
            break;
        }
    }
    assert_eq!(refused, 3, "the limit was never felt");
    let shown = server.cli_json(&["study", "show", "--json", &large.id]);
    assert_eq!(shown["reports_accepted"], acknowledged);
    server.cli_json(&["study", "close", "--json", &large.id]);
    let deleted = server.cli(&["study", "delete", &large.id, "--yes"]);
    assert!(deleted.status.success(), "{deleted:?}");
    let taken = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        send(&small) == 200
    });
    assert!(taken, "{}", crate::tail(&log));
    assert!(server.stop());
}
