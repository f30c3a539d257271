//! Limits for clients, before a handler is asked.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use axum::{
    extract::{ConnectInfo, Request},
    http::{Extensions, HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use eigenveil_shared::{Error, ErrorCode};

use super::problem::ApiError;
use crate::{
    app::AppState,
    config::{Network, ProxyHeader, ServerConfig},
    limits::address_key,
};

/// Whether a request with this head is counted at all.
pub(super) fn concern(app: &AppState, headers: &HeaderMap) -> bool {
    app.limits().address.is_some()
        || headers.contains_key(header::AUTHORIZATION)
        || is_form(headers)
}

/// Whether the body is a form, such as the one that logs in with a token.
fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| {
        kind.as_bytes()
            .starts_with(b"application/x-www-form-urlencoded")
    })
}

/// In the extensions of an answer: a form brought a token that is nobody's.
#[derive(Clone, Copy)]
pub(crate) struct RefusedToken;

/// What stands for the address of whoever asks, where the application says who is connected.
pub(super) fn address(app: &AppState, parts: &Parts) -> Option<[u8; 16]> {
    key(app, &parts.extensions, &parts.headers)
}

pub(super) fn key(
    app: &AppState,
    extensions: &Extensions,
    headers: &HeaderMap,
) -> Option<[u8; 16]> {
    let ConnectInfo(peer) = extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(address_key(client(peer.ip(), headers, app.config())))
}

/// Answers 429 where a limit is reached. Where the application does not say who is connected
/// (`ConnectInfo<SocketAddr>`), the limits of addresses do not apply.
pub(super) async fn within(
    app: &AppState,
    request: Request,
    next: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    if !concern(app, request.headers()) {
        return next(request).await;
    }
    let limits = app.limits();
    let token = request.headers().get(header::AUTHORIZATION);
    let address = key(app, request.extensions(), request.headers());
    let now = Instant::now();
    if let (Some(limit), Some(address)) = (&limits.address, &address)
        && let Err(wait) = limit.charge(address, now)
    {
        return refuse("requests from this address", wait);
    }
    let has_token = token.is_some();
    if let Some(address) = &address
        && (has_token || is_form(request.headers()))
        && let Err(wait) = limits.guesses.check(address, now)
    {
        return refuse("refused tokens from this address", wait);
    }
    if let (Some(limit), Some(token)) = (&limits.token, token)
        && let Err(wait) = limit.charge(token.as_bytes(), now)
    {
        return refuse("requests with this token", wait);
    }
    let response = next(request).await;
    let refused = matches!(
        response.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    );
    let guessed = (has_token && refused) || response.extensions().get::<RefusedToken>().is_some();
    if let (true, Some(address)) = (guessed, &address) {
        // Over the limit by others that came meanwhile: nothing more to count.
        let _ = limits.guesses.charge(address, Instant::now());
    }
    response
}

