//! A server on its own port, and hand-written requests to it.

use std::{net::SocketAddr, sync::Arc};

use eigenveil_server::{Certificates, Server, ServerConfig};
use eigenveil_shared::Error;
use eigenveil_store::{NewReport, Store};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
};

use crate::common::{design, environment, new_id, report, waiting::within};

pub(crate) struct Running {
    pub(crate) directory: TempDir,
    pub(crate) config: ServerConfig,
    pub(crate) address: SocketAddr,
    pub(crate) store: Store,
    pub(crate) certificates: Option<Arc<Certificates>>,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) ended: JoinHandle<Result<(), Error>>,
}

impl Running {
    pub(crate) async fn start(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::over(tempfile::tempdir().unwrap(), change).await
    }

    pub(crate) async fn over(directory: TempDir, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = ServerConfig {
            listen: ([127, 0, 0, 1], 0).into(),
            ..ServerConfig::new(directory.path().join("data"))
        };
        change(&mut config);
        let server = Server::bind(config.clone(), environment()).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        Self {
            directory,
            config,
            address: server.local_addr(),
            store: server.app().store().clone(),
            certificates: server.certificates().cloned(),
            stop,
            ended: tokio::spawn(server.run(async {
                stopped.await.ok();
            })),
        }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Fills the store for a backup of some 10 MB: more than socket buffers hold.
    pub(crate) async fn fill_for_a_large_backup(&self) {
        let wanted = serde_json::from_value(design(&json!({"dimension": 512}))).unwrap();
        let study = self.store.create_study(wanted).await.unwrap();
        for _ in 0..16 {
            let body = report(&study.document(), new_id(), 0.5).into();
            let report = NewReport::decode(&body, &study).unwrap();
            self.store.submit(&study, vec![report]).await.unwrap();
        }
    }

    pub(crate) fn operator(&self) -> String {
        let token = std::fs::read_to_string(self.store.token_path()).unwrap();
        format!("authorization: Bearer {}\r\n", token.trim())
    }

    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        let ended = within("the end of the server", self.ended).await;
        ended.unwrap().unwrap();
    }
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) closes: bool,
    pub(crate) body: Vec<u8>,
}

/// Reads one response with a Content-Length to its end.
pub(crate) async fn read_response(stream: &mut TcpStream) -> Reply {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    Reply {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        closes: head.contains("connection: close"),
        body,
    }
}

pub(crate) async fn get(stream: &mut TcpStream, path: &str, headers: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

pub(crate) async fn post(stream: &mut TcpStream, path: &str, headers: &str, body: &[u8]) {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body).await.unwrap();
}
