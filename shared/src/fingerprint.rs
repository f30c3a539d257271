//! A study's fingerprint, and hex encoding.

use std::{fmt, str::FromStr};

use crate::error::{Error, Result, error};

/// SHA-256 of a study's canonical bytes; shown as lower-case hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    /// Reads what `Display` writes: 64 hexadecimal digits.
    ///
    /// ```
    /// use eigenveil_shared::study::Fingerprint;
    /// let text = "ab".repeat(32);
    /// assert_eq!(text.parse::<Fingerprint>()?.to_string(), text);
    /// assert!("ab".parse::<Fingerprint>().is_err());
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    fn from_str(text: &str) -> Result<Self> {
        from_hex(text.trim())
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| {
                error!(WrongFingerprint, "a fingerprint has 64 hexadecimal digits, but this text has {} characters; the study's page shows it", text.trim().chars().count())
            })
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
    bytes
        .iter()
        .flat_map(|b| [digit(b >> 4), digit(b & 15)])
        .collect()
}

/// The bytes of an even number of hexadecimal digits; `None` for anything else.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks();
    let mut bytes = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let [high, low] = pair.map(|byte| char::from(byte).to_digit(16));
        bytes.push((high? << 4 | low?) as u8);
    }
    rest.is_empty().then_some(bytes)
}
