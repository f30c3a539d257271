//! The `Host` of a request (RFC 9112, section 3.2).

use axum::{
    extract::Request,
    http::{Version, header, uri::Authority},
};
use eigenveil_shared::{Error, error};

/// Rejects a request that does not name exactly one host: a proxy in front of the server, and the server, could
/// disagree about the host. A request passed in by an embedding application may have none.
pub(crate) fn check_host(request: &Request, connected: bool) -> Result<(), Error> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let target = request.uri().authority().map(Authority::as_str);
    let wrong = match (hosts.next(), hosts.next()) {
        (None, _) if connected && request.version() == Version::HTTP_11 => "no Host header",
        (Some(_), Some(_)) => "more than one Host header",
        (Some(host), None) if !is_host_header(host.as_bytes()) => {
            "a Host header that is not a host"
        }
        (Some(host), None) if target.is_some_and(|target| target.as_bytes() != host.as_bytes()) => {
            "another host in its first line than in its Host header"
        }
        _ => return Ok(()),
    };
    Err(error!(
        MalformedRequest,
        "the request has {wrong}; send one, with the name and port of the server"
    ))
}

/// Empty is allowed: RFC 9112 clients send that when the target has no authority.
fn is_host_header(host: &[u8]) -> bool {
    let valid = |host: Authority| host.as_str() == host.host() || host.port().is_some();
    host.is_empty() || !host.contains(&b'@') && Authority::try_from(host).is_ok_and(valid)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn exactly_one_host_is_needed() {
        let of = |version, hosts: &[&str], connected: bool| {
            let mut request = Request::builder().version(version);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            check_host(&request.body(Body::empty()).unwrap(), connected).is_ok()
        };
        let now = Version::HTTP_11;
        for host in ["", "a", "study.example:443", "127.0.0.1", "[::1]:8080"] {
            assert!(of(now, &[host], true), "{host}");
        }
        for host in ["a b", "a/b", "user@a", "[::1", "a:99999", "a:x"] {
            assert!(!of(now, &[host], true), "{host}");
        }
        let absolute = Request::get("http://evil.example/").header(header::HOST, "good.example");
        assert!(check_host(&absolute.body(Body::empty()).unwrap(), false).is_err());
        assert!(!of(now, &["a", "a"], false) && !of(now, &["a", "b"], true));
        assert!(!of(now, &[], true) && of(now, &[], false));
        assert!(of(Version::HTTP_10, &[], true));
    }
}
