//! What a device asks of a server, and how it reads the response: values, without I/O.
//!
//! A [`Request`] goes out by any HTTP client and reads its own [`Response`]. The rules: only a receipt in JSON that
//! adds up acknowledges; only a problem document with a code refuses; whatever else came, a report is still pending.

mod answer;
mod request;
mod retry;
mod server;

pub use answer::{Answer, ReportResult, Response};
pub use request::{Method, Request};
pub use retry::RetryPolicy;
pub use server::Server;

#[cfg(feature = "http")]
pub(crate) use request::JSON;
