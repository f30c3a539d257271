//! Checking settings without serving.

use std::{io, net::TcpListener, os::unix::fs::MetadataExt as _, path::Path};

use eigenveil_shared::{Error, Result, error};

use crate::{
    config::ServerConfig,
    net::{descriptors, tls},
};

/// Checks whether a server could start: the settings themselves, certificate and key, the permissions of the data
/// directory, the address, the limit on open files. Changes nothing; returns warnings.
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
/// `invalid-config` for the settings and the certificate; `store-unavailable` for the directory; `cannot-listen` for the
/// address.
pub fn check(config: &ServerConfig) -> Result<Vec<String>> {
    config.check()?;
    let mut warnings = Vec::new();
    if let Some((certificate, key)) = config.tls_files() {
        let pair = tls::check(certificate, key)?;
        let warning = pair.warning;
        warnings.extend(warning.map(|warning| format!("{}: {warning}", certificate.display())));
        warnings.extend(readable_by_others(key));
    } else if config.insecure_http {
        warnings.push(format!(
            "insecure_http: {} speaks plain HTTP; make sure that only a TLS proxy can reach it",
            config.listen
        ));
    }
    warnings.extend(descriptors::check(config).1);
    warnings.extend(eigenveil_store::check(&config.of_store())?);
    // Port 0 is always free, but the address may belong to another machine.
    match TcpListener::bind(config.listen) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => warnings.push(format!(
            "{} is in use, perhaps by a server running with these settings",
            config.listen
        )),
        Err(error) => return Err(cannot_listen(config, &error)),
    }
    Ok(warnings)
}

pub(crate) fn cannot_listen(config: &ServerConfig, error: &io::Error) -> Error {
    error!(
        CannotListen,
        "cannot listen on {} ({error}); choose another address or port", config.listen
    )
}

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
