//! Certificate authorities for tests.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file compiles this and uses its own part"
)]

use std::{fs, path::Path, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::CertificateDer,
};

/// An authority that only the tests trust.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
    /// The root certificate, by which a client trusts it.
    pub root_pem: String,
}

/// A certificate and its key, in PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let root = params.self_signed(&key).unwrap();
        Self {
            root: root.der().clone(),
            root_pem: root.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A valid certificate for this host.
    pub fn issue(&self, host: &str) -> Issued {
        self.sign(&CertificateParams::new(vec![host.to_owned()]).unwrap())
    }

    pub fn issue_expired(&self, host: &str) -> Issued {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 2, 1);
        self.sign(&params)
    }

    /// A certificate for this host that is an authority's, as `openssl req -x509` makes it.
    pub fn issue_authority(&self, host: &str) -> Issued {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        Issued {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    /// A TLS client that trusts only this authority and resumes no sessions.
    pub fn client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

impl Issued {
    /// Writes `cert.pem` and `key.pem`.
    pub fn write(&self, directory: &Path) {
        fs::write(directory.join("cert.pem"), &self.certificate).unwrap();
        fs::write(directory.join("key.pem"), &self.key).unwrap();
    }
}