fn refuse(what: &str, wait: Duration) -> Response {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = ApiError(Error::new(
        ErrorCode::TooManyRequests,
        format!("there were too many {what}; try again in {seconds} s"),
    ))
    .into_response();
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Who asks: the other end of the connection, or, where that is a trusted proxy, the right-most address of its header
/// that is not one. What is further left was written by nobody that is trusted.
fn client(peer: IpAddr, headers: &HeaderMap, config: &ServerConfig) -> IpAddr {
    let trusted = |address| {
        let holds = |network: &Network| network.contains(address);
        config.trusted_proxies.iter().any(holds)
    };
    let mut address = peer;
    if !trusted(address) {
        return address;
    }
    let (name, read): (_, fn(&str) -> Option<IpAddr>) = match config.proxy_header {
        ProxyHeader::XForwardedFor => ("x-forwarded-for", node),
        ProxyHeader::Forwarded => ("forwarded", forwarded_for),
    };
    let lines = headers.get_all(name).iter().rev();
    for entry in lines.flat_map(|line| line.to_str().unwrap_or("").rsplit(',')) {
        // Hidden, unknown or broken: the proxy that wrote it is all that is known.
        let Some(before) = read(entry.trim()) else {
            return address;
        };
        address = before;
        if !trusted(address) {
            return address;
        }
    }
    address
}

/// The `for` of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    element.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for")
            .then(|| node(value.trim_matches('"')))?
    })
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

    fn seen(peer: &str, proxy_header: ProxyHeader, lines: &[(&'static str, &str)]) -> String {
        let config = ServerConfig {
            trusted_proxies: ["10.0.0.0/8", "fd00::/8"]
                .map(|n| n.parse().unwrap())
                .into(),
            proxy_header,
            ..ServerConfig::new("data")
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        client(peer.parse().unwrap(), &headers, &config).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed_and_only_its_own_word() {
        let x = |peer, value| {
            seen(
                peer,
                ProxyHeader::XForwardedFor,
                &[("x-forwarded-for", value)],
            )
        };
        // Whoever connects by himself may write what he likes.
        assert_eq!(x("198.51.100.1", "192.0.2.7"), "198.51.100.1");
        assert_eq!(x("10.0.0.1", "192.0.2.7"), "192.0.2.7");
        assert_eq!(x("::ffff:10.0.0.1", "192.0.2.7"), "192.0.2.7");
        // Made up by the client, then the address that the proxy saw.
        assert_eq!(x("10.0.0.1", "203.0.113.9, 192.0.2.7"), "192.0.2.7");
        // Two proxies in a row.
        assert_eq!(
            x("10.0.0.1", "203.0.113.9, 192.0.2.7, 10.9.9.9"),
            "192.0.2.7"
        );
        assert_eq!(x("10.0.0.1", "10.3.3.3, 10.2.2.2"), "10.3.3.3");
        assert_eq!(x("fd00::1", "[2001:db8::5]:443"), "2001:db8::5");
        assert_eq!(x("10.0.0.1", "192.0.2.7:5555"), "192.0.2.7");
        // Nothing readable: the last that was believed.
        for broken in [
            "",
            "unknown",
            "192.0.2.7, _hidden",
            "192.0.2.7,",
            "1.2.3",
            "192.0.2.7, 10.5.5.5.5",
        ] {
            assert_eq!(x("10.0.0.1", broken), "10.0.0.1", "{broken:?}");
        }
        assert_eq!(x("10.0.0.1", "192.0.2.7, nonsense, 10.4.4.4"), "10.4.4.4");
        assert_eq!(
            seen("10.0.0.1", ProxyHeader::XForwardedFor, &[]),
            "10.0.0.1"
        );
        // Several lines are one list.
        let lines = [
            ("x-forwarded-for", "203.0.113.9"),
            ("x-forwarded-for", "192.0.2.7, 10.1.1.1"),
        ];
        assert_eq!(
            seen("10.0.0.1", ProxyHeader::XForwardedFor, &lines),
            "192.0.2.7"
        );
    }

    #[test]
    fn forwarded_is_read_where_it_is_chosen_and_nowhere_else() {
        let f = |value| seen("10.0.0.1", ProxyHeader::Forwarded, &[("forwarded", value)]);
        assert_eq!(f("for=192.0.2.7;proto=https"), "192.0.2.7");
        assert_eq!(f("by=10.0.0.1; FOR=\"[2001:db8::5]:99\""), "2001:db8::5");
        assert_eq!(f("for=\"203.0.113.9, for=192.0.2.7"), "192.0.2.7");
        assert_eq!(f("for=192.0.2.7, proto=https"), "10.0.0.1");
        assert_eq!(f("for=_secret"), "10.0.0.1");
        for (chosen, other) in [
            (ProxyHeader::Forwarded, ("x-forwarded-for", "192.0.2.7")),
            (ProxyHeader::XForwardedFor, ("forwarded", "for=192.0.2.7")),
        ] {
            assert_eq!(seen("10.0.0.1", chosen, &[other]), "10.0.0.1");
        }
    }
}
