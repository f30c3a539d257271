//! CSV and similar text: columns separated by commas, semicolons, tabs or `|`. One line is one participant.
//!
//! If the first line names the columns, it alone decides how the others are read; a line that does not fit, or a field
//! that is not a number, makes only its own row unusable. Lines are split before quotes are interpreted, so that no
//! field can swallow the rows after it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use crate::{
    cells::{is_value, is_word},
    columns::{self, ColumnMapping, ExpectedColumns, FileColumns, source_of},
    encoding::{check_mark, in_utf8, text_of},
    error::{Error, Result},
    problems::{Unreadable, UnreadableReason},
    settings::{Header, SPACES, Settings},
    table::{MIN_LINES_FOR_MAJORITY, RowTable, check_columns, check_is_text, lines_of, no_rows},
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
    let reports = expected.is_some_and(|expected| expected.reports);
    check_is_text(bytes, how.encoding.is_some())?;
    check_mark(bytes, how.encoding)?;
    let text = in_utf8(bytes, how.encoding);
    // The whole file would be line 1, whose cells are taken for names and may be shown.
    if !text.contains(&b'\n') && text.trim_ascii_end().contains(&b'\r') {
        return Err(Error::new(
            "its lines end in carriage returns without line feeds, as on old Macs; save it with line feeds",
        ));
    }
    let mut lines: Vec<(usize, &[u8])> = lines_of(&text).collect();
    // Spreadsheets write a `sep=` line for each other: neither a row nor names.
    let declared = lines.first().and_then(|(_, line)| separator(line));
    lines.drain(..usize::from(declared.is_some()));
    let candidates = match (how.delimiter.or(declared), tabs) {
        (Some(delimiter), _) => vec![delimiter],
        (None, true) => vec![b'\t'],
        (None, false) => DELIMITERS.to_vec(),
    };
    if how.header != Header::No {
        let is_empty_line = |line: &[u8]| candidates.iter().any(|by| is_blank(line, 2, *by));
        let begin = lines.iter().position(|(_, line)| !is_empty_line(line));
        // Where line 1 may be a row of a report the error is that of any other first row.
        let none = match how.header == Header::Auto && reports {
            true => 0,
            false => lines.len(),
        };
        lines.drain(..begin.unwrap_or(none));
    }
    let &(_, first) = lines.first().ok_or_else(no_rows)?;
    if first.len() > MAX_LINE_BYTES {
        return Err(Error::new(format!(
            "its first line has {} bytes; a line may have {MAX_LINE_BYTES}",
            first.len()
        )));
    }
    let (header, guess) = has_header(first, &candidates, how, expected)?;
    check_first(&lines, header, &candidates, how, expected)?;
    let (delimiter, count) = if header {
        by_header(&lines, &candidates, expected, reports)
    } else {
        // Without a header the study's dimension is the number of fields, if all columns but that of labels are taken.
        let all = how.keep.is_none() && how.drop.is_none();
        let fields = expected.filter(|_| all);
        let fields = fields.map(|own| own.dimension + usize::from(how.label.is_some()));
        by_lines(&lines, &candidates, fields, reports)
    };
    let mut splitter = Splitter::new(delimiter);
    let found = FileColumns {
        count,
        names: header.then(|| names_of(splitter.cells(first))),
        // A first line of text may be a row, also above numbers: if it was only taken for names, messages do not show it.
        shown: how.header == Header::Yes,
    };
    lines.drain(..usize::from(header));
    let by_majority = expected.is_none_or(|expected| !expected.persons);
    let several = lines.len() >= MIN_LINES_FOR_MAJORITY && by_majority;
    if count == 1 && how.delimiter.is_none() {
        // No cell decides it where there are names to compare: a category may have spaces.
        let spaced = match expected {
            Some(expected) => header && names_between_spaces(first, expected),
            None => how.one_hot.is_none() && separated_by_spaces(&lines),
        };
        if spaced {
            return Err(Error::new(SPACES));
        }
        check_tabs(first, tabs)?;
    } else if count == 1 && several && by_lines(&lines, &DELIMITERS, None, reports).1 > 1 {
        return Err(Error::new(format!(
            "`delimiter` is wrong: {:?} separates none of its columns",
            char::from(delimiter)
        )));
    }
    let mut is_bad = |(_, line): &&(usize, &[u8])| {
        !is_blank(line, count, delimiter) && splitter.split_into(line, count) != count
    };
    let bad_lines = lines.iter().filter(|line| is_bad(line)).count();
    if 2 * bad_lines > lines.len() && (!header || several) {
        return Err(field_count_error(
            &lines, count, header, delimiter, expected,
        ));
    }
    if !by_majority {
        check_persons_lines(&lines, count, &mut splitter)?;
    }
    check_columns(count)?;
    let mut mapping = columns::map_columns(found, how, expected)?;
    mapping.notes.extend(guess.map(str::to_owned));
    let blank = lines
        .iter()
        .map(|(_, line)| is_blank(line, count, delimiter));
    let blank = blank.filter(|blank| *blank).count();
    // A blank line says of nobody that it is theirs.
    if reports && by_majority && blank > 0 {
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
    let way_out = encode(how, &mut lines, &mut mapping)?;
    let mut reading = Reading::new(how, expected, &mapping);
    reading.problems.of_missing = way_out;
    let mut table = values(lines, reading, mapping)?;
    table.guessed_header = guess.is_some();
    Ok(table)
}

