//! Rate limits by address and token, and which proxies are trusted.

use std::net::SocketAddr;

use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Request, header},
};
use eigenveil_server::ServerConfig;
use eigenveil_shared::ErrorCode;

use crate::common::{Harness, Reply};

/// Requests the list of studies from this address, with a token, or with a forwarded address claimed by a proxy.
async fn list_studies(
    server: &Harness,
    from: &str,
    token: Option<&str>,
    claim: Option<&str>,
) -> Reply {
    let peer: SocketAddr = format!("{from}:40000").parse().unwrap();
    let mut request = Request::get("/v1/studies")
        .header(header::HOST, "x")
        .extension(ConnectInfo(peer));
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    if let Some(address) = claim {
        request = request.header("x-forwarded-for", address);
    }
    server.send(request.body(Body::empty()).unwrap()).await
}

#[track_caller]
fn is_limited(response: &Reply, what: &str) {
    let problem = response.is_problem(429, ErrorCode::TooManyRequests);
    assert!(problem.detail.contains(what), "{problem:?}");
    let wait: u64 = response.headers[header::RETRY_AFTER]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(problem.detail.contains(&format!("{wait} s")), "{problem:?}");
}

#[tokio::test]
async fn failed_authentications_are_limited_and_the_correct_token_is_never_delayed() {
    let server = Harness::with(|config| config.failed_auth_per_minute = 3);
    let right = server.token.clone();
    // The correct token costs nothing.
    for _ in 0..9 {
        let response = list_studies(&server, "192.0.2.7", Some(&right), None).await;
        assert_eq!(response.status, 200);
    }
    for guess in ["a", "b", "c"] {
        let response = list_studies(&server, "192.0.2.7", Some(guess), None).await;
        response.is_problem(403, ErrorCode::Forbidden);
    }
    let response = list_studies(&server, "192.0.2.7", Some("d"), None).await;
    is_limited(&response, "failed authentications");
    // The forwarding header does not help without a trusted proxy.
    let response = list_studies(&server, "192.0.2.7", Some("d"), Some("192.0.2.99")).await;
    is_limited(&response, "failed authentications");
    // Somebody at the same address guesses tokens; the operator is not affected.
    for _ in 0..9 {
        let response = list_studies(&server, "192.0.2.7", Some(&right), None).await;
        assert_eq!(response.status, 200);
    }
    // Requests without a token continue, and so do other addresses.
    assert_eq!(
        list_studies(&server, "192.0.2.7", None, None).await.status,
        200
    );
    let response = list_studies(&server, "192.0.2.8", Some(&right), None).await;
    assert_eq!(response.status, 200);
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_client_has_its_own_limit() {
    let server = Harness::with(|config| {
        config.address_requests_per_minute = Some(2);
        config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    });
    let through = async |client: &str| list_studies(&server, "10.0.0.1", None, Some(client)).await;
    for _ in 0..2 {
        assert_eq!(through("192.0.2.7").await.status, 200);
    }
    is_limited(&through("192.0.2.7").await, "requests from this address");
    assert_eq!(through("192.0.2.8").await.status, 200);
}

/// Written differently or from elsewhere it is the same token. (Its sessions: `pages.rs`.)
#[tokio::test]
async fn a_token_has_one_limit() {
    let server = Harness::with(|config| config.token_requests_per_minute = Some(3));
    let send = async |peer: [u8; 4], scheme: &str| {
        let request = Request::get("/v1/studies")
            .header(header::HOST, "x")
            .extension(ConnectInfo(SocketAddr::from((peer, 40_000))))
            .header(header::AUTHORIZATION, format!("{scheme}{}", server.token));
        server.send(request.body(Body::empty()).unwrap()).await
    };
    for scheme in ["Bearer ", "bearer ", "BEARER   "] {
        assert_eq!(send([192, 0, 2, 7], scheme).await.status, 200);
    }
    let other = send([192, 0, 2, 8], "bEaReR ").await;
    is_limited(&other, "requests with this token");
    let without = list_studies(&server, "192.0.2.8", None, None).await;
    assert_eq!(without.status, 200);
}

#[tokio::test]
async fn the_shipped_configuration_trusts_the_shipped_proxy() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/");
    let settings = ServerConfig::from_file(format!("{shipped}eigenveil.toml").as_ref()).unwrap();
    let server = Harness::with(|config| {
        config.failed_auth_per_minute = 1;
        config.trusted_proxies = settings.trusted_proxies;
    });
    for proxy in ["127.0.0.1", "[::1]"] {
        for client in ["192.0.2.7", "192.0.2.8"] {
            let guess = async || list_studies(&server, proxy, Some("x"), Some(client)).await;
            if proxy == "127.0.0.1" {
                guess().await.is_problem(403, ErrorCode::Forbidden);
            }
            is_limited(&guess().await, "failed authentications");
        }
    }
    let nginx = std::fs::read_to_string(format!("{shipped}nginx.conf")).unwrap();
    // With its port: pages print commands with the address by which they were reached.
    for line in [
        "proxy_set_header Host $http_host;",
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        "proxy_set_header X-Forwarded-Proto $scheme;",
        "add_header Strict-Transport-Security",
    ] {
        assert!(nginx.contains(line), "{line}");
    }
    let caddy = std::fs::read_to_string(format!("{shipped}Caddyfile")).unwrap();
    assert!(caddy.contains("Strict-Transport-Security"));
}

/// By default devices are not limited by their address: a clinic, a carrier's NAT.
#[tokio::test]
async fn by_default_requests_from_one_address_are_not_limited() {
    let server = Harness::new();
    for _ in 0..2_000 {
        assert_eq!(
            list_studies(&server, "192.0.2.7", None, None).await.status,
            200
        );
    }
}
