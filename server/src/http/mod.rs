//! The HTTP API (`docs/protocol.md`): one file a resource, and what the handlers share. The table of routes is in
//! [`routes`](crate::routes), which puts the `layers` around it.

pub(crate) mod answers;
pub(crate) mod body;
pub(crate) mod estimates;
pub(crate) mod extract;
mod files;
pub(crate) mod health;
mod layers;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod problem;
pub(crate) mod reports;
pub(crate) mod studies;
pub(crate) mod tokens;
pub(crate) mod transfers;

use eigenveil_shared::{Error, error};
use tokio::sync::Semaphore;

pub use self::estimates::EstimateList;
pub(crate) use self::{
    layers::{drain, host, public_path, rate_limit_layer, response_budget, trace},
    problem::ApiError,
    rate_limit_layer::{authenticate, check_token_limit, client_key},
};

/// Permits to read the disk, for the whole process: the runtime of an application that mounts the router may have
/// hundreds of threads for this, which would leave few processors for serving and for the writer.
static DISK_PERMITS: Semaphore = Semaphore::const_new(4);

/// Runs work that reads the disk outside the serving threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    // Never closed. The permit is released when the work ends, even if nobody waits for it any more.
    let permit = DISK_PERMITS.acquire().await.ok();
    let with_permit = move || {
        let _permit = permit;
        work()
    };
    tokio::task::spawn_blocking(with_permit)
        .await
        .unwrap_or_else(|_| {
            Err(error!(
                Internal,
                "reading the store failed because of a bug; retry"
            ))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// In the runtime of an application that mounts the router; some callers stop waiting.
    #[tokio::test]
    async fn few_requests_read_the_disk_at_once_in_any_runtime() {
        let [now, peak] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for number in 0..64 {
            let (now, peak) = (Arc::clone(&now), Arc::clone(&peak));
            let read = run_blocking(move || {
                peak.fetch_max(1 + now.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(5));
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            });
            let reading = tokio::spawn(read);
            tokio::task::yield_now().await;
            if number % 2 == 1 {
                reading.abort();
            }
        }
        // This one waits behind all the others.
        run_blocking(|| Ok(())).await.unwrap();
        let peak = peak.load(Ordering::SeqCst);
        assert!((1..=4).contains(&peak), "{peak} at once");
    }
}
