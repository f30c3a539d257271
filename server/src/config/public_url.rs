//! The address by which browsers and participants reach the server.

use std::{fmt, net::Ipv6Addr, str::FromStr};

use eigenveil_shared::{Error, Result};

/// An address such as `https://study.example/pca`, without a slash at the end. It is printed into pages and shell
/// commands, so only characters without a meaning there are accepted.
///
/// ```
/// use eigenveil_server::PublicUrl;
/// let url: PublicUrl = "https://study.example/pca/".parse()?;
/// assert_eq!((url.as_str(), url.path()), ("https://study.example/pca", "/pca"));
/// assert!("https://study.example/?q".parse::<PublicUrl>().is_err());
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    text: String,
    path_begins: usize,
}

impl PublicUrl {
    /// The whole address.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its path: empty, or `/pca`.
    pub fn path(&self) -> &str {
        &self.text[self.path_begins..]
    }

    pub(crate) fn is_https(&self) -> bool {
        self.text.starts_with("https://")
    }
}

impl FromStr for PublicUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // As an address bar shows it.
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let rest = ["https://", "http://"]
            .iter()
            .find_map(|scheme| trimmed.strip_prefix(scheme))
            .unwrap_or_default();
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_segment = |segment: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
            !["", ".", ".."].contains(&segment) && segment.bytes().all(plain)
        };
        if !is_shell_safe_host(host) || !path.split('/').skip(1).all(is_segment) {
            return Err(Error::invalid_config(format!(
                "public_url is {text:?}; write it like https://study.example or https://study.example/pca, with letters, digits and - . _ ~ in its path"
            )));
        }
        Ok(Self {
            path_begins: trimmed.len() - path.len(),
            text: trimmed.to_owned(),
        })
    }
}

/// Splits a host into name and port; the port defaults to 80.
fn split_port(host: &str) -> (&str, &str) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, "80"),
    }
}

/// Whether a text is a name or an address, perhaps with a port, that may be copied into a shell.
pub(crate) fn is_shell_safe_host(text: &str) -> bool {
    const MAX_HOST_BYTES: usize = 262;
    let (name, port) = split_port(text);
    let is_name = match name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
    {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
            !name.is_empty() && !name.starts_with('-') && name.bytes().all(plain)
        }
    };
    let is_port = port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    text.len() <= MAX_HOST_BYTES && is_name && is_port
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_surprises_are_accepted() {
        for (text, path) in [
            ("https://study.example", ""),
            ("https://study.example/", ""),
            ("http://127.0.0.1:8080/pca", "/pca"),
            ("https://[2001:db8::1]:8443/a/b-c.d_e~f/", "/a/b-c.d_e~f"),
            ("https://[::1]", ""),
        ] {
            let url: PublicUrl = text.parse().unwrap();
            assert_eq!(url.as_str(), text.trim_end_matches('/'));
            assert_eq!(url.path(), path);
            assert_eq!(url.is_https(), text.starts_with("https"));
        }
    }

    #[test]
    fn other_addresses_are_refused() {
        for text in [
            "study.example/pca",
            "ftp://study.example",
            "https://",
            "https:///pca",
            "https://me:secret@study.example",
            "https://study.example?x=1",
            "https://study.example/pca?x=1",
            "https://study.example/pca#x",
            "https://study.example//",
            "https://study.example/a//b",
            "https://study.example/a/../b",
            "https://study.example/a%2fb",
            "https://study.example/a'b",
            "https://study.example/$(id)",
            "https://study.example/pca ",
        ] {
            let error = text.parse::<PublicUrl>().unwrap_err();
            assert!(error.detail().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn only_valid_hosts_are_accepted() {
        for good in [
            "study.example",
            "127.0.0.1:8080",
            "localhost",
            "[::1]:8080",
            "[2001:db8::1]",
        ] {
            assert!(is_shell_safe_host(good), "{good}");
        }
        let long = "a".repeat(300);
        for bad in [
            "", ":80", "a b", "a;rm", "a$(id)", "a`id`", "a/b", "user@a", "a:b", "a:99999", "[::1",
            "[x]:1", "a:+80", "-server", "a'b", "<b>", &long,
        ] {
            assert!(!is_shell_safe_host(bad), "{bad}");
        }
    }
}
