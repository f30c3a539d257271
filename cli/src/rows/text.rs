//! CSV and similar text: columns separated by commas, semicolons, tabs or `|`. One line is one participant.
//!
//! If the first line names the columns, it alone decides how the others are read; a line that does not fit, or a field
//! that is not a number, makes only its own row unusable. Lines are split before quotes are interpreted, so that no
//! field can swallow the rows after it.

use std::collections::BTreeMap;

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use super::{
    cells::{Commas, is_value, number},
    columns::{self, ColumnMapping, ExpectedColumns, FileColumns},
    flags::{Header, TableArgs},
    table::{
        MIN_LINES_FOR_MAJORITY, RowTable, Unreadable, UnreadableReason, check_columns, no_rows,
        text_of,
    },
};
use crate::error::{CliError, Result};

/// Possible column separators.
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Longest line that is parsed.
const MAX_LINE_BYTES: usize = 1 << 24;

/// Parses a text table. `tabs`: by its extension the file is tab-separated.
pub(super) fn parse(
    bytes: &[u8],
    tabs: bool,
    how: &TableArgs,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let text = text_of(bytes)?;
    let text = text.trim_start_matches('\u{feff}');
    // The whole file would be line 1, whose cells are taken for names and may be shown.
    if !text.contains('\n') && text.trim_end().contains('\r') {
        return Err(CliError::usage(
            "its lines end in carriage returns without line feeds, as on old Macs; save it with line feeds",
        ));
    }
    let mut lines: Vec<(usize, &str)> = (1..).zip(text.lines()).collect();
    // Spreadsheets write a `sep=` line for each other: neither a row nor names.
    let declared = lines.first().and_then(|(_, line)| separator(line));
    lines.drain(..usize::from(declared.is_some()));
    let candidates = match (how.delimiter.or(declared), tabs) {
        (Some(delimiter), _) => vec![delimiter],
        (None, true) => vec![b'\t'],
        (None, false) => DELIMITERS.to_vec(),
    };
    if how.header != Header::No {
        // In a tab-separated file a line of tabs alone is a row of missing values.
        let is_empty_line = |line: &str| match candidates[..] {
            [delimiter] => is_blank(line, 2, delimiter),
            _ => line.trim().is_empty(),
        };
        let begin = lines.iter().position(|(_, line)| !is_empty_line(line));
        lines.drain(..begin.unwrap_or(lines.len()));
    }
    let &(_, first) = lines.first().ok_or_else(no_rows)?;
    if first.len() > MAX_LINE_BYTES {
        return Err(CliError::usage(format!(
            "its first line has {} bytes; a line may have {MAX_LINE_BYTES}",
            first.len()
        )));
    }
    let (header, guess) = has_header(first, &candidates, how, expected)?;
    let (delimiter, count) = if header {
        by_header(first, &candidates, expected)
    } else {
        // Without a header the study's dimension is the number of fields, if all columns are taken.
        let all = how.keep.is_none() && how.drop.is_none();
        by_lines(&lines, &candidates, expected.filter(|_| all))
    };
    let mut splitter = Splitter::new(delimiter);
    let found = FileColumns {
        count,
        names: header.then(|| splitter.cells(first)),
        // A first line of text may be a row, also above numbers: if it was only taken for names, messages do not show it.
        shown: how.header == Header::Yes,
        headerless: how.header == Header::No,
    };
    lines.drain(..usize::from(header));
    let bad_lines = lines
        .iter()
        .filter(|(_, line)| !is_blank(line, count, delimiter) && splitter.split(line) != count)
        .count();
    if 2 * bad_lines > lines.len() && (!header || lines.len() >= MIN_LINES_FOR_MAJORITY) {
        return Err(field_count_error(
            &lines, count, header, delimiter, expected,
        ));
    }
    check_columns(count)?;
    let mut mapping = columns::map_columns(found, how, expected)?;
    mapping.notes.extend(guess.map(str::to_owned));
    if count == 1 && how.delimiter.is_none() && separated_by_spaces(&lines) {
        return Err(CliError::usage(SPACES));
    }
    let reports = expected.is_some_and(|expected| expected.reports);
    let blank = lines
        .iter()
        .filter(|(_, line)| is_blank(line, count, delimiter))
        .count();
    if reports && blank > 0 {
        mapping.notes.push(format!(
            "{blank} blank lines count as rows without values, because one line is one participant; if they are nobody's, remove them before anything is sent"
        ));
    } else {
        lines.retain(|(_, line)| !is_blank(line, count, delimiter));
    }
    let mut table = values(&lines, count, splitter, delimiter, mapping)?;
    table.guessed_header = guess.is_some();
    Ok(table)
}

