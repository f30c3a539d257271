//! HTTPS: which connections are rejected and how, and renewing the certificate of a running server.

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
    connections::connect_from,
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

    /// A connection that trusts this authority and expects `name`.
    async fn connect(
        &self,
        authority: &Authority,
        name: &str,
    ) -> Result<TlsStream<TcpStream>, rustls::Error> {
        let stream = self.handshake(authority, name).await;
        stream.map_err(|error| error.downcast::<rustls::Error>().unwrap())
    }

    async fn trusted(&self) -> TlsStream<TcpStream> {
        self.connect(&self.authority, "localhost").await.unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.server.directory.path().join(name)
    }

    /// Connects like [`connect`](Self::connect), but the server may also close the connection.
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
async fn https_is_served_and_plain_http_gets_an_error() {
    let server = Secured::start(|_| {}).await;
    let mut stream = server.trusted().await;
    for _ in 0..2 {
        let response = asks(&mut stream).await;
        assert!(response.starts_with("HTTP/1.1 200"));
        assert!(
            response.contains("strict-transport-security: max-age="),
            "{response}"
        );
    }
    // With a body on its way, as from a device.
    for request in [
        "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n".to_owned(),
        format!(
            "POST /v1/studies HTTP/1.1\r\nhost: x\r\ncontent-length: 40000\r\n\r\n{}",
            "x".repeat(40_000)
        ),
    ] {
        let mut plain = server.server.connect().await;
        plain.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        plain.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
        assert!(
            response.contains("connection: close") && response.contains("https://"),
            "{response}"
        );
        assert!(!response.contains("up"), "{response}");
    }
    // Anything else is closed without a response.
    let mut noise = server.server.connect().await;
    noise.write_all(&[0xff; 64]).await.unwrap();
    let mut response = Vec::new();
    let _ = noise.read_to_end(&mut response).await;
    assert!(response.is_empty());
    let mut broken = server.server.connect().await;
    broken.write_all(&[0x16; 64]).await.unwrap();
    let _ = broken.read_to_end(&mut response).await;
    assert!(!response.starts_with(b"HTTP"));
    assert!(asks(&mut stream).await.starts_with("HTTP/1.1 200"));
    drop(stream);
    server.stop().await;
}

