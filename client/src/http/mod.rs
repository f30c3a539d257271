//! Talking to a server: [`StudyClient`], `send_pending` and `send_rows` for devices, [`OperatorClient`] for whoever
//! runs the study. `blocking` has what devices need without `async`.
//!
//! Every request is bounded: in attempts, in time, and in the size of the response. A request is sent again after a
//! failure that may pass ([`Error::is_retryable`](crate::Error::is_retryable)), with exponential delays, jitter and the
//! server's `Retry-After`; one that must not be acted on twice (creating a study, say) only when the server certainly
//! did not act on it. Redirects are not followed: a token or a report goes to the address
//! that was given, or nowhere.
//!
//! TLS is rustls with the platform's roots. Use `https` wherever a token crosses a network.

mod analyst;
mod client;
mod proxy;
mod retry;
#[cfg(feature = "sqlite")]
mod send;
mod settings;
mod transport;

pub use analyst::{EstimateFormat, OperatorClient};
pub use client::StudyClient;
pub use proxy::{ProxyAddress, ProxySetting};
#[cfg(feature = "sqlite")]
pub use send::{SendFailure, SendSummary, UploadMode, UploadSettings, send_pending, send_rows};
pub use settings::{BearerToken, HttpSettings, RootCertificates};

pub use crate::exchange::RetryPolicy;