/// The delimiter and number of fields of a header: the delimiter that yields most expected names, then most names.
fn by_header(first: &str, candidates: &[u8], expected: Option<&ExpectedColumns>) -> (u8, usize) {
    let known = expected.and_then(|expected| expected.names.as_deref());
    let known = known.unwrap_or_default();
    let scored = candidates.iter().map(|&delimiter| {
        let cells = Splitter::new(delimiter).cells(first);
        let matched = cells.iter().filter(|cell| known.contains(cell)).count();
        (matched, cells.len(), delimiter)
    });
    // The first of equally good ones.
    let best = scored
        .rev()
        .max_by_key(|&(matched, count, _)| (matched, count));
    best.map_or((b',', 0), |(_, count, delimiter)| (delimiter, count))
}

/// The delimiter and number of fields of lines without a header: those that suit most lines, so that no single line
/// decides.
fn by_lines(
    lines: &[(usize, &str)],
    candidates: &[u8],
    expected: Option<&ExpectedColumns>,
) -> (u8, usize) {
    let scored = candidates.iter().map(|&delimiter| {
        let mut splitter = Splitter::new(delimiter);
        let mut lines_with: BTreeMap<usize, usize> = BTreeMap::new();
        for (_, line) in lines {
            *lines_with.entry(splitter.split(line)).or_default() += 1;
        }
        let (suited, count) = match expected.map(|expected| expected.dimension) {
            Some(p) => (lines_with.get(&p).copied().unwrap_or_default(), p),
            None => lines_with
                .into_iter()
                .map(|(count, lines)| (lines, count))
                .max()
                .unwrap_or_default(),
        };
        (if count > 1 { suited } else { 0 }, count, delimiter)
    });
    let scored: Vec<(usize, usize, u8)> = scored.collect();
    // The last of equally good ones: in 1,5;2,5 the semicolon. The first, the comma, if none suits.
    let best = scored.iter().max_by_key(|&&(suited, _, _)| suited);
    let best = best
        .filter(|&&(suited, _, _)| suited > 0)
        .or(scored.first());
    best.map_or((b',', 0), |&(_, count, delimiter)| (delimiter, count))
}

fn values(
    lines: &[(usize, &str)],
    count: usize,
    mut splitter: Splitter,
    delimiter: u8,
    mut mapping: ColumnMapping,
) -> Result<RowTable> {
    let mut values = Vec::with_capacity(lines.len() * mapping.take.len());
    let mut unreadable: Option<Unreadable> = None;
    let mut texts = vec![0_usize; mapping.take.len()];
    let mut commas = vec![Commas::default(); mapping.take.len()];
    for &(line, text) in lines {
        let has = splitter.split(text);
        if has != count {
            unreadable.get_or_insert(Unreadable {
                line,
                column: None,
                named: None,
                reason: UnreadableReason::Fields {
                    has,
                    wants: count,
                    open: text.matches('"').count() % 2 == 1,
                },
            });
            values.extend(mapping.take.iter().map(|_| f64::NAN));
            continue;
        }
        for (named, &column) in mapping.take.iter().enumerate() {
            let cell = splitter.cell(column);
            // In comma-separated files a number with a comma is unreadable anyway.
            if delimiter != b',' {
                commas[named].record(cell);
            }
            values.push(number(cell, delimiter).unwrap_or_else(|reason| {
                texts[named] +=
                    usize::from(reason == UnreadableReason::DecimalComma || !is_value(cell));
                unreadable.get_or_insert(Unreadable {
                    line,
                    column: Some(column + 1),
                    named: Some(named),
                    reason,
                });
                f64::NAN
            }));
        }
    }
    check_types(&texts, lines.len(), &mapping, unreadable)?;
    for (at, _) in (0..).zip(&commas).filter(|(_, seen)| seen.is_ambiguous()) {
        mapping.notes.push(format!(
            "{}: every comma is followed by three digits; they were read as decimal commas: if they separate thousands, write 1234 for 1,234",
            mapping.column(at)
        ));
    }
    Ok(RowTable::new(mapping.take.len(), values, None)?
        .with_unreadable(unreadable)
        .with_mapping(mapping))
}

