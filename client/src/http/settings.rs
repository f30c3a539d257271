//! Settings of connections, and bearer tokens.

use std::{fmt, path::Path, time::Duration};

use eigenveil_shared::wording::trimmed;
use reqwest::{Certificate, header::HeaderValue};

use super::proxy::{ProxyAddress, ProxySetting};
use crate::{
    error::{Error, Result, printable},
    exchange::RetryPolicy,
};

/// Settings of a connection to a server.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Longest time to make a connection.
    pub connect_timeout: Duration,
    /// Longest time for one attempt, from connecting to the last byte of the response.
    pub request_timeout: Duration,
    /// Largest response read, in bytes.
    pub max_response_bytes: usize,
    /// Policy for sending a request again.
    pub retry: RetryPolicy,
    /// Certificates trusted besides the platform's; see [`HttpSettings::add_root_certificate_pem`].
    pub roots: RootCertificates,
    /// Whether `http://` to a server on another machine is allowed. Reports (perturbed) and tokens are then sent
    /// unencrypted. Default false; `http://localhost` needs no permission.
    pub insecure_http: bool,
    /// The proxy for requests.
    pub proxy: ProxySetting,
}

/// Certificates of authorities that the platform does not know.
#[derive(Clone, Debug, Default)]
pub struct RootCertificates(Vec<Certificate>);

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(60),
            max_response_bytes: 128 << 20,
            retry: RetryPolicy::default(),
            roots: RootCertificates::default(),
            insecure_http: false,
            proxy: ProxySetting::default(),
        }
    }
}

impl HttpSettings {
    /// Trusts these certificates (one or more, PEM) besides the platform's: for a server with a certificate of a
    /// private authority.
    ///
    /// # Errors
    /// If the bytes contain no certificate.
    pub fn add_root_certificate_pem(mut self, pem: &[u8]) -> Result<Self> {
        let roots = Certificate::from_pem_bundle(pem).unwrap_or_default();
        if roots.is_empty() {
            return Err(Error::usage(
                "the root certificate file holds no certificate; it must be PEM, with BEGIN CERTIFICATE",
            ));
        }
        self.roots.0.extend(roots);
        Ok(self)
    }

    pub(super) fn client(
        &self,
        https: bool,
        proxy: Option<&ProxyAddress>,
    ) -> Result<reqwest::Client> {
        let setup_error = |error| {
            Error::usage(format!(
                "the HTTP client could not be set up: {}",
                root_cause(&error)
            ))
        };
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("eigenveil/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.connect_timeout)
            .timeout(self.request_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            // Shorter than the time for which servers and proxies usually keep an idle connection.
            .pool_idle_timeout(Duration::from_secs(20))
            .no_proxy();
        if let Some(proxy) = proxy {
            builder = builder.proxy(proxy.proxy().map_err(setup_error)?);
        }
        if https {
            builder = builder.tls_certs_merge(self.roots.0.iter().cloned());
        } else {
            // Plain HTTP needs no roots, and must work even if the platform has none.
            builder = builder.tls_certs_only(self.roots.0.iter().cloned());
        }
        builder.build().map_err(setup_error)
    }
}

/// The last cause of a chain of errors.
pub(super) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    printable(&cause.to_string())
}

/// The scheme before a token in the header.
const SCHEME: &str = "Bearer ";

/// The operator's (or an analyst's) bearer token. `Debug` does not show it.
///
/// ```
/// use eigenveil_client::http::BearerToken;
/// let token = BearerToken::new("s3cret")?;
/// assert_eq!(format!("{token:?}"), "BearerToken(…)");
/// # Ok::<(), eigenveil_client::Error>(())
/// ```
#[derive(Clone)]
pub struct BearerToken(HeaderValue);

impl BearerToken {
    /// Creates a token; white space and byte-order marks around it are ignored.
    ///
    /// # Errors
    /// If it is empty or has characters that a token cannot have. The error does not show it.
    pub fn new(token: &str) -> Result<Self> {
        let token = trimmed(token);
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::usage(
                "the token is empty or has spaces or other characters that no token has",
            ));
        }
        let mut value = HeaderValue::from_str(&format!("{SCHEME}{token}"))
            .map_err(|_| Error::usage("the token cannot be sent in a header"))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The token in a file, such as `operator.token` in the server's data folder.
    ///
    /// # Errors
    /// If the file cannot be read; those of [`BearerToken::new`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::usage(format!(
                "the token file {} cannot be read: {error}",
                path.display()
            ))
        })?;
        Self::new(&text)
    }

    /// The text, which gives everybody the rights of the token.
    pub fn reveal(&self) -> &str {
        let text = self.0.to_str().unwrap_or_default();
        text.strip_prefix(SCHEME).unwrap_or_default()
    }

    pub(super) fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_checked_and_never_shown() {
        let token = BearerToken::new(" s3cret\n").unwrap();
        assert_eq!(token.header(), "Bearer s3cret");
        assert_eq!(token.reveal(), "s3cret");
        assert!(!format!("{token:?} {:?}", token.header()).contains("s3cret"));
        for bad in ["", " \n", "two words s3cret", "s3cret\u{e9}", "s3cret\n\nx"] {
            let error = BearerToken::new(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("operator.token");
        let error = BearerToken::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("operator.token"), "{error}");
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(
            BearerToken::from_file(&path).unwrap().header(),
            "Bearer s3cret"
        );
    }

    #[test]
    fn a_root_certificate_must_be_one() {
        for bad in [&b"nothing"[..], b"", b"-----BEGIN CERTIFICATE-----\n"] {
            let error = HttpSettings::default()
                .add_root_certificate_pem(bad)
                .unwrap_err();
            assert!(error.to_string().contains("no certificate"), "{error}");
        }
    }
}
