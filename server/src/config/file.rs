//! Reading settings from a TOML file.

use std::{fs, path::Path};

use eigenveil_shared::{Error, Result};

use super::ServerConfig;

impl ServerConfig {
    /// Parses TOML whose keys are the fields of this type; `docs/eigenveil.toml` shows all of them. Without `data_dir` the
    /// path is empty and must be set afterwards.
    ///
    /// ```
    /// use eigenveil_server::ServerConfig;
    /// let config = ServerConfig::from_toml("max_connections = 64")?;
    /// assert_eq!(config.max_connections, 64);
    /// let error = ServerConfig::from_toml("max_conections = 64").unwrap_err();
    /// assert!(error.detail().contains("max_connections"));
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    ///
    /// # Errors
    /// `invalid-config`: the text is not TOML, a key is unknown (the message lists the known keys), or a
    /// value has the wrong type. [`check`](Self::check) checks the values.
    pub fn from_toml(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| Error::invalid_config(located(text, &error)))
    }

    /// Reads a file as [`from_toml`](Self::from_toml) does; errors name it.
    pub fn from_file(path: &Path) -> Result<Self> {
        let named = |error: &dyn std::fmt::Display| {
            Error::invalid_config(format!(
                "the configuration file {}: {error}",
                path.display()
            ))
        };
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        Self::from_toml(&text).map_err(|error| named(&error.detail()))
    }
}

/// Describes an error with its line and key, never with the line's text: if the file is not a configuration, the text
/// may be a participant's row.
fn located(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let number = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    if text.parse::<toml::Table>().is_err() {
        return format!(
            "line {number} is not TOML ({message}); settings are lines such as max_connections = 64"
        );
    }
    let line = text.lines().nth(number - 1).unwrap_or_default();
    let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
    format!("line {number}, {key}: {message}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SAMPLE: &str = include_str!("../../../docs/eigenveil.toml");

    /// All keys, taken from the error about an unknown one.
    fn keys() -> BTreeSet<String> {
        let error = ServerConfig::from_toml("unknown = 1").unwrap_err();
        let (_, known) = error.detail().split_once("expected one of ").unwrap();
        known
            .split(", ")
            .map(|key| key.trim_matches('`').to_owned())
            .collect()
    }

    /// The lines `key = value`, and `# key = value` for a key without a default, each as: whether it is active, the
    /// key, the line.
    fn lines() -> Vec<(bool, &'static str, &'static str)> {
        SAMPLE
            .lines()
            .filter_map(|line| {
                let active = !line.starts_with("# ");
                let (key, _) = line.trim_start_matches("# ").split_once(" = ")?;
                let is_key = key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                is_key.then_some((active, key, line.trim_start_matches("# ")))
            })
            .collect()
    }

    #[test]
    fn the_sample_shows_every_key_once_with_its_default() {
        let sample = ServerConfig::from_toml(SAMPLE).unwrap();
        assert_eq!(sample, ServerConfig::new("/var/lib/eigenveil"));
        let lines = lines();
        let sample_keys: BTreeSet<String> =
            lines.iter().map(|(_, key, _)| (*key).to_owned()).collect();
        assert_eq!(sample_keys, keys());
        assert_eq!(sample_keys.len(), lines.len(), "a key appears twice");
        assert!(keys().len() > 20);
    }

    #[test]
    fn commented_keys_of_the_sample_are_valid() {
        for (active, key, line) in lines() {
            let config =
                ServerConfig::from_toml(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            // An example that equals the default would show nothing.
            let default = ServerConfig::new("");
            assert_eq!(active && key != "data_dir", config == default, "{key}");
        }
    }

    #[test]
    fn every_key_of_the_sample_is_explained() {
        let mut explained = false;
        for line in SAMPLE.lines() {
            let is_key = lines().iter().any(|(_, _, text)| line.ends_with(text));
            assert!(!is_key || explained, "{line} has no comment above it");
            explained = line.starts_with('#') && !is_key;
        }
    }

    /// A table of rows given by mistake: no value of it is in the message.
    #[test]
    fn a_file_of_rows_is_not_quoted() {
        for rows in [
            "37,secret,71.5\n38,secret,80.25\n",
            "age,weight\n37,71.5\n",
            "37\tsecret\t71.5\n",
            "37 1:71.5 2:80.25\n",
            "secret\n",
            "37 = 71.5, 80.25\n",
            "# 37\n37;71,5\n",
            "\"secret\",\"71.5\"\n",
            "[71.5, 80.25]\n",
            "[[37, 71.5], [38, 80.25]]\n",
            "{\"age\": 37, \"weight\": 71.5}\n",
            "max_connections = 37 71.5\n",
            "\n\u{7}\\x93NUMPY 37\n",
        ] {
            let error = ServerConfig::from_toml(rows).unwrap_err();
            let detail = error.detail();
            assert!(detail.starts_with("line "), "{rows:?}: {detail}");
            for value in ["37", "38", "71", "80", "secret", "age", "weight"] {
                assert!(!detail.contains(value), "{rows:?}: {detail}");
            }
        }
    }

    #[test]
    fn errors_name_the_wrong_key_or_value() {
        for (text, says) in [
            (
                "max_conections = 1",
                &[
                    "line 1",
                    "`max_conections`",
                    "`max_connections`",
                    "`tls_cert`",
                ][..],
            ),
            ("[server]\nlisten = \"a\"", &["unknown field `server`"]),
            ("tuning = {}", &["unknown field `tuning`"]),
            ("listen = \"localhost\"", &["listen", "line 1"]),
            (
                "\nmax_connections = \"many\"",
                &["line 2", "max_connections"],
            ),
            ("max_connections = -1", &["max_connections"]),
            (
                "trusted_proxies = [\"10.0.0.0/33\"]",
                &["10.0.0.0/33", "10.0.0.0/8"],
            ),
            (
                "listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
                &["duplicate key"],
            ),
            ("listen", &["line 1"]),
        ] {
            let error = ServerConfig::from_toml(text).unwrap_err();
            for word in says {
                assert!(
                    error.detail().contains(word),
                    "{text:?}: {error} has no {word:?}"
                );
            }
        }
    }
}
