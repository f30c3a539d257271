//! LIBSVM text: `label index:value index:value …`, indices from 1, or from 0 with `--first-index 0`; labels are
//! dropped.
//!
//! Zeros are left out, so the indices of a line are data of its row, and must not decide whether other rows are read:
//! for reports a line that cannot be used is an unusable row, unless most are. Labels are required: without
//! them the line of a zero row would be blank.

use super::{
    cells::{DecimalMark, number},
    columns::{ColumnMapping, ExpectedColumns},
    problems::{INDEX_ZERO, Problems, Unreadable, UnreadableReason},
    table::{MIN_LINES_FOR_MAJORITY, RowTable, no_rows, text_of},
};
use crate::error::{CliError, Result};

/// Largest index accepted without a known dimension: a larger one is surely a mistake.
const MAX_INDEX: usize = 1 << 20;
/// Largest number of values of the dense table (8 GiB of memory).
const MAX_VALUES: usize = 1 << 30;

/// Parses LIBSVM text; without `expected` the largest index is the dimension. An unreadable value becomes NaN, as does a
/// row with an index beyond the dimension. `first` is the index of the first column, 0 or 1; `mapping` says which of
/// the columns are taken.
pub(super) fn parse(
    bytes: &[u8],
    first: usize,
    expected: Option<&ExpectedColumns>,
    mapping: impl FnOnce(usize) -> Result<ColumnMapping>,
) -> Result<RowTable> {
    let dimension = expected.map(|expected| expected.dimension);
    let reports = expected.is_some_and(|expected| expected.reports);
    let text = text_of(bytes)?;
    let mut sparse: Vec<Vec<(usize, f64)>> = Vec::new();
    let (mut largest, mut unusable, mut malformed) = (0, 0, 0);
    let mut first_error = None;
    let mut problems = Problems::default();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        let row = match row(text, first, dimension) {
            Ok(row) => row,
            Err((what, reason)) => {
                let error = CliError::usage(format!("line {line}: {what}"));
                let Some(reason) = reason.filter(|_| reports) else {
                    return Err(error);
                };
                malformed += 1;
                first_error.get_or_insert(error);
                ParsedLine {
                    entries: vec![(1, f64::NAN)],
                    largest: 0,
                    reason: Some((None, reason)),
                }
            }
        };
        if let Some((column, reason)) = row.reason {
            // Values may be missing, also most of them.
            unusable += usize::from(reason != UnreadableReason::Missing);
            problems.record(Unreadable {
                line,
                column,
                named: None,
                reason,
            });
        }
        largest = largest.max(row.largest);
        sparse.push(row.entries);
    }
    if reports && sparse.len() >= MIN_LINES_FOR_MAJORITY && 2 * unusable > sparse.len() {
        let described = problems.without_missing().describe(|_| String::new());
        let error = first_error.filter(|_| 2 * malformed > unusable);
        return Err(error.unwrap_or_else(|| {
            let described = described.unwrap_or_default();
            CliError::usage(format!("most rows cannot be used: {described}"))
        }));
    }
    let columns = dimension.unwrap_or(largest);
    if columns == 0 {
        return Err(no_rows());
    }
    let mapping = mapping(columns)?;
    if columns.saturating_mul(sparse.len()) > MAX_VALUES {
        return Err(CliError::usage(format!(
            "{} rows of {columns} values need too much memory; give fewer rows",
            sparse.len()
        )));
    }
    let mut values = vec![0.0; columns * sparse.len()];
    for (row, line) in sparse.iter().zip(values.chunks_exact_mut(columns.max(1))) {
        for &(index, value) in row {
            line[index - 1] = value;
        }
    }
    let mut table = RowTable::new(columns, values, None)?;
    table.problems = problems;
    Ok(table.with_columns_selected(mapping))
}

/// What is wrong with a line, and why it is an unusable row of a report; `None`: not even of one.
type LineError = (String, Option<UnreadableReason>);

