//! Waiting for what must come, on a machine that may be busy with other things.
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

/// What works comes long before, however busy the machine; less than the ten minutes after which a watcher is sent away.
pub const MAX_WAIT: Duration = Duration::from_secs(300);

/// Waits until this holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < MAX_WAIT, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What this gives, once it does.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(MAX_WAIT, future)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}
