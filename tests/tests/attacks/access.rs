//! Attacks on access: guessed tokens from the operator's own address, connections that take every descriptor.

use std::time::Duration;

use eigenveil_shared::{api::REPORT_MEDIA_TYPE, report::ReportId};
use tokio::task::JoinSet;

use crate::{Target, honest, run_attack, wire::Wire};

/// The address of honest devices, operator and attacker alike: they share a proxy.
const HONEST_ADDRESS: [u8; 4] = [127, 0, 0, 1];

/// Thousands of wrong tokens, spelt in every way, from the operator's address: the operator always gets in.
#[test]
#[ignore = "half a minute of two processors"]
fn guessed_tokens_do_not_lock_out_the_operator() {
    run_attack("wrong tokens", |target: Target, started| async move {
        let mut guessers = JoinSet::new();
        for guesser in 0..8 {
            let server = target.address;
            guessers.spawn(async move {
                let mut wire = Wire::connect(server, HONEST_ADDRESS).await.unwrap();
                for guess in 0_u64.. {
                    let scheme = ["Bearer", "bearer", "BEARER "][guess as usize % 3];
                    let head = format!("authorization: {scheme} {guesser}-{guess}\r\n");
                    let response = wire.send("GET", "/v1/tokens", &head, b"").await.unwrap();
                    assert!([403, 429].contains(&response.status), "{response:?}");
                }
            });
        }
        let mut operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
        let head = format!("authorization: Bearer {}\r\n", target.token);
        let mut started = Some(started);
        for asked in 0_u64.. {
            let response = operator.send("GET", "/v1/tokens", &head, b"").await;
            assert_eq!(response.unwrap().status, 200);
            if asked == 100 {
                started.take().unwrap().send(()).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

/// More connections than descriptors: the store can still open its files, and an estimate completes.
#[test]
#[ignore = "half a minute of two processors"]
fn connections_do_not_starve_the_store_of_descriptors() {
    run_attack("300 connections", |target: Target, started| async move {
        let mut operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
        let path = format!("/v1/studies/{}", target.seeds.id);
        let id = ReportId::from_parts(1_700_000_000_000, [7; 16]);
        let report = honest::report(&target.seeds, id);
        let head = format!("content-type: {REPORT_MEDIA_TYPE}\r\n");
        let sent = operator
            .send("POST", &format!("{path}/reports"), &head, &report)
            .await;
        assert_eq!(sent.unwrap().status, 201);
        let mut connections = Vec::new();
        for number in 0..300_u16 {
            let from = [127, 0, 2, u8::try_from(number % 250).unwrap() + 1];
            connections.push(Wire::connect(target.address, from).await.unwrap());
        }
        started.send(()).unwrap();
        let token = format!("authorization: Bearer {}\r\n", target.token);
        let head = format!("{token}content-type: application/json\r\n");
        // Connections that wait are closed: the operator's are new ones.
        operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
        let asked = operator
            .send("POST", &format!("{path}/estimates"), &head, b"{}")
            .await;
        assert_eq!(asked.unwrap().status, 202);
        loop {
            let mut operator = Wire::connect(target.address, HONEST_ADDRESS).await.unwrap();
            let response = operator
                .send("GET", &format!("{path}/estimates/1"), &token, b"")
                .await
                .unwrap();
            let document: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
            match document["state"].as_str().unwrap() {
                "running" => tokio::time::sleep(Duration::from_millis(100)).await,
                state => {
                    assert_eq!(state, "done", "{document}");
                    break;
                }
            }
        }
        // Hold them until the end.
        std::future::pending::<()>().await;
        drop(connections);
    });
}
