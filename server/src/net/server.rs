//! Listening, serving and graceful shutdown.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use eigenveil_shared::{Result, api::Problem, error};
use eigenveil_store::Environment;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::Semaphore,
    time::{MissedTickBehavior, interval},
};

use super::{
    connections::{Admitted, Connections, EndAll, Refused},
    descriptors,
    handshake::{Handshakes, reply_and_close},
    rate_limiter,
    stream::{self, ClientStream},
    tls::Certificates,
};
use crate::{app::AppState, check::cannot_listen, config::ServerConfig, routes::Routes};

/// Pause after a failed accept, as when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Clients told at once that their address has its share of connections.
const MAX_REFUSALS: usize = 16;

/// Largest head of a request in bytes; also the read buffer of a connection, so that slow connections cost little.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// A server that is bound to its address but does not accept connections yet.
///
/// ```
/// use eigenveil_server::{Environment, Server, ServerConfig};
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let directory = tempfile::tempdir()?;
/// let config = ServerConfig {
///     listen: ([127, 0, 0, 1], 0).into(),
///     ..ServerConfig::new(directory.path().join("data"))
/// };
/// let server = Server::bind(config, Environment::system()).await?;
/// assert_ne!(server.local_addr().port(), 0);
/// server.run(async {}).await?; // stops when this future completes: at once
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: AppState,
    tls: Option<(Arc<Certificates>, Arc<Handshakes>)>,
    max_connections: usize,
}

impl Server {
    /// Reads the certificate, if one is configured, opens the store and binds the address.
    pub async fn bind(config: ServerConfig, environment: Environment) -> Result<Self> {
        let tls = match config.tls_files() {
            None => None,
            Some((certificate, key)) => {
                let certificates = Arc::new(Certificates::load(certificate, key)?);
                let timeout = config.tuning.handshake_timeout;
                let handshakes = Handshakes::new(Arc::clone(&certificates), timeout)?;
                Some((certificates, Arc::new(handshakes)))
            }
        };
        let listen_error = |error: std::io::Error| cannot_listen(&config, &error);
        let (max_connections, warning) = descriptors::raise_fd_limit(&config);
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        let app = AppState::open(config.clone(), environment)?;
        let listener = TcpListener::bind(config.listen)
            .await
            .map_err(listen_error)?;
        stream::configure(&listener, config.body_timeout()).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        Ok(Self {
            listener,
            address,
            app,
            tls,
            max_connections,
        })
    }

    /// The bound address, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of new connections, which you may reload at any time; `None` over plain HTTP.
    pub fn certificates(&self) -> Option<&Arc<Certificates>> {
        self.tls.as_ref().map(|(certificates, _)| certificates)
    }

    /// The state shared by all requests: the store, and the path of the operator token.
    pub fn app(&self) -> &AppState {
        &self.app
    }

