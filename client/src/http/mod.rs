//! HTTP clients: [`StudyClient`], `send_pending`, `send_rows` and `send_site` for devices, [`OperatorClient`] for the operator of
//! studies. `blocking` has the devices' part without `async`.
//!
//! Every request is bounded: in attempts, in time, and in the size of the response. A request is sent again after a
//! temporary failure ([`Error::is_retryable`](crate::Error::is_retryable)), with exponential delays, jitter and the
//! server's `Retry-After`; one that must not be acted on twice (creating a study, say) only if the server certainly did
//! not act on it. Redirects are not followed: a token or a report goes to the address that was given, or nowhere.
//!
//! TLS is rustls with the platform's roots. Use `https` wherever a token crosses a network.

mod client;
mod operator;
mod proxy;
mod retry;
#[cfg(feature = "sqlite")]
mod send;
mod settings;
mod transport;

pub use client::StudyClient;
pub use operator::{EstimateFormat, OperatorClient};
pub use proxy::{ProxyAddress, ProxySetting};
#[cfg(feature = "sqlite")]
pub use send::{
    SendFailure, SendSummary, UploadMode, UploadSettings, send_pending, send_rows, send_site,
};
pub use settings::{BearerToken, HttpSettings, RootCertificates};

pub use crate::exchange::RetryPolicy;
