//! TLS handshakes: apart from the threads that serve, a few at once, and in fair turns.
//!
//! The server signs before the client has proved anything, which takes milliseconds with an RSA key, so half a handshake
//! costs far more to answer than to send. Signing is done by threads of low priority, in turns: the next one goes to the
//! address with the fewest handshakes that led to no request, and to the one that has waited longest among equals.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};

use eigenveil_shared::Result;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::oneshot,
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
use crate::config::invalid_config;

/// First byte of every TLS handshake record.
const HANDSHAKE_RECORD: u8 = 0x16;

const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
content-length: 57\r\nconnection: close\r\n\r\nThis port speaks HTTPS only; use https:// in the address\n";

/// Bytes of a plain request that are read so that the response arrives.
const MAX_PLAIN_BYTES: usize = 64 << 10;

/// Nice value of the threads that sign: beside a busy thread of the server one gets a tenth of a processor.
const NICE: i32 = 10;

/// Addresses counted at once, so that memory is bounded.
const MAX_ADDRESSES: usize = 65_536;

pub(super) struct Handshakes {
    config: Arc<rustls::ServerConfig>,
    timeout: Duration,
    /// `None` while being dropped.
    runtime: Option<Runtime>,
    turns: Arc<Turns>,
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
                .map_err(|error| invalid_config(format!("TLS cannot be configured ({error})")))?
                .with_no_client_auth()
                .with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.div_ceil(4);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("tls-handshake")
            .on_thread_start(lower_priority)
            .build()
            .map_err(|error| {
                invalid_config(format!("the threads for TLS cannot start ({error})"))
            })?;
        Ok(Self {
            config: Arc::new(config),
            timeout,
            runtime: Some(runtime),
            turns: Turns::new(threads),
        })
    }

    /// The encrypted stream of the client with this address; `None` if the client does not complete the handshake in time.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        address: u64,
        write_timeout: Duration,
    ) -> Option<(TlsStream<ClientStream>, Unused)> {
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
                    let turn = self.turns.next(address).await;
                    let unused = Unused::new(&self.turns, address);
                    let accepting = hello.into_stream(Arc::clone(&self.config));
                    // Ended with this future.
                    let mut signing = JoinSet::new();
                    let accepting = in_turns(accepting, Arc::clone(&self.turns), address, turn);
                    signing.spawn_on(accepting, self.runtime.as_ref()?.handle());
                    let accepted = signing.join_next().await?.ok()?;
                    accepted.map(|stream| (stream, unused))
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

    pub(super) fn forget_old(&self) {
        let mut state = self.turns.lock();
        state.unused.retain(|_, count| {
            *count /= 2;
            *count > 0
        });
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Completes a handshake that has a turn, and takes another one whenever more has come from the client: any message may
/// make the server sign, such as the second hello after a request to send it again.
async fn in_turns<T>(
    accepting: impl Future<Output = T>,
    turns: Arc<Turns>,
    address: u64,
    mut turn: Turn,
) -> T {
    let mut accepting = pin!(accepting);
    loop {
        let polled = poll_fn(|context| Poll::Ready(accepting.as_mut().poll(context))).await;
        drop(turn);
        if let Poll::Ready(accepted) = polled {
            return accepted;
        }
        let mut woken = false;
        poll_fn(|_| match std::mem::replace(&mut woken, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        turn = turns.next(address).await;
    }
}

/// On Linux the priority belongs to the thread that asks; elsewhere it would be that of the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        tracing::debug!(%error, "the threads for TLS keep their priority");
    }
}

struct Turns {
    state: Mutex<State>,
}

struct State {
    free: usize,
    /// Lines by address, with numbers in order of arrival.
    waiting: HashMap<u64, VecDeque<(u64, oneshot::Sender<Turn>)>>,
    next_number: u64,
    /// Handshakes of each address that have led to no request so far.
    unused: HashMap<u64, u32>,
}

impl Turns {
    fn new(at_once: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                free: at_once,
                waiting: HashMap::new(),
                next_number: 0,
                unused: HashMap::new(),
            }),
        })
    }

    async fn next(self: &Arc<Self>, address: u64) -> Turn {
        let waiting = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                None
            } else {
                let (sender, receiver) = oneshot::channel();
                let number = state.next_number;
                state.next_number += 1;
                let line = state.waiting.entry(address).or_default();
                if line.len().is_power_of_two() {
                    line.retain(|(_, sender)| !sender.is_closed());
                }
                line.push_back((number, sender));
                Some(receiver)
            }
        };
        let turn = || Turn(Some(Arc::clone(self)));
        match waiting {
            None => turn(),
            // Senders are not dropped before they have sent.
            Some(receiver) => receiver.await.unwrap_or_else(|_| turn()),
        }
    }

    fn pass_on(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.lock();
                let next = state.next_in_line();
                if next.is_none() {
                    state.free += 1;
                    return;
                }
                next
            };
            match next.map(|sender| sender.send(Turn(Some(Arc::clone(self))))) {
                // It has stopped waiting.
                Some(Err(mut turn)) => turn.0 = None,
                _ => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_in_line(&mut self) -> Option<oneshot::Sender<Turn>> {
        loop {
            let rank = |(address, line): &(&u64, &VecDeque<(u64, _)>)| {
                let unused = self.unused.get(*address).copied().unwrap_or(0);
                (unused, line.front().map(|(number, _)| *number))
            };
            let address = *self.waiting.iter().min_by_key(rank)?.0;
            let line = self.waiting.get_mut(&address)?;
            match line.pop_front() {
                Some((_, sender)) if !sender.is_closed() => return Some(sender),
                Some(_) => {}
                None => drop(self.waiting.remove(&address)),
            }
        }
    }
}

/// The right to sign now; passed on when dropped.
struct Turn(Option<Arc<Turns>>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

/// A handshake that has led to no request so far, which counts against its address.
pub(super) struct Unused {
    turns: Arc<Turns>,
    address: u64,
}

impl Unused {
    fn new(turns: &Arc<Turns>, address: u64) -> Self {
        let mut state = turns.lock();
        if state.unused.len() >= MAX_ADDRESSES {
            state.unused.clear();
        }
        *state.unused.entry(address).or_default() += 1;
        Self {
            turns: Arc::clone(turns),
            address,
        }
    }

    pub(super) fn used(self) {
        let mut state = self.turns.lock();
        if let Some(count) = state.unused.get_mut(&self.address) {
            *count = count.saturating_sub(1);
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

    /// One address has a hundred handshakes in line; others get the next turns, in order, and those who left get none.
    #[tokio::test]
    async fn turns_go_to_addresses_whose_handshakes_lead_to_requests() {
        let turns = Turns::new(1);
        let first = turns.next(1).await;
        let unused: Vec<Unused> = (0..3).map(|_| Unused::new(&turns, 1)).collect();
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = JoinSet::new();
        for address in std::iter::repeat_n(1, 100).chain(2..=12) {
            let (turns, sender) = (Arc::clone(&turns), sender.clone());
            waiting.spawn(async move {
                let turn = turns.next(address).await;
                sender.send(address).unwrap();
                drop(turn);
            });
            tokio::task::yield_now().await;
        }
        drop(first);
        for address in 2..=12 {
            assert_eq!(order.recv().await, Some(address));
        }
        waiting.abort_all();
        while waiting.join_next().await.is_some() {}
        // The turn is free again.
        drop(turns.next(3).await);
        for handshake in unused {
            handshake.used();
        }
        assert_eq!(turns.lock().unused.get(&1), Some(&0));
    }
}
