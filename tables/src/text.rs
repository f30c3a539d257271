//! CSV and similar text: columns separated by commas, semicolons, tabs or `|`. One line is one participant.
//!
//! If the first line names the columns, it alone decides how the others are read; a line that does not fit, or a field
//! that is not a number, makes only its own row unusable. Lines are split before quotes are interpreted, so that no
//! field can swallow the rows after it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use crate::{
    cells::{DecimalMark, is_value, is_word},
    columns::{self, ColumnMapping, ExpectedColumns, FileColumns},
    error::{Error, Result},
    problems::{Unreadable, UnreadableReason},
    settings::{Header, SPACES, Settings},
    table::{MIN_LINES_FOR_MAJORITY, RowTable, check_columns, no_rows, text_of},
    text_columns::{Reading, RefusedColumns, TextCells, encode},
};

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
const MAX_LINE_BYTES: usize = 1 << 24;

/// Parses a text table. `tabs`: by its extension the file is tab-separated.
pub(crate) fn parse(
    bytes: &[u8],
    tabs: bool,
    how: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let text = text_of(bytes)?;
    // The whole file would be line 1, whose cells are taken for names and may be shown.
    if !text.contains('\n') && text.trim_end().contains('\r') {
        return Err(Error::new(
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
        return Err(Error::new(format!(
            "its first line has {} bytes; a line may have {MAX_LINE_BYTES}",
            first.len()
        )));
    }
    let reports = expected.is_some_and(|expected| expected.reports);
    let (header, guess) = has_header(first, &candidates, how, expected)?;
    let (delimiter, count) = if header {
        by_header(first, &candidates, expected)
    } else {
        // Without a header the study's dimension is the number of fields, if all columns are taken.
        let all = how.keep.is_none() && how.drop.is_none();
        by_lines(&lines, &candidates, expected.filter(|_| all), reports)
    };
    let mut splitter = Splitter::new(delimiter);
    let found = FileColumns {
        count,
        names: header.then(|| names_of(splitter.cells(first))),
        // A first line of text may be a row, also above numbers: if it was only taken for names, messages do not show it.
        shown: how.header == Header::Yes,
    };
    lines.drain(..usize::from(header));
    let by_majority = how.most_rows_decide(reports);
    let several = lines.len() >= MIN_LINES_FOR_MAJORITY && by_majority;
    if count == 1 && how.delimiter.is_none() {
        if (several || !reports) && separated_by_spaces(&lines) {
            return Err(Error::new(SPACES));
        }
        check_tabs(first, tabs)?;
    }
    let mut is_bad = |(_, line): &&(usize, &str)| {
        !is_blank(line, count, delimiter) && splitter.split_into(line, count) != count
    };
    let bad_lines = lines.iter().filter(|line| is_bad(line)).count();
    if 2 * bad_lines > lines.len() && (!header || several) {
        return Err(field_count_error(
            &lines, count, header, delimiter, expected,
        ));
    }
    // A row of nobody's would be a person of its own.
    let broken = lines.iter().find(|line| !by_majority && is_bad(line));
    if let Some((line, _)) = broken {
        return Err(Error::new(format!(
            "line {line} does not have the {count} fields of the others, so whose it is cannot be read; mend the line, or leave it out"
        )));
    }
    check_columns(count)?;
    let mut mapping = columns::map_columns(found, how, expected)?;
    mapping.notes.extend(guess.map(str::to_owned));
    let blank = lines
        .iter()
        .map(|(_, line)| is_blank(line, count, delimiter));
    let blank = blank.filter(|blank| *blank).count();
    if reports && blank > 0 {
        mapping.notes.push(format!(
            "{blank} blank lines count as rows without values, because one line is one participant; if they are nobody's, remove them before anything is sent"
        ));
    } else {
        lines.retain(|(_, line)| !is_blank(line, count, delimiter));
    }
    let mut lines = Lines {
        lines: &lines,
        count,
        splitter,
    };
    if let Some(columns) = &how.one_hot {
        encode(columns, &mut lines, &mut mapping)?;
    }
    let guessed = DecimalMark::of_columns_separated_by(delimiter);
    let reading = Reading::new(how, expected, guessed, mapping.take.len());
    let mut table = values(lines, reading, mapping).map_err(|error| match how.delimiter {
        Some(by) if count == 1 => {
            let detail = format!(
                "{}; if there are several columns, `delimiter` is wrong: {:?} separates none",
                error.detail(),
                char::from(by)
            );
            error.with_detail(detail)
        }
        _ => error,
    })?;
    table.guessed_header = guess.is_some();
    Ok(table)
}

/// The delimiter and number of fields of a header: the delimiter that yields most expected names, then most names.
fn by_header(first: &str, candidates: &[u8], expected: Option<&ExpectedColumns>) -> (u8, usize) {
    let known = expected.and_then(|expected| expected.names.as_deref());
    let known: HashSet<&String> = known.unwrap_or_default().iter().collect();
    let scored = candidates.iter().map(|&delimiter| {
        let cells = names_of(Splitter::new(delimiter).cells(first));
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
    reports: bool,
) -> (u8, usize) {
    let scored = candidates.iter().map(|&delimiter| {
        let mut splitter = Splitter::new(delimiter);
        let (suited, count) = match expected.map(|expected| expected.dimension) {
            Some(p) => {
                let suits = |(_, line): &&(usize, &str)| splitter.split_into(line, p) == p;
                (lines.iter().filter(suits).count(), p)
            }
            None => {
                let mut lines_with: BTreeMap<usize, usize> = BTreeMap::new();
                for (_, line) in lines {
                    *lines_with.entry(splitter.split(line)).or_default() += 1;
                }
                let most = lines_with.into_iter().map(|(count, lines)| (lines, count));
                let (suited, count) = most.max().unwrap_or_default();
                // Empty at the end of every line, or for reports of most: these are delimiters at the lines' ends.
                let mut filled = Vec::new();
                for (_, line) in lines {
                    if splitter.split(line) == count {
                        filled.push(splitter.filled());
                    }
                }
                filled.sort_unstable();
                let filled = match reports {
                    true => filled.get(filled.len() / 2),
                    false => filled.last(),
                };
                let filled = filled.map_or(1, |&filled| filled.max(1));
                (suited, filled)
            }
        };
        // Of reports no single line decides between delimiters that suit most.
        let suited = match reports {
            true => usize::from(2 * suited > lines.len()),
            false => suited,
        };
        (if count > 1 { suited } else { 0 }, count, delimiter)
    });
    let scored: Vec<(usize, usize, u8)> = scored.collect();
    // The last of equally good ones: in 1,5;2,5 the semicolon. The first, the comma, if none suits.
    let suited = scored.iter().filter(|scored| scored.0 > 0);
    let best = suited.max_by_key(|scored| scored.0).or(scored.first());
    best.map_or((b',', 0), |&(_, count, delimiter)| (delimiter, count))
}

/// The lines of a table and how they are split.
struct Lines<'a> {
    lines: &'a [(usize, &'a str)],
    /// Number of fields.
    count: usize,
    splitter: Splitter,
}

impl TextCells for Lines<'_> {
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        for (_, line) in self.lines {
            if self.splitter.split_into(line, self.count) == self.count {
                for (place, &column) in columns.iter().enumerate() {
                    each(place, self.splitter.cell(column));
                }
            }
        }
        Ok(())
    }
}

