//! NumPy's `.npy` files of n × p numbers: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use eigenveil_shared::{Error, Result};

use crate::{
    columns::ExpectedColumns,
    settings::Settings,
    table::{RowTable, mapping_without_names},
};

/// An n × p array.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    /// n.
    pub rows: usize,
    /// p.
    pub columns: usize,
    /// The n·p numbers, row by row.
    pub values: Vec<f64>,
}

/// Reads floating-point numbers, integers or booleans, in C or Fortran order and either byte order. Integers beyond
/// 2⁵³ become the nearest number, as in NumPy.
///
/// # Errors
/// `invalid-request`: the bytes are not an `.npy` file, or the array is not two-dimensional, of another type, or too
/// short for its shape.
pub fn read(bytes: &[u8]) -> Result<Array> {
    let layout = Layout::read(bytes, bytes.len() as u64)?;
    let (rows, columns) = (layout.rows, layout.columns);
    let values = layout.numbers(&bytes[layout.begins..]);
    let values = match layout.fortran_order {
        false => values,
        true => (0..rows)
            .flat_map(|row| (0..columns).map(move |column| column * rows + row))
            .map(|index| values[index])
            .collect(),
    };
    Ok(Array {
        rows,
        columns,
        values,
    })
}

/// The place of each number of an array in its file, as the header says it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) fortran_order: bool,
    /// Bytes before the first number.
    pub(crate) begins: usize,
    dtype: &'static str,
    big_endian: bool,
}

/// The types of numbers: a kind, and the number of bytes.
const TYPES: [&str; 11] = [
    "f8", "f4", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "b1",
];

impl Layout {
    /// Reads it from the first bytes of a file of this size: its whole header must be among them.
    ///
    /// # Errors
    /// Those of [`read`].
    pub(crate) fn read(bytes: &[u8], size: u64) -> Result<Self> {
        let (header, data) = split(bytes)
            .ok_or_else(|| Error::invalid_request("it is not a .npy file, or it is truncated"))?;
        let Header {
            dtype,
            fortran_order,
            shape,
        } = Header::parse(header).ok_or_else(|| {
            Error::invalid_request(
                "its header is not that of an array of numbers; save it again with numpy.save",
            )
        })?;
        let &[rows, columns] = &shape[..] else {
            return Err(Error::invalid_request(format!(
                "its shape is {shape:?}; it must be n × p, one row per participant"
            )));
        };
        let (big_endian, kind) = match dtype.split_at_checked(1) {
            Some((order @ ("<" | ">" | "|"), kind)) => (order == ">", kind),
            _ => (false, dtype),
        };
        let values = rows.checked_mul(columns).ok_or_else(|| {
            Error::invalid_request(format!(
                "its header says {rows} × {columns}, more than any array has"
            ))
        })?;
        let Some(dtype) = TYPES.into_iter().find(|known| *known == kind) else {
            return Err(Error::invalid_request(format!(
                "its values have type {dtype}; save it as float32 or float64, integers or booleans: \
                 numpy.save(file, array.astype(float))"
            )));
        };
        let layout = Self {
            rows,
            columns,
            fortran_order,
            begins: bytes.len() - data.len(),
            dtype,
            big_endian,
        };
        let bytes_of_values = (values as u64).checked_mul(layout.width() as u64);
        if bytes_of_values.is_none_or(|needed| needed > size - layout.begins as u64) {
            return Err(Error::invalid_request(format!(
                "its header says {rows} × {columns} but the file is too short"
            )));
        }
        Ok(layout)
    }

    /// Bytes of a number.
    pub(crate) fn width(&self) -> usize {
        usize::from(self.dtype.as_bytes()[1] - b'0')
    }

    /// The numbers in these bytes, at most as many as the array has.
    pub(crate) fn numbers(&self, data: &[u8]) -> Vec<f64> {
        match self.dtype {
            "f8" => self.each(data, f64::from_le_bytes),
            "f4" => self.each(data, |bytes| f64::from(f32::from_le_bytes(bytes))),
            "u1" => self.each(data, |[byte]| f64::from(byte)),
            "u2" => self.each(data, |bytes| f64::from(u16::from_le_bytes(bytes))),
            "u4" => self.each(data, |bytes| f64::from(u32::from_le_bytes(bytes))),
            "u8" => self.each(data, |bytes| u64::from_le_bytes(bytes) as f64),
            "i1" => self.each(data, |bytes| f64::from(i8::from_le_bytes(bytes))),
            "i2" => self.each(data, |bytes| f64::from(i16::from_le_bytes(bytes))),
            "i4" => self.each(data, |bytes| f64::from(i32::from_le_bytes(bytes))),
            "i8" => self.each(data, |bytes| i64::from_le_bytes(bytes) as f64),
            _ => self.each(data, |[byte]| f64::from(byte != 0)),
        }
    }

