//! TLS handshakes: apart from the threads that serve, and a few of an address at a time.
//!
//! The server signs before the client has proved anything, so half a handshake costs more to answer than to send. Threads
//! of low priority sign, and an address waits in line with itself.

use std::{fmt, sync::Arc, time::Duration};

use eigenveil_shared::{Error, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{
    LazyConfigAcceptor,
    rustls::{self, crypto::aws_lc_rs, server::Acceptor},
    server::TlsStream,
};

use super::{
    stream::{ClientStream, close_gracefully},
    tls::Certificates,
};
use crate::priority;

/// First byte of every TLS handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
content-length: 57\r\nconnection: close\r\n\r\nThis port speaks HTTPS only; use https:// in the address\n";

/// Bytes of a plain request that are read so that the response arrives.
const MAX_PLAIN_BYTES: usize = 64 << 10;

/// Nice value of the threads that sign: beside a busy thread of the server one gets a tenth of a processor.
const NICE: i32 = 10;

/// Handshakes of one address at a time. Each lasts a round trip, or until its timeout.
pub(super) const MAX_PER_ADDRESS: usize = 16;

pub(super) struct Handshakes {
    config: Arc<rustls::ServerConfig>,
    timeout: Duration,
    /// `None` while being dropped.
    runtime: Option<Runtime>,
}

impl fmt::Debug for Handshakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handshakes")
    }
}

impl Handshakes {
    /// With HTTP/1.1 on TLS 1.2 and 1.3.
    pub(super) fn new(certificates: Arc<Certificates>, timeout: Duration) -> Result<Self> {
        let mut config =
            rustls::ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| {
                    Error::invalid_config(format!("TLS cannot be configured ({error})"))
                })?
                .with_no_client_auth()
                .with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(processors.div_ceil(4))
            .thread_name("tls-handshake")
            .on_thread_start(|| priority::lower(NICE, "the threads for TLS"))
            .build()
            .map_err(|error| {
                Error::invalid_config(format!("the threads for TLS cannot start ({error})"))
            })?;
        Ok(Self {
            config: Arc::new(config),
            timeout,
            runtime: Some(runtime),
        })
    }

    /// The encrypted stream of a client whose address has these places; `None` if it does not complete the handshake in
    /// time.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        places: &Semaphore,
        write_timeout: Duration,
    ) -> Option<TlsStream<ClientStream>> {
        let handshake = async {
            let mut first = [0];
            if stream.peek(&mut first).await.ok()? == 0 {
                return None;
            }
            if first[0] != HANDSHAKE_RECORD {
                reject_plain_http(stream, first[0]).await;
                return None;
            }
            let stream = ClientStream::new(stream, write_timeout);
            let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await;
            let accepted = match hello {
                Ok(hello) => {
                    let _place = places.acquire().await.ok()?;
                    let accepting = hello.into_stream(Arc::clone(&self.config));
                    // Ended with this future.
                    let mut signing = JoinSet::new();
                    signing.spawn_on(accepting, self.runtime.as_ref()?.handle());
                    signing.join_next().await?.ok()?
                }
                Err(error) => Err(error),
            };
            // Only the kind: the message may contain bytes the client sent.
            accepted
                .inspect_err(|error| tracing::debug!(kind = ?error.kind(), "TLS handshake failed"))
                .ok()
        };
        timeout(self.timeout, handshake).await.ok().flatten()
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Answers a client that used http:// instead of https://; anything else is closed without a response.
async fn reject_plain_http(stream: TcpStream, first: u8) {
    if first.is_ascii_uppercase() {
        reply_and_close(stream, PLAIN_HTTP).await;
    }
}

/// Sends a response to a request that is not read.
pub(super) async fn reply_and_close(mut stream: TcpStream, response: &[u8]) {
    let reply = async {
        close_gracefully(&stream);
        stream.write_all(response).await?;
        stream.shutdown().await?;
        // Closing with unread bytes would reset the connection and lose the response.
        let mut request = stream.take(MAX_PLAIN_BYTES as u64);
        let mut chunk = [0; 4_096];
        while request.read(&mut chunk).await? > 0 {}
        std::io::Result::Ok(())
    };
    // The client may have gone, which does not matter.
    let _ = timeout(Duration::from_secs(2), reply).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plain_http_response_has_its_content_length() {
        let text = std::str::from_utf8(PLAIN_HTTP).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}\r\n", body.len())),
            "{}",
            body.len()
        );
    }
}
