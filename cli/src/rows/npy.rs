//! NumPy `.npy` files of floating-point numbers, integers or booleans, two-dimensional, C or Fortran order.

use npyz::{DType, NpyFile, Order};

use super::{columns::Layout, table::RowTable};
use crate::error::{CliError, Result};

/// Deepest nesting of brackets in a header; an array of numbers has 2.
const DEEPEST: usize = 8;

/// Parses an n × p array, rows = participants; `layout` says which of the p columns are taken.
pub(super) fn parse(
    bytes: &[u8],
    layout: impl FnOnce(usize) -> Result<Layout>,
) -> Result<RowTable> {
    // The reader's parser takes twice as long for every bracket more (found by fuzzing).
    if nesting(bytes) > DEEPEST {
        return Err(CliError::usage(
            "its header has too many nested brackets; save it again with numpy.save",
        ));
    }
    // The reader multiplies the lengths without looking.
    check_shape(bytes)?;
    let file = NpyFile::new(bytes)
        .map_err(|error| CliError::usage(format!("it is not a .npy file ({error})")))?;
    let &[rows, columns] = file.shape() else {
        return Err(CliError::usage(format!(
            "its shape is {:?}; it must be n × p, one row a participant",
            file.shape()
        )));
    };
    let order = file.order();
    let dtype = file.dtype();
    let (rows, columns) = (whole(rows)?, whole(columns)?);
    let layout = layout(columns)?;
    let wanted = rows
        .checked_mul(columns)
        .filter(|values| values / 8 <= bytes.len())
        .ok_or_else(|| {
            CliError::usage(format!(
                "its header says {rows} × {columns} but the file is too short"
            ))
        })?;
    let values: Vec<f64> = match &dtype {
        DType::Plain(t) => match t.to_string().trim_start_matches(['<', '>', '|']) {
            "f8" => numbers::<f64>(file, |x| x)?,
            "f4" => numbers::<f32>(file, f64::from)?,
            "u1" => numbers::<u8>(file, f64::from)?,
            "u2" => numbers::<u16>(file, f64::from)?,
            "u4" => numbers::<u32>(file, f64::from)?,
            // Beyond 2⁵³ to the nearest that there is, as NumPy does.
            "u8" => numbers::<u64>(file, |x| x as f64)?,
            "i1" => numbers::<i8>(file, f64::from)?,
            "i2" => numbers::<i16>(file, f64::from)?,
            "i4" => numbers::<i32>(file, f64::from)?,
            "i8" => numbers::<i64>(file, |x| x as f64)?,
            "b1" => numbers::<bool>(file, f64::from)?,
            other => return Err(unsupported(other)),
        },
        other => return Err(unsupported(&other.descr())),
    };
    if values.len() != wanted {
        return Err(CliError::usage(format!(
            "its header says {rows} × {columns} but it holds {} values",
            values.len()
        )));
    }
    let values = match order {
        Order::C => values,
        Order::Fortran => (0..rows)
            .flat_map(|i| (0..columns).map(move |j| j * rows + i))
            .map(|at| values[at])
            .collect(),
    };
    Ok(RowTable::new(columns, values, None)?.rearranged(layout))
}

/// The header: its length has two bytes in version 1, four in the others.
fn header(bytes: &[u8]) -> &[u8] {
    let (from, length) = match bytes {
        [_, _, _, _, _, _, 1, _, a, b, ..] => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        [_, _, _, _, _, _, _, _, a, b, c, d, ..] => {
            (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize)
        }
        _ => return &[],
    };
    let rest = &bytes[from..];
    &rest[..length.min(rest.len())]
}

/// Refuses lengths whose product, with the width of a value, does not fit 64 bits. The width and whatever else the
/// header counts stand among them: all are multiplied.
fn check_shape(bytes: &[u8]) -> Result<()> {
    let numbers = header(bytes).split(|byte| !byte.is_ascii_digit());
    let product = numbers
        .filter(|digits| !digits.is_empty())
        .map(|digits| str::from_utf8(digits).ok()?.parse::<u64>().ok())
        .try_fold(1_u64, |product, number| product.checked_mul(number?.max(1)));
    match product {
        Some(_) => Ok(()),
        None => Err(CliError::usage(
            "the lengths in its header are more than any array has; save it again as n × p numbers with numpy.save",
        )),
    }
}

