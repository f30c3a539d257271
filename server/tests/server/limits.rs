//! Limits for addresses and tokens, and whose word about an address counts.

use std::net::SocketAddr;

use axum::{
    body::Body,
    extract::ConnectInfo,
    http::{Request, header},
};
use eigenveil_server::ServerConfig;
use eigenveil_shared::ErrorCode;

use crate::common::{Answer, Harness};

/// One request for the operator's list of estimates of no study, or, without a token, for the public list.
struct Asks<'a> {
    peer: &'a str,
    token: Option<&'a str>,
    /// The address that a proxy says it speaks for.
    forwarded: Option<&'a str>,
}

impl<'a> Asks<'a> {
    fn from(peer: &'a str) -> Self {
        Self {
            peer,
            token: None,
            forwarded: None,
        }
    }

    fn with_token(self, token: &'a str) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    fn on_behalf_of(self, address: &'a str) -> Self {
        Self {
            forwarded: Some(address),
            ..self
        }
    }

    async fn send(self, server: &Harness) -> Answer {
        let peer: SocketAddr = format!("{}:40000", self.peer).parse().unwrap();
        let mut request = Request::get("/v1/studies").extension(ConnectInfo(peer));
        if let Some(token) = self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(address) = self.forwarded {
            request = request.header("x-forwarded-for", address);
        }
        server.send(request.body(Body::empty()).unwrap()).await
    }
}

#[track_caller]
fn is_limited(answer: &Answer, what: &str) {
    let problem = answer.is_problem(429, ErrorCode::TooManyRequests);
    assert!(problem.detail.contains(what), "{problem:?}");
    let wait: u64 = answer.headers[header::RETRY_AFTER]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(problem.detail.contains(&format!("{wait} s")), "{problem:?}");
}

#[tokio::test]
async fn guessing_tokens_ends_soon_and_the_right_one_is_never_put_off() {
    let server = Harness::with(|config| config.wrong_tokens_per_minute = 3);
    let right = server.token.clone();
    // The right one costs nothing.
    for _ in 0..9 {
        let answer = Asks::from("192.0.2.7")
            .with_token(&right)
            .send(&server)
            .await;
        assert_eq!(answer.status, 200);
    }
    for guess in ["a", "b", "c"] {
        let answer = Asks::from("192.0.2.7")
            .with_token(guess)
            .send(&server)
            .await;
        answer.is_problem(403, ErrorCode::Forbidden);
    }
    let answer = Asks::from("192.0.2.7").with_token("d").send(&server).await;
    is_limited(&answer, "refused tokens");
    // The header that names whoever asks does not help where no proxy is trusted.
    let answer = Asks::from("192.0.2.7")
        .with_token("d")
        .on_behalf_of("192.0.2.99")
        .send(&server)
        .await;
    is_limited(&answer, "refused tokens");
    // Somebody behind the same address guesses; the operator goes on.
    for _ in 0..9 {
        let answer = Asks::from("192.0.2.7")
            .with_token(&right)
            .send(&server)
            .await;
        assert_eq!(answer.status, 200);
    }
    // What needs no token goes on, and so do others.
    assert_eq!(Asks::from("192.0.2.7").send(&server).await.status, 200);
    let answer = Asks::from("192.0.2.8")
        .with_token(&right)
        .send(&server)
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn behind_a_trusted_proxy_each_client_has_its_own_limit() {
    let server = Harness::with(|config| {
        config.address_requests_per_minute = Some(2);
        config.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    });
    let ask = async |client: &str| {
        Asks::from("10.0.0.1")
            .on_behalf_of(client)
            .send(&server)
            .await
    };
    for _ in 0..2 {
        assert_eq!(ask("192.0.2.7").await.status, 200);
    }
    is_limited(&ask("192.0.2.7").await, "requests from this address");
    // Nothing the client writes to the left of the proxy's word makes it another.
    is_limited(
        &ask("203.0.113.1, 192.0.2.7").await,
        "requests from this address",
    );
    assert_eq!(ask("192.0.2.8").await.status, 200);
    // Not through the proxy, and so not believed.
    let direct = async |claim: &str| {
        Asks::from("192.0.2.9")
            .on_behalf_of(claim)
            .send(&server)
            .await
    };
    assert_eq!(direct("1.1.1.1").await.status, 200);
    assert_eq!(direct("2.2.2.2").await.status, 200);
    is_limited(&direct("3.3.3.3").await, "requests from this address");
}

#[tokio::test]
async fn a_token_has_a_limit_wherever_it_is_used() {
    let server = Harness::with(|config| config.token_requests_per_minute = Some(2));
    let token = server.token.clone();
    for peer in ["192.0.2.7", "192.0.2.8"] {
        assert_eq!(
            Asks::from(peer)
                .with_token(&token)
                .send(&server)
                .await
                .status,
            200
        );
    }
    let third = Asks::from("192.0.2.9")
        .with_token(&token)
        .send(&server)
        .await;
    is_limited(&third, "requests with this token");
    assert_eq!(Asks::from("192.0.2.9").send(&server).await.status, 200);
}

/// Spelt otherwise, it is the same token, and one that is nobody's takes no place in the table.
#[tokio::test]
async fn a_token_is_counted_by_what_it_is_and_not_by_how_it_is_written() {
    let server = Harness::with(|config| config.token_requests_per_minute = Some(3));
    let mut statuses = Vec::new();
    for scheme in ["Bearer ", "bearer ", "BEARER   ", "bEaReR "] {
        let request = Request::get("/v1/studies")
            .header(header::AUTHORIZATION, format!("{scheme}{}", server.token));
        let answer = server.send(request.body(Body::empty()).unwrap()).await;
        statuses.push(answer.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

/// What is shipped believes the proxy that it is shipped with, and the proxy says who asks and how.
#[tokio::test]
async fn the_shipped_configuration_sees_through_the_shipped_proxy() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/");
    let settings = ServerConfig::from_file(format!("{shipped}eigenveil.toml").as_ref()).unwrap();
    let server = Harness::with(|config| {
        config.wrong_tokens_per_minute = 1;
        config.trusted_proxies = settings.trusted_proxies;
    });
    for proxy in ["127.0.0.1", "[::1]"] {
        for client in ["192.0.2.7", "192.0.2.8"] {
            let ask = async || {
                let asks = Asks::from(proxy).with_token("x");
                asks.on_behalf_of(client).send(&server).await
            };
            if proxy == "127.0.0.1" {
                ask().await.is_problem(403, ErrorCode::Forbidden);
            }
            is_limited(&ask().await, "refused tokens");
        }
    }
    let nginx = std::fs::read_to_string(format!("{shipped}nginx.conf")).unwrap();
    for line in [
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        "proxy_set_header X-Forwarded-Proto $scheme;",
        "add_header Strict-Transport-Security",
    ] {
        assert!(nginx.contains(line), "{line}");
    }
    let caddy = std::fs::read_to_string(format!("{shipped}Caddyfile")).unwrap();
    assert!(caddy.contains("Strict-Transport-Security"));
}

/// By default nobody who sends reports is limited by where he sits: a clinic, a carrier's NAT.
#[tokio::test]
async fn by_default_many_may_share_an_address() {
    let server = Harness::new();
    for _ in 0..2_000 {
        assert_eq!(Asks::from("192.0.2.7").send(&server).await.status, 200);
    }
}