    /// Serves until `stop` completes, then shuts down gracefully: `/readyz` says 503 for the shutdown delay (which
    /// [`announce_stop`](AppState::announce_stop) ends), no further connection is accepted after that, requests in progress are finished (within the shutdown timeout), queued writes are
    /// committed, and an estimate being computed is requeued.
    ///
    /// # Errors
    /// `store-unavailable`, after a graceful shutdown, if the store's writer thread ended by itself: nothing could be stored
    /// any more, and a new process can.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<()> {
        let Self {
            listener,
            app,
            tls,
            max_connections,
            ..
        } = self;
        let routes = Routes::new(app.clone());
        let config = app.config();
        let (certificates, handshakes) = tls.unzip();
        let metrics = Arc::clone(app.metrics());
        let connections = Connections::new(config, max_connections, metrics);
        // Those that do not end by themselves, also if nobody waits for this any more.
        let end_all = EndAll(Arc::clone(&connections));
        let refusals = Arc::new(Semaphore::new(MAX_REFUSALS));
        let graceful = GracefulShutdown::new();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.header_timeout())
            // Do not read while a response is being made: it would take a new buffer for each request, only to notice
            // earlier that the client has gone. Its request is finished in any case.
            .half_close(true)
            .writev(false)
            .max_buf_size(MAX_HEAD_BYTES);
        let (leaving, delay) = (app.clone(), config.shutdown_delay());
        let mut stop = std::pin::pin!(async move {
            stop.await;
            leaving.leave();
            let _ = tokio::time::timeout(delay, leaving.stopping()).await;
        });
        let mut maintenance = std::pin::pin!(maintenance(app.clone(), certificates));
        let store = app.store().clone();
        let mut ended = std::pin::pin!(store.ended());
        let ended = loop {
            let accepted = async {
                let (stream, peer) = listener.accept().await?;
                let admitted = connections.admit(peer.ip()).await;
                std::io::Result::Ok((stream, peer, admitted))
            };
            let accepted = tokio::select! {
                accepted = accepted => accepted,
                () = &mut stop => break Ok(()),
                () = &mut ended => break store.check_running(),
                () = &mut maintenance => continue,
            };
            let (stream, peer, admitted) = match accepted {
                Ok((stream, peer, Ok(admitted))) => (stream, peer, admitted),
                Ok((stream, _, Err(refused))) => {
                    // Over TLS it could not be read. Few at once: the others are reset.
                    if handshakes.is_none()
                        && let Ok(permit) = Arc::clone(&refusals).try_acquire_owned()
                    {
                        tokio::spawn(async move {
                            reply_and_close(stream, refusal(&refused).as_bytes()).await;
                            drop(permit);
                        });
                    }
                    continue;
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let connection = Connection {
                http: http.clone(),
                routes: routes.clone(),
                peer,
                watcher: graceful.watcher(),
            };
            let (write_timeout, handshakes) = (config.body_timeout(), handshakes.clone());
            tokio::spawn(async move {
                let served = async {
                    match handshakes {
                        None => {
                            let stream = ClientStream::new(stream, write_timeout);
                            connection.serve(stream, &admitted).await;
                        }
                        // Boxed, so that plain connections stay small.
                        Some(handshakes) => {
                            let places = admitted.handshakes();
                            Box::pin(async {
                                let accepted =
                                    handshakes.accept(stream, places, write_timeout).await;
                                if let Some(stream) = accepted {
                                    connection.serve(stream, &admitted).await;
                                }
                            })
                            .await;
                        }
                    }
                };
                tokio::select! {
                    () = served => {}
                    () = admitted.evicted() => {}
                }
            });
        };
        if let Err(error) = &ended {
            tracing::error!(%error, "the store's writer ended; the server stops");
        }
        drop(listener);
        app.announce_stop();
        let timeout = app.config().shutdown_timeout();
        if tokio::time::timeout(timeout, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("shutdown timeout reached; closing the remaining connections");
        }
        drop(end_all);
        let closing = tokio::task::spawn_blocking(move || app.close());
        if closing.await.is_err() {
            tracing::error!("closing the store panicked");
        }
        ended
    }
}

struct Connection {
    http: http1::Builder,
    routes: Routes,
    peer: SocketAddr,
    watcher: Watcher,
}

