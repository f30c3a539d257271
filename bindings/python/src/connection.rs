//! Settings for reaching a server, those of an `eigenveil.Connection`.

use std::{path::PathBuf, time::Duration};

use eigenveil_client::http::{HttpSettings, RetryPolicy};
use pyo3::prelude::*;

use crate::error::{Failure, Result};

/// The settings of a connection, read while the interpreter's lock is held.
#[derive(FromPyObject)]
pub(crate) struct Connection {
    ca_certificate: Option<PathBuf>,
    insecure_http: bool,
    proxy: Option<String>,
    timeout: f64,
    retry_for: f64,
}

impl Connection {
    /// The HTTP settings of a connection; the defaults without one.
    pub(crate) fn settings(given: Option<&Self>) -> Result<HttpSettings> {
        let Some(connection) = given else {
            return Ok(HttpSettings::default());
        };
        let seconds = |name: &str, value: f64, least: f64| {
            let usable = (least..=86_400.0).contains(&value);
            usable
                .then(|| Duration::from_secs_f64(value))
                .ok_or_else(|| {
                    Failure::input(format!(
                        "the connection's {name} is {value} s; it must be from {least} to 86400"
                    ))
                })
        };
        let timeout = seconds("timeout", connection.timeout, 0.001)?;
        let max_elapsed = seconds("retry_for", connection.retry_for, 0.0)?;
        let default = HttpSettings::default();
        let patience = if max_elapsed > RetryPolicy::default().max_elapsed {
            RetryPolicy::patient()
        } else {
            RetryPolicy::default()
        };
        let settings = HttpSettings {
            request_timeout: timeout,
            connect_timeout: default.connect_timeout.min(timeout),
            insecure_http: connection.insecure_http,
            retry: RetryPolicy {
                max_elapsed,
                ..patience
            },
            ..default
        };
        let settings = match &connection.proxy {
            Some(proxy) => HttpSettings {
                proxy: proxy.parse()?,
                ..settings
            },
            None => settings,
        };
        let Some(path) = &connection.ca_certificate else {
            return Ok(settings);
        };
        let pem = std::fs::read(path).map_err(|error| {
            Failure::input(format!(
                "the certificate {} cannot be read: {error}",
                path.display()
            ))
        })?;
        Ok(settings.add_root_certificate_pem(&pem)?)
    }
}
