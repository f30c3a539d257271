//! HTTPS with an organisation's own certificate authority.

use std::sync::{Arc, Mutex};

use eigenveil_client::http::{HttpSettings, StudyClient};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{
    certificates::{Authority, Issued},
    common::{STUDY, assert_says, params},
    server::{Handler, Reply, document, serve},
};

/// A server with this certificate: its port.
async fn start_with(issued: Issued) -> u16 {
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
    let private = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let document = document(&params(1.0));
        let handler: Arc<Mutex<Handler>> =
            Arc::new(Mutex::new(Box::new(move |_| Reply::json(200, &document))));
        let log = Arc::new(Mutex::new(Vec::new()));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust the certificate goes away here.
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(stream, 0, Arc::clone(&handler), Arc::clone(&log)));
            }
        }
    });
    port
}

/// A server for `localhost` under a new authority: its address and the authority's certificate.
async fn start() -> (String, String) {
    let authority = Authority::new("an organisation");
    let port = start_with(authority.issue("localhost")).await;
    (format!("https://localhost:{port}"), authority.root_pem)
}

fn trusting(pem: &str) -> HttpSettings {
    let settings = HttpSettings::default();
    settings.add_root_certificate_pem(pem.as_bytes()).unwrap()
}

#[tokio::test]
async fn a_certificate_is_trusted_only_with_its_root() {
    let (address, root) = start().await;
    let (_, other_root) = start().await;

    for roots in [&root, &format!("{other_root}{root}")] {
        let client = StudyClient::with_settings(&address, &trusting(roots)).unwrap();
        assert_eq!(client.fetch_study(STUDY).await.unwrap().id(), STUDY);
    }
    let client = StudyClient::with_settings(&address, &trusting(&other_root)).unwrap();
    let error = client.fetch_study(STUDY).await.unwrap_err();
    assert_says(&error, &["is not trusted", "root certificate"]);
    // Trying again would not make it trusted.
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn refused_certificates_are_told_apart() {
    let authority = Authority::new("an organisation");
    let valid = start_with(authority.issue("localhost")).await;
    let expired = start_with(authority.issue_expired("localhost")).await;
    let authoritys = start_with(authority.issue_authority("localhost")).await;
    let settings = trusting(&authority.root_pem);
    let is_authority = "is that of a certificate authority";
    for (host, port, says, more) in [
        ("127.0.0.1", valid, "is for another host", "localhost"),
        ("localhost", authoritys, is_authority, "has to replace"),
        ("localhost", expired, "has expired", "renew"),
    ] {
        let address = format!("https://{host}:{port}");
        let client = StudyClient::with_settings(&address, &settings).unwrap();
        let error = client.fetch_study(STUDY).await.unwrap_err();
        assert_says(&error, &[says, more, &address]);
        assert!(!error.is_retryable());
    }
}

/// An address with https where the server speaks http.
#[tokio::test]
async fn plain_http_behind_https_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = format!("https://localhost:{port}");
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    });
    let settings = HttpSettings {
        retry: eigenveil_client::http::RetryPolicy::never(),
        ..HttpSettings::default()
    };
    let client = StudyClient::with_settings(&address, &settings).unwrap();
    let error = client.fetch_study(STUDY).await.unwrap_err();
    assert_says(error, &["is its address http:"]);
}
