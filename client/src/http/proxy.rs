//! The proxy for requests, if any.

use std::{fmt, str::FromStr};

use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use reqwest::{Proxy, Url};

use crate::error::{Error, Result};

/// The proxy for requests, if any. `Debug` does not show its password.
///
/// From text: the address of a proxy for all servers, or `none`.
#[derive(Clone, Default)]
pub enum ProxySetting {
    /// The proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` (or the same in lower case) names for the server, read
    /// as curl reads these variables, unless `NO_PROXY` excludes the server. No proxy for a server on this machine.
    #[default]
    Environment,
    /// None, whatever the environment says.
    None,
    /// This one, for every server.
    Always(ProxyAddress),
}

/// Environment variables that name proxies.
const VARIABLES: [&str; 6] = [
    "HTTPS_PROXY",
    "https_proxy",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// A proxy's address.
#[derive(Clone)]
pub struct ProxyAddress(Intercept);

impl FromStr for ProxySetting {
    type Err = Error;

    /// Reads the address of a proxy (`http://proxy.example:3128`, with user and password if it requires them), or
    /// `none`.
    fn from_str(text: &str) -> Result<Self> {
        if text == "none" {
            return Ok(Self::None);
        }
        let server = "https://server.example"
            .parse()
            .map_err(|_| not_a_proxy())?;
        let rest = text
            .strip_prefix("http://")
            .or(text.strip_prefix("https://"));
        let rest = rest.map(|rest| rest.strip_suffix('/').unwrap_or(rest));
        // Unescaped in a password, these would end the address before the host.
        let is_well_formed = rest.is_some_and(|rest| !rest.contains(['/', '?', '#']));
        match Matcher::builder().all(text).build().intercept(&server) {
            Some(address) if is_well_formed => Ok(Self::Always(ProxyAddress(address))),
            _ => Err(not_a_proxy()),
        }
    }
}

/// The text is not repeated: it may hold a password.
fn not_a_proxy() -> Error {
    Error::usage(
        "the proxy is not an address such as http://proxy.example:3128; write none to use no proxy, whatever the environment says",
    )
}

/// Whether an unescaped `/`, `?` or `#` in the user or password ends this address before its host: a part of the
/// credentials is then taken for the host, and shown.
fn cuts_credentials(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split_once(['/', '?', '#'])
        .is_some_and(|(_, after)| after.contains('@'))
}

impl fmt::Debug for ProxySetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("Environment"),
            Self::None => f.write_str("None"),
            Self::Always(address) => write!(f, "Always({address})"),
        }
    }
}

/// Omits user and password.
impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = self.0.uri();
        let scheme = uri.scheme_str().unwrap_or_default();
        write!(f, "{scheme}://{}", uri.host().unwrap_or_default())?;
        uri.port_u16().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl ProxySetting {
    /// The proxy to a server at this address.
    ///
    /// # Errors
    /// If a proxy address of the environment has credentials that are not escaped; the error does not show the address.
    pub(super) fn proxy_for(
        &self,
        server: &Url,
        is_this_machine: bool,
    ) -> Result<Option<ProxyAddress>> {
        match self {
            Self::Environment if !is_this_machine => {
                let server = server.as_str().parse().ok();
                let address = server.and_then(|server| Matcher::from_env().intercept(&server));
                let has_unescaped =
                    |name: &&&str| std::env::var(name).is_ok_and(|text| cuts_credentials(&text));
                match VARIABLES.iter().find(has_unescaped) {
                    Some(name) if address.is_some() => Err(Error::usage(format!(
                        "{name} has a /, ? or # in its user or password; write %2F, %3F or %23 for it"
                    ))),
                    _ => Ok(address.map(ProxyAddress)),
                }
            }
            Self::Environment | Self::None => Ok(None),
            Self::Always(address) => Ok(Some(address.clone())),
        }
    }
}

impl ProxyAddress {
    pub(super) fn proxy(&self) -> reqwest::Result<Proxy> {
        let proxy = Proxy::all(self.0.uri().to_string())?;
        Ok(match self.0.basic_auth() {
            Some(credentials) => proxy.custom_http_auth(credentials.clone()),
            None => proxy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_and_passwords_never_shown() {
        let proxy: ProxySetting = "http://me:s3cret@proxy.example:3128".parse().unwrap();
        assert_eq!(format!("{proxy:?}"), "Always(http://proxy.example:3128)");
        for bad in [
            "me:s3cret@proxy.example",
            "http://me:s3#cret@proxy.example",
            "http://me:s3/cret@proxy.example:3128",
            "http://me:s3?cret@proxy.example",
            "socks5://me:s3cret@proxy.example",
            "",
        ] {
            let error = bad.parse::<ProxySetting>().unwrap_err().to_string();
            assert!(!error.contains("s3"), "{bad}: {error}");
        }
        for cut in ["http://me:12/34@h:3128", "me:1#2@h", "socks5://m?e:1@h"] {
            assert!(cuts_credentials(cut), "{cut}");
        }
        for whole in ["http://me:1%2F2@h:3128/", "h:3128", "", "http://h/path"] {
            assert!(!cuts_credentials(whole), "{whole}");
        }
    }
}