fn values(
    mut lines: Lines<'_>,
    mut reading: Reading,
    mut mapping: ColumnMapping,
) -> Result<RowTable> {
    let rows = lines.lines.len();
    let mut values = Vec::with_capacity(rows * mapping.take.len());
    let mut labels = Vec::new();
    let (count, splitter) = (lines.count, &mut lines.splitter);
    for &(line, text) in lines.lines {
        let has = splitter.split_into(text, count);
        let label = mapping.label.map(|label| match has == count {
            true => splitter.cell(label).to_owned(),
            false => String::new(),
        });
        labels.extend(label);
        if has != count {
            reading.problems.record(Unreadable {
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
            values.push(reading.cell(line, named, splitter.cell(column), &mapping));
        }
    }
    reading.check(rows, &mut mapping, RefusedColumns::default(), &mut lines)?;
    RowTable::of(mapping, values, reading.problems, labels)
}

/// The cells of a header without empty ones at its end, which come from delimiters at the lines' ends.
fn names_of(mut cells: Vec<String>) -> Vec<String> {
    while cells.len() > 1 && cells.last().is_some_and(String::is_empty) {
        cells.pop();
    }
    cells
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
    how: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<(bool, Option<&'static str>)> {
    let header_error = |why: &str| {
        Err(Error::new(format!(
            "{why}, and line 1 may be names or the first participant: give `header` yes or `header` no"
        )))
    };
    match (how.header, expected) {
        (Header::Yes, _) => Ok((true, None)),
        (Header::No, _) => Ok((false, None)),
        (Header::Auto, Some(expected)) if expected.reports => match &expected.names {
            _ if how.by_position => {
                header_error("`by_position` takes the columns whatever they are called")
            }
            _ if how.features.is_some() => header_error("`features` names the columns"),
            _ if how.selects_by_number() => header_error("`keep` or `drop` gives a number"),
            None => header_error("the study's columns have no names"),
            // A server picks the names: with names that are values it could probe the first row.
            Some(names) if names.iter().any(|name| is_value(name)) => header_error(
                "some names of the study's columns are numbers or stand for missing values",
            ),
            Some(_) => Ok((true, None)),
        },
        (Header::Auto, expected) => {
            let names = expected.and_then(|expected| expected.names.as_deref());
            let names: HashSet<&String> = names.unwrap_or_default().iter().collect();
            // Split by each delimiter that occurs; a line without any is one column.
            let some = |delimiter: &&u8| first.as_bytes().contains(*delimiter);
            let read = delimiters.iter().filter(some);
            let read = read.map(|&delimiter| names_of(Splitter::new(delimiter).cells(first)));
            let mut read: Vec<Vec<String>> = read.collect();
            if read.is_empty() {
                read.push(vec![first.trim().to_owned()]);
            }
            if read.iter().flatten().any(|cell| names.contains(cell)) {
                return Ok((true, None));
            }
            let header = read.iter().any(|cells| looks_like_header(cells));
            let all = |what: fn(&str) -> bool| {
                read.iter().any(|cells| cells.iter().all(|cell| what(cell)))
            };
            Ok((
                header,
                match header {
                    true if all(is_value) => Some(NUMBERS_NOTE),
                    true => None,
                    false if all(is_word) => Some(WORDS_NOTE),
                    // Names and numbers can be mixed: sample,450,451.
                    false => Some(FIRST_ROW_NOTE),
                },
            ))
        }
    }
}

/// Whether most of these lines, of one column, are several values with spaces between them.
fn separated_by_spaces(lines: &[(usize, &str)]) -> bool {
    let values = |line: &str| {
        line.split_whitespace()
            .filter(|word| is_value(word))
            .count()
    };
    let spaced = |(_, line): &&(usize, &str)| values(line) > 1;
    2 * lines.iter().filter(spaced).count() > lines.len()
}

/// Refuses the first line of a tab-separated file that something else separates.
fn check_tabs(first: &str, tabs: bool) -> Result<()> {
    let other = DELIMITERS.iter().find(|by| first.as_bytes().contains(by));
    match other.filter(|_| tabs) {
        Some(&by) => Err(Error::new(format!(
            "line 1 has no tab; if {0:?} separates the columns, give `delimiter` '{0}'",
            char::from(by)
        ))),
        None => Ok(()),
    }
}

/// Notes for a first line that could be either.
const NUMBERS_NOTE: &str = "line 1 is 0, 1, 2, …: it was read as column numbers written by pandas; if it is a row, give `header` no";
const WORDS_NOTE: &str = "line 1 has words that stand for missing values or truth: it was read as the first row; if it names the columns, give `header` yes";
const FIRST_ROW_NOTE: &str =
    "line 1 has numbers: it was read as the first row; if it names the columns, give `header` yes";

/// Whether these look like names: none is a number, only the first may be empty, and not all of them are words that
/// stand for a missing value (`Na`, `inf`); or 0, 1, 2, …, as pandas writes them.
fn looks_like_header(cells: &[String]) -> bool {
    let rest = match cells {
        [index, rest @ ..] if index.is_empty() => rest,
        all => all,
    };
    if rest.len() > 1 && columns::is_numbering(rest) {
        return true;
    }
    let name = |cell: &String| !is_value(cell);
    rest.iter().any(name) && rest.iter().all(|cell| name(cell) || is_word(cell))
}

/// The error if most lines have another number of fields than expected.
fn field_count_error(
    lines: &[(usize, &str)],
    count: usize,
    header: bool,
    delimiter: u8,
    expected: Option<&ExpectedColumns>,
) -> Error {
    let mut splitter = Splitter::new(delimiter);
    let (line, has) = lines
        .iter()
        .filter(|(_, text)| !is_blank(text, count, delimiter))
        .map(|(line, text)| (*line, splitter.split_into(text, count)))
        .find(|&(_, has)| has != count)
        .unwrap_or_default();
    let separated = match delimiter {
        b'\t' => "tabs".to_owned(),
        other => format!("'{}'", char::from(other)),
    };
    let hint = match has > count && delimiter == b',' {
        true => {
            "; if numbers have decimal commas, separate the columns by ';' or put the numbers in quotes"
        }
        false => "; if something else separates the columns, name it with `delimiter`",
    };
    let more = match header && has == count + 1 {
        true => ", or a name for the first column is missing (as when R writes row names)",
        false => "",
    };
    match (header, expected) {
        (false, Some(expected)) => Error::wrong_dimension(format!(
            "it has {has} columns separated by {separated} (line {line}) but the {} has {count} features{hint}",
            expected.of
        )),
        _ => Error::new(format!(
            "most lines do not have the {count} fields of line 1: line {line} has {has}, separated by {separated}{hint}{more}"
        )),
    }
}

/// Splits lines into fields, with CSV quoting.
struct Splitter {
    reader: Reader,
    delimiter: u8,
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
            delimiter,
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
        let line = without_spaces_before_quotes(line, self.delimiter);
        let line = line.as_ref();
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

    /// Splits like [`Self::split`]; a line with more fields than these, all of them empty, has delimiters at its end
    /// and counts as having `count`.
    fn split_into(&mut self, line: &str, count: usize) -> usize {
        let fields = self.split(line);
        match fields > count && fields != usize::MAX && self.filled() <= count {
            true => count,
            false => fields,
        }
    }

    /// Number of fields of the last split line up to the last that is not empty.
    fn filled(&self) -> usize {
        let filled = |&field: &usize| !self.cell(field - 1).is_empty();
        (1..=self.fields).rev().find(filled).unwrap_or(0)
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

/// The line without the spaces between a delimiter and a quote, as in `1, "2"`: a field is quoted only if it begins with
/// the quote.
fn without_spaces_before_quotes(line: &str, delimiter: u8) -> Cow<'_, str> {
    if !line.contains(" \"") {
        return Cow::Borrowed(line);
    }
    let mut without = String::with_capacity(line.len());
    let (mut begins, mut quoted) = (true, false);
    let mut spaces_end = 0;
    for (at, c) in line.char_indices() {
        if c == ' ' && begins {
            // Looked for once in a run of spaces.
            if spaces_end <= at {
                spaces_end = line.len() - line[at..].trim_start_matches(' ').len();
            }
            if line[spaces_end..].starts_with('"') {
                continue;
            }
        }
        quoted = match (c, quoted) {
            ('"', false) => begins,
            ('"', true) => false,
            _ => quoted,
        };
        // A doubled quote inside a quoted field ends it and begins it again.
        begins = (c == '"' && !quoted && line[at + 1..].starts_with('"'))
            || (!quoted && c == char::from(delimiter));
        without.push(c);
    }
    Cow::Owned(without)
}

#[cfg(test)]
mod tests;
