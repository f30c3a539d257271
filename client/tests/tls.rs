//! HTTPS with an organisation's own certificate authority.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "common/server.rs"]
mod server;

use std::sync::{Arc, Mutex};

use common::{STUDY, params};
use eigenveil_client::http::{HttpSettings, StudyClient};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use server::{Handler, Reply, document, serve};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

/// A server for `localhost` under a new authority: its address and the authority's certificate.
async fn start() -> (String, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &Issuer::new(authority, authority_key))
        .unwrap();
    let private = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
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
    (format!("https://localhost:{port}"), root.pem())
}

#[tokio::test]
async fn a_certificate_is_trusted_only_with_its_root() {
    let (address, root) = start().await;
    let (_, other_root) = start().await;

    let trusting = HttpSettings::default()
        .add_root_certificate_pem(root.as_bytes())
        .unwrap();
    let client = StudyClient::with_settings(&address, &trusting).unwrap();
    assert_eq!(client.fetch_study(STUDY).await.unwrap().id(), STUDY);

    let both = HttpSettings::default()
        .add_root_certificate_pem(format!("{other_root}{root}").as_bytes())
        .unwrap();
    let client = StudyClient::with_settings(&address, &both).unwrap();
    assert_eq!(client.fetch_study(STUDY).await.unwrap().id(), STUDY);

    let other = HttpSettings::default()
        .add_root_certificate_pem(other_root.as_bytes())
        .unwrap();
    let client = StudyClient::with_settings(&address, &other).unwrap();
    let error = client.fetch_study(STUDY).await.unwrap_err();
    assert!(error.to_string().contains("is not trusted"), "{error}");
    assert!(error.to_string().contains("root certificate"), "{error}");
    // Trying again would not make it trusted.
    assert!(!error.is_retryable());
}