/// Refuses a column that is mostly text, as the type of a Parquet column would: all rows would be unusable. A single
/// row cannot decide it unless the others are evenly split.
fn check_types(
    texts: &[usize],
    rows: usize,
    mapping: &ColumnMapping,
    first: Option<Unreadable>,
) -> Result<()> {
    let most = |&count: &usize| rows >= MIN_LINES_FOR_MAJORITY && 2 * count > rows;
    let Some(at) = texts.iter().position(most) else {
        return Ok(());
    };
    let name = mapping.column(at);
    Err(CliError::usage(match first.map(|first| first.reason) {
        Some(UnreadableReason::DecimalComma) => format!(
            "{name}: most numbers have a decimal comma, or one between thousands; write them as 1234.5, or separate the columns by ';'"
        ),
        _ => format!(
            "{name} holds text in most rows, not numbers; leave it out with --drop, or turn it into numbers"
        ),
    }))
}

/// The delimiter of a first line such as `sep=;`.
fn separator(line: &str) -> Option<u8> {
    let (sep, delimiter) = line.trim_end_matches('\r').split_once('=')?;
    match delimiter.as_bytes() {
        &[one] if sep.eq_ignore_ascii_case("sep") && DELIMITERS.contains(&one) => Some(one),
        _ => None,
    }
}

/// Whether a line is blank: for reports a row without values, otherwise none. In a table of one column it is a row with
/// a missing value; a line of delimiters alone is a row too.
fn is_blank(line: &str, columns: usize, delimiter: u8) -> bool {
    columns > 1 && line.trim().is_empty() && !line.as_bytes().contains(&delimiter)
}

/// Whether the first line names the columns, and a note if that was a guess.
///
/// For reports no value may decide it: if the study has names the line must have them, otherwise a flag says so. For
/// other commands the line itself decides.
fn has_header(
    first: &str,
    delimiters: &[u8],
    how: &TableArgs,
    expected: Option<&ExpectedColumns>,
) -> Result<(bool, Option<&'static str>)> {
    let header_error = |why: &str| {
        Err(CliError::usage(format!(
            "{why}, and line 1 may be names or the first participant: give --header yes or --header no"
        )))
    };
    match (how.header, expected) {
        (Header::Yes, _) => Ok((true, None)),
        (Header::No, _) => Ok((false, None)),
        (Header::Auto, Some(expected)) if expected.reports => match &expected.names {
            _ if how.by_position => {
                header_error("--by-position takes the columns whatever they are called")
            }
            _ if how.features.is_some() => header_error("--features names the columns"),
            _ if how.selects_by_number() => header_error("--keep or --drop gives a number"),
            None => header_error("the study's columns have no names"),
            // A server picks the names: with names that are values it could probe the first row.
            Some(names) if names.iter().any(|name| is_value(name)) => header_error(
                "some names of the study's columns are numbers or stand for missing values",
            ),
            Some(_) => Ok((true, None)),
        },
        (Header::Auto, expected) => {
            let names = expected.and_then(|expected| expected.names.as_deref());
            // Split by each delimiter that occurs; a line without any is one column.
            let some = |delimiter: &&u8| first.as_bytes().contains(*delimiter);
            let mut read: Vec<Vec<String>> = delimiters
                .iter()
                .filter(some)
                .map(|&delimiter| Splitter::new(delimiter).cells(first))
                .collect();
            if read.is_empty() {
                read.push(vec![first.trim().to_owned()]);
            }
            let known = |cell| names.is_some_and(|names: &[String]| names.contains(cell));
            if read.iter().any(|cells| cells.iter().any(known)) {
                return Ok((true, None));
            }
            let header = read.iter().any(|cells| looks_like_header(cells));
            let numbers = read
                .iter()
                .any(|cells| cells.iter().all(|cell| is_value(cell)));
            Ok((
                header,
                match (header, numbers) {
                    (true, false) => None,
                    (true, true) => Some(NUMBERS_NOTE),
                    // Names and numbers can be mixed: sample,450,451.
                    (false, _) => Some(FIRST_ROW_NOTE),
                },
            ))
        }
    }
}

