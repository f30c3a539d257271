//! The encoding of text.

use std::{borrow::Cow, str};

use encoding_rs::{Encoding as Standard, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};
use serde::{Deserialize, Deserializer, de};

use crate::{
    cells::normalized,
    error::{Error, Result},
};

/// Replaces bytes that are invalid in their encoding; a cell that contains it is unreadable.
pub(crate) const REPLACEMENT: char = char::REPLACEMENT_CHARACTER;

/// Characters 128 to 255 of code page 850 (DOS, Western Europe), which the WHATWG standard lacks.
const IBM850: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜø£Ø×ƒáíóúñÑªº¿®¬½¼¡«»░▒▓│┤ÁÂÀ©╣║╗╝¢¥┐\
    └┴┬├─┼ãÃ╚╔╩╦╠═╬¤ðÐÊËÈıÍÎÏ┘┌█▄¦Ì▀ÓßÔÒõÕµþÞÚÛÙýÝ¯´\u{ad}±‗¾¶§÷¸°¨·¹³²■\u{a0}";

/// An encoding of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Standard(&'static Standard),
    Ibm850,
}

/// The encoding with this name: one of the Encoding Standard (<https://encoding.spec.whatwg.org/#names-and-labels>), or
/// ibm850.
///
/// # Errors
/// If there is no such name.
pub fn encoding(name: &str) -> Result<Encoding> {
    let kind = match name.trim().to_ascii_lowercase().as_str() {
        "ibm850" | "cp850" => Some(Kind::Ibm850),
        name => Standard::for_label_no_replacement(name.as_bytes()).map(Kind::Standard),
    };
    kind.map(Encoding).ok_or_else(|| {
        Error::new(
            "it must be an encoding such as utf-8, windows-1250, iso-8859-2, macintosh, ibm850, shift_jis or utf-16le",
        )
    })
}

impl<'de> Deserialize<'de> for Encoding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        encoding(&name).map_err(|error| de::Error::custom(error.detail()))
    }
}

/// The bytes of a file in UTF-8, without byte-order marks: decoded by byte-order mark, else by the stated encoding;
/// each line separately, so that an invalid byte affects only its own row. Invalid bytes become [`REPLACEMENT`].
pub(crate) fn in_utf8(bytes: &[u8], stated: Option<Encoding>) -> Cow<'_, [u8]> {
    let (encoding, mut bytes) = match Standard::for_bom(bytes) {
        Some((marked, mark_len)) if marked != UTF_8 => {
            (Some(Encoding(Kind::Standard(marked))), &bytes[mark_len..])
        }
        _ => (stated, bytes),
    };
    while let Some(rest) = bytes.strip_prefix("\u{feff}".as_bytes()) {
        bytes = rest;
    }
    lines_in_utf8(bytes, encoding)
}

/// Lines of a file in UTF-8, without the beginning of the file, which alone may have a byte-order mark.
pub(crate) fn lines_in_utf8(bytes: &[u8], encoding: Option<Encoding>) -> Cow<'_, [u8]> {
    match encoding.map(|encoding| encoding.0) {
        None => Cow::Borrowed(bytes),
        Some(Kind::Standard(utf_16)) if utf_16 == UTF_16LE || utf_16 == UTF_16BE => {
            // A single byte at the end is not a character.
            let bytes = &bytes[..bytes.len() & !1];
            Cow::Owned(decoded(utf_16, bytes).into_bytes())
        }
        Some(kind) => {
            let lines = bytes.split_inclusive(|byte| *byte == b'\n');
            let lines = lines.map(|line| match kind {
                Kind::Standard(encoding) => decoded(encoding, line),
                Kind::Ibm850 => line.iter().map(|&byte| ibm850_char(byte)).collect(),
            });
            Cow::Owned(lines.collect::<String>().into_bytes())
        }
    }
}

/// Whether the characters of a file are pairs of bytes, by its mark or as stated: its lines are not those of its bytes.
pub(crate) fn is_utf_16(bytes: &[u8], stated: Option<Encoding>) -> bool {
    let marked = Standard::for_bom(bytes).map(|(marked, _)| Kind::Standard(marked));
    let kind = marked.or(stated.map(|stated| stated.0));
    [UTF_16LE, UTF_16BE]
        .map(|utf_16| Some(Kind::Standard(utf_16)))
        .contains(&kind)
}

