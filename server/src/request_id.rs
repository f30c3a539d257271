//! The number of the request being served, for log lines written on its behalf.

use std::future::Future;

tokio::task_local! {
    static CURRENT: u64;
}

pub(crate) async fn scope<F: Future>(id: u64, work: F) -> F::Output {
    CURRENT.scope(id, work).await
}

/// The number of the request that this task serves, if it serves one.
pub(crate) fn current() -> Option<u64> {
    CURRENT.try_with(|id| *id).ok()
}
