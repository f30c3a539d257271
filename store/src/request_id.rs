//! The number of the request being served, for log lines written on its behalf.

use std::pin::Pin;

tokio::task_local! {
    static CURRENT: u64;
}

/// Takes a pinned reference so that the future is not moved and stored twice.
pub async fn scope<T>(id: u64, work: Pin<&mut impl Future<Output = T>>) -> T {
    CURRENT.scope(id, work).await
}

/// The number of the request that this task serves, if it serves one.
pub fn current() -> Option<u64> {
    CURRENT.try_with(|id| *id).ok()
}