pub(super) const SPACES: &str = "its columns are separated by spaces; separate them by commas, semicolons or tabs, for example with: tr -s ' ' , < FILE";

/// Whether most of these lines, of one column, are several values with spaces between them.
fn separated_by_spaces(lines: &[(usize, &str)]) -> bool {
    let spaced = |(_, line): &&(usize, &str)| {
        line.split_whitespace()
            .filter(|word| is_value(word))
            .count()
            > 1
    };
    2 * lines.iter().filter(spaced).count() > lines.len()
}

/// Notes for a first line that could be either.
const NUMBERS_NOTE: &str = "line 1 is 0, 1, 2, …: it was read as column numbers written by pandas; if it is a row, give --header no";
const FIRST_ROW_NOTE: &str =
    "line 1 has numbers: it was read as the first row; if it names the columns, give --header yes";

/// Whether these look like names: none is a number, only the first may be empty; or 0, 1, 2, …, as pandas writes them.
fn looks_like_header(cells: &[String]) -> bool {
    let rest = match cells {
        [index, rest @ ..] if index.is_empty() => rest,
        all => all,
    };
    if rest.len() > 1 && columns::is_numbering(rest) {
        return true;
    }
    !rest.is_empty() && !rest.iter().any(|cell| is_value(cell))
}

/// The error if most lines have another number of fields than expected.
fn field_count_error(
    lines: &[(usize, &str)],
    count: usize,
    header: bool,
    delimiter: u8,
    expected: Option<&ExpectedColumns>,
) -> CliError {
    let mut splitter = Splitter::new(delimiter);
    let (line, has) = lines
        .iter()
        .filter(|(_, text)| !is_blank(text, count, delimiter))
        .map(|(line, text)| (*line, splitter.split(text)))
        .find(|&(_, has)| has != count)
        .unwrap_or_default();
    let separated = match delimiter {
        b'\t' => "tabs".to_owned(),
        other => format!("'{}'", char::from(other)),
    };
    let hint = if has > count && delimiter == b',' {
        "; if numbers have decimal commas, separate the columns by ';'"
    } else {
        "; if something else separates the columns, name it with --delimiter"
    };
    let more = if header && has == count + 1 {
        ", or a name for the first column is missing (as when R writes row names)"
    } else {
        ""
    };
    match (header, expected) {
        (false, Some(expected)) => eigenveil_shared::Error::new(
            eigenveil_shared::ErrorCode::WrongDimension,
            format!(
                "it has {has} columns separated by {separated} (line {line}) but the {} has {count} features{hint}",
                expected.of
            ),
        )
        .into(),
        _ => CliError::usage(format!(
            "most lines do not have the {count} fields of line 1: line {line} has {has}, separated by {separated}{hint}{more}"
        )),
    }
}

/// Splits lines into fields, with CSV quoting.
struct Splitter {
    reader: Reader,
    text: Vec<u8>,
    ends: Vec<usize>,
    fields: usize,
}

impl Splitter {
    fn new(delimiter: u8) -> Self {
        Self {
            reader: ReaderBuilder::new()
                .delimiter(delimiter)
                .terminator(Terminator::Any(b'\n'))
                .build(),
            text: vec![0; 1],
            ends: vec![0; 2],
            fields: 0,
        }
    }

