//! Listening, serving and stopping in good order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use eigenveil_shared::Result;
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    time::{MissedTickBehavior, interval},
};
use tower::ServiceExt as _;

use super::{
    descriptors, rate_limiter,
    tls::{Certificates, Handshake},
    with_write_timeout,
};
use crate::{
    app::AppState, check::cannot_listen, config::ServerConfig, environment::Environment,
    routes::router,
};

/// How long to leave the listener alone when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Longest head of a request in bytes; also what a connection may hold before it is asked for more, so that
/// connections that send slowly cost little.
const MAX_HEAD: usize = 64 << 10;

/// A server that has its address but does not answer yet.
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
/// server.run(async {}).await?; // stops when this future is done: at once
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: AppState,
    tls: Option<(Arc<Certificates>, Handshake)>,
    /// Served at once.
    connections: usize,
}

impl Server {
    /// Reads the certificate where there is one, opens the store and binds the address.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open) and [`Certificates::load`]; `store-unavailable` when the address cannot be
    /// bound.
    pub async fn bind(config: ServerConfig, environment: Environment) -> Result<Self> {
        let tls = match config.tls_files() {
            None => None,
            Some((certificate, key)) => {
                let certificates = Arc::new(Certificates::load(certificate, key)?);
                let timeout = config.tuning.handshake_timeout;
                let handshake = Handshake::new(Arc::clone(&certificates), timeout)?;
                Some((certificates, handshake))
            }
        };
        let refused = |error: std::io::Error| cannot_listen(&config, &error);
        let (connections, warning) = descriptors::raise_fd_limit(&config);
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        let app = AppState::open(config.clone(), environment)?;
        let listener = TcpListener::bind(config.listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self {
            listener,
            address,
            app,
            tls,
            connections,
        })
    }

    /// The address in use, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of new connections, to read it again when you like; none over plain HTTP.
    pub fn certificates(&self) -> Option<&Arc<Certificates>> {
        self.tls.as_ref().map(|(certificates, _)| certificates)
    }

    /// What all requests share: the store, and the path of the operator's token.
    pub fn app(&self) -> &AppState {
        &self.app
    }

    /// Serves until `stop` is done. Then no connection is accepted any more, requests being served are
    /// answered (within the shutdown timeout), what is queued is committed, and an estimate being
    /// computed is put back.
    ///
    /// # Errors
    /// `store-unavailable` when the store's writer ended by itself, after the same good order: nothing could be
    /// stored any more, and a new process can.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<()> {
        let Self {
            listener,
            app,
            tls,
            connections,
            ..
        } = self;
        let routes = router(app.clone());
        let config = app.config();
        let (certificates, handshake) = tls.unzip();
        let permits = Arc::new(Semaphore::new(connections));
        let graceful = GracefulShutdown::new();
        // Dropped to cut the connections that did not end by themselves.
        let (cut, cut_off) = watch::channel(());
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.header_timeout())
            // No read while an answer is being made: it would take a new buffer for each request, only to
            // learn sooner that a client has gone. What it asked for is finished in any case.
            .half_close(true)
            .writev(false)
            .max_buf_size(MAX_HEAD);
        let mut stop = std::pin::pin!(stop);
        let mut maintenance = std::pin::pin!(maintenance(app.clone(), certificates));
        let store = app.store().clone();
        let mut writer_ended = std::pin::pin!(store.writer_ended());
        let ended = loop {
            let accepted = async {
                // The semaphore is never closed; were it, the connection is served without a permit.
                let permit = Arc::clone(&permits).acquire_owned().await.ok();
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                () = &mut stop => break Ok(()),
                () = &mut writer_ended => break store.check_writer(),
                () = &mut maintenance => continue,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            prepare(&stream);
            let connection = Connection {
                http: http.clone(),
                routes: routes.clone(),
                peer,
                watcher: graceful.watcher(),
            };
            let (write_timeout, handshake) = (config.body_timeout(), handshake.clone());
            let mut cut_off = cut_off.clone();
            let connections = app.store().metrics().connections.clone();
            connections.inc();
            tokio::spawn(async move {
                let served = async {
                    match handshake {
                        None => {
                            connection
                                .serve(with_write_timeout(stream, write_timeout))
                                .await
                        }
                        // Boxed, so that plain connections stay small.
                        Some(handshake) => {
                            Box::pin(async move {
                                if let Some(stream) = handshake.accept(stream, write_timeout).await
                                {
                                    connection.serve(stream).await;
                                }
                            })
                            .await;
                        }
                    }
                };
                tokio::select! {
                    () = served => {}
                    _ = cut_off.changed() => {}
                }
                connections.dec();
                drop(permit);
            });
        };
        if let Err(error) = &ended {
            tracing::error!(%error, "the server ends");
        }
        drop(listener);
        app.announce_stop();
        let timeout = app.config().shutdown_timeout();
        if tokio::time::timeout(timeout, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("some connections did not end in time and are cut");
        }
        drop(cut);
        let closing = tokio::task::spawn_blocking(move || app.close());
        if closing.await.is_err() {
            tracing::error!("closing the store panicked");
        }
        ended
    }
}

