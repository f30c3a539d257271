//! The aggregation server inside your own axum application, beside your own routes.
//!
//! `cargo run -p eigenveil-examples --example own_axum_app -- DATA_DIR [LISTEN]`

use std::net::SocketAddr;

use axum::{Router, routing::get};
use eigenveil_server::{AppState, Environment, ServerConfig, router};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let data = arguments.next().ok_or("give a directory for the store")?;
    let listen = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned());

    let state = AppState::open(ServerConfig::new(data), Environment::system())?;
    let app = Router::new()
        .route("/", get(|| async { "our own front page" }))
        .nest("/collect", router(state.clone()));
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    println!("operator token: {}", state.store().token_path().display());

    let stop = async {
        // Without a signal handler the server runs until it is killed, which loses nothing either.
        let _ = tokio::signal::ctrl_c().await;
    };
    // Provides the peer address, which the per-address limits need.
    axum::serve(
        listener,
        app.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(stop)
    .await?;
    // Commits what is queued and ends the writer.
    state.announce_stop();
    state.close();
    Ok(())
}
