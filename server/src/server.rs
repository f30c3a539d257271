//! Listening, serving and stopping in good order.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, response::Response};
use eigenveil_shared::{Error, ErrorCode, Result};
use hyper::{
    Request,
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};

use crate::{
    app::AppState,
    config::ServerConfig,
    environment::Environment,
    http::{direct, router},
    patient::Patient,
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
/// server.run(async {}).await; // stops when this future is done: at once
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    app: AppState,
}

impl Server {
    /// Opens the store and binds the address.
    ///
    /// # Errors
    /// As [`Store::open`](crate::Store::open); `store-unavailable` when the address cannot be bound.
    pub async fn bind(config: ServerConfig, environment: Environment) -> Result<Self> {
        let listen = config.listen;
        let refused = |error: std::io::Error| {
            Error::new(
                ErrorCode::StoreUnavailable,
                format!("cannot listen on {listen} ({error}); choose another address or port"),
            )
        };
        let app = AppState::open(config, environment)?;
        let listener = TcpListener::bind(listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self {
            listener,
            address,
            app,
        })
    }

    /// The address in use, with the port the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// What all requests share: the store, and the path of the operator's token.
    pub fn app(&self) -> &AppState {
        &self.app
    }

    /// Serves until `stop` is done. Then no connection is accepted any more, requests being served are
    /// answered (within the shutdown timeout), what is queued is committed, and an estimate being
    /// computed is put back.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (app, routes) = (self.app.clone(), router(self.app.clone()));
        let service =
            service_fn(move |request| direct::answer(app.clone(), routes.clone(), request));
        self.run_service(service, stop).await;
    }

    /// As [`run`](Self::run), with routes of your own around [`router`].
    pub async fn run_router(self, routes: Router, stop: impl Future<Output = ()>) {
        self.run_service(TowerToHyperService::new(routes), stop)
            .await;
    }

    async fn run_service<S>(self, service: S, stop: impl Future<Output = ()>)
    where
        S: Service<Request<Incoming>, Response = Response, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
    {
        let Self { listener, app, .. } = self;
        let config = app.config();
        let permits = Arc::new(Semaphore::new(config.max_connections));
        let graceful = GracefulShutdown::new();
        // Dropped to cut the connections that did not end by themselves.
        let (patient, impatient) = watch::channel(());
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.header_timeout())
            // No read while an answer is being made: it would take a new buffer for each request, only to
            // learn sooner that a client has gone. What it asked for is finished in any case.
            .half_close(true)
            .writev(false)
            .max_buf_size(MAX_HEAD);
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = async {
                // The semaphore is never closed; were it, the connection is served without a permit.
                let permit = Arc::clone(&permits).acquire_owned().await.ok();
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accepted => accepted,
                () = &mut stop => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            prepare(&stream);
            let stream = Patient::new(stream, config.body_timeout());
            let connection =
                graceful.watch(http.serve_connection(TokioIo::new(stream), service.clone()));
            let mut impatient = impatient.clone();
            tokio::spawn(async move {
                tokio::select! {
                    // An error is a client that went away or was too slow; nothing to do about it.
                    _ = connection => {}
                    _ = impatient.changed() => {}
                }
                drop(permit);
            });
        }
        drop(listener);
        app.announce_stop();
        let patience = app.config().shutdown_timeout();
        if tokio::time::timeout(patience, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("some connections did not end in time and are cut");
        }
        drop(patient);
        let closing = tokio::task::spawn_blocking(move || app.close());
        if closing.await.is_err() {
            tracing::error!("closing the store panicked");
        }
    }
}

/// Acknowledgements are small and must not wait for company.
fn prepare(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
}
