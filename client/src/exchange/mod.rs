//! The requests of a device to a server, and the reading of the responses: values, without I/O.
//!
//! A [`Request`] goes out by any HTTP client and reads its own [`Response`]. Only a consistent response in JSON
//! acknowledges a report, and only a problem document with a code refuses one; after anything else it is still pending.

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
