//! NumPy's `.npy` files of n × p numbers: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use eigenveil_shared::{Error, Result};

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
/// `invalid-request`: it is no `.npy` file, not two-dimensional, of another type, or too short for its shape.
pub fn read(bytes: &[u8]) -> Result<Array> {
    let (header, data) =
        split(bytes).ok_or_else(|| wrong("it is not a .npy file, or it is cut short"))?;
    let entry = |key| {
        entry(header, key).ok_or_else(|| wrong(format!("its header has no readable {key:?}")))
    };
    let shape = shape(entry("shape")?)
        .ok_or_else(|| wrong("the lengths in its header are not those of an array"))?;
    let &[rows, columns] = &shape[..] else {
        return Err(wrong(format!(
            "its shape is {shape:?}; it must be n × p, one row a participant"
        )));
    };
    let fortran_order = entry("fortran_order")?.starts_with("True");
    let dtype = dtype(entry("descr")?);
    let (big_endian, kind) = match dtype.split_at_checked(1) {
        Some((order @ ("<" | ">" | "|"), kind)) => (order == ">", kind),
        _ => (false, dtype),
    };
    let source = Source {
        data,
        values: rows.checked_mul(columns).ok_or_else(|| {
            wrong(format!(
                "its header says {rows} × {columns}, more than any array has"
            ))
        })?,
        big_endian,
    };
    let values = match kind {
        "f8" => source.read(f64::from_le_bytes),
        "f4" => source.read(|bytes| f64::from(f32::from_le_bytes(bytes))),
        "u1" => source.read(|[byte]| f64::from(byte)),
        "u2" => source.read(|bytes| f64::from(u16::from_le_bytes(bytes))),
        "u4" => source.read(|bytes| f64::from(u32::from_le_bytes(bytes))),
        "u8" => source.read(|bytes| u64::from_le_bytes(bytes) as f64),
        "i1" => source.read(|bytes| f64::from(i8::from_le_bytes(bytes))),
        "i2" => source.read(|bytes| f64::from(i16::from_le_bytes(bytes))),
        "i4" => source.read(|bytes| f64::from(i32::from_le_bytes(bytes))),
        "i8" => source.read(|bytes| i64::from_le_bytes(bytes) as f64),
        "b1" => source.read(|[byte]| f64::from(byte != 0)),
        _ => {
            return Err(wrong(format!(
                "its values have type {dtype}; save it as float32 or float64, integers or booleans: \
                 numpy.save(file, array.astype(float))"
            )));
        }
    };
    let values = values.ok_or_else(|| {
        wrong(format!(
            "its header says {rows} × {columns} but the file is too short"
        ))
    })?;
    let values = if fortran_order {
        (0..rows)
            .flat_map(|row| (0..columns).map(move |column| column * rows + row))
            .map(|at| values[at])
            .collect()
    } else {
        values
    };
    Ok(Array {
        rows,
        columns,
        values,
    })
}

/// The values of an array as they lie in the file.
struct Source<'a> {
    data: &'a [u8],
    values: usize,
    big_endian: bool,
}

impl Source<'_> {
    /// All of them, from their bytes, lowest first; `None` where there are fewer.
    fn read<const WIDTH: usize>(&self, number: impl Fn([u8; WIDTH]) -> f64) -> Option<Vec<f64>> {
        let values = self.data.as_chunks::<WIDTH>().0.get(..self.values)?;
        let number = |&(mut bytes): &[u8; WIDTH]| {
            if self.big_endian {
                bytes.reverse();
            }
            number(bytes)
        };
        Some(values.iter().map(number).collect())
    }
}

/// The header and what follows it. Its length has two bytes in version 1, four in the others.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (version, rest) = rest.split_at_checked(2)?;
    let (length, rest) = if version[0] == 1 {
        let (length, rest) = rest.split_first_chunk()?;
        (usize::from(u16::from_le_bytes(*length)), rest)
    } else {
        let (length, rest) = rest.split_first_chunk()?;
        (u32::from_le_bytes(*length) as usize, rest)
    };
    let (header, data) = rest.split_at_checked(length)?;
    Some((str::from_utf8(header).ok()?, data))
}

/// What follows this key in the header, a Python dictionary.
fn entry<'a>(header: &'a str, key: &str) -> Option<&'a str> {
    let quoted = |quote: char| header.split_once(&format!("{quote}{key}{quote}"));
    let (_, rest) = quoted('\'').or_else(|| quoted('"'))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

/// The lengths of a tuple such as `(2, 3)`.
fn shape(text: &str) -> Option<Vec<usize>> {
    let (inside, _) = text.strip_prefix('(')?.split_once(')')?;
    let lengths = inside.trim_end().trim_end_matches(',');
    if lengths.trim().is_empty() {
        return Some(Vec::new());
    }
    // Python 2 wrote long integers with an L.
    let length = |text: &str| text.trim().trim_end_matches('L').parse().ok();
    lengths.split(',').map(length).collect()
}

/// The type in quotes, or as much of another description as an error can show.
fn dtype(text: &str) -> &str {
    let quote = |c| c == '\'' || c == '"';
    let inside = text.strip_prefix(quote);
    inside
        .and_then(|inside| inside.split_once(quote))
        .map_or_else(
            || text.split('\n').next().unwrap_or(text),
            |(dtype, _)| dtype,
        )
}

fn wrong(why: impl Into<String>) -> Error {
    Error::invalid_request(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file as `numpy.save` writes it.
    fn file(descr: &str, fortran_order: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n");
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
        let c = read(&file(
            "'|u1'",
            "False",
            "(2, 3)",
            b"\x01\x02\x03\x04\x05\x06",
        ))
        .unwrap();
        let fortran = read(&file(
            "'|u1'",
            "True",
            "(2L, 3L)",
            b"\x01\x04\x02\x05\x03\x06",
        ));
        assert_eq!(c.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(fortran.unwrap(), c);
        let mut newer = file("'|u1'", "False", "(1, 1)", &[7]);
        newer[6] = 2;
        newer.splice(10..10, [0, 0]);
        assert_eq!(read(&newer).unwrap().values, [7.0]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_allocating_it() {
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
            ("'<f8'", "(-1, 2)".to_owned(), "lengths"),
            ("'<f8'", format!("({largest}0, 2)"), "lengths"),
            ("'<f8'", format!("({largest}, {largest})"), "more than any"),
            ("'<f8'", format!("({largest}, 1)"), "too short"),
            ("'<f8'", "(99999999, 99999999)".to_owned(), "too short"),
            ("'<U2'", "(1, 1)".to_owned(), "float32"),
            ("[('a', '<f8')]", "(1, 1)".to_owned(), "float32"),
            ("'∞'", "(1, 1)".to_owned(), "float32"),
        ] {
            let error = read(&file(descr, "False", &shape, &[0; 8])).unwrap_err();
            assert!(error.to_string().contains(says), "{descr} {shape}: {error}");
        }
        let nested = file(&"[".repeat(1_000), "False", "(1, 1)", &[0; 8]);
        assert!(read(&nested).is_err());
        assert!(read(b"not numpy at all").is_err());
    }
}