/// The delimiter and number of fields of a header: the delimiter that yields most expected names, then most names. If it
/// yields one, as of a title, the lines below say what separates them.
fn by_header(
    lines: &[(usize, &[u8])],
    candidates: &[u8],
    expected: Option<&ExpectedColumns>,
    reports: bool,
) -> (u8, usize) {
    let (_, first) = lines[0];
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
    match best {
        Some((_, 1, _)) => (by_lines(&lines[1..], candidates, None, reports).0, 1),
        best => best.map_or((b',', 0), |(_, count, delimiter)| (delimiter, count)),
    }
}

/// The delimiter and number of fields of lines without a header, or of these `fields`: those that suit most lines, so that
/// no single line decides.
fn by_lines(
    lines: &[(usize, &[u8])],
    candidates: &[u8],
    fields: Option<usize>,
    reports: bool,
) -> (u8, usize) {
    let scored = candidates.iter().map(|&delimiter| {
        let mut splitter = Splitter::new(delimiter);
        let (suited, count) = match fields {
            Some(count) => {
                let suits = |(_, line): &&(usize, &[u8])| splitter.split_into(line, count) == count;
                (lines.iter().filter(suits).count(), count)
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
    lines: &'a [(usize, &'a [u8])],
    /// Number of fields.
    count: usize,
    splitter: Splitter,
}

impl TextCells for Lines<'_> {
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()> {
        for (_, line) in self.lines {
            if self.splitter.split_into(line, self.count) == self.count {
                for (place, &column) in columns.iter().enumerate() {
                    each(place, &self.splitter.cell(column));
                }
            }
        }
        Ok(())
    }
}

fn values(mut lines: Lines<'_>, mut reading: Reading, mapping: ColumnMapping) -> Result<RowTable> {
    let mut values = Vec::with_capacity(lines.lines.len() * mapping.take.len());
    let mut labels = Vec::new();
    let (count, splitter) = (lines.count, &mut lines.splitter);
    for &(line, text) in lines.lines {
        let has = splitter.split_into(text, count);
        let label = mapping.label.map(|label| match has == count {
            true => splitter.cell(label).into_owned(),
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
                    open: has_open_quote(text),
                },
            });
            values.extend(mapping.take.iter().map(|_| f64::NAN));
            continue;
        }
        for (named, &column) in mapping.take.iter().enumerate() {
            values.push(reading.cell(line, named, &splitter.cell(column), &mapping));
        }
    }
    reading.check(&mapping, RefusedColumns::default(), &mut lines)?;
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
fn separator(line: &[u8]) -> Option<u8> {
    let (sep, delimiter) = std::str::from_utf8(line).ok()?.split_once('=')?;
    match delimiter.as_bytes() {
        &[one] if sep.eq_ignore_ascii_case("sep") && DELIMITERS.contains(&one) => Some(one),
        _ => None,
    }
}

