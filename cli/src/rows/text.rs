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
/// Largest number of columns named in a message.
const MAX_COLUMNS_NAMED: usize = 8;
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
    let mut table = values(&lines, count, splitter, delimiter, mapping, reports)?;
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
    reports: bool,
) -> Result<RowTable> {
    let mut values = Vec::with_capacity(lines.len() * mapping.take.len());
    let mut unreadable: Option<Unreadable> = None;
    let mut texts = vec![0_usize; mapping.take.len()];
    // Numbers in a notation that could mean two things: not a matter of single rows.
    let mut notations = vec![(None, 0_usize); mapping.take.len()];
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
                match reason {
                    UnreadableReason::DecimalComma | UnreadableReason::Percent => {
                        notations[named] = (Some(reason), notations[named].1 + 1);
                    }
                    _ => texts[named] += usize::from(!is_value(cell)),
                }
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
    check_types(&texts, &notations, lines.len(), &mapping, reports)?;
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
/// row cannot decide it unless the others are evenly split. So is a column of numbers whose notation could mean two
/// things; where nothing is sent a single such number is enough, because which rows have one may depend on their values.
fn check_types(
    texts: &[usize],
    notations: &[(Option<UnreadableReason>, usize)],
    rows: usize,
    mapping: &ColumnMapping,
    reports: bool,
) -> Result<()> {
    let most = |count: usize| rows >= MIN_LINES_FOR_MAJORITY && 2 * count > rows;
    let named = |wanted: &dyn Fn(usize) -> bool| -> String {
        let columns = (0..texts.len()).filter(|&at| wanted(at));
        let names: Vec<String> = columns.map(|at| mapping.column(at)).collect();
        match names.len().checked_sub(MAX_COLUMNS_NAMED) {
            Some(more) if more > 0 => {
                format!("{} and {more} more", names[..MAX_COLUMNS_NAMED].join(", "))
            }
            _ => names.join(", "),
        }
    };
    let several = rows >= MIN_LINES_FOR_MAJORITY;
    let notation = |wanted: UnreadableReason| {
        named(&|at| {
            let (found, count) = notations[at];
            found == Some(wanted) && several && (!reports || most(count))
        })
    };
    let text = named(&|at| most(texts[at]));
    let comma = notation(UnreadableReason::DecimalComma);
    let percent = notation(UnreadableReason::Percent);
    let mut problems = Vec::new();
    if !text.is_empty() {
        problems.push(format!(
            "{text}: text in most rows, not numbers; leave it out with --drop, or turn it into numbers"
        ));
    }
    if !comma.is_empty() {
        problems.push(format!(
            "{comma}: numbers with a decimal comma, or one between thousands; write them as 1234.5, or separate the columns by ';'"
        ));
    }
    if !percent.is_empty() {
        problems.push(format!(
            "{percent}: numbers with a percent sign; write 12.5 or 0.125 for 12.5 %, the same in every row"
        ));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(CliError::usage(problems.join("\n"))),
    }
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
mod tests;
