//! HTTPS: who is refused and how, and a certificate that is renewed while the server runs.

use std::{fs, io::Read as _, path::PathBuf, sync::Arc, time::Duration};

use eigenveil_server::{Reload, Server, ServerConfig, check};
use eigenveil_shared::ErrorCode;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls};

use crate::{
    certificates::Authority,
    common::{
        environment,
        waiting::{until, within},
    },
    running::Running,
};

/// A server whose certificate is for `localhost`.
struct Secured {
    authority: Authority,
    server: Running,
}

impl Secured {
    async fn start(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::new("first");
        authority.issue("localhost").write(directory.path());
        let secured = config(&directory);
        let server = Running::over(directory, |config| {
            *config = secured;
            change(config);
        })
        .await;
        Self { authority, server }
    }

    fn reload(&self) -> eigenveil_shared::Result<Reload> {
        self.server.certificates.as_ref().unwrap().reload()
    }

    /// A connection that trusts this authority and believes to speak to `name`.
    async fn connect(
        &self,
        authority: &Authority,
        name: &str,
    ) -> Result<TlsStream<TcpStream>, rustls::Error> {
        let stream = self.handshake(authority, name).await;
        stream.map_err(|error| error.downcast::<rustls::Error>().unwrap())
    }

    /// A connection that trusts the server's first authority.
    async fn trusted(&self) -> TlsStream<TcpStream> {
        self.connect(&self.authority, "localhost").await.unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.directory.path().join(name)
    }

    /// The same as [`connect`](Self::connect), where the server may also cut the connection.
    async fn handshake(
        &self,
        authority: &Authority,
        name: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::new(authority.client()));
        let stream = self.server.connect().await;
        let name = name.to_owned().try_into().unwrap();
        connector.connect(name, stream).await
    }

    async fn stop(self) {
        self.server.stop().await;
    }
}

fn config(directory: &TempDir) -> ServerConfig {
    let file = |name: &str| -> Option<PathBuf> { Some(directory.path().join(name)) };
    ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        tls_cert: file("cert.pem"),
        tls_key: file("key.pem"),
        tls_reload_seconds: 0,
        ..ServerConfig::new(directory.path().join("data"))
    }
}

/// Whether the connection still answers.
async fn asks(stream: &mut TlsStream<TcpStream>) -> String {
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"{\"status\":\"up\"}") {
        text.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn https_is_served_and_plain_http_is_told_so() {
    let server = Secured::start(|_| {}).await;
    let mut stream = server.trusted().await;
    for _ in 0..2 {
        assert!(asks(&mut stream).await.starts_with("HTTP/1.1 200"));
    }
    // With a body on its way, as a client of the reports would have.
    for request in [
        "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        format!(
            "POST /v1/studies HTTP/1.1\r\nhost: x\r\ncontent-length: 40000\r\n\r\n{}",
            "x".repeat(40_000)
        ),
    ] {
        let mut plain = server.server.connect().await;
        plain.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        plain.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        assert!(
            answer.contains("connection: close") && answer.contains("https://"),
            "{answer}"
        );
        assert!(!answer.contains("up"), "{answer}");
    }
    // What is neither is cut without a word.
    let mut noise = server.server.connect().await;
    noise.write_all(&[0xff; 64]).await.unwrap();
    let mut answer = Vec::new();
    let _ = noise.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    let mut broken = server.server.connect().await;
    broken.write_all(&[0x16; 64]).await.unwrap();
    let _ = broken.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"));
    assert!(asks(&mut stream).await.starts_with("HTTP/1.1 200"));
    drop(stream);
    server.stop().await;
}

