//! The server's TLS certificate: loaded at the start and reloaded while the server runs.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use eigenveil_shared::{Error, Result};
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::{
    self, InconsistentKeys,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

/// The certificate chain and key of new connections. Connections made before a reload keep theirs.
///
/// Only a matching pair is loaded: while one file is new and the other old, the previous pair stays in use.
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
    /// SHA-256 of the files last read, usable or not, so that a broken file is reported once.
    last_read: Mutex<[u8; 32]>,
}

/// The outcome of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// The files have not changed.
    Unchanged,
    /// New connections use the new certificate.
    Replaced,
}

/// A usable certificate and key, perhaps with a warning.
pub(crate) struct Pair {
    key: CertifiedKey,
    /// Why clients will reject it.
    pub(crate) warning: Option<&'static str>,
}

impl Certificates {
    /// Reads a PEM file with the server's certificate (followed by its issuers') and one with its key.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self> {
        let files = Files::read(certificate, key)?;
        let pair = files.pair(certificate, key)?;
        log_warning(certificate, &pair);
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            current: RwLock::new(Arc::new(pair.key)),
            last_read: Mutex::new(files.digest()),
        })
    }

    /// Reads both files again and logs the outcome. If they cannot be used, new connections keep using the previous
    /// certificate.
    pub fn reload(&self) -> Result<Reload> {
        log_outcome(self.renew(false))
    }

    /// Reloads like [`reload`](Self::reload), but does nothing, and logs nothing, while the files are the ones last
    /// read.
    pub(crate) fn reload_when_changed(&self) -> Result<Reload> {
        log_outcome(self.renew(true))
    }

    fn renew(&self, only_changed: bool) -> Result<Reload> {
        let files = Files::read(&self.certificate, &self.key)?;
        let digest = files.digest();
        let mut last_read = self
            .last_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if only_changed && *last_read == digest {
            return Ok(Reload::Unchanged);
        }
        *last_read = digest;
        let pair = files.pair(&self.certificate, &self.key)?;
        log_warning(&self.certificate, &pair);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let same = current.cert == pair.key.cert;
        *current = Arc::new(pair.key);
        Ok(if same {
            Reload::Unchanged
        } else {
            Reload::Replaced
        })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

fn log_outcome(reload: Result<Reload>) -> Result<Reload> {
    match &reload {
        Ok(Reload::Unchanged) => {}
        Ok(Reload::Replaced) => tracing::info!("certificate renewed; new connections use it"),
        Err(error) => {
            tracing::warn!(%error, "certificate not renewed; the previous one stays in use");
        }
    }
    reload
}

fn log_warning(certificate: &Path, pair: &Pair) {
    if let Some(warning) = pair.warning {
        tracing::warn!("{}: {warning}", certificate.display());
    }
}

pub(crate) fn check(certificate: &Path, key: &Path) -> Result<Pair> {
    Files::read(certificate, key)?.pair(certificate, key)
}

struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(certificate: &Path, key: &Path) -> Result<Self> {
        let read = |path: &Path, what: &str| {
            fs::read(path).map_err(|error| {
                Error::invalid_config(format!(
                    "the {what} {} cannot be read ({error}); check the path and its permissions",
                    path.display()
                ))
            })
        };
        Ok(Self {
            certificate: read(certificate, "TLS certificate")?,
            key: read(key, "TLS key")?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update((self.certificate.len() as u64).to_le_bytes());
        hash.update(&self.certificate);
        hash.update(&self.key);
        hash.finalize().into()
    }

    fn pair(&self, certificate: &Path, key: &Path) -> Result<Pair> {
        let (certificate, key) = (certificate.display(), key.display());
        let chain = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<std::result::Result<Vec<_>, _>>()
            .unwrap_or_default();
        if chain.is_empty() {
            return Err(Error::invalid_config(format!(
                "{certificate} has no certificate; it must be PEM, with BEGIN CERTIFICATE"
            )));
        }
        // The parser's message could contain bytes of the key.
        let secret = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| {
            Error::invalid_config(format!(
                "{key} has no private key; it must be PEM without a password, with BEGIN PRIVATE KEY"
            ))
        })?;
        let leaf = webpki::EndEntityCert::try_from(&chain[0]).ok();
        let warning = leaf.and_then(|leaf| why_rejected(&leaf));
        match CertifiedKey::from_der(chain, secret, &aws_lc_rs::default_provider()) {
            Ok(key) => Ok(Pair { key, warning }),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(Error::invalid_config(format!(
                    "the key in {key} does not belong to the certificate in {certificate}; give the two that were made together, with the server's own certificate first in its file"
                )))
            }
            Err(error) => Err(Error::invalid_config(format!(
                "the certificate in {certificate} and the key in {key} cannot be used ({error})"
            ))),
        }
    }
}

/// Why clients reject a certificate, whatever authorities they trust; `None` if they need not.
fn why_rejected(own: &webpki::EndEntityCert<'_>) -> Option<&'static str> {
    // Both are checked before the issuer, so no root certificate is needed.
    let (now, servers) = (UnixTime::now(), webpki::KeyUsage::server_auth());
    match own.verify_for_usage(&[], &[], &[], now, servers, None, None) {
        Err(webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. }) => Some(
            "the certificate has expired or is not valid yet; clients reject it until it is renewed",
        ),
        Err(webpki::Error::CaUsedAsEndEntity) => Some(
            "the certificate is that of a certificate authority (CA:TRUE, the default of openssl req -x509), which clients reject \
             as a server's; docs/run-a-server.md, \"TLS\", has a command that makes one they accept",
        ),
        _ => None,
    }
}
