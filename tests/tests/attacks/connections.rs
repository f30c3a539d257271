//! Attacks that take connections or processor time with few bytes.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::{Target, memory::make, run_attack, wire::Wire};

/// 700 connections a second with half a head each, 20 kB/s, from the addresses that `address` gives.
fn half_heads(name: &str, address: fn(u32) -> [u8; 4]) {
    run_attack(name, move |target: Target, started| async move {
        let mut times = tokio::time::interval(Duration::from_secs(1) / 700);
        let mut holders = JoinSet::new();
        let mut started = Some(started);
        for number in 0_u32.. {
            times.tick().await;
            while holders.try_join_next().is_some() {}
            if number == 2_000 {
                started.take().unwrap().send(()).unwrap();
            }
            let server = target.address;
            holders.spawn(async move {
                let mut wire = Wire::connect(server, address(number)).await?;
                wire.write(b"GET /healthz HTTP/1.1\r\nhost:").await?;
                // Until the server closes it.
                wire.response().await
            });
        }
    });
}

#[test]
#[ignore = "half a minute of two processors"]
fn half_heads_from_one_address_keep_nobody_out() {
    half_heads("half heads from one address", |_| [127, 0, 1, 1]);
}

#[test]
#[ignore = "half a minute of two processors"]
fn half_heads_from_many_addresses_keep_nobody_out() {
    half_heads("half heads from 250 addresses", |number| {
        [127, 0, 1, u8::try_from(number % 250).unwrap() + 1]
    });
}

/// A study with 50,000 named features is asked for 300 times a second, 30 kB/s, by clients that do not wait for it.
#[test]
#[ignore = "half a minute of two processors"]
fn large_documents_are_made_once() {
    run_attack("large documents", |target: Target, started| async move {
        let features: Vec<_> = (0..50_000)
            .map(|i| serde_json::json!({"name": format!("feature {i}"), "center": 0.0, "scale": 1.0}))
            .collect();
        let design = serde_json::json!({
            "name": "large", "dimension": 50_000, "epsilon": 4.0, "features": features,
        });
        let created = make(&target, design).await;
        let paths = [
            format!("/v1/studies/{}", created.id),
            "/v1/studies".to_owned(),
        ];
        started.send(()).unwrap();
        let mut times = tokio::time::interval(Duration::from_secs(1) / 300);
        for number in 0.. {
            times.tick().await;
            if let Ok(mut wire) = Wire::connect(target.address, [127, 0, 1, 1]).await {
                let path = &paths[number % 2];
                let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
                let _ = wire.write(request.as_bytes()).await;
            }
        }
    });
}