/// The label is not part of the row: a missing label reveals nothing about it.
const NO_LABEL: &str = "it does not begin with a label; every line needs one (0 will do), or a row of zeros is a blank line";

struct ParsedLine {
    entries: Vec<(usize, f64)>,
    largest: usize,
    reason: Option<(Option<usize>, UnreadableReason)>,
}

fn row(
    line: &str,
    first: usize,
    dimension: Option<usize>,
) -> std::result::Result<ParsedLine, LineError> {
    let malformed = |what: &str| (what.to_owned(), Some(UnreadableReason::NotLibsvm));
    let mut fields = line.split_ascii_whitespace().peekable();
    let label = fields
        .next_if(|field| !field.contains(':'))
        .ok_or((NO_LABEL.to_owned(), None))?;
    // Multiple labels are separated by commas; but a line of CSV is one such field too.
    let is_number =
        |part: &str| part.parse::<f64>().is_ok() || number(part, DecimalMark::Either).is_ok();
    let is_label = label.split(',').all(is_number);
    if !is_label || (label.contains(',') && fields.peek().is_none()) {
        return Err(malformed(
            "its label is not a number: is this CSV? (--format csv)",
        ));
    }
    let mut parsed = ParsedLine {
        entries: Vec::new(),
        largest: 0,
        reason: None,
    };
    let mut outside = false;
    for field in fields {
        let (index, value) = field
            .split_once(':')
            .ok_or_else(|| malformed("a field is not index:value, as in LIBSVM text"))?;
        if index == "qid" {
            continue;
        }
        let index: usize = index
            .parse()
            .map_err(|_| malformed("an index is not a whole number"))?;
        // From here on indices count from 1.
        let Some(index) = index.checked_add(1 - first).filter(|&index| index > 0) else {
            let index_zero = Some(UnreadableReason::IndexZero);
            return Err((INDEX_ZERO.to_owned(), index_zero));
        };
        if dimension.is_none() && index > MAX_INDEX {
            let most = MAX_INDEX - (1 - first);
            return Err(malformed(&format!("an index is above {most}")));
        }
        // Which columns of a row are not 0 are its values: no message has them.
        if index <= parsed.largest {
            return Err(malformed("its indices do not increase"));
        }
        parsed.largest = index;
        // Refusing the file would tell a server, which picks the dimension, that a row reaches beyond it.
        if dimension.is_some_and(|p| index > p) {
            outside = true;
            let reason = (None, UnreadableReason::Outside);
            parsed.reason.get_or_insert(reason);
            continue;
        }
        // Nothing says what a comma is.
        let value = match value.contains(',') {
            true => Err(UnreadableReason::NotANumber),
            false => number(value, DecimalMark::Either),
        };
        let value = value.unwrap_or_else(|reason| {
            parsed.reason.get_or_insert((Some(index), reason));
            f64::NAN
        });
        parsed.entries.push((index, value));
    }
    if outside {
        parsed.entries = vec![(1, f64::NAN)];
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::assert_says,
        rows::{TableArgs, table::mapping_without_names},
    };

    fn read(bytes: &[u8], dimension: Option<usize>, reports: bool) -> Result<RowTable> {
        let expected = dimension.map(|dimension| ExpectedColumns {
            reports,
            ..ExpectedColumns::study(dimension, None)
        });
        super::parse(bytes, 1, expected.as_ref(), |count| {
            mapping_without_names(count, &TableArgs::default(), None)
        })
    }

    fn parse(bytes: &[u8], dimension: Option<usize>) -> Result<RowTable> {
        read(bytes, dimension, false)
    }

    /// A line that cannot be used is one unusable row; a file of such lines is refused.
    #[test]
    fn a_malformed_line_does_not_affect_other_rows() {
        let lines = "1 0:5 2:1|1 2:1 1:1|1 1:1 1:2|1 a:1|1 -1:5|1 1: 5|1 x|x 1:1";
        for line in lines.split('|') {
            for (before, after) in [("", ""), ("0 1:7\n", ""), ("0 1:7\n", "\n0 2:8\n")] {
                let text = format!("{before}{line}{after}");
                let table = read(text.as_bytes(), Some(2), true).unwrap();
                assert_eq!(table.len(), text.lines().count(), "{text:?}");
                assert!(table.check_readable().is_err(), "{text:?}");
                // Outside reports it is an error that names the line.
                assert!(parse(text.as_bytes(), Some(2)).is_err(), "{text:?}");
            }
        }
        let table = "1.5,2.5\n3.5,4.5\n5.5,6.5\n";
        let beyond = "1 3:1\n1 9:1\n1 1:1\n";
        let commas = "1 1:1,234\n1 1:1,234\n1 1:2\n";
        let texts = ["a b\nc d\ne f\n", "QUJD\nREVG\nR0hJ\n"];
        for other in [table, beyond, commas, texts[0], texts[1]] {
            assert!(read(other.as_bytes(), Some(2), true).is_err(), "{other:?}");
        }
    }

    #[test]
    fn sparse_rows_become_dense() {
        let table = parse(b"-1 2:1 4:0.5 # comment\n\n+1 qid:3 1:-1\n0 1:2\n", None).unwrap();
        assert_eq!((table.len(), table.dimension()), (3, 4));
        assert_eq!(table.row(0).values(), &[0.0, 1.0, 0.0, 0.5]);
        assert_eq!(table.row(1).values(), &[-1.0, 0.0, 0.0, 0.0]);
        assert_eq!(table.row(2).values(), &[2.0, 0.0, 0.0, 0.0]);
        // As typesetting writes a sign; most values may be missing.
        let text = "\u{feff}\u{2212}1 1:\u{2212}2 2:0.5\n1 1:nan\n1 1:NA\n";
        let table = read(text.as_bytes(), Some(2), true).unwrap();
        assert_eq!(table.row(0).values(), &[-2.0, 0.5]);
        let zero = parse(b"+1\n+1 2:1", None).unwrap();
        assert_eq!(zero.row(0).values(), &[0.0, 0.0]);
    }

    /// Whether rows are sent must not depend on them: a server picks the dimension and would learn from a refusal that
    /// some row has an index beyond it. And without labels a row of zeros would be a blank line and not be sent.
    #[test]
    fn reading_does_not_depend_on_the_data() {
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

    /// scikit-learn writes indices from 0 by default, and the file need not show it.
    #[test]
    fn first_index_0_reads_files_that_count_from_0() {
        let text = b"1 0:5 1:2\n0 1:3\n0\n";
        let table = super::parse(text, 0, None, |count| {
            mapping_without_names(count, &TableArgs::default(), None)
        })
        .unwrap();
        assert_eq!((table.len(), table.dimension()), (3, 2));
        assert_eq!(table.row(0).values(), &[5.0, 2.0]);
        assert_eq!(table.row(1).values(), &[0.0, 3.0]);
        // Without the flag the line is not sent as it stands, and the user learns why.
        let table = read(text, Some(2), true).unwrap();
        for error in [
            table.check_readable().unwrap_err(),
            parse(text, None).unwrap_err(),
        ] {
            assert_says(&error, &["--first-index 0"], &[]);
        }
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, dimension, words) in [
            ("1 0:1", None, "index 0"),
            ("1 86413:1", Some(2), "line 1: an index is beyond"),
            ("1:1", None, "does not begin with a label"),
            ("1 1:1\n1:1", None, "line 2: it does not begin with a label"),
            ("1 86413:1 8641:1", None, "indices do not increase"),
            ("1 1:abc", None, "line 1, column 1: not a number"),
            ("1 1:1 x", None, "not index:value"),
            ("1 8641999999:1", None, "an index is above 1048576"),
            ("", None, "no rows"),
            ("+1\n", None, "no rows"),
        ] {
            let table = parse(text.as_bytes(), dimension);
            let error = table.and_then(|table| table.check_readable()).unwrap_err();
            assert_says(&error, &[words], &["abc", "8641"]);
        }
    }
}
