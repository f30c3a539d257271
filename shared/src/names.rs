//! Enums whose values have names, and JSON that is the text of a value.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// Reads a name by its `FromStr`, whose error lists the names that there are, for a field of a request:
/// `#[serde(deserialize_with = "word")]`.
///
/// # Errors
/// That of `FromStr`, and of what is no text.
pub fn word<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err = crate::Error>,
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    text.parse()
        .map_err(|error: crate::Error| de::Error::custom(error.detail()))
}

/// Gives enums `ALL` and `as_str`; with `else` also `Display` and `FromStr`, and this error for another text.
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($($vis:vis $kind:ident { $($value:ident = $name:literal),+ $(,)? }
        $(else |$text:ident, $names:ident| $error:expr)?;)+) => {$(
        impl $kind {
            /// Every value.
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name in documents and on the command line.
            $vis const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $name),+ }
            }
        }

        $(
            impl std::fmt::Display for $kind {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str(self.as_str())
                }
            }

            impl std::str::FromStr for $kind {
                type Err = $crate::Error;

                fn from_str($text: &str) -> $crate::Result<Self> {
                    let named = |own: &Self| own.as_str() == $text;
                    Self::ALL.into_iter().find(named).ok_or_else(|| {
                        let $names = Self::ALL.map(Self::as_str);
                        $error
                    })
                }
            }
        )?
    )+};
}

/// Serializes a type as its `Display` and reads it by its `FromStr`, whose error is one of ours.
#[doc(hidden)]
#[macro_export]
macro_rules! serialized_as_text {
    ($($kind:ty),+) => {$(
        impl serde::Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> $crate::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> $crate::Result<Self, D::Error> {
                $crate::word(deserializer)
            }
        }
    )+};
}
