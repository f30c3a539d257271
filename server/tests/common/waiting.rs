//! Waiting for expected events on a machine that may be busy.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::panic,
    reason = "every test file compiles this and uses its own part"
)]

use std::{
    future::Future,
    time::{Duration, Instant},
};

/// Long enough for anything that works, on any machine; less than the ten minutes after which event streams end.
pub const MAX_WAIT: Duration = Duration::from_secs(300);

pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < MAX_WAIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(MAX_WAIT, future)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}