    /// Splits one line and returns the number of fields. An empty line is one empty field.
    fn split(&mut self, line: &str) -> usize {
        self.reader.reset();
        // A line that is too long counts as having too many fields.
        if line.len() > MAX_LINE_BYTES {
            self.fields = 0;
            return usize::MAX;
        }
        // Enough for any line, so that the reader's buffers never overflow.
        if self.text.len() <= line.len() {
            self.text.resize(line.len() + 1, 0);
            self.ends.resize(line.len() + 2, 0);
        }
        let (mut input, mut written, mut ended) = (line.as_bytes(), 0, 0);
        loop {
            let (result, _, wrote, ends) =
                self.reader
                    .read_record(input, &mut self.text[written..], &mut self.ends[ended..]);
            written += wrote;
            ended += ends;
            match result {
                // Empty input ends the last field.
                ReadRecordResult::InputEmpty => input = &[],
                _ => break,
            }
        }
        if ended == 0 {
            self.ends[0] = 0;
        }
        self.fields = ended.max(1);
        self.fields
    }

    /// A field of the last split line, trimmed.
    fn cell(&self, field: usize) -> &str {
        let begin = if field == 0 { 0 } else { self.ends[field - 1] };
        // The line was valid UTF-8, and quotes are removed between characters.
        std::str::from_utf8(&self.text[begin..self.ends[field]])
            .unwrap_or_default()
            .trim()
    }

