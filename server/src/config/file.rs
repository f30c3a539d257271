//! Settings from a TOML file.

use std::{fs, path::Path};

use eigenveil_shared::{Error, ErrorCode, Result};
use serde::{Deserialize, Deserializer, de, forward_to_deserialize_any};
use toml::Table;

use super::ServerConfig;

impl ServerConfig {
    /// Settings from TOML: the keys are the fields of this type; `docs/eigenveil.toml` shows every one. Without `data_dir`
    /// the directory is empty, to be set afterwards.
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
    /// `invalid-request`: what is not TOML, a key that there is not (the nearest one is named), a value of another
    /// type. Whether the values make sense is for [`check`](Self::check).
    pub fn from_toml(text: &str) -> Result<Self> {
        let table: Table = text.parse().map_err(|error| refuse(&error))?;
        match table.keys().find(|key| !keys().contains(&key.as_str())) {
            Some(key) => Err(unknown(key)),
            // From the text again: an error then shows the line.
            None => toml::from_str(text).map_err(|error| refuse(&error)),
        }
    }

    /// As [`from_toml`](Self::from_toml), from a file.
    ///
    /// # Errors
    /// Those of [`from_toml`](Self::from_toml), and a file that cannot be read; all name the file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let named = |error: &dyn std::fmt::Display| {
            Error::new(
                ErrorCode::InvalidRequest,
                format!("the configuration file {}: {error}", path.display()),
            )
        };
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        Self::from_toml(&text).map_err(|error| named(&error.detail()))
    }
}

fn refuse(error: &toml::de::Error) -> Error {
    Error::new(ErrorCode::InvalidRequest, error.to_string().trim_end())
}

fn unknown(key: &str) -> Error {
    let nearest = keys()
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(key, a).total_cmp(&strsim::jaro_winkler(key, b)))
        .unwrap_or(&"");
    // Somebody else's text may be long.
    let key: String = key.chars().take(80).collect();
    Error::new(
        ErrorCode::InvalidRequest,
        format!(
            "there is no key {key:?}; did you mean {nearest:?}? docs/eigenveil.toml shows all keys"
        ),
    )
}

/// The keys that there are: the fields of [`ServerConfig`], as serde knows them.
pub(super) fn keys() -> &'static [&'static str] {
    struct Fields<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Fields<'_> {
        type Error = de::value::Error;

        fn deserialize_any<V: de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(de::Error::custom("only fields are asked for"))
        }

        fn deserialize_struct<V: de::Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            self.deserialize_any(visitor)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut keys: &'static [&'static str] = &[];
    // Always an error: there is nothing to read.
    let _ = ServerConfig::deserialize(Fields(&mut keys));
    keys
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const SAMPLE: &str = include_str!("../../../docs/eigenveil.toml");

    /// `key = value` and `# key = value`, which is a key that is absent by default.
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
    fn the_sample_has_every_key_once_with_its_default() {
        let sample = ServerConfig::from_toml(SAMPLE).unwrap();
        assert_eq!(sample, ServerConfig::new("/var/lib/eigenveil"));
        let lines = lines();
        let shown: BTreeSet<&str> = lines.iter().map(|(_, key, _)| *key).collect();
        assert_eq!(shown, keys().iter().copied().collect());
        assert_eq!(shown.len(), lines.len(), "a key is there twice");
        assert!(keys().len() > 20);
    }

    #[test]
    fn what_the_sample_leaves_out_would_be_read_too() {
        for (active, key, line) in lines() {
            let config =
                ServerConfig::from_toml(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            // A comment that shows the default would not show anything.
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

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            (
                "max_conections = 1",
                &["max_conections", "max_connections"][..],
            ),
            (
                "tls_certificate = \"a\"",
                &["tls_certificate", "\"tls_cert\""],
            ),
            ("trusted_proxy = []", &["trusted_proxies"]),
            ("[server]\nlisten = \"a\"", &["there is no key \"server\""]),
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
            ("proxy_header = \"via\"", &["x-forwarded-for", "forwarded"]),
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
