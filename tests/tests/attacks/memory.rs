//! Point by point: bodies that do not come, answers that nobody takes, pictures and probes without end.

use std::time::Duration;

use eigenveil_shared::{
    api::REPORT_MEDIA_TYPE,
    codec::{self, StudyShape},
};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{Target, wire::Wire, withstand};

/// Connections of an attacker: with the honest ones they fit into 256 descriptors.
const CONNECTIONS: u8 = 128;

/// Tells that the attack is on.
fn begin(begun: oneshot::Sender<()>) {
    begun.send(()).unwrap();
}

/// 128 connections hold 2 MiB of a body each, from as many addresses as `address` gives.
fn held_bodies(name: &str, address: fn(u8) -> [u8; 4]) {
    withstand(name, "", move |target: Target, begun| async move {
        let length = codec::report_len(StudyShape::of(&target.large.params).payload_len);
        let path = format!("/v1/studies/{}/reports", target.large.id);
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {REPORT_MEDIA_TYPE}\r\ncontent-length: {length}\r\n\r\n"
        );
        let mut holders = JoinSet::new();
        for number in 0..CONNECTIONS {
            let (head, address, server) = (head.clone(), address(number), target.address);
            holders.spawn(async move {
                loop {
                    let held = async {
                        let mut wire = Wire::connect(server, address).await?;
                        wire.write(head.as_bytes()).await?;
                        wire.write(&vec![0; 2 << 20]).await?;
                        // Until the server has had enough.
                        wire.answer().await
                    };
                    let _ = held.await;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        begin(begun);
        holders.join_next().await;
    });
}

#[test]
#[ignore = "half a minute of two processors"]
fn bodies_held_by_one_address() {
    held_bodies("bodies held by one address", |_| [127, 0, 1, 1]);
}

#[test]
#[ignore = "half a minute of two processors"]
fn bodies_held_by_many_addresses() {
    held_bodies("bodies held by 128 addresses", |number| {
        [127, 0, 1, 1 + number]
    });
}