/// Most brackets open at once in the header.
fn nesting(bytes: &[u8]) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in header(bytes) {
        match byte {
            b'(' | b'[' | b'{' => open += 1,
            b')' | b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn numbers<T: npyz::Deserialize>(
    file: NpyFile<&[u8]>,
    number: impl Fn(T) -> f64,
) -> Result<Vec<f64>> {
    let values = file
        .into_vec::<T>()
        .map_err(|error| CliError::usage(format!("its values cannot be read ({error})")))?;
    Ok(values.into_iter().map(number).collect())
}

fn whole(value: u64) -> Result<usize> {
    usize::try_from(value).map_err(|_| CliError::usage("its shape does not fit this machine"))
}

fn unsupported(dtype: &str) -> CliError {
    CliError::usage(format!(
        "its values have type {dtype}; save it as float32 or float64, integers or booleans: numpy.save(file, array.astype(float))"
    ))
}

#[cfg(test)]
mod tests {
    use npyz::WriterBuilder;

    use super::*;
    use crate::rows::read_npy;

    fn parse(bytes: &[u8]) -> Result<RowTable> {
        read_npy(bytes)
    }

    fn written<T: npyz::AutoSerialize + Clone>(
        shape: &[u64],
        order: Order,
        values: &[T],
    ) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(shape)
            .order(order)
            .writer(&mut bytes)
            .begin_nd()
            .unwrap();
        writer.extend(values.iter().cloned()).unwrap();
        writer.finish().unwrap();
        bytes
    }

    #[test]
    fn types_and_orders() {
        let c = parse(&written(
            &[2, 3],
            Order::C,
            &[1.0_f64, 2.0, 3.0, 4.0, 5.0, 6.0],
        ))
        .unwrap();
        assert_eq!(c.row(1).values(), &[4.0, 5.0, 6.0]);
        let f = parse(&written(
            &[2, 3],
            Order::Fortran,
            &[1.0_f32, 4.0, 2.0, 5.0, 3.0, 6.0],
        ))
        .unwrap();
        assert_eq!(f.row(1).values(), &[4.0, 5.0, 6.0]);
        let u = parse(&written(&[1, 2], Order::C, &[7_u8, 255])).unwrap();
        assert_eq!(u.row(0).values(), &[7.0, 255.0]);
        fn read<T: npyz::AutoSerialize + Clone>(values: &[T; 2]) -> Vec<f64> {
            let table = parse(&written(&[1, 2], Order::C, values)).unwrap();
            table.row(0).values().to_vec()
        }
        assert_eq!(read(&[-1_i8, 2]), [-1.0, 2.0]);
        assert_eq!(read(&[-1_i16, 2]), [-1.0, 2.0]);
        assert_eq!(read(&[-1_i32, 2]), [-1.0, 2.0]);
        assert_eq!(read(&[-1_i64, 1 << 40]), [-1.0, 2.0_f64.powi(40)]);
        assert_eq!(read(&[1_u16, 2]), [1.0, 2.0]);
        assert_eq!(read(&[1_u32, 2]), [1.0, 2.0]);
        assert_eq!(read(&[1_u64, 2]), [1.0, 2.0]);
        assert_eq!(read(&[true, false]), [1.0, 0.0]);
    }

    #[test]
    fn what_it_cannot_use_is_a_clear_error() {
        let one = written(&[3], Order::C, &[1.0_f64, 2.0, 3.0]);
        assert!(parse(&one).unwrap_err().to_string().contains("n × p"));
        let mut texts = written(&[1, 2], Order::C, &[1.0_f64, 2.0]);
        let dtype = texts.windows(3).position(|three| three == b"<f8").unwrap();
        texts[dtype..dtype + 3].copy_from_slice(b"<U2");
        let error = parse(&texts).unwrap_err().to_string();
        assert!(error.contains("float32"), "{error}");
        let good = written(&[2, 2], Order::C, &[1.0_f64, 2.0, 3.0, 4.0]);
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "cut to {cut}");
        }
        assert!(parse(b"not numpy at all").is_err());
        let header = "[".repeat(40) + "\n";
        let nested = [b"\x93NUMPY\x01\x00\x29\x00", header.as_bytes()].concat();
        let error = parse(&nested).unwrap_err().to_string();
        assert!(error.contains("nested brackets"), "{error}");
        // Lengths whose product overflows, and columns that nobody has.
        for shape in [
            "(18446744073709551615, 18446744073709551615)",
            "(0, 1000000000000)",
            "(999999999999, 999999999999)",
            "(4294967296, 4294967296)",
            "(0, 99999999999, 99999999999)",
        ] {
            let header =
                format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
            let length = u16::try_from(header.len()).unwrap().to_le_bytes();
            let bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat();
            assert!(parse(&bytes).is_err(), "{shape}");
        }
        // A header that promises more than there is must not allocate it.
        let text = String::from_utf8_lossy(&good[..good.len() - 32])
            .replace("(2, 2)", "(99999999, 99999999)");
        assert!(parse(text.as_bytes()).is_err());
    }
}