/// Refuses a stated encoding that contradicts the byte-order mark.
pub(crate) fn check_byte_order_mark(bytes: &[u8], stated: Option<Encoding>) -> Result<()> {
    match (Standard::for_bom(bytes), stated) {
        (Some((marked, _)), Some(stated)) if stated.0 != Kind::Standard(marked) => {
            Err(Error::new(format!(
                "it begins with the byte-order mark of {}, which contradicts `encoding`; omit `encoding`",
                marked.name()
            )))
        }
        _ => Ok(()),
    }
}

/// Decodes one cell or name as UTF-8, else Windows-1252, and normalizes it; other cells are not affected.
pub(crate) fn decode_cell(cell: &[u8]) -> Cow<'_, str> {
    match str::from_utf8(cell) {
        Ok(text) => normalized(text),
        Err(_) => Cow::Owned(normalized(&decoded(WINDOWS_1252, cell)).into_owned()),
    }
}

/// Decodes a text file other than a table: UTF-8, or UTF-16 with a byte-order mark; `None` for other bytes.
pub fn read_text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(in_utf8(bytes, None).into_owned()).ok()
}

fn decoded(encoding: &'static Standard, bytes: &[u8]) -> String {
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    // The standard maps bytes undefined in Windows-1252 to control characters.
    text.replace(|c: char| ('\u{80}'..='\u{9f}').contains(&c), "\u{fffd}")
}

fn ibm850_char(byte: u8) -> char {
    let high = byte.checked_sub(128).map(usize::from);
    high.map_or(char::from(byte), |index| {
        IBM850.chars().nth(index).unwrap_or(REPLACEMENT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as the encoders of Python 3.11 and iconv write them.
    #[test]
    fn text_is_read_in_its_encoding() {
        let lines: [(&str, &[u8], &str); 8] = [
            ("ibm850", b"l\x82ger;\xd1\n", "léger;Ð\n"),
            ("CP850", b"\x9c\xe1\n", "£ß\n"),
            ("macintosh", b"\x8etat\xcf\n", "étatœ\n"),
            ("iso-8859-2", b"\xb1\xf8", "ąř"),
            ("windows-1250", b"\x8a", "Š"),
            (
                "shift_jis",
                b"\x92j|\x8f\x97\n\x81\n7",
                "男|女\n\u{fffd}\n7",
            ),
            ("utf-16le", b"a\0\x53\x01", "aœ"),
            ("utf-8", b"\xf6,\xc3\xb6", "\u{fffd},ö"),
        ];
        for (name, bytes, expected) in lines {
            let read = in_utf8(bytes, Some(encoding(name).unwrap()));
            assert_eq!(str::from_utf8(&read).unwrap(), expected, "{name}");
        }
        for bytes in [
            &b"\xff\xfea\0\x53\x01"[..],
            b"\xfe\xff\0a\x01\x53",
            b"\xff\xfea\0\x53\x017",
        ] {
            assert_eq!(read_text(bytes).unwrap(), "aœ");
            for (stated, agrees) in [
                (None, true),
                (Some("macintosh"), false),
                (Some("utf-8"), false),
            ] {
                let stated = stated.map(|name| encoding(name).unwrap());
                assert_eq!(check_byte_order_mark(bytes, stated).is_ok(), agrees);
            }
        }
        let marked = check_byte_order_mark(b"\xef\xbb\xbfa", Some(encoding("utf-8").unwrap()));
        assert!(marked.is_ok());
        assert_eq!(read_text(b"\xef\xbb\xbfa").unwrap(), "a");
        assert!(read_text(b"\xf6").is_none() && encoding("utf-7").is_err());
        // All bytes from 0x80 to 0x9f: only those that the standard leaves undefined are lost.
        let expected = "€�‚ƒ„…†‡ˆ‰Š‹Œ�Ž��‘’“”•–—˜™š›œ�žŸ";
        let bytes: Vec<u8> = (0x80..=0x9f).collect();
        assert_eq!(decode_cell(&bytes), expected);
        // Two spellings of the same text.
        assert_eq!(decode_cell("e\u{301}\u{a0}".as_bytes()), "é");
    }
}