/// Whether a line is blank, or has empty cells alone, as spreadsheets write rows that were deleted: for reports a row
/// without values, otherwise none. In a table of one column it is a row with a missing value.
fn is_blank(line: &[u8], columns: usize, delimiter: u8) -> bool {
    let is_empty = |byte: &u8| byte.is_ascii_whitespace() || [b'"', delimiter].contains(byte);
    columns > 1 && line.iter().all(is_empty)
}

/// Whether a quoted cell goes on in the next line.
fn has_open_quote(line: &[u8]) -> bool {
    line.iter().filter(|byte| **byte == b'"').count() % 2 == 1
}

/// Refuses a first line that is probably above the names, or not all of them.
fn check_first(
    lines: &[(usize, &[u8])],
    header: bool,
    candidates: &[u8],
    how: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<()> {
    let (line, first) = lines[0];
    if header && has_open_quote(first) {
        return Err(Error::new(format!(
            "a quoted name in line {line} goes on in the next line; write the names in one line, without line breaks in them"
        )));
    }
    if how.header != Header::Auto || !first.starts_with(b"#") {
        return Ok(());
    }
    let names = expected.and_then(|expected| expected.names.as_deref());
    let are_there = |names: &[String], delimiter: u8| {
        let cells = Splitter::new(delimiter).cells(first);
        let cells: BTreeSet<&str> = cells.iter().map(String::as_str).collect();
        names.iter().all(|name| source_of(name, &cells).is_some())
    };
    let mut candidates = candidates.iter();
    let is_known = names.is_some_and(|names| candidates.any(|by| are_there(names, *by)));
    let is_comment = |line: &[u8]| line.starts_with(b"#") || line.trim_ascii().is_empty();
    let below = lines.iter().find(|(_, line)| !is_comment(line));
    match below {
        Some((below, _)) if !is_known => Err(Error::new(format!(
            "line {line} begins with #, as comments do: if line {below} names the columns, delete the lines above it; if line {line} does, take its # off, or give `header` yes if the # belongs to the name"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a line of which no person's identifier can be read: alone, its row would be a person of its own.
fn check_persons_lines(
    lines: &[(usize, &[u8])],
    wants: usize,
    splitter: &mut Splitter,
) -> Result<()> {
    let delimiter = splitter.delimiter;
    for &(line, text) in lines {
        let has = splitter.split_into(text, wants);
        // An open quote takes what follows into its cell.
        let open = has_open_quote(text)
            && splitter.split(&[text, &[delimiter][..]].concat()) == splitter.split(text);
        if is_blank(text, wants, delimiter) || (has == wants && !open) {
            continue;
        }
        let why = match open {
            true => "a quoted cell that does not end on it".to_owned(),
            false => format!("{has} fields and not {wants}"),
        };
        return Err(Error::new(format!(
            "line {line} has {why}, so whose it is cannot be read; mend the line, or leave it out"
        )));
    }
    Ok(())
}

/// Whether the first line names the columns, and a note if that was a guess.
///
/// For reports no value may decide it: if the study has names the line must have them, otherwise a flag says so. For
/// other commands the line itself decides.
fn has_header(
    first: &[u8],
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
            let some = |delimiter: &&u8| first.contains(*delimiter);
            let read = delimiters.iter().filter(some);
            let read = read.map(|&delimiter| names_of(Splitter::new(delimiter).cells(first)));
            let mut read: Vec<Vec<String>> = read.collect();
            if read.is_empty() {
                read.push(vec![text_of(first).into_owned()]);
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

/// Whether a header of one column has all names that are expected, with spaces between them.
fn names_between_spaces(header: &[u8], expected: &ExpectedColumns) -> bool {
    let header = text_of(header);
    let words: BTreeSet<&str> = header.split_whitespace().collect();
    let is_there = |name: &String| source_of(name, &words).is_some();
    let names = expected.names.as_ref();
    words.len() > 1 && names.is_some_and(|names| names.iter().all(is_there))
}

/// Whether most of these lines, of one column, are several values with spaces between them.
fn separated_by_spaces(lines: &[(usize, &[u8])]) -> bool {
    let values = |line: &[u8]| {
        let line = text_of(line);
        let words = line.split_whitespace();
        words.filter(|word| is_value(word)).count()
    };
    let spaced = |(_, line): &&(usize, &[u8])| values(line) > 1;
    2 * lines.iter().filter(spaced).count() > lines.len()
}

/// Refuses the first line of a tab-separated file that something else separates.
fn check_tabs(first: &[u8], tabs: bool) -> Result<()> {
    let other = DELIMITERS.iter().find(|by| first.contains(by));
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
    lines: &[(usize, &[u8])],
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
    // The names may stand below a title.
    let mut lines_with: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (line, text) in lines {
        if !is_blank(text, 2, delimiter) {
            let counted = lines_with.entry(splitter.split(text));
            counted.or_insert((0, *line)).0 += 1;
        }
    }
    let usual = lines_with.into_values().max_by_key(|(lines, _)| *lines);
    let title = match (header, usual) {
        (true, Some((_, below))) => {
            format!("; if line {below} names the columns, delete the lines above it")
        }
        _ => String::new(),
    };
    match (header, expected) {
        (false, Some(expected)) => Error::wrong_dimension(format!(
            "it has {has} columns separated by {separated} (line {line}) but the {} has {count} features{hint}",
            expected.of
        )),
        _ => Error::new(format!(
            "most lines do not have the {count} fields of line 1: line {line} has {has}, separated by {separated}{hint}{more}{title}"
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
    fn split(&mut self, line: &[u8]) -> usize {
        self.reader.reset();
        // A line that is too long counts as having too many fields.
        if line.len() > MAX_LINE_BYTES {
            self.fields = 0;
            return usize::MAX;
        }
        let line = without_spaces_before_quotes(line, self.delimiter);
        let line: &[u8] = &line;
        // Enough for any line, so that the reader's buffers never overflow.
        if self.text.len() <= line.len() {
            self.text.resize(line.len() + 1, 0);
            self.ends.resize(line.len() + 2, 0);
        }
        let (mut input, mut written, mut ended) = (line, 0, 0);
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
    fn split_into(&mut self, line: &[u8], count: usize) -> usize {
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

    /// A field of the last split line.
    fn cell(&self, field: usize) -> Cow<'_, str> {
        let begin = if field == 0 { 0 } else { self.ends[field - 1] };
        text_of(&self.text[begin..self.ends[field]])
    }

    fn cells(&mut self, line: &[u8]) -> Vec<String> {
        let fields = self.split(line);
        (0..fields)
            .map(|field| self.cell(field).into_owned())
            .collect()
    }
}

/// The line without the spaces between a delimiter and a quote, as in `1, "2"`: a field is quoted only if it begins with
/// the quote.
fn without_spaces_before_quotes(line: &[u8], delimiter: u8) -> Cow<'_, [u8]> {
    if !line.windows(2).any(|pair| pair == b" \"") {
        return Cow::Borrowed(line);
    }
    let mut without = Vec::with_capacity(line.len());
    let (mut begins, mut quoted) = (true, false);
    let mut spaces_end = 0;
    for (at, &byte) in line.iter().enumerate() {
        if byte == b' ' && begins {
            // Looked for once in a run of spaces.
            if spaces_end <= at {
                let spaces = line[at..].iter().take_while(|byte| **byte == b' ');
                spaces_end = at + spaces.count();
            }
            if line[spaces_end..].starts_with(b"\"") {
                continue;
            }
        }
        quoted = match (byte, quoted) {
            (b'"', false) => begins,
            (b'"', true) => false,
            _ => quoted,
        };
        // A doubled quote inside a quoted field ends it and begins it again.
        begins = (byte == b'"' && !quoted && line[at + 1..].starts_with(b"\""))
            || (!quoted && byte == delimiter);
        without.push(byte);
    }
    Cow::Owned(without)
}

#[cfg(test)]
mod tests;
