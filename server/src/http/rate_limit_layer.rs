//! Limits for clients, before a handler is asked.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use axum::{
    extract::{ConnectInfo, Request},
    http::{Extensions, HeaderMap},
    response::{IntoResponse, Response},
};

use super::problem::ApiError;
use crate::{
    app::AppState,
    config::{Network, ServerConfig},
    net::rate_limiter::address_key,
    store::{Identity, TokenHash},
};

/// Answers 429 where an address, or a token in force, asks too often. Where the application does not say who is
/// connected
/// (`ConnectInfo<SocketAddr>`), the limits of addresses do not apply.
///
/// Wrong tokens are not counted here but where a token is looked up ([`authenticate`]): whatever route and header it came
/// by.
pub(crate) async fn enforce_rate_limits(
    app: &AppState,
    request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let (headers, limits) = (request.headers(), app.rate_limits());
    if let Some(limit) = &limits.address
        && let Some(ClientKey(address)) =
            ClientKey::from_request(app, headers, request.extensions())
        && let Err(wait) = limit.check(&address, Instant::now())
    {
        return ApiError::rate_limited("requests from this address", wait).into_response();
    }
    if limits.token.is_some()
        && let Some(token) = token_in_force(app, headers)
        && let Err(rate_limited) = check_token_limit(app, &token)
    {
        return rate_limited.into_response();
    }
    next(request).await
}

/// The token that a request acts with: in its head, or the one that its session was begun with. Tokens that are
/// nobody's are not held, so that trying many cannot make the limit of others start afresh.
fn token_in_force(app: &AppState, headers: &HeaderMap) -> Option<TokenHash> {
    let token = match super::extract::bearer(headers) {
        Some(bearer) => TokenHash::new(bearer?),
        None => app.sessions().token_of(headers)?,
    };
    app.store().identify_hash(&token).map(|_| token)
}

/// Counts a request with a token in force.
pub(crate) fn check_token_limit(app: &AppState, token: &TokenHash) -> Result<(), ApiError> {
    let Some(limit) = &app.rate_limits().token else {
        return Ok(());
    };
    let checked = limit.check(token.bytes(), Instant::now());
    checked.map_err(|wait| ApiError::rate_limited("requests with this token", wait))
}

/// Whose token this is. The right one is known first, and is not put off by wrong ones from the same address, which
/// anybody behind the same proxy may have tried; a wrong one counts against the address.
pub(crate) fn authenticate(
    app: &AppState,
    token: &TokenHash,
    client_key: Option<&ClientKey>,
) -> Result<Option<Identity>, ApiError> {
    let identity = app.store().identify_hash(token);
    if identity.is_none()
        && let Some(ClientKey(address)) = client_key
    {
        let checked = app.rate_limits().failed_auth.check(address, Instant::now());
        checked.map_err(|wait| ApiError::rate_limited("refused tokens from this address", wait))?;
    }
    Ok(identity)
}

/// What stands for the address of whoever asks.
pub(crate) struct ClientKey([u8; 16]);

impl ClientKey {
    /// `None` where the application does not say who is connected.
    pub(crate) fn from_request(
        app: &AppState,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Option<Self> {
        let ConnectInfo(peer) = extensions.get::<ConnectInfo<SocketAddr>>()?;
        let address = client(peer.ip(), headers, app.config());
        Some(Self(address_key(address)))
    }

    pub(crate) fn address(self) -> [u8; 16] {
        self.0
    }
}

/// Who asks: the other end of the connection, or, where that is a trusted proxy, the right-most address of its
/// `X-Forwarded-For` that is not one. What is further left was written by nobody that is trusted.
fn client(peer: IpAddr, headers: &HeaderMap, config: &ServerConfig) -> IpAddr {
    let trusted = |address| {
        let holds = |network: &Network| network.contains(address);
        config.trusted_proxies.iter().any(holds)
    };
    let mut address = peer;
    if !trusted(address) {
        return address;
    }
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    for entry in lines.flat_map(|line| line.to_str().unwrap_or("").rsplit(',')) {
        // Hidden, unknown or broken: the proxy that wrote it is all that is known.
        let Some(before) = node(entry.trim()) else {
            return address;
        };
        address = before;
        if !trusted(address) {
            return address;
        }
    }
    address
}

/// An address, with or without a port.
fn node(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(text)
        .parse()
        .ok()
        .or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_its_own_word() {
        let config = ServerConfig {
            trusted_proxies: ["10.0.0.0/8", "fd00::/8"]
                .map(|n| n.parse().unwrap())
                .into(),
            ..ServerConfig::new("data")
        };
        let seen = |peer: &str, lines: &[&str]| {
            let mut headers = HeaderMap::new();
            // No other header is read.
            headers.append("forwarded", "for=203.0.113.1".parse().unwrap());
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            client(peer.parse().unwrap(), &headers, &config).to_string()
        };
        for (peer, line, address) in [
            // Whoever connects by himself may write what he likes.
            ("198.51.100.1", "192.0.2.7", "198.51.100.1"),
            ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
            ("::ffff:10.0.0.1", "192.0.2.7", "192.0.2.7"),
            // Made up by the client, then the address that the proxy saw.
            ("10.0.0.1", "203.0.113.9, 192.0.2.7", "192.0.2.7"),
            // Two proxies in a row.
            ("10.0.0.1", "203.0.113.9, 192.0.2.7, 10.9.9.9", "192.0.2.7"),
            ("10.0.0.1", "10.3.3.3, 10.2.2.2", "10.3.3.3"),
            ("fd00::1", "[2001:db8::5]:443", "2001:db8::5"),
            ("10.0.0.1", "192.0.2.7:5555", "192.0.2.7"),
            // Nothing readable: the last that was believed.
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "unknown", "10.0.0.1"),
            ("10.0.0.1", "192.0.2.7, _hidden", "10.0.0.1"),
            ("10.0.0.1", "192.0.2.7,", "10.0.0.1"),
            ("10.0.0.1", "1.2.3", "10.0.0.1"),
            ("10.0.0.1", "192.0.2.7, 10.5.5.5.5", "10.0.0.1"),
            ("10.0.0.1", "192.0.2.7, nonsense, 10.4.4.4", "10.4.4.4"),
        ] {
            assert_eq!(seen(peer, &[line]), address, "{peer}: {line:?}");
        }
        assert_eq!(seen("10.0.0.1", &[]), "10.0.0.1");
        // Several lines are one list.
        let lines = ["203.0.113.9", "192.0.2.7, 10.1.1.1"];
        assert_eq!(seen("10.0.0.1", &lines), "192.0.2.7");
    }
}