/// An expired certificate may be all there is: it is used, and told of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_served_with_a_warning() {
    let server = Secured::start(|_| {}).await;
    let expired = server.authority.issue_expired("localhost");
    expired.write(server.server.directory.path());
    assert_eq!(server.reload().unwrap(), Reload::Replaced);
    let warnings = check(&server.server.config).unwrap();
    let told = warnings.iter().any(|warning| warning.contains("expired"));
    assert!(told, "{warnings:?}");
    let refused = server.connect(&server.authority, "localhost").await;
    assert!(refused.is_err(), "clients look at the dates");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_for_new_connections_only() {
    let server = Secured::start(|_| {}).await;
    let mut old = server.trusted().await;
    asks(&mut old).await;
    assert_eq!(server.reload().unwrap(), Reload::Unchanged);

    let next = Authority::new("second");
    let renewed = next.issue("localhost");
    // The files are renewed one after the other: in between the pair does not fit, and the one before goes on.
    fs::write(server.file("cert.pem"), &renewed.certificate).unwrap();
    let error = server.reload().unwrap_err();
    assert!(
        error.detail().contains("is not that of the certificate"),
        "{error}"
    );
    asks(&mut server.trusted().await).await;
    fs::write(server.file("key.pem"), "nonsense").unwrap();
    assert!(server.reload().is_err());
    asks(&mut server.trusted().await).await;

    renewed.write(server.server.directory.path());
    assert_eq!(server.reload().unwrap(), Reload::Replaced);
    server
        .connect(&server.authority, "localhost")
        .await
        .unwrap_err();
    asks(&mut server.connect(&next, "localhost").await.unwrap()).await;
    // The connection of before goes on.
    asks(&mut old).await;

    fs::remove_file(server.file("key.pem")).unwrap();
    let error = server.reload().unwrap_err();
    assert!(error.detail().contains("key.pem"), "{error}");
    asks(&mut server.connect(&next, "localhost").await.unwrap()).await;
    drop(old);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_files_are_found_without_being_asked() {
    let server = Secured::start(|config| config.tls_reload_seconds = 1).await;
    let next = Authority::new("second");
    next.issue("localhost")
        .write(server.server.directory.path());
    until("the new certificate is served", async || {
        server.connect(&next, "localhost").await.is_ok()
    })
    .await;
    server.stop().await;
}

/// The place of a connection is taken before the handshake, and whoever does not go through with it loses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_count_as_connections_and_end() {
    let server = Secured::start(|config| {
        config.max_connections = 2;
        config.tuning.handshake_timeout = Duration::from_secs(1);
    })
    .await;
    // One says nothing, one begins.
    let silent = server.server.connect().await;
    let mut begun = server.server.connect().await;
    begun.write_all(&[0x16, 3, 1]).await.unwrap();
    // The third comes in once one of them has been cut. A busy machine may cut the third too.
    let mut third = None;
    until("a free place", async || {
        third = server.handshake(&server.authority, "localhost").await.ok();
        third.is_some()
    })
    .await;
    let (silent, begun) = (silent.into_std().unwrap(), begun.into_std().unwrap());
    let cut = |mut stream: &std::net::TcpStream| {
        // An end or a reset, at once.
        let read = stream.read(&mut [0; 64]);
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(cut(&silent) || cut(&begun), "three connections at a time");
    asks(&mut third.unwrap()).await;
    until("both are cut", async || cut(&silent) && cut(&begun)).await;
    server.stop().await;
}

/// Whoever stops in the middle of a handshake does not hold the server up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_waits_for_no_handshake_beyond_its_time() {
    let server = Secured::start(|config| {
        config.shutdown_timeout_ms = 300;
        config.tuning.handshake_timeout = Duration::from_secs(24 * 3_600);
    })
    .await;
    let _silent = server.server.connect().await;
    // Accepted after it, and served: the server waits for the first one's handshake.
    let next = server.connect(&server.authority, "localhost").await;
    asks(&mut next.unwrap()).await;
    within("the end of the server", server.stop()).await;
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_is_refused_at_the_start_and_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("first");
    let (one, other) = (authority.issue("localhost"), authority.issue("localhost"));
    let config = config(&directory);
    for (certificate, key, says) in [
        (
            Some(one.certificate.as_str()),
            Some(other.key.as_str()),
            "is not that of the certificate",
        ),
        (Some("nothing"), Some(&one.key), "holds no certificate"),
        (Some(&one.certificate), Some("nothing"), "holds no key"),
        (Some(&one.key), Some(&one.key), "holds no certificate"),
        (None, Some(&one.key), "cert.pem cannot be read"),
        (Some(&one.certificate), None, "key.pem cannot be read"),
    ] {
        for (name, text) in [("cert.pem", certificate), ("key.pem", key)] {
            let path = directory.path().join(name);
            match text {
                Some(text) => fs::write(path, text).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
        }
        let started = Server::bind(config.clone(), environment())
            .await
            .unwrap_err();
        for error in [started, check(&config).unwrap_err()] {
            assert_eq!(error.code(), ErrorCode::InvalidRequest);
            assert!(error.detail().contains(says), "{error}");
            // What was read is not repeated: it may be a key.
            assert!(!error.detail().contains(&one.key[40..60]), "{error}");
        }
        assert!(!config.data_dir.exists());
    }
    for half in [
        ServerConfig {
            tls_key: None,
            ..config.clone()
        },
        ServerConfig {
            tls_cert: None,
            ..config.clone()
        },
    ] {
        let error = half.check().unwrap_err();
        assert!(error.detail().contains("or neither"), "{error}");
    }
}

#[test]
fn plain_http_beyond_this_machine_is_refused_unless_allowed() {
    let plain = |listen: &str| ServerConfig {
        listen: listen.parse().unwrap(),
        ..ServerConfig::new("data")
    };
    for near in [
        "127.0.0.1:80",
        "127.9.9.9:80",
        "[::1]:80",
        "[::ffff:127.0.0.1]:80",
    ] {
        plain(near).check().unwrap();
    }
    for far in ["0.0.0.0:80", "[::]:80", "192.0.2.7:80", "[2001:db8::1]:80"] {
        let error = plain(far).check().unwrap_err();
        for word in [far, "everybody on the way", "--tls-cert", "--insecure-http"] {
            assert!(error.detail().contains(word), "{error}");
        }
        let allowed = ServerConfig {
            insecure_http: true,
            ..plain(far)
        };
        allowed.check().unwrap();
        let secured = ServerConfig {
            tls_cert: Some("cert.pem".into()),
            tls_key: Some("key.pem".into()),
            ..plain(far)
        };
        secured.check().unwrap();
    }
}
