//! LIBSVM text: `label index:value index:value …`, indices from 1, or from 0 with `first_index 0`; labels are
//! dropped.
//!
//! Zeros are omitted, so the indices of a line are data of its row and must not decide whether other rows are read: for
//! reports a malformed line is an unusable row, unless most lines are; cells are judged as in any other table. Labels
//! are required: without them the line of a zero row would be blank.

use std::collections::BTreeSet;

use crate::{
    cells::number,
    columns::ExpectedColumns,
    encoding::{decode_cell, in_utf8},
    error::{Error, Result},
    problems::{INDEX_ZERO, Unreadable, UnreadableReason},
    settings::Settings,
    table::{
        MIN_LINES_FOR_MAJORITY, RowTable, check_is_text, lines_of, mapping_without_names, no_rows,
    },
    text_columns::{MIN_FILLED, Reading, RefusedColumns},
};

/// Largest index accepted without a known dimension: a larger one is certainly a mistake.
const MAX_INDEX: usize = 1 << 20;
/// Largest number of values of the dense table (8 GiB of memory).
const MAX_VALUES: usize = 1 << 30;

/// Parses LIBSVM text; without `expected` the largest index is the number of columns. An unreadable value becomes NaN,
/// and so does a whole row with an index beyond the last column.
pub(crate) fn parse(
    bytes: &[u8],
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    check_is_text(bytes, false)?;
    let text = in_utf8(bytes, None);
    parse_lines(lines_of(&text), settings, expected)?.ok_or_else(no_rows)
}

/// Parses lines of LIBSVM text; `None` if none is a row.
pub(crate) fn parse_lines<'a>(
    text: impl Iterator<Item = (usize, &'a [u8])>,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<Option<RowTable>> {
    let first_index = settings.first_index.unwrap_or(1);
    let expected_count = expected.map(|expected| columns_for(expected.dimension, settings));
    let reports = expected.is_some_and(|expected| expected.reports);
    let mut lines: Vec<(usize, ParsedLine)> = Vec::new();
    let (mut largest, mut outside, mut malformed) = (0, 0, 0);
    let mut first_error = None;
    for (line, text) in text {
        let text = decode_cell(text);
        let text = row_in(&text);
        if text.is_empty() {
            continue;
        }
        let row = match parse_line(text, first_index, expected_count) {
            Ok(row) => row,
            Err((detail, reason)) => {
                let error = Error::new(format!("line {line}: {detail}"));
                let Some(reason) = reason.filter(|_| reports) else {
                    return Err(error);
                };
                malformed += 1;
                first_error.get_or_insert(error);
                ParsedLine {
                    reason: Some(reason),
                    ..ParsedLine::default()
                }
            }
        };
        largest = largest.max(row.largest);
        lines.push((line, row));
    }
    let columns = expected_count.unwrap_or(largest);
    if columns == 0 || lines.is_empty() {
        return Ok(None);
    }
    let mapping = mapping_without_names(columns, settings, expected)?;
    if columns.saturating_mul(lines.len()) > MAX_VALUES {
        return Err(Error::new(format!(
            "{} rows of {columns} values need too much memory; give fewer rows",
            lines.len()
        )));
    }
    let mut reading = Reading::new(settings, expected, &mapping);
    let mut values = Vec::with_capacity(mapping.file_columns.len() * lines.len());
    let mut cells = vec![Ok(0.0); columns];
    for (line, row) in &lines {
        // Nothing after the columns to keep is relevant.
        let is_outside = row.reason == Some(UnreadableReason::Outside);
        let is_relevant = !is_outside || settings.keep.is_none();
        if let Some(reason) = row.reason.filter(|_| is_relevant) {
            outside += usize::from(is_outside);
            reading.problems.record(Unreadable {
                line: *line,
                column: None,
                table_column: None,
                reason,
            });
            values.extend(mapping.file_columns.iter().map(|_| f64::NAN));
            continue;
        }
        cells.fill(Ok(0.0));
        for &(index, cell) in &row.entries {
            cells[index - 1] = cell;
        }
        for (table_column, &column) in mapping.file_columns.iter().enumerate() {
            values.push(reading.number(*line, table_column, cells[column], &mapping));
        }
    }
    // A site is told what cannot be used, and decides.
    let may_refuse = !expected.is_some_and(|expected| expected.site);
    let is_majority =
        |count: usize, least| may_refuse && lines.len() >= least && 2 * count > lines.len();
    if let Some(error) = first_error.filter(|_| is_majority(malformed, MIN_LINES_FOR_MAJORITY)) {
        return Err(error);
    }
    // All columns after the last one count as one column.
    if reports && is_majority(outside, MIN_FILLED) {
        return Err(Error::new(
            "most of its rows have an index beyond the last column of the study; name the columns to read with `keep`",
        ));
    }
    reading.check(&mapping, RefusedColumns::default(), &mut ())?;
    RowTable::from_mapping(mapping, values, reading.problems, Vec::new()).map(Some)
}