    /// The numbers, decoded from little-endian bytes.
    fn each<const WIDTH: usize>(
        &self,
        data: &[u8],
        number: impl Fn([u8; WIDTH]) -> f64,
    ) -> Vec<f64> {
        let number = |&(mut bytes): &[u8; WIDTH]| {
            if self.big_endian {
                bytes.reverse();
            }
            number(bytes)
        };
        let (numbers, _) = data.as_chunks::<WIDTH>();
        let most = self.rows * self.columns;
        numbers.iter().take(most).map(number).collect()
    }
}

/// The rows of an n × p array, one per participant.
pub(crate) fn parse(
    bytes: &[u8],
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> crate::Result<RowTable> {
    let array = read(bytes).map_err(|error| crate::Error::new(error.detail()))?;
    let mapping = mapping_without_names(array.columns, settings, expected)?;
    let table = RowTable::new(array.columns, array.values, None)?;
    table.with_columns_selected(mapping).judged(expected)
}

/// A rows × columns array of f64 as a file, in C order, format 1.0; `values` row by row.
pub fn write(rows: usize, columns: usize, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // Magic, version and length take 10 bytes; the whole is a multiple of 64 and ends in a line feed.
    let header_len = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.extend(std::iter::repeat_n(' ', header_len - 1 - header.len()));
    header.push('\n');
    let mut bytes = Vec::with_capacity(10 + header_len + 8 * rows * columns);
    bytes.extend_from_slice(b"\x93NUMPY\x01\x00");
    bytes.extend_from_slice(&u16::try_from(header_len).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    values
        .into_iter()
        .for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
    bytes
}

/// The header and the data. The header's length has two bytes in version 1, four in versions 2 and 3.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = bytes.strip_prefix(b"\x93NUMPY")?.split_at_checked(2)?;
    let (length, rest) = match version {
        [1, 0] => {
            let (length, rest) = rest.split_first_chunk()?;
            (usize::from(u16::from_le_bytes(*length)), rest)
        }
        [2 | 3, 0] => {
            let (length, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        _ => return None,
    };
    let (header, data) = rest.split_at_checked(length)?;
    Some((str::from_utf8(header).ok()?, data))
}

struct Header<'a> {
    dtype: &'a str,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl<'a> Header<'a> {
    /// Parses a Python dictionary with exactly three keys, each once.
    fn parse(text: &'a str) -> Option<Self> {
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
        while !rest.is_empty() {
            let (key, value) = quoted(rest)?;
            let value = value.trim_start().strip_prefix(':')?.trim_start();
            let (is_duplicate, after) = match key {
                "descr" => {
                    // A list is a structured type.
                    let (value, after) = quoted(value)?;
                    (dtype.replace(value).is_some(), after)
                }
                "fortran_order" => {
                    let end = value.find([',', ' ']).unwrap_or(value.len());
                    let order = match &value[..end] {
                        "True" => true,
                        "False" => false,
                        _ => return None,
                    };
                    (fortran_order.replace(order).is_some(), &value[end..])
                }
                "shape" => {
                    let (lengths, after) = value.strip_prefix('(')?.split_once(')')?;
                    (shape.replace(self::shape(lengths)?).is_some(), after)
                }
                _ => return None,
            };
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(rest) => rest.trim_start(),
                None if after.is_empty() => after,
                None => return None,
            };
            if is_duplicate {
                return None;
            }
        }
        Some(Self {
            dtype: dtype?,
            fortran_order: fortran_order?,
            shape: shape?,
        })
    }
}

/// A string without escapes, and the remainder.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

/// The lengths inside a tuple such as `(2, 3)`.
fn shape(inside: &str) -> Option<Vec<usize>> {
    let lengths = inside.trim_end();
    let lengths = lengths.strip_suffix(',').unwrap_or(lengths);
    if lengths.trim().is_empty() {
        return Some(Vec::new());
    }
    let length = |text: &str| text.trim().parse::<usize>().ok();
    lengths.split(',').map(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as `numpy.save` writes it.
    fn file(descr: &str, fortran_order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n");
        with_header(&header, data)
    }

    fn with_header(header: &str, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
    }

    #[test]
    fn types_orders_and_versions() {
        let one = 1.5_f64.to_le_bytes();
        let wide = (1_i64 << 40).to_le_bytes();
        for (descr, data, value) in [
            ("'<f8'", &one[..], 1.5),
            ("'>f8'", &1.5_f64.to_be_bytes(), 1.5),
            ("\"<f4\"", &1.5_f32.to_le_bytes(), 1.5),
            ("'|u1'", &[255], 255.0),
            ("'<u2'", &[0, 1], 256.0),
            ("'>u2'", &[0, 1], 1.0),
            ("'<u4'", &[1, 0, 0, 1], 16_777_217.0),
            ("'<u8'", &wide, 2.0_f64.powi(40)),
            ("'|i1'", &[255], -1.0),
            ("'<i2'", &[255, 255], -1.0),
            ("'<i4'", &[254, 255, 255, 255], -2.0),
            ("'<i8'", &wide, 2.0_f64.powi(40)),
            ("'|b1'", &[1], 1.0),
        ] {
            let array = read(&file(descr, "False", "(1, 1)", data)).unwrap();
            assert_eq!((array.rows, array.columns), (1, 1), "{descr}");
            assert_eq!(array.values, [value], "{descr}");
        }
        let c = read(&file("'|u1'", "False", "(2, 3)", &[1, 2, 3, 4, 5, 6])).unwrap();
        let fortran = read(&file("'|u1'", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6]));
        assert_eq!(c.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(fortran.unwrap(), c);
        let mut newer = file("'|u1'", "False", "(1, 1)", &[7]);
        newer[6] = 2;
        newer.splice(10..10, [0, 0]);
        assert_eq!(read(&newer).unwrap().values, [7.0]);
    }

    #[test]
    fn unreadable_files_are_rejected_before_allocation() {
        let good = file("'<f8'", "False", "(2, 2)", &[0; 32]);
        assert!(read(&good).is_ok());
        for cut in 0..good.len() {
            assert!(read(&good[..cut]).is_err(), "cut to {cut}");
        }
        let largest = usize::MAX;
        for (descr, shape, says) in [
            ("'<f8'", "(3,)".to_owned(), "n × p"),
            ("'<f8'", "()".to_owned(), "n × p"),
            ("'<f8'", "(1, 2, 3)".to_owned(), "n × p"),
            ("'<f8'", "(-1, 2)".to_owned(), "header"),
            ("'<f8'", format!("({largest}0, 2)"), "header"),
            ("'<f8'", format!("({largest}, {largest})"), "more than any"),
            ("'<f8'", format!("({largest}, 1)"), "too short"),
            ("'<f8'", "(99999999, 99999999)".to_owned(), "too short"),
            ("'<U2'", "(1, 1)".to_owned(), "float32"),
            ("[('a', '<f8')]", "(1, 1)".to_owned(), "header"),
            ("'∞'", "(1, 1)".to_owned(), "float32"),
        ] {
            let error = read(&file(descr, "False", &shape, &[0; 8])).unwrap_err();
            assert!(error.to_string().contains(says), "{descr} {shape}: {error}");
        }
        let nested = file(&"[".repeat(1_000), "False", "(1, 1)", &[0; 8]);
        assert!(read(&nested).is_err());
        assert!(read(b"not numpy at all").is_err());
        // Headers that NumPy rejects or reads differently are rejected.
        for (from, to) in [
            ("(2, 2)", "(2, 2), 'shape': (1, 4)"),
            ("(2, 2)", "(2, 2), 'x': (1, 4)"),
            ("(2, 2)", "(2, 2)*1"),
            ("(2, 2)", "(2, 2,,)"),
            ("(2, 2)", "(2LL, 2)"),
            ("'<f8'", "'<f8', 'descr': '<i8'"),
            ("'<f8'", "'<f8' '0'"),
            ("False", "Truex"),
            ("False", "1"),
            ("False", "not False"),
            ("False", "False, 'fortran_order': True"),
            ("{'descr'", "# 'shape': (1, 4)\n{'descr'"),
            ("}", "} 1"),
            ("}", ""),
        ] {
            let header =
                "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n".replace(from, to);
            assert!(read(&with_header(&header, &[0; 32])).is_err(), "{header}");
        }
        for version in [[9, 0], [1, 1], [0, 0]] {
            let mut other = good.clone();
            other[6..8].copy_from_slice(&version);
            assert!(read(&other).is_err(), "{version:?}");
        }
    }
}
