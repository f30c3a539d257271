//! The server's certificate, and half TLS handshakes.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use rcgen::{CertificateParams, KeyPair};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    task::JoinSet,
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, ClientConnection, RootCertStore, pki_types::CertificateDer},
};

use crate::{Target, run_attack_over};

pub(crate) struct Certificate {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Certificate {
    /// With a P-256 key: what an RSA key costs is documented.
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, key }
    }

    /// Writes both files and returns the flags of `serve`.
    pub(crate) fn write(&self, folder: &Path) -> String {
        let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&certificate, self.certificate.pem()).unwrap();
        std::fs::write(&key, self.key.serialize_pem()).unwrap();
        format!(
            "--tls-cert {} --tls-key {}",
            certificate.display(),
            key.display()
        )
    }

    /// Connector of clients that trust it. They do not resume sessions, like devices that report once.
    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::new(client(self.certificate.der())))
    }
}

fn client(certificate: &CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
    config
}

fn hello(certificate: &CertificateDer<'static>) -> Vec<u8> {
    let name = "localhost".try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(client(certificate)), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Sends client hellos as fast as `per_second` allows, waits for the server's signature, then hangs up after `stays`.
fn half_handshakes(name: &str, per_second: u32, stays: Duration) {
    let certificate = Certificate::new();
    let hello = hello(certificate.certificate.der());
    run_attack_over(
        Some(&certificate),
        name,
        move |target: Target, started| async move {
            started.send(()).unwrap();
            let mut times = tokio::time::interval(Duration::from_secs(1) / per_second);
            let mut attempts = JoinSet::new();
            loop {
                times.tick().await;
                while attempts.try_join_next().is_some() {}
                let (hello, server) = (hello.clone(), target.address);
                attempts.spawn(async move {
                    // Refused or reset: the next one comes anyway.
                    let _ = half_handshake(server, &hello, stays).await;
                });
            }
        },
    );
}

async fn half_handshake(server: SocketAddr, hello: &[u8], stays: Duration) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 3, 1], 0).into())?;
    let mut stream = socket.connect(server).await?;
    stream.write_all(hello).await?;
    stream.read_u8().await?;
    tokio::time::sleep(stays).await;
    Ok(())
}

/// Some 0.3 MB a second; with an RSA-4096 key they would take four processors.
#[test]
#[ignore = "half a minute of two processors"]
fn half_handshakes_keep_nobody_out() {
    half_handshakes("half handshakes", 1_000, Duration::ZERO);
}

#[test]
#[ignore = "half a minute of two processors"]
fn half_handshakes_that_stay_keep_nobody_out() {
    let stays = Duration::from_secs(30);
    half_handshakes("half handshakes that stay", 200, stays);
}
