//! Attacks on memory: unfinished bodies, unread responses, expensive figures and endless probes.

use std::time::Duration;

use eigenveil_shared::{
    api::{REPORT_MEDIA_TYPE, StudyDocument},
    codec,
};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{Target, run_attack, wire::Wire};

/// Connections of an attacker; together with the honest ones they fit into 256 descriptors.
const CONNECTIONS: u8 = 128;

/// 128 connections hold 2 MiB of a body each, from the addresses that `address` gives.
fn held_bodies(name: &str, address: fn(u8) -> [u8; 4]) {
    run_attack(name, move |target: Target, started| async move {
        let length = codec::report_len(target.large.params.payload_len());
        let path = format!("/v1/studies/{}/reports", target.large.id);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {REPORT_MEDIA_TYPE}\r\ncontent-length: {length}\r\n\r\n"
        );
        let mut holders = JoinSet::new();
        for number in 0..CONNECTIONS {
            let (head, address, server) = (head.clone(), address(number), target.address);
            holders.spawn(async move {
                loop {
                    let exchange = async {
                        let mut wire = Wire::connect(server, address).await?;
                        wire.write(head.as_bytes()).await?;
                        wire.write(&vec![0; 2 << 20]).await?;
                        // Until the server closes the connection.
                        wire.response().await
                    };
                    let _ = exchange.await;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        started.send(()).unwrap();
        holders.join_next().await;
    });
}

#[test]
#[ignore = "half a minute of two processors"]
fn bodies_held_by_one_address_are_bounded() {
    held_bodies("bodies held by one address", |_| [127, 0, 1, 1]);
}

#[test]
#[ignore = "half a minute of two processors"]
fn bodies_held_by_many_addresses_are_bounded() {
    held_bodies("bodies held by 128 addresses", |number| {
        [127, 0, 1, 1 + number]
    });
}

pub(crate) async fn make(target: &Target, design: serde_json::Value) -> StudyDocument {
    let head = format!(
        "authorization: Bearer {}\r\ncontent-type: application/json\r\n",
        target.token
    );
    let mut wire = Wire::connect(target.address, [127, 0, 0, 2]).await.unwrap();
    let body = design.to_string();
    let created = wire.send("POST", "/v1/studies", &head, body.as_bytes());
    serde_json::from_slice(&created.await.unwrap().body).unwrap()
}

/// Responses of a megabyte that are never read.
#[test]
#[ignore = "half a minute of two processors"]
fn unread_responses_are_bounded() {
    run_attack(
        "responses that nobody reads",
        |target: Target, started| async move {
            let features: Vec<_> = (0..4_096)
            .map(|i| serde_json::json!({"name": format!("{i:0>150}"), "center": 0.0, "scale": 1.0}))
            .collect();
            let design = serde_json::json!({
                "name": "long", "dimension": 4_096, "epsilon": 4.0, "features": features,
            });
            let created = make(&target, design).await;
            let paths = [
                format!("/v1/studies/{}", created.id),
                "/v1/studies".to_owned(),
            ];
            let mut holders = JoinSet::new();
            for number in 0..CONNECTIONS {
                let path = paths[usize::from(number % 2)].clone();
                let server = target.address;
                holders.spawn(async move {
                    loop {
                        let from = [127, 0, 1, 1 + number];
                        let exchange = async {
                            let mut wire = Wire::connect_with(server, from, Some(4_096)).await?;
                            // Pipelined, as far as the server reads.
                            let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
                            wire.write(request.repeat(16).as_bytes()).await?;
                            tokio::time::sleep(Duration::from_secs(5)).await;
                            std::io::Result::Ok(())
                        };
                        if exchange.await.is_err() {
                            tokio::time::sleep(Duration::from_millis(100)).await;
                        }
                    }
                });
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            started.send(()).unwrap();
            holders.join_next().await;
        },
    );
}

/// Each connection requests the path repeatedly, at most once in 10 ms.
async fn ask_for(target: Target, connections: u8, path: String, started: oneshot::Sender<()>) {
    let mut asking = JoinSet::new();
    for number in 0..connections {
        let (path, server) = (path.clone(), target.address);
        asking.spawn(async move {
            loop {
                if let Ok(mut wire) = Wire::connect(server, [127, 0, 1, 1 + number]).await {
                    while wire.get(&path).await.is_ok() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    started.send(()).unwrap();
    asking.join_next().await;
}

#[test]
#[ignore = "half a minute of two processors"]
fn repeated_readiness_probes_are_bounded() {
    run_attack("readiness asked by 16", |target: Target, started| {
        ask_for(target, 16, "/readyz".to_owned(), started)
    });
}

/// The largest study, and its figure that once took 79 s.
#[test]
#[ignore = "half a minute of two processors"]
fn figures_of_the_largest_study_are_bounded() {
    run_attack(
        "pictures asked by 64",
        |target: Target, started| async move {
            let design = serde_json::json!({
                "name": "large", "dimension": 65_536, "epsilon": 4.0, "default_k": 32_768,
            });
            let created = make(&target, design).await;
            let path = format!("/studies/{}/belief.svg", created.id);
            ask_for(target, 64, path, started).await;
        },
    );
}

/// Pages are rendered by threads that read the disk: nearly as many connections as the server accepts ask for one.
#[test]
#[ignore = "half a minute of two processors"]
fn many_page_requests_are_bounded() {
    run_attack("pages asked by 150", |target: Target, started| {
        let path = format!("/studies/{}", target.seeds.id);
        ask_for(target, 150, path, started)
    });
}
