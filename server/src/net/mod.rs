//! What stands between a socket and a handler: listening, TLS, how many connections, how often, how much memory.

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

/// A stream whose writes fail when the client takes nothing for so long. Reads have limits of their own.
fn with_write_timeout(stream: TcpStream, timeout: Duration) -> Pin<Box<TimeoutWriter<TcpStream>>> {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(timeout));
    Box::pin(stream)
}