/// The row in a line, without a comment; empty if there is none.
fn row_in(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

/// Number of rows in these lines.
pub(crate) fn count_rows<'a>(text: impl Iterator<Item = (usize, &'a [u8])>) -> usize {
    let rows = text.filter(|(_, line)| !row_in(&decode_cell(line)).is_empty());
    rows.count()
}

/// Number of columns of the file, derived from the number of features and from `keep` or `drop`: no line states it, and
/// none may decide it.
pub(crate) fn columns_for(dimension: usize, settings: &Settings) -> usize {
    let indices = |names: &[String]| -> BTreeSet<usize> {
        let indices = names.iter().filter_map(|name| name.parse().ok());
        indices.filter(|&index| index <= MAX_INDEX).collect()
    };
    match (&settings.keep, &settings.drop) {
        (Some(keep), _) => indices(keep)
            .last()
            .map_or(dimension, |&last| last.max(dimension)),
        (None, Some(drop)) => dimension + indices(drop).len(),
        (None, None) => dimension,
    }
}

/// The error of a line, and the reason why it is an unusable row of a report; `None` if it is not a row.
type LineError = (String, Option<UnreadableReason>);

/// The label is not part of the row: a missing label reveals nothing about it.
const NO_LABEL: &str = "it does not begin with a label; every line needs one (0 will do), or a row of zeros is a blank line";

#[derive(Default)]
struct ParsedLine {
    /// Cells by index, which increases.
    entries: Vec<(usize, Result<f64, UnreadableReason>)>,
    largest: usize,
    /// Why the whole line is unusable.
    reason: Option<UnreadableReason>,
}

