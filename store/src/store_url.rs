//! The address of a database that several servers share.

use std::{fmt, str::FromStr};

use eigenveil_shared::{Error, Result, serialized_as_text, wording::trimmed};
use serde::{Deserialize, Serialize};

/// `postgres://user:password@host:port/database`. Its password is shown nowhere: what is printed and serialised has
/// host and database alone.
///
/// ```
/// use eigenveil_store::StoreUrl;
/// let url: StoreUrl = "postgres://me:secret@db.example/eigenveil".parse()?;
/// assert_eq!(url.to_string(), "postgres://db.example/eigenveil");
/// assert!(url.has_password());
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(String);

impl StoreUrl {
    /// With everything in it.
    #[cfg(feature = "postgres")]
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }

    /// Whether a password stands in it.
    pub fn has_password(&self) -> bool {
        let (user, _, parameters) = parts(&self.0);
        user.contains(':') || parameters.contains("password=")
    }
}

/// User with password, hosts with database, parameters.
fn parts(url: &str) -> (&str, &str, &str) {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, hosts) = rest.rsplit_once('@').unwrap_or(("", rest));
    (user, hosts, parameters)
}

/// Whether a part of a password that is not encoded may stand where hosts or parameters are looked for.
fn is_ambiguous(url: &str) -> bool {
    let (user, hosts, parameters) = parts(url);
    let hosts = hosts.split('/').next().unwrap_or_default();
    let mut ports = hosts.split(',').filter_map(|host| {
        let address_ends = host.rfind(']').map_or(0, |end| end + 1);
        host[address_ends..].split_once(':')
    });
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    user.contains('@') || parameters.contains('@') || !ports.all(|(_, port)| is_port(port))
}

impl FromStr for StoreUrl {
    type Err = Error;

    /// The text is not quoted in the error, since it may have a password.
    fn from_str(text: &str) -> Result<Self> {
        let text = trimmed(text);
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(Error::invalid_config(
                "store does not begin with postgres://; write it like postgres://user@host/database, or leave it out to use data_dir",
            ));
        }
        if is_ambiguous(text) {
            return Err(Error::invalid_config(
                "store has a second @, or a port that is no number; write it like postgres://user:password@host:5432/database, with %40 for @, %3F for ?, %2F for / and %3A for : in a name or password",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}", parts(&self.0).1)
    }
}

serialized_as_text!(StoreUrl);

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a commit survives the loss of the database's machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A synchronous standby: a start without one warns.
    #[default]
    Standby,
    /// Whoever provides the database, in a way that it does not show.
    Provider,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        for (text, shown) in [
            (
                "postgres://u:se%40cret@h:5432/d?sslmode=require\n",
                "postgres://h:5432/d",
            ),
            ("postgresql://h/d?user=u&password=secret", "postgres://h/d"),
            ("postgres://u@%2Frun%2Fpg/d", "postgres://%2Frun%2Fpg/d"),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(url.has_password(), text.contains("cret"), "{text}");
            for printed in [
                format!("{url}"),
                format!("{url:?}"),
                serde_json::to_string(&url).unwrap(),
            ] {
                assert!(
                    printed.contains(shown) && !printed.contains("cret"),
                    "{printed}"
                );
            }
        }
        for text in [
            "mysql://u:secret@h/d",
            "postgres://u:a?secret@h/d",
            "postgres://u:p@secret@h/d",
            "postgres://u@corp:secret@h/d",
            "postgres://u:a@b?secret@h/d",
            "postgres://u:secret/d",
        ] {
            let error = text.parse::<StoreUrl>().unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert!("postgres://u@[::1]:5432,h:5/d".parse::<StoreUrl>().is_ok());
    }
}
