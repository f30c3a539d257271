//! Everything between a socket and a handler: listening, TLS, connection, rate and memory limits.

pub(crate) mod descriptors;
pub(crate) mod memory;
pub(crate) mod rate_limiter;
mod server;
pub(crate) mod tls;

use std::{pin::Pin, time::Duration};

use tokio::net::TcpStream;
use tokio_io_timeout::TimeoutWriter;

pub use self::{
    server::Server,
    tls::{Certificates, Reload},
};

/// A stream whose writes fail if the client reads nothing for this long. Reads have their own limits.
fn with_write_timeout(stream: TcpStream, timeout: Duration) -> Pin<Box<TimeoutWriter<TcpStream>>> {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(timeout));
    Box::pin(stream)
}
