//! The address of a server.

use std::{fmt, net::IpAddr, str::FromStr};

use eigenveil_shared::wording::trimmed;
use url::Url;

use crate::error::{Error, Result};

/// The address of a server, checked and normalised, such as `https://study.example` or
/// `http://localhost:8080/prefix`.
///
/// ```
/// use eigenveil_client::Server;
/// let server: Server = "HTTP://LOCALHOST:8080/".parse()?;
/// assert_eq!(server.as_str(), "http://localhost:8080");
/// # Ok::<(), eigenveil_client::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Server(Url);

impl FromStr for Server {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: &str| Err(Error::usage(format!("the server address {why}")));
        // Never echoed: the text may be, or contain, a token or password.
        let Ok(mut url) = Url::parse(trimmed(text)) else {
            return refuse("is not an address; write it like https://study.example");
        };
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("holds a user name or password; use a token");
        }
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return refuse("must begin with http:// or https://");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse("must not have a ? or a #");
        }
        // A slash at the end makes no difference.
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        Ok(Self(url))
    }
}

impl Server {
    /// The address, without a slash at the end.
    pub fn as_str(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }

    /// The URL of a path on the server.
    pub(crate) fn join(&self, path: &[&str]) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        url
    }

    #[cfg(feature = "http")]
    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    /// Whether the address certainly belongs to this machine.
    pub fn is_this_machine(&self) -> bool {
        let host = self.0.host_str().unwrap_or_default();
        // A dot at the end only marks a fully qualified name.
        let host = host.trim_end_matches('.');
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                // A connection to 0.0.0.0 or [::] goes to this machine.
                address.is_loopback() || address.is_unspecified()
            }
            // Many resolvers send names below `localhost` (RFC 6761) to the network.
            Err(_) => host == "localhost",
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for (given, kept) in [
            ("http://localhost:8080", "http://localhost:8080"),
            ("http://LOCALHOST:8080/", "http://localhost:8080"),
            ("https://study.example/a/b/", "https://study.example/a/b"),
            ("http://[::1]:80", "http://[::1]"),
            ("\u{feff}http://study.example\r\n", "http://study.example"),
        ] {
            let server: Server = given.parse().unwrap();
            assert_eq!(server.as_str(), kept);
            assert_eq!(server, kept.parse().unwrap());
            assert_eq!(
                server.join(&["v1", "a b"]).as_str(),
                format!("{kept}/v1/a%20b")
            );
        }
        for (bad, says) in [
            ("localhost:8080", "http://"),
            ("study.example", "not an address"),
            ("ftp://study.example", "http://"),
            ("http://study.example?x=1", "must not have"),
            ("", "not an address"),
            ("http://me:s3cret@study.example", "password"),
            ("http://me:s3cret@study example", "not an address"),
            ("me:s3cret@study.example", "http://"),
            ("https://study.example?token=s3cret", "must not have"),
        ] {
            let error = bad.parse::<Server>().unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("s3cret"), "{error}");
        }
    }
}