impl Connection {
    /// Serves requests until the client disconnects or the server stops.
    async fn serve(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
        admitted: &Admitted,
    ) {
        let Self {
            http,
            routes,
            peer,
            watcher,
        } = self;
        let requests = admitted.requests();
        let service = service_fn(move |request: Request<Incoming>| {
            let busy = requests.begin();
            let request = request.map(Body::new);
            // Boxed, since it is large, and a connection would keep room for it while it waits.
            let response = Box::pin(routes.clone().respond(request, Some(peer)));
            async move {
                let response = response.await;
                Ok::<_, Infallible>(response.map(|body| busy.until_sent(body)))
            }
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        // An error means that the client went away or was too slow; there is nothing to do.
        let _ = watcher.watch(connection).await;
    }
}

/// Background task: clears expired rate limits and reloads a renewed certificate. Never completes.
async fn maintenance(app: AppState, certificates: Option<Arc<Certificates>>) {
    let mut forget = interval(rate_limiter::FORGET_AFTER / 5);
    let reload_interval = app.config().tls_reload();
    let mut renew = interval(reload_interval.unwrap_or(rate_limiter::FORGET_AFTER));
    renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watched = certificates.filter(|_| reload_interval.is_some());
    loop {
        tokio::select! {
            _ = forget.tick() => app.rate_limits().forget_old(),
            _ = renew.tick() => if let Some(certificates) = watched.clone() {
                let reload = move || certificates.reload_when_changed();
                // Reading files may block; the outcome is in the log.
                drop(tokio::task::spawn_blocking(reload));
            },
        }
    }
}

/// The response to a client whose address has its share of connections, all of them busy.
fn refusal(refused: &Refused) -> String {
    let error = error!(
        TooManyRequests,
        "this address already holds {} connections, all of them busy, which is its share; wait for one to end, or ask the \
             operator to raise max_connections_per_address (or to list your proxy in trusted_proxies)",
        refused.per_address
    );
    let problem = Problem::new(&error);
    // Strings and a number, so writing it cannot fail.
    let body = serde_json::to_string(&problem).unwrap_or_default();
    format!(
        "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/problem+json\r\nx-content-type-options: nosniff\r\n\
         retry-after: 1\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{ErrorCode, api::CreateStudyRequest};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;
    use eigenveil_store::Fault;

    fn study() -> CreateStudyRequest {
        let design = serde_json::json!({"name": "test", "dimension": 3, "epsilon": 1.0});
        serde_json::from_value(design).unwrap()
    }

    async fn bound(
        environment: Environment,
        change: impl FnOnce(&mut ServerConfig),
    ) -> (tempfile::TempDir, Server) {
        let directory = tempfile::tempdir().unwrap();
        let mut config = ServerConfig::new(directory.path().join("data"));
        config.listen = ([127, 0, 0, 1], 0).into();
        change(&mut config);
        let server = Server::bind(config, environment).await.unwrap();
        (directory, server)
    }

    /// A server whose writer panics at the next commit.
    async fn doomed() -> (tempfile::TempDir, Server) {
        let environment = Environment::system();
        environment.faults.set_next(Some(Fault::DiesBeforeCommit));
        bound(environment, |_| {}).await
    }

    /// Whoever asks it before the balancer has noticed is answered; a second signal ends that.
    #[tokio::test]
    async fn a_server_that_leaves_answers_until_the_delay_is_over() {
        let (_directory, server) = bound(Environment::system(), |config| {
            config.shutdown_delay_ms = 3_600_000;
        })
        .await;
        let (address, app) = (server.local_addr(), server.app().clone());
        // As long as it takes to write.
        while status(&app, "/readyz").await != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let running = tokio::spawn(server.run(std::future::ready(())));
        while status(&app, "/readyz").await == 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        app.announce_stop();
        running.await.unwrap().unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    /// Also one in the middle of a request.
    #[tokio::test]
    async fn a_server_that_is_aborted_ends_its_connections() {
        let (_directory, server) = bound(Environment::system(), |config| {
            config.header_timeout_ms = 3_600_000;
        })
        .await;
        let address = server.local_addr();
        let running = tokio::spawn(server.run(std::future::pending()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /healthz").await.unwrap();
        // Connections are accepted in order: the one before is served, too.
        let mut after = TcpStream::connect(address).await.unwrap();
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
        after.write_all(request).await.unwrap();
        after.read_exact(&mut [0; 12]).await.unwrap();
        running.abort();
        let mut rest = Vec::new();
        let closed = tokio::time::timeout(Duration::from_secs(60), client.read_to_end(&mut rest));
        let _or_reset = closed.await.unwrap();
    }

    async fn status(app: &AppState, path: &str) -> u16 {
        let request = Request::get(path).body(Body::empty()).unwrap();
        Routes::new(app.clone())
            .respond(request, None)
            .await
            .status()
            .as_u16()
    }

    #[tokio::test]
    async fn health_checks_report_a_dead_writer() {
        let (_directory, server) = doomed().await;
        let app = server.app();
        // Not `/readyz`, which would write and so trigger the fault.
        assert_eq!(status(app, "/healthz").await, 200);
        app.store().create_study(study()).await.unwrap_err();
        app.store().ended().await;
        for path in ["/healthz", "/readyz"] {
            assert_eq!(status(app, path).await, 503, "{path}");
        }
    }

    #[tokio::test]
    async fn a_server_stops_with_an_error_if_its_writer_dies() {
        let (_directory, server) = doomed().await;
        let app = server.app().clone();
        let running = tokio::spawn(server.run(std::future::pending()));
        app.store().create_study(study()).await.unwrap_err();
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::StoreUnavailable);
        assert!(error.detail().contains("restart"), "{error}");
    }
}
