//! CSV with or without a header line.

use std::collections::BTreeSet;

use super::{Place, RowTable, text_of};
use crate::error::{CliError, Result};

/// Parses comma-separated numbers. The first line is a header when its fields are the names of columns: no two alike,
/// none a number or something that stands for one ([`is_number_or_bound`]), at most one missing. A field that is no number
/// is NaN.
pub(super) fn parse(bytes: &[u8]) -> Result<RowTable> {
    let text = text_of(bytes)?;
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .trim(::csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut record = ::csv::StringRecord::new();
    let (mut names, mut columns, mut values, mut line) = (None, 0, Vec::new(), 0);
    let mut unreadable = None;
    loop {
        line += 1;
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(refused(&error, line)),
        }
        if line == 1 {
            columns = record.len();
            if is_header(&record) {
                names = Some(record.iter().map(str::to_owned).collect());
                continue;
            }
        }
        for (column, field) in record.iter().enumerate() {
            let column = column + 1;
            values.push(field.parse::<f64>().unwrap_or_else(|_| {
                unreadable.get_or_insert(Place { line, column });
                f64::NAN
            }));
        }
    }
    Ok(RowTable::new(columns, values, names)?.with_unreadable(unreadable))
}

/// Whether these are names of columns, and not the first participant of whom nothing is a number.
fn is_header(record: &::csv::StringRecord) -> bool {
    let distinct: BTreeSet<&str> = record.iter().collect();
    distinct.len() == record.len()
        && record.iter().filter(|field| is_missing(field)).count() <= 1
        && record.iter().any(|field| !is_missing(field))
        && !record.iter().any(is_number_or_bound)
}

/// Whether it is a number, or one that a laboratory writes: `<0.5`, `> 100`, `~3`.
fn is_number_or_bound(field: &str) -> bool {
    field
        .trim_start_matches(['<', '>', '=', '~', '≤', '≥', '≈', ' '])
        .parse::<f64>()
        .is_ok()
}

/// What people write where there is no value.
fn is_missing(field: &str) -> bool {
    const MISSING: [&str; 8] = ["", "-", "?", ".", "na", "n/a", "null", "none"];
    MISSING.contains(&field.to_ascii_lowercase().as_str())
}

/// The csv crate's own words may hold fields of the row: say where, not what.
fn refused(error: &::csv::Error, line: usize) -> CliError {
    CliError::usage(match error.kind() {
        ::csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => {
            format!("line {line} has {len} fields but the first line has {expected_len}")
        }
        _ => format!("line {line} is not comma-separated text"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_and_without_header() {
        let with = parse(b"height, weight\n1.5, -2e3\n0,7\n").unwrap();
        assert_eq!(with.names().unwrap(), ["height", "weight"]);
        assert_eq!(with.row(0).values(), &[1.5, -2000.0]);
        let without = parse(b"1,2\r\n3,4").unwrap();
        assert!(without.names().is_none());
        assert_eq!(without.row(1).values(), &[3.0, 4.0]);
    }

    /// Whether a row is sent must not depend on it: in what is parsed for reports a cell that is no number is missing.
    #[test]
    fn what_is_no_number_is_missing() {
        for (text, rows) in [
            ("a,b\n1,secret\n", 1),
            ("1,2\n3,\n", 2),
            ("1,<0.5\n", 1),
            (",\n1,2\n", 2),
            ("NA,n/a\n1,2\n", 2),
            // The first participant, or the only one of a device, is no header.
            ("<0.5,<0.3\n1,2\n", 2),
            ("< 0.5,≥3\n", 1),
            ("trace,trace\n", 1),
            ("NA,\n1,2\n", 2),
        ] {
            let table = parse(text.as_bytes()).unwrap();
            assert_eq!(table.len(), rows, "{text:?}");
            assert!(table.first_not_finite().is_some(), "{text:?}");
        }
        // An index column without a name, as pandas writes it.
        let table = parse(b",height\n0,1.5\n").unwrap();
        assert_eq!((table.len(), table.check_readable().is_ok()), (1, true));
    }

    #[test]
    fn errors_say_where_but_not_what() {
        for (text, place) in [
            ("a,b\n1,secret\n", "line 2, column 2"),
            ("1,2\n3\n", "line 2 has 1 fields"),
            ("1,2\n3,\n", "line 2, column 2"),
            ("1,x\n", "line 1, column 2"),
            ("a,b\n", "no rows"),
            ("", "no rows"),
        ] {
            let strict = parse(text.as_bytes()).and_then(|table| {
                table.check_readable()?;
                Ok(table)
            });
            let error = strict.unwrap_err().to_string();
            assert!(error.contains(place), "{text:?}: {error}");
            assert!(!error.contains("secret"));
        }
        assert!(parse(b"\xff\xfe1\0,\x002\0").is_err());
        // One cell in another encoding is missing, and not a file that is refused.
        let table = parse(b"1,2\n3,<5 \xb5g\n").unwrap();
        assert_eq!((table.len(), table.check_readable().is_ok()), (2, false));
    }
}
