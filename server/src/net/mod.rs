//! Everything between a socket and a handler: listening, TLS, limits of connections and rates.

mod connections;
pub(crate) mod descriptors;
mod handshake;
pub(crate) mod rate_limiter;
mod server;
mod stream;
pub(crate) mod tls;

pub use self::{
    server::Server,
    tls::{Certificates, Reload},
};