/// One accepted connection.
struct Connection {
    http: http1::Builder,
    routes: Router,
    peer: SocketAddr,
    watcher: Watcher,
}

impl Connection {
    /// Answers requests until the client goes or the server stops.
    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        let Self {
            http,
            routes,
            peer,
            watcher,
        } = self;
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(peer));
            routes.clone().oneshot(request)
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        // An error is a client that went away or was too slow; nothing to do about it.
        let _ = watcher.watch(connection).await;
    }
}

/// What has to be done now and then, for ever: forgetting clients, and looking whether the certificate was renewed.
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
                // Reading files may take its time; what it came to is in the log.
                drop(tokio::task::spawn_blocking(reload));
            },
        }
    }
}

/// Acknowledgements are small and must not wait for company.
fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{ErrorCode, api::CreateStudy};

    use super::*;
    use crate::faults::Fault;

    fn study() -> CreateStudy {
        let design = serde_json::json!({"name": "test", "dimension": 3, "epsilon": 1.0});
        serde_json::from_value(design).unwrap()
    }

    /// A server whose writer dies at the next commit.
    async fn doomed() -> (tempfile::TempDir, Server) {
        let directory = tempfile::tempdir().unwrap();
        let config = ServerConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            ..ServerConfig::new(directory.path().join("data"))
        };
        let environment = Environment::system();
        environment.faults.set_next(Some(Fault::DiesBeforeCommit));
        let server = Server::bind(config, environment).await.unwrap();
        (directory, server)
    }

    async fn status(app: &AppState, path: &str) -> u16 {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router(app.clone()).oneshot(request).await.unwrap();
        answer.status().as_u16()
    }

    #[tokio::test]
    async fn a_server_without_a_writer_says_so() {
        let (_directory, server) = doomed().await;
        let app = server.app();
        // `/readyz` would write, and so meet the fault.
        assert_eq!(status(app, "/healthz").await, 200);
        app.store().create_study(study()).await.unwrap_err();
        app.store().writer_ended().await;
        for path in ["/healthz", "/readyz"] {
            assert_eq!(status(app, path).await, 503, "{path}");
        }
    }

    #[tokio::test]
    async fn a_server_without_a_writer_ends_with_an_error() {
        let (_directory, server) = doomed().await;
        let app = server.app().clone();
        let running = tokio::spawn(server.run(std::future::pending()));
        app.store().create_study(study()).await.unwrap_err();
        let error = running.await.unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::StoreUnavailable);
        assert!(error.detail().contains("restart"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_is_stopped_ends_well() {
        let (_directory, server) = doomed().await;
        server.run(async {}).await.unwrap();
    }
}
