//! Rate limits, enforced before a handler runs.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use axum::{
    extract::{ConnectInfo, Request},
    http::{Extensions, HeaderMap, header},
    response::{IntoResponse, Response},
};
use eigenveil_store::{ClientKey, Identity, TokenHash};

use crate::{
    app::AppState,
    config::{Network, ServerConfig},
    http::ApiError,
    net::rate_limiter::address_key,
};

/// Responds 429 if a client's address, if it is known, or a valid bearer token, makes too many requests.
///
/// Wrong tokens are counted in [`authenticate`], where tokens are looked up, whatever route and header they came by.
pub(crate) async fn enforce_rate_limits(
    app: &AppState,
    request: Request,
    client: Option<&ClientKey>,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let (headers, limits) = (request.headers(), app.rate_limits());
    if let Some(limit) = &limits.address
        && let Some(client) = client
        && let Err(wait) = limit.check(client, Instant::now())
    {
        return ApiError::rate_limited("requests from this address", wait).into_response();
    }
    if limits.token.is_some()
        && let Some(token) = valid_token(app, headers)
        && let Err(rate_limited) = check_token_limit(app, &token)
    {
        return rate_limited.into_response();
    }
    next(request).await
}

/// The valid token of a request, from its Authorization header or its session. Unknown tokens are not tracked, so that
/// trying many cannot reset other clients' limits.
fn valid_token(app: &AppState, headers: &HeaderMap) -> Option<TokenHash> {
    let token = match bearer(headers) {
        Some(bearer) => TokenHash::new(bearer?),
        None => app.sessions().token_of(headers)?,
    };
    app.store().identify_hash(&token).map(|_| token)
}

pub(crate) fn check_token_limit(app: &AppState, token: &TokenHash) -> Result<(), ApiError> {
    let Some(limit) = &app.rate_limits().token else {
        return Ok(());
    };
    let checked = limit.check(token.bytes(), Instant::now());
    checked.map_err(|wait| ApiError::rate_limited("requests with this token", wait))
}

/// Whose token this is. A valid token is accepted first, so that wrong ones from the same address, which anybody behind
/// the same proxy may have tried, do not delay it; a wrong one counts against the address.
pub(crate) async fn authenticate(
    app: &AppState,
    token: &TokenHash,
    client: Option<ClientKey>,
) -> Result<Option<Identity>, ApiError> {
    let identity = app.store().identify_hash(token);
    if identity.is_some() {
        return Ok(identity);
    }
    if let Some(client) = client {
        let checked = app.rate_limits().failed_auth.check(&client, Instant::now());
        checked.map_err(|wait| {
            ApiError::rate_limited("failed authentications from this address", wait)
        })?;
    }
    app.store().look_again().await?;
    Ok(app.store().identify_hash(token))
}

/// The client of a request; `None` if the application does not provide `ConnectInfo`.
pub(crate) fn client_key(
    app: &AppState,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Option<ClientKey> {
    let ConnectInfo(peer) = extensions.get()?;
    Some(key_of(app, headers, *peer))
}

/// The client of a request on a connection with this peer.
pub(crate) fn key_of(app: &AppState, headers: &HeaderMap, peer: SocketAddr) -> ClientKey {
    address_key(client_address(peer.ip(), headers, app.config()))
}

/// The client's address: that of the connection or, if that is a trusted proxy, the right-most address in
/// `X-Forwarded-For` that is not one. Entries further left were not written by anybody trusted.
fn client_address(peer: IpAddr, headers: &HeaderMap, config: &ServerConfig) -> IpAddr {
    let trusted = |address| {
        let matches = |network: &Network| network.contains(address);
        config.trusted_proxies.iter().any(matches)
    };
    let mut address = peer;
    if !trusted(address) {
        return address;
    }
    let lines = headers.get_all("x-forwarded-for").iter().rev();
    for entry in lines.flat_map(|line| line.to_str().unwrap_or("").rsplit(',')) {
        // Hidden, unknown or malformed: only the proxy that wrote it is known.
        let Some(before) = parse_address(entry.trim()) else {
            return address;
        };
        address = before;
        if !trusted(address) {
            return address;
        }
    }
    address
}

fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(text)
        .parse()
        .ok()
        .or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
}

/// The bearer token of a request: `None` without an Authorization header, `Some(None)` if the header has another form.
/// However the header is written, the same token is the same text.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<Option<&str>> {
    let value = headers.get(header::AUTHORIZATION)?;
    Some(value.to_str().ok().and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme
            .eq_ignore_ascii_case("bearer")
            .then_some(token.trim())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_entries_written_by_trusted_proxies_count() {
        let config = ServerConfig {
            trusted_proxies: ["10.0.0.0/8", "fd00::/8"]
                .map(|n| n.parse().unwrap())
                .into(),
            ..ServerConfig::new("data")
        };
        let seen = |peer: &str, lines: &[&str]| {
            let mut headers = HeaderMap::new();
            // Other headers are ignored.
            headers.append("forwarded", "for=203.0.113.1".parse().unwrap());
            for line in lines {
                headers.append("x-forwarded-for", line.parse().unwrap());
            }
            client_address(peer.parse().unwrap(), &headers, &config).to_string()
        };
        for (peer, line, address) in [
            // A client that connects directly may write anything.
            ("198.51.100.1", "192.0.2.7", "198.51.100.1"),
            ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
            ("::ffff:10.0.0.1", "192.0.2.7", "192.0.2.7"),
            // Made up by the client, followed by the address that the proxy saw.
            ("10.0.0.1", "203.0.113.9, 192.0.2.7", "192.0.2.7"),
            // Two proxies in a row.
            ("10.0.0.1", "203.0.113.9, 192.0.2.7, 10.9.9.9", "192.0.2.7"),
            ("10.0.0.1", "10.3.3.3, 10.2.2.2", "10.3.3.3"),
            ("fd00::1", "[2001:db8::5]:443", "2001:db8::5"),
            ("10.0.0.1", "192.0.2.7:5555", "192.0.2.7"),
            // Unreadable: the last trusted entry.
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
        // Several header lines form one list.
        let lines = ["203.0.113.9", "192.0.2.7, 10.1.1.1"];
        assert_eq!(seen("10.0.0.1", &lines), "192.0.2.7");
    }
}
