//! Looking at settings without serving.

use std::{io, net::TcpListener, os::unix::fs::MetadataExt as _, path::Path};

use eigenveil_shared::{Error, ErrorCode, Result};

use crate::{
    config::ServerConfig,
    net::{descriptors, tls},
    store,
};

/// Whether a server could start with these settings: the settings themselves, certificate and key, the data directory's
/// permissions, the address, the limit of open files. Changes nothing; gives warnings.
///
/// ```
/// use eigenveil_server::{ServerConfig, check};
/// let directory = tempfile::tempdir()?;
/// let config = ServerConfig {
///     listen: ([127, 0, 0, 1], 0).into(),
///     ..ServerConfig::new(directory.path().join("data"))
/// };
/// assert!(check(&config)?.is_empty());
/// assert!(!config.data_dir.exists());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `invalid-request` for the settings and the certificate; `store-unavailable` for the directory and the address.
pub fn check(config: &ServerConfig) -> Result<Vec<String>> {
    config.check()?;
    let mut warnings = Vec::new();
    if let Some((certificate, key)) = config.tls_files() {
        let pair = tls::check(certificate, key)?;
        warnings.extend(
            pair.warning
                .map(|warning| format!("{}: {warning}", certificate.display())),
        );
        warnings.extend(readable_by_others(key));
    } else if config.insecure_http {
        warnings.push(format!(
            "insecure_http: {} speaks plain HTTP; let nobody but a TLS proxy reach it",
            config.listen
        ));
    }
    warnings.extend(descriptors::check(config).1);
    store::check_directory(&config.data_dir)?;
    // A port of its own choice is always there, but the address need not be this machine's.
    match TcpListener::bind(config.listen) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => warnings.push(format!(
            "{} is in use now, perhaps by the server whose settings these are",
            config.listen
        )),
        Err(error) => return Err(cannot_listen(config, &error)),
    }
    Ok(warnings)
}

/// The error for an address that cannot be had.
pub(crate) fn cannot_listen(config: &ServerConfig, error: &io::Error) -> Error {
    Error::new(
        ErrorCode::StoreUnavailable,
        format!(
            "cannot listen on {} ({error}); choose another address or port",
            config.listen
        ),
    )
}

/// A warning when not only its owner can read a key.
fn readable_by_others(key: &Path) -> Option<String> {
    let mode = std::fs::metadata(key).ok()?.mode();
    (mode & 0o004 != 0).then(|| {
        format!(
            "every user of this machine can read the key {} (mode {:o}); chmod 600 it",
            key.display(),
            mode & 0o777
        )
    })
}
