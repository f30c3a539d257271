//! LIBSVM text: `label index:value index:value …`, indices from 1; labels are dropped.
//!
//! Which indices a line has is what the row holds: zeros are left out. So nothing about them may decide whether the
//! other rows are read. Labels must be there: without them the line of a zero row is a blank one.

use super::{RowTable, Unreadable, Why, columns::Layout, text_of};
use crate::error::{CliError, Result};

/// Largest dimension taken from a file: beyond it an index is surely a mistake.
const MAX_INDEX: usize = 1 << 20;
/// Largest number of values a file may unfold to (8 GiB of memory).
const MAX_VALUES: usize = 1 << 30;

/// Parses LIBSVM text; without `dimension` the largest index decides. A value that is no number is NaN, and so is a row
/// with an index beyond `dimension`.
/// `layout` says which of the columns are taken.
pub(super) fn parse(
    bytes: &[u8],
    dimension: Option<usize>,
    layout: impl FnOnce(usize) -> Result<Layout>,
) -> Result<RowTable> {
    let text = text_of(bytes)?;
    let mut sparse: Vec<Vec<(usize, f64)>> = Vec::new();
    let mut largest = 0;
    let mut unreadable = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let bad = |what: &str| CliError::usage(format!("line {}: {what}", number + 1));
        let mut fields = line.split_ascii_whitespace().peekable();
        if fields.next_if(|field| !field.contains(':')).is_none() {
            return Err(bad(
                "it does not begin with a label; every line needs one (0 will do), or a row of zeros is a blank line",
            ));
        }
        let mut row = Vec::new();
        let (mut previous, mut outside) = (0, false);
        for field in fields {
            let (index, value) = field
                .split_once(':')
                .ok_or_else(|| bad("a field is not index:value, as LIBSVM text has it"))?;
            if index == "qid" {
                continue;
            }
            let index: usize = index
                .parse()
                .map_err(|_| bad("an index is not a whole number"))?;
            if index == 0 || (dimension.is_none() && index > MAX_INDEX) {
                return Err(bad(&format!("index {index} is outside 1 to {MAX_INDEX}")));
            }
            if index <= previous {
                return Err(bad(&format!(
                    "index {index} does not come after index {previous}"
                )));
            }
            previous = index;
            // Refusing the file would tell a server that picks `dimension` which rows reach beyond it.
            if dimension.is_some_and(|p| index > p) {
                outside = true;
                unreadable.get_or_insert(Unreadable {
                    line: number + 1,
                    column: Some(index),
                    named: None,
                    why: Why::Outside,
                });
                continue;
            }
            let value = value.parse().unwrap_or_else(|_| {
                unreadable.get_or_insert(Unreadable {
                    line: number + 1,
                    column: Some(index),
                    named: None,
                    why: Why::NotANumber,
                });
                f64::NAN
            });
            row.push((index, value));
        }
        if outside {
            row = vec![(1, f64::NAN)];
        }
        largest = largest.max(previous);
        sparse.push(row);
    }
    let columns = dimension.unwrap_or(largest);
    if columns == 0 {
        return Err(super::no_rows());
    }
    let layout = layout(columns)?;
    if columns.saturating_mul(sparse.len()) > MAX_VALUES {
        return Err(CliError::usage(format!(
            "{} rows of {columns} values need more memory than is sensible; give fewer rows",
            sparse.len()
        )));
    }
    let mut values = vec![0.0; columns * sparse.len()];
    for (row, line) in sparse.iter().zip(values.chunks_exact_mut(columns.max(1))) {
        for &(index, value) in row {
            line[index - 1] = value;
        }
    }
    Ok(RowTable::new(columns, values, None)?
        .with_unreadable(unreadable)
        .rearranged(layout))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{TableArgs, nameless};

    fn parse(bytes: &[u8], dimension: Option<usize>) -> Result<RowTable> {
        super::parse(bytes, dimension, |count| {
            nameless(count, &TableArgs::default(), None)
        })
    }

    #[test]
    fn rows_unfold() {
        let table = parse(b"-1 2:1 4:0.5 # comment\n\n+1 qid:3 1:-1\n0 1:2\n", None).unwrap();
        assert_eq!((table.len(), table.dimension()), (3, 4));
        assert_eq!(table.row(0).values(), &[0.0, 1.0, 0.0, 0.5]);
        assert_eq!(table.row(1).values(), &[-1.0, 0.0, 0.0, 0.0]);
        assert_eq!(table.row(2).values(), &[2.0, 0.0, 0.0, 0.0]);
        assert_eq!(
            parse(b"+1\n+1 2:1", None).unwrap().row(0).values(),
            &[0.0, 0.0]
        );
    }

    /// Whether rows are sent must not depend on them: a server picks the dimension, and would learn from a refusal
    /// that some row has an index beyond it. And a row of zeros, without a label, was a blank line and not sent.
    #[test]
    fn what_a_row_holds_does_not_decide_whether_it_is_read() {
        for zeros in [&b"0"[..], b"0 3:1", b"0 1:1 2:1 4000000000:1", b"0 1:\xb5"] {
            let text = [b"1 1:1\n", zeros, b"\n1 2:1\n"].concat();
            let table = parse(&text, Some(2)).unwrap();
            assert_eq!((table.len(), table.dimension()), (3, 2));
            assert_eq!(table.row(2).values(), &[0.0, 1.0]);
            let usable = table.row(1).values().iter().all(|value| value.is_finite());
            assert_eq!(usable, zeros == b"0");
            assert_eq!(table.check_readable().is_ok(), usable);
        }
        for unlabelled in ["1:1\n\n2:1\n", "1 1:1\n2:1\n", "\n"] {
            assert!(parse(unlabelled.as_bytes(), Some(2)).is_err());
        }
    }

    #[test]
    fn errors_say_where() {
        for (text, dimension, words) in [
            ("1 0:1", None, "index 0"),
            (
                "1 3:1",
                Some(2),
                "line 1, column 3: there is no such column",
            ),
            ("1:1", None, "does not begin with a label"),
            ("1 1:1\n1:1", None, "line 2: it does not begin with a label"),
            ("1 2:1 1:1", None, "does not come after"),
            ("1 1:abc", None, "line 1, column 1: not a number"),
            ("1 1:1 x", None, "not index:value"),
            ("1 99999999999:1", None, "outside"),
            ("", None, "no rows"),
            ("+1\n", None, "no rows"),
        ] {
            let strict = parse(text.as_bytes(), dimension).and_then(|table| {
                table.check_readable()?;
                Ok(table)
            });
            let error = strict.unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
            assert!(!error.contains("abc"));
        }
    }
}