fn parse_line(
    line: &str,
    first_index: usize,
    columns: Option<usize>,
) -> std::result::Result<ParsedLine, LineError> {
    let malformed = |detail: &str| (detail.to_owned(), Some(UnreadableReason::NotLibsvm));
    let mut fields = line.split_ascii_whitespace().peekable();
    let label = fields
        .next_if(|field| !field.contains(':'))
        .ok_or((NO_LABEL.to_owned(), None))?;
    // Multiple labels are separated by commas, but a line of CSV is also one such field.
    let is_number = |part: &str| part.parse::<f64>().is_ok() || number(part, None).is_ok();
    let is_label = label.split(',').all(is_number);
    if !is_label || (label.contains(',') && fields.peek().is_none()) {
        return Err(malformed(
            "its label is not a number: is this CSV? (`format` csv)",
        ));
    }
    let mut parsed = ParsedLine::default();
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
        // From here on, indices count from 1.
        let Some(index) = index
            .checked_add(1 - first_index)
            .filter(|&index| index > 0)
        else {
            let index_zero = Some(UnreadableReason::IndexZero);
            return Err((INDEX_ZERO.to_owned(), index_zero));
        };
        if columns.is_none() && index > MAX_INDEX {
            let max_index = MAX_INDEX - (1 - first_index);
            return Err(malformed(&format!("an index is above {max_index}")));
        }
        // The positions of a row's nonzero values are data: no message contains them.
        if index <= parsed.largest {
            return Err(malformed("its indices do not increase"));
        }
        parsed.largest = index;
        // Refusing the file would tell a server, which chooses the dimension, that a row exceeds it.
        if columns.is_some_and(|last| index > last) {
            parsed.reason = Some(UnreadableReason::Outside);
            continue;
        }
        let cell = number(value, None).map_err(|reason| match reason {
            // No setting states another decimal mark here.
            UnreadableReason::OtherSpelling => UnreadableReason::NotANumber,
            reason => reason,
        });
        parsed.entries.push((index, cell));
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_says, strings, without};

    fn read(bytes: &[u8], dimension: Option<usize>, reports: bool) -> Result<RowTable> {
        let expected = dimension.map(|dimension| ExpectedColumns {
            reports,
            ..ExpectedColumns::study(dimension, None)
        });
        super::parse(bytes, &Settings::default(), expected.as_ref())
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
        let texts = ["a b\nc d\ne f\n", "QUJD\nREVG\nR0hJ\n"];
        for other in [table, texts[0], texts[1]] {
            assert!(read(other.as_bytes(), Some(2), true).is_err(), "{other:?}");
        }
        // For indices beyond the study, and for the cells of a column, more than half of 20 or more decide.
        let alternating = "1 1:x\n1 2:x\n1\n".repeat(20);
        assert!(read(alternating.as_bytes(), Some(2), true).is_ok());
        for values in ["1 3:1\n1 9:1\n1 1:1\n", "1 1:1,234\n1 1:1,234\n1 1:2\n"] {
            for (copies, refused) in [(6, false), (7, true)] {
                let table = read(values.repeat(copies).as_bytes(), Some(2), true);
                assert_eq!(table.is_err(), refused, "{values:?}");
            }
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

    /// Columns that are left out do not matter, nor those behind the columns to keep.
    #[test]
    fn columns_are_left_out() {
        let keep = Settings {
            keep: Some(strings(&["2", "4"])),
            ..Settings::default()
        };
        let text = b"0 1:x 2:5 4:7\n0 1:nan 2:6 3:x\n0 3:1 4:8\n";
        for dimension in [None, Some(2)] {
            let expected = dimension.map(|dimension| ExpectedColumns::study(dimension, None));
            for settings in [&keep, &without(&["1", "3"])] {
                let table = super::parse(text, settings, expected.as_ref()).unwrap();
                table.check_usable(false).unwrap();
                assert_eq!(table.row(0).values(), [5.0, 7.0]);
                assert_eq!(table.row(1).values(), [6.0, 0.0]);
            }
        }
        let study = ExpectedColumns::study(2, None);
        let beyond = b"0 2:1 9:1\n0 1:1\n0 4:1\n";
        let table = super::parse(beyond, &keep, Some(&study)).unwrap();
        assert_eq!(table.row(0).values(), [1.0, 0.0]);
        table.check_usable(false).unwrap();
        // A line that cannot be used stays so without its first column.
        let table = super::parse(beyond, &without(&["1", "3"]), Some(&study)).unwrap();
        assert!(table.row(0).values().iter().all(|value| value.is_nan()));
        assert!(table.check_usable(true).is_err());
        // A column that no file has is the flag's mistake, not too much memory for the file's rows.
        let keep = Settings {
            keep: Some(strings(&["2", "99999999999"])),
            ..Settings::default()
        };
        let error = super::parse(text, &keep, Some(&study))
            .map(drop)
            .unwrap_err();
        assert_says(&error, &["`keep`", "99999999999"], &["memory"]);
    }

    /// scikit-learn writes indices from 0 by default, and the file need not show it.
    #[test]
    fn first_index_0_reads_files_that_count_from_0() {
        let text = b"1 0:5 1:2\n0 1:3\n0\n";
        let settings = Settings {
            first_index: Some(0),
            ..Settings::default()
        };
        let table = super::parse(text, &settings, None).unwrap();
        assert_eq!((table.len(), table.dimension()), (3, 2));
        assert_eq!(table.row(0).values(), &[5.0, 2.0]);
        assert_eq!(table.row(1).values(), &[0.0, 3.0]);
        // Without the flag the line is not sent as it stands, and the user learns why.
        let table = read(text, Some(2), true).unwrap();
        for error in [
            table.check_readable().unwrap_err(),
            parse(text, None).unwrap_err(),
        ] {
            assert_says(&error, &["`first_index` 0"], &[]);
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