    fn cells(&mut self, line: &str) -> Vec<String> {
        let fields = self.split(line);
        (0..fields)
            .map(|field| self.cell(field).to_owned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(header: Header) -> TableArgs {
        TableArgs {
            header,
            ..TableArgs::default()
        }
    }

    /// As `project` and `central` read it, but without refusing unreadable values.
    fn local(text: &str) -> Result<RowTable> {
        parse(text.as_bytes(), false, &with(Header::Auto), None)
    }

    fn study(names: Option<&[&str]>, dimension: usize) -> ExpectedColumns {
        let strings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        ExpectedColumns::study(dimension, names.map(strings))
    }

    fn report(text: &str, header: Header, expected: &ExpectedColumns) -> Result<RowTable> {
        parse(text.as_bytes(), false, &with(header), Some(expected))
    }

    #[test]
    fn with_and_without_header() {
        let with = local("height, weight\n1.5, -2e3\n0,7\n").unwrap();
        assert_eq!(with.names().unwrap(), ["height", "weight"]);
        assert_eq!(with.row(0).values(), &[1.5, -2000.0]);
        let without = local("1,2\r\n3,4").unwrap();
        assert!(without.names().is_none());
        assert_eq!(without.row(1).values(), &[3.0, 4.0]);
        // Columns without names as pandas writes them, and a byte-order mark as Excel writes it.
        assert_eq!(local("0,1,2\n5,6,7\n").unwrap().len(), 1);
        assert_eq!(
            local("\u{feff}a,b\n5,6\n").unwrap().names().unwrap()[0],
            "a"
        );
        let one = local("x\n5\n\n6\n").unwrap();
        assert_eq!((one.len(), one.dimension()), (3, 1));
        // A header with an unnamed index column.
        let error = local(",height\n0,1.5\n").unwrap_err().to_string();
        assert!(error.contains("--drop 'Unnamed: 0'"), "{error}");
    }

    #[test]
    fn delimiters_are_detected() {
        for text in [
            "a,b\n1.5,2\n",
            "a;b\n1.5;2\n",
            "a;b\n1,5;2\n",
            "a\tb\n1,5\t2\n",
            "a|b\n1.5|2\n",
            "\"a\";\"b\"\n\"1,5\";2\n",
            "1,5;2\n1,5;2\n",
            "1.5\t2\n",
        ] {
            let table = local(text).unwrap();
            assert!(table.check_readable().is_ok(), "{text:?}");
            assert_eq!(table.row(table.len() - 1).values(), &[1.5, 2.0], "{text:?}");
        }
        let colon = TableArgs {
            delimiter: Some(b':'),
            ..TableArgs::default()
        };
        let table = parse(b"a:b\n1:2\n", false, &colon, None).unwrap();
        assert_eq!(table.dimension(), 2);
        let tabs = parse(b"a,b\tc\n1\t2\n", true, &TableArgs::default(), None).unwrap();
        assert_eq!(tabs.names().unwrap(), ["a,b", "c"]);
        // Names that contain other separators: the study's names decide.
        let expected = study(Some(&["a; b; c", "d"]), 2);
        let table = report("d,a; b; c\n1,2\n", Header::Auto, &expected).unwrap();
        assert_eq!(table.row(0).values(), &[2.0, 1.0]);
    }

    #[test]
    fn cells_are_read_as_numbers_or_missing() {
        let cells = "a,b,c,d,e\n1,True,FALSE,1e3,+2\n";
        assert_eq!(
            local(cells).unwrap().row(0).values(),
            &[1.0, 1.0, 0.0, 1000.0, 2.0]
        );
        for missing in [
            "", "NA", "N/A", "nan", "NaN", "NULL", "None", "#N/A", "<NA>", "?", "-",
        ] {
            let table = local(&format!("a,b\n1,{missing}\n")).unwrap();
            let error = table.check_readable().unwrap_err().to_string();
            assert!(
                error.contains("line 2, column 2: the value is missing"),
                "{error}"
            );
        }
    }

    #[test]
    fn errors_name_the_place_but_not_the_value() {
        for (text, place) in [
            ("a,b\n1,secret\n", "line 2, column 2: not a number"),
            ("1,2\n3\n", "line 2 has 1 fields"),
            ("1,2\n3,\n", "line 2, column 2: the value is missing"),
            ("1,x\n", "line 1, column 2"),
            ("a,b\n1,\"2,5\"\n", "line 2, column 2: a decimal comma"),
            ("a,b\n\"1,secret\n1,2\n1,2\n", "quoted cell"),
            ("a,b\n1,2,3\n1,2,3\n1,2,3\n", "decimal commas"),
            ("a,b\n1,2,3\n1,2,3\n1,2,3\n", "row names"),
            ("a;b\n1,2\n1,2\n1,2\n", "separated by ';'"),
            ("a,b\n", "no rows"),
            ("", "no rows"),
        ] {
            let strict = local(text).and_then(|table| {
                table.check_readable()?;
                Ok(table)
            });
            let error = strict.unwrap_err().to_string();
            assert!(error.contains(place), "{text:?}: {error}");
            assert!(!error.contains("secret"));
        }
        assert!(parse(b"\xff\xfe1\0,\x002\0", false, &TableArgs::default(), None).is_err());
    }

    /// A first line of text may be a participant's, also above numbers: it is shown only if a flag, the study or the
    /// estimate says that it is names.
    #[test]
    fn a_first_line_that_is_only_taken_for_names_is_not_shown() {
        for text in [
            "secret,hidden\n1,2\n3,x\n",
            "secret,hidden\n1,x\n2,y\n3,z\n",
            "secret\n1\n2\nx\n",
            "secret;hidden\n1,234;x\n1,5;2\n",
            "secret,hidden\n1,2,3\n1,2,3\n1,2,3\n",
            "secret,secret\n1,2\n3,4\n",
            "secret,5th\n1,2\n3,\n",
        ] {
            let guessed = local(text).and_then(|table| {
                let notes = table.notes().join(" ");
                table.check_readable().map_err(|error| error.context(notes))
            });
            let error = guessed.unwrap_err().to_string();
            assert!(
                !error.contains("secret") && !error.contains("hidden"),
                "{error}"
            );
        }
        let flagged = parse(b"a,b\n1,x\n", false, &with(Header::Yes), None).unwrap();
        let error = flagged.check_readable().unwrap_err().to_string();
        assert!(error.contains("column 2 (b)"), "{error}");
    }

    /// Whether a row is sent must not depend on its own data, nor on another row's.
    #[test]
    fn reading_does_not_depend_on_the_data() {
        let named = study(Some(&["a", "b"]), 2);
        let plain = study(None, 2);
        for row in [
            "1,2",
            "trace,below",
            "<0.5,>3",
            ",",
            "NA,n/a",
            "0,1",
            "a,b",
            "1,5,2,5",
            "1;2",
            "\"1,2",
            "\"1",
            "1,\"x",
            "\"\"\",1",
            "x;y,\t",
            "\u{fffd},\r1",
        ] {
            for (before, after) in [("", ""), ("7,8\n", ""), ("", "\n7,8"), ("7,8\n", "\n7,8")] {
                let rows = 1 + [before, after]
                    .iter()
                    .filter(|text| !text.is_empty())
                    .count();
                let body = format!("{before}{row}{after}\n");
                for table in [
                    report(&format!("a,b\n{body}"), Header::Auto, &named),
                    report(&format!("b,a\n{body}"), Header::Yes, &named),
                    report(&format!("x,y\n{body}"), Header::Yes, &plain),
                    // Without a header at least half of the lines must have the study's number of fields.
                    report(&format!("{body}3,4\n3,4\n"), Header::No, &plain),
                    report(&format!("{body}3,4\n3,4\n"), Header::No, &named),
                ] {
                    let table = table.unwrap();
                    let more = if table.row(table.len() - 1).values() == [3.0, 4.0] {
                        2
                    } else {
                        0
                    };
                    assert_eq!(table.len(), rows + more, "{body:?}");
                    // The other rows are unchanged.
                    let first = table.row(0);
                    if !before.is_empty() {
                        assert_eq!(first.values().iter().sum::<f64>(), 15.0, "{body:?}");
                    }
                }
                // Without a flag: the same error whatever the line contains.
                let error = report(&body, Header::Auto, &plain).unwrap_err().to_string();
                assert!(error.contains("--header yes or --header no"), "{error}");
            }
        }
        // A cell in another encoding is a missing value; the file is not refused.
        let latin = b"1,2\n3,<5 \xb5g\n";
        let table = parse(latin, false, &with(Header::No), Some(&plain)).unwrap();
        assert_eq!((table.len(), table.check_readable().is_ok()), (2, false));
        // Names with which a server could probe the first row.
        for names in [["0", "1"], ["a", "<0.5"], ["NA", "b"]] {
            let line = format!("{}\n1,2\n", names.join(","));
            let expected = study(Some(&names), 2);
            assert!(report(&line, Header::Auto, &expected).is_err());
            assert_eq!(report(&line, Header::Yes, &expected).unwrap().len(), 1);
        }
    }

    /// A line of delimiters alone is a row, whatever the delimiter.
    #[test]
    fn a_line_of_delimiters_is_a_row() {
        let named = study(Some(&["a", "b"]), 2);
        let tabs = |text: &str, header| {
            parse(text.as_bytes(), true, &with(header), Some(&named))
                .unwrap()
                .len()
        };
        assert_eq!(tabs("a\tb\n\t\n", Header::Auto), 1);
        assert_eq!(tabs("a\tb\n1\t2\n\t\n3\t4\n", Header::Auto), 3);
        assert_eq!(tabs("\t\n3\t4\n", Header::No), 2);
        // So is a blank one: one line is one participant.
        assert_eq!(tabs("a\tb\n1\t2\n\n", Header::Auto), 2);
    }

    /// If a flag names the columns, another must say what line 1 is: it may be a participant with the values 0 and 1.
    #[test]
    fn names_given_by_flags_do_not_make_line_1_a_header() {
        let folder = tempfile::tempdir().unwrap();
        let features = folder.path().join("names.txt");
        std::fs::write(&features, "a\nb\n").unwrap();
        let named = study(Some(&["a", "b"]), 2);
        let how = |header| TableArgs {
            header,
            features: Some(features.clone()),
            ..TableArgs::default()
        };
        let read = |header| parse(b"0,1\n5,6\n", false, &how(header), Some(&named));
        let error = read(Header::Auto).unwrap_err().to_string();
        assert!(error.contains("--header yes or --header no"), "{error}");
        assert_eq!(read(Header::Yes).unwrap().len(), 1);
    }

    #[test]
    fn guesses_are_noted() {
        for (text, rows, words) in [
            ("450,451\n1,2\n", 2, "--header yes"),
            ("7,451\n1,2\n", 2, "--header yes"),
            ("0,1\n1,0\n", 1, "--header no"),
        ] {
            let table = local(text).unwrap();
            assert_eq!(table.len(), rows);
            assert!(
                table.notes().join(" ").contains(words),
                "{:?}",
                table.notes()
            );
            assert!(table.check_header_is_known().is_err());
        }
        assert!(local("a,b\n1,2\n").unwrap().check_header_is_known().is_ok());
        // A name among numbers, with its column left out.
        let how = TableArgs {
            drop: Some(crate::rows::Names(vec!["1".to_owned()])),
            ..TableArgs::default()
        };
        let table = parse(b"sample,450,451\ns1,1,2\ns2,3,4\n", false, &how, None).unwrap();
        assert_eq!(table.len(), 3);
        assert!(table.check_header_is_known().is_err());
        assert!(table.notes().join(" ").contains("--header yes"));
        let with_flag = parse(b"450,451\n1,2\n", false, &with(Header::Yes), None).unwrap();
        assert!(with_flag.check_header_is_known().is_ok());
    }

    #[test]
    fn ambiguous_thousands_separators_are_noted() {
        let notes = |text: &str| local(text).unwrap().notes().join("; ");
        assert!(notes("a;b\n1,234;5\n12,500;6\n").contains("column 1: every comma"));
        for decimal in [
            "a;b\n1,234;5\n1,5;6\n",
            "a;b\n0,234;5\n3;6\n",
            "a;b\n1;2\n3;4\n",
        ] {
            assert!(!notes(decimal).contains("every comma"), "{decimal:?}");
        }
    }

    #[test]
    fn lines_that_programs_add_are_skipped() {
        // Excel's line that names the delimiter.
        let table = local("sep=;\na;b\n1,5;2\n").unwrap();
        assert_eq!(table.names().unwrap(), ["a", "b"]);
        assert_eq!(table.row(0).values(), [1.5, 2.0]);
        assert_eq!(local("SEP=|\r\na|b\r\n1|2\r\n").unwrap().dimension(), 2);
        // Lines that end in CR alone would all be line 1, whose cells are shown.
        let named = study(Some(&["a", "b", "c"]), 3);
        for text in ["a,b,c\r17.25,99.5,3\r", "a,b,c\r17.25,99.5,3"] {
            let error = report(text, Header::Auto, &named).unwrap_err().to_string();
            assert!(
                error.contains("carriage returns") && !error.contains("17.25"),
                "{error}"
            );
        }
        assert_eq!(local("a,b\r\n1,2\r\n").unwrap().len(), 1);
    }

    #[test]
    fn overlong_lines_are_refused() {
        let commas = ",".repeat(MAX_LINE_BYTES + 1);
        assert!(local(&commas).is_err());
        let wide = ",".repeat(super::super::table::MAX_COLUMNS + 1);
        let error = local(&format!("{wide}\n{wide}\n")).unwrap_err().to_string();
        assert!(error.contains("columns; at most"), "{error}");
        let mut splitter = Splitter::new(b',');
        for _ in 0..1_000 {
            assert_eq!(splitter.split("1,2"), 2);
        }
        assert!(splitter.text.len() < 10);
    }

    #[test]
    fn a_wrong_form_is_refused_before_values_are_read() {
        let named = study(Some(&["a", "b"]), 2);
        for (text, header, words) in [
            ("1,2,3\n", Header::No, "has 3 columns"),
            ("1,2\n", Header::Auto, "names none of the study's columns"),
            ("a,c\n1,2\n", Header::Auto, "lacks \"b\""),
            ("a,b\n1,2,3\n4,5,6\n7,8,9\n", Header::Auto, "most lines"),
            (
                "a,b\n1,x\n2,y\n3,<0.5\n",
                Header::Auto,
                "column 2 (b) holds text",
            ),
            (
                "a,b\n1,\"2,5\"\n2,\"1,5\"\n3,2\n",
                Header::Auto,
                "decimal comma",
            ),
        ] {
            let error = report(text, header, &named).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }
}
