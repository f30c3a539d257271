//! TLS to the database: the certificate is always checked, against the system's authorities or those of `sslrootcert`,
//! and a login by SCRAM is bound to it.

use std::{
    future::Future,
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use eigenveil_shared::{Error, Result};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream as RustlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    },
};

#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
}

impl Tls {
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(path) => {
                let unusable = |error: &dyn std::fmt::Display| {
                    Error::invalid_config(format!(
                        "sslrootcert: {} cannot be read as PEM certificates ({error}); give the file of the database's authority",
                        path.display()
                    ))
                };
                let read = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
                for certificate in read {
                    let certificate = certificate.map_err(|error| unusable(&error))?;
                    roots.add(certificate).map_err(|error| unusable(&error))?;
                }
                if roots.is_empty() {
                    return Err(unusable(&"it has none"));
                }
            }
            // Without any, a connection that wants TLS is refused and says so.
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Stream<S>;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, domain: &str) -> io::Result<Handshake> {
        Ok(Handshake {
            connector: self.connector.clone(),
            name: ServerName::try_from(domain.to_owned()).ok(),
        })
    }
}

pub(super) struct Handshake {
    connector: TlsConnector,
    /// None of a socket in the file system, which needs no TLS.
    name: Option<ServerName<'static>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Handshake {
    type Stream = Stream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self.name.ok_or_else(|| {
                io::Error::other("the host has no name that a certificate could have")
            })?;
            Ok(Stream(self.connector.connect(name, stream).await?))
        })
    }
}

pub(super) struct Stream<S>(RustlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Stream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates();
        let digest = certificates.and_then(|certificates| end_point(certificates.first()?));
        digest.map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// `tls-server-end-point` (RFC 5929, section 4): the certificate's digest, by the hash of its own signature. None where
/// PostgreSQL may know none: Ed25519, RSA-PSS.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm SEQUENCE { OBJECT IDENTIFIER, … }, … }
    let (certificate_fields, _) = element(certificate)?;
    let (_, after_tbs) = element(certificate_fields)?;
    let (algorithm, _) = element(after_tbs)?;
    match element(algorithm)?.0 {
        SHA256_WITH_RSA | ECDSA_WITH_SHA256 => Some(Sha256::digest(certificate).to_vec()),
        SHA384_WITH_RSA | ECDSA_WITH_SHA384 => Some(Sha384::digest(certificate).to_vec()),
        SHA512_WITH_RSA | ECDSA_WITH_SHA512 => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

const SHA256_WITH_RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b";
const SHA384_WITH_RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c";
const SHA512_WITH_RSA: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d";
const ECDSA_WITH_SHA256: &[u8] = b"\x2a\x86\x48\xce\x3d\x04\x03\x02";
const ECDSA_WITH_SHA384: &[u8] = b"\x2a\x86\x48\xce\x3d\x04\x03\x03";
const ECDSA_WITH_SHA512: &[u8] = b"\x2a\x86\x48\xce\x3d\x04\x03\x04";

/// The content of the first element of DER, and what follows it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [_tag, length, rest @ ..] = der else {
        return None;
    };
    if *length < 0x80 {
        return rest.split_at_checked((*length).into());
    }
    // So many bytes have the length.
    let (bytes, rest) = rest.split_at_checked((length & 0x7f).into())?;
    let length = bytes
        .iter()
        .fold(0, |length, byte| (length << 8) | usize::from(*byte));
    rest.split_at_checked(length)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, SignatureAlgorithm};

    use super::*;

    /// The digests as PostgreSQL takes them (RFC 5929).
    #[test]
    fn a_login_is_bound_to_the_certificate_by_the_hash_of_its_signature() {
        let certificate = |algorithm: &'static SignatureAlgorithm| {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let params = CertificateParams::new(["db.example".to_owned()]).unwrap();
            params.self_signed(&key).unwrap().der().to_vec()
        };
        let with_sha256 = certificate(&rcgen::PKCS_ECDSA_P256_SHA256);
        let digest = Sha256::digest(&with_sha256).to_vec();
        assert_eq!(end_point(&with_sha256), Some(digest));
        let with_sha384 = certificate(&rcgen::PKCS_ECDSA_P384_SHA384);
        let digest = Sha384::digest(&with_sha384).to_vec();
        assert_eq!(end_point(&with_sha384), Some(digest));
        assert_eq!(end_point(&certificate(&rcgen::PKCS_ED25519)), None);
        for length in 0..with_sha256.len() {
            assert_eq!(end_point(&with_sha256[..length]), None);
        }
    }
}