/// A certificate that clients reject may be the only one: it is used, with a warning.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_clients_reject_is_served_with_a_warning() {
    let server = Secured::start(|_| {}).await;
    let warns = |words: &str| {
        let warnings = check(&server.server.config).unwrap();
        warnings.iter().any(|warning| warning.contains(words))
    };
    assert!(!warns("clients"));
    let authority = &server.authority;
    for (issued, words) in [
        (authority.issue_expired("localhost"), "has expired"),
        (authority.issue_authority("localhost"), "(CA:TRUE"),
    ] {
        issued.write(server.server.directory.path());
        assert_eq!(server.reload().unwrap(), Reload::Replaced);
        assert!(warns(words), "{words}");
        let refused = server.connect(authority, "localhost").await;
        assert!(refused.is_err(), "clients accept it: {words}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_used_for_new_connections_only() {
    let server = Secured::start(|_| {}).await;
    let mut old = server.trusted().await;
    asks(&mut old).await;
    assert_eq!(server.reload().unwrap(), Reload::Unchanged);

    let next = Authority::new("second");
    let renewed = next.issue("localhost");
    // The files are renewed one after the other: in between they do not match, and the previous pair stays in use.
    fs::write(server.file("cert.pem"), &renewed.certificate).unwrap();
    let error = server.reload().unwrap_err();
    assert!(
        error
            .detail()
            .contains("does not belong to the certificate"),
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
    // The earlier connection continues.
    asks(&mut old).await;

    fs::remove_file(server.file("key.pem")).unwrap();
    let error = server.reload().unwrap_err();
    assert!(error.detail().contains("key.pem"), "{error}");
    asks(&mut server.connect(&next, "localhost").await.unwrap()).await;
    drop(old);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_files_are_loaded_automatically() {
    let server = Secured::start(|config| config.tls_reload_seconds = 1).await;
    let next = Authority::new("second");
    next.issue("localhost")
        .write(server.server.directory.path());
    until("the new certificate is served", async || {
        server.handshake(&next, "localhost").await.is_ok()
    })
    .await;
    server.stop().await;
}

/// A connection slot is taken before the handshake, and lost by a client that does not complete it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_count_as_connections_and_time_out() {
    let server = Secured::start(|config| {
        config.max_connections = 2;
        config.tuning.handshake_timeout = Duration::from_secs(1);
    })
    .await;
    // One sends nothing, one begins.
    let silent = server.server.connect().await;
    let mut begun = server.server.connect().await;
    begun.write_all(&[0x16, 3, 1]).await.unwrap();
    // The third gets in once one of them was cut off. On a busy machine the third may be cut off too.
    let mut third = None;
    until("a free place", async || {
        third = server.handshake(&server.authority, "localhost").await.ok();
        third.is_some()
    })
    .await;
    let (silent, begun) = (silent.into_std().unwrap(), begun.into_std().unwrap());
    let cut = |mut stream: &std::net::TcpStream| {
        // End of file or reset, at once.
        let read = stream.read(&mut [0; 64]);
        !matches!(read, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(cut(&silent) || cut(&begun), "three connections at a time");
    asks(&mut third.unwrap()).await;
    until("both are cut", async || cut(&silent) && cut(&begun)).await;
    server.stop().await;
}

/// An address has 16 handshakes at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_handshakes_hold_up_their_own_address_only() {
    let server = Secured::start(|config| {
        config.tuning.handshake_timeout = Duration::from_secs(24 * 3_600);
    })
    .await;
    let half = async || {
        let (config, name) = (server.authority.client(), "localhost".try_into().unwrap());
        let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        let mut stream = connect_from(&server.server, 2).await;
        stream.write_all(&hello).await.unwrap();
        stream
    };
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut stream = half().await;
        stream.read_u8().await.unwrap();
        held.push(stream);
    }
    let mut next = half().await;
    asks(&mut server.trusted().await).await;
    assert!(next.try_read(&mut [0]).is_err(), "17 at a time");
    drop(held.pop());
    within("its turn", next.read_u8()).await.unwrap();
    drop((held, next));
    server.stop().await;
}

/// A client that stops in the middle of a handshake does not block the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_does_not_wait_for_a_handshake_beyond_its_timeout() {
    let server = Secured::start(|config| {
        config.shutdown_timeout_ms = 300;
        config.tuning.handshake_timeout = Duration::from_secs(24 * 3_600);
    })
    .await;
    let _silent = server.server.connect().await;
    // Accepted after it, and served: the server is waiting for the first one's handshake.
    let next = server.connect(&server.authority, "localhost").await;
    asks(&mut next.unwrap()).await;
    within("the end of the server", server.stop()).await;
}

#[tokio::test]
async fn an_unusable_certificate_is_rejected_at_the_start_and_by_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("first");
    let (one, other) = (authority.issue("localhost"), authority.issue("localhost"));
    let config = config(&directory);
    for (certificate, key, says) in [
        (
            Some(one.certificate.as_str()),
            Some(other.key.as_str()),
            "does not belong to the certificate",
        ),
        (Some("nothing"), Some(&one.key), "has no certificate"),
        (
            Some(&one.certificate),
            Some("nothing"),
            "has no private key",
        ),
        (Some(&one.key), Some(&one.key), "has no certificate"),
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
            assert_eq!(error.code(), ErrorCode::InvalidConfig);
            assert!(error.detail().contains(says), "{error}");
            // Contents are not repeated: they may be a key.
            assert!(!error.detail().contains(&one.key[40..60]), "{error}");
        }
        assert!(!config.data_dir.exists());
    }
    for certificate_only in [true, false] {
        let mut half = config.clone();
        let missing = if certificate_only {
            &mut half.tls_key
        } else {
            &mut half.tls_cert
        };
        *missing = None;
        let error = half.check().unwrap_err();
        assert!(error.detail().contains("or neither"), "{error}");
    }
}

#[test]
fn plain_http_beyond_this_machine_is_rejected_unless_allowed() {
    let plain = |listen: &str| ServerConfig {
        listen: listen.parse().unwrap(),
        ..ServerConfig::new("data")
    };
    for near in ["127.0.0.1", "127.9.9.9", "[::1]", "[::ffff:127.0.0.1]"] {
        plain(&format!("{near}:80")).check().unwrap();
    }
    for far in ["0.0.0.0:80", "[::]:80", "192.0.2.7:80", "[2001:db8::1]:80"] {
        let mut config = plain(far);
        let error = config.check().unwrap_err();
        for word in [
            far,
            "everybody on the path",
            "--tls-cert",
            "--insecure-http",
        ] {
            assert!(error.detail().contains(word), "{error}");
        }
        config.insecure_http = true;
        config.check().unwrap();
        config.insecure_http = false;
        config.tls_cert = Some("cert.pem".into());
        config.tls_key = Some("key.pem".into());
        config.check().unwrap();
    }
}
