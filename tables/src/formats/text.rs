//! CSV and similar text: columns separated by commas, semicolons, tabs or `|`. One line is one participant.
//!
//! If the first line names the columns, it alone decides how the others are read; an unsuitable line, or a field that
//! is not a number, makes only its own row unusable. Lines are split before quotes are interpreted, so that no field
//! can absorb the rows after it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashSet},
};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};
use eigenveil_shared::wording::counted;

use crate::{
    cells::{is_value, is_word_value},
    columns::{self, ColumnMapping, ExpectedColumns, FileColumns, source_of},
    encoding::{check_byte_order_mark, decode_cell, in_utf8},
    error::{Error, Result},
    problems::{OTHER_DELIMITER, TOO_LONG, Unreadable, UnreadableReason},
    settings::{Header, SPACE_SEPARATED_MESSAGE, Settings},
    table::{MIN_LINES_FOR_MAJORITY, RowTable, check_columns, check_is_text, lines_of, no_rows},
    text_columns::{Reading, RefusedColumns, TextCells, encode},
};

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
const MAX_LINE_BYTES: usize = 1 << 24;

/// Parses a text table. `is_tsv`: the file's extension says that it is tab-separated.
pub(crate) fn parse(
    bytes: &[u8],
    is_tsv: bool,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<RowTable> {
    let text = as_text(bytes, settings)?;
    let mut lines: Vec<(usize, &[u8])> = lines_of(&text).collect();
    let form = find_form(&mut lines, is_tsv, settings, expected)?;
    form.read(lines, settings, expected)?.ok_or_else(no_rows)
}

/// A text file in UTF-8, or its first lines.
pub(crate) fn as_text<'a>(bytes: &'a [u8], settings: &Settings) -> Result<Cow<'a, [u8]>> {
    check_is_text(bytes, settings.encoding.is_some())?;
    check_byte_order_mark(bytes, settings.encoding)?;
    let text = in_utf8(bytes, settings.encoding);
    // Otherwise the whole file would be line 1, whose cells count as names and may be shown.
    if !text.contains(&b'\n') && text.trim_ascii_end().contains(&b'\r') {
        return Err(Error::new(
            "its lines end in carriage returns without line feeds, as on old Macs; save it with line feeds",
        ));
    }
    Ok(text)
}

/// Whether these are the rows of a site without a header: then no line may decide how the others are read, as one row
/// could otherwise change all of a sum.
///
/// # Errors
/// `keep` or `drop`, with which the number of columns would be that of most lines.
fn has_site_rows_only(settings: &Settings, expected: Option<&ExpectedColumns>) -> Result<bool> {
    let rows_only = settings.header == Header::No && expected.is_some_and(|expected| expected.site);
    if rows_only && settings.selects() {
        return Err(Error::new(
            "`keep` and `drop` need a header in a site's table, as the number of its columns would be that of most lines otherwise; name the columns in line 1, or write those of the study alone, in its order",
        ));
    }
    Ok(rows_only)
}

/// Removes the lines above the header or the first row; returns the delimiters that there may be.
fn remove_preamble(
    lines: &mut Vec<(usize, &[u8])>,
    is_tsv: bool,
    settings: &Settings,
    reports: bool,
    rows_only: bool,
) -> Vec<u8> {
    // A `sep=` line, which spreadsheets write, is neither a row nor a header.
    let first = lines.first().filter(|_| !rows_only);
    let declared = first.and_then(|(_, line)| separator(line));
    lines.drain(..usize::from(declared.is_some()));
    let candidates = match (settings.delimiter.or(declared), is_tsv) {
        (Some(delimiter), _) => vec![delimiter],
        (None, true) => vec![b'\t'],
        (None, false) if rows_only => vec![b','],
        (None, false) => DELIMITERS.to_vec(),
    };
    if settings.header != Header::No {
        let is_empty_line = |line: &[u8]| {
            candidates
                .iter()
                .any(|candidate| is_blank(line, 2, *candidate))
        };
        let first_line = lines.iter().position(|(_, line)| !is_empty_line(line));
        // If line 1 may be a row of a report, the error must be that for any other first row.
        let blank_count = match settings.header == Header::Auto && reports {
            true => 0,
            false => lines.len(),
        };
        lines.drain(..first_line.unwrap_or(blank_count));
    }
    candidates
}

/// Finds how a table is read from its lines, or from the first of them, and leaves those of its rows.
pub(crate) fn find_form(
    lines: &mut Vec<(usize, &[u8])>,
    is_tsv: bool,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<TextForm> {
    let reports = expected.is_some_and(|expected| expected.reports);
    let rows_only = has_site_rows_only(settings, expected)?;
    let candidates = remove_preamble(lines, is_tsv, settings, reports, rows_only);
    let &(_, first) = lines.first().ok_or_else(no_rows)?;
    if first.len() > MAX_LINE_BYTES && !rows_only {
        return Err(Error::new(format!(
            "its first line has {} bytes; a line may have {MAX_LINE_BYTES}",
            first.len()
        )));
    }
    let (header, header_note) = has_header(first, &candidates, settings, expected)?;
    check_first(lines, header, &candidates, settings, expected)?;
    let (delimiter, count) = if header {
        by_header(lines, &candidates, expected, reports)
    } else {
        // Without a header the number of fields is the study's dimension, if all columns except that of labels are
        // used.
        let fields = expected.filter(|_| !settings.selects());
        let fields =
            fields.map(|expected| expected.dimension + usize::from(settings.label.is_some()));
        by_lines(lines, &candidates, fields, reports)
    };
    let mut splitter = Splitter::new(delimiter);
    let in_file = FileColumns {
        count,
        names: header.then(|| names_of(splitter.cells(first))),
        // A first line of text may be a row, even above numbers: if it was only guessed to be names, messages do not
        // show it, unless the rows are public.
        names_may_be_shown: settings.header == Header::Yes || settings.public_rows,
    };
    lines.drain(..usize::from(header));
    let by_majority = expected.is_none_or(ExpectedColumns::by_majority);
    let majority_decides = lines.len() >= MIN_LINES_FOR_MAJORITY && by_majority;
    if count == 1 && settings.delimiter.is_none() {
        // If there are names to compare, no cell decides: a category may contain spaces.
        let spaced = match expected {
            Some(expected) => header && names_between_spaces(first, expected),
            None => settings.one_hot.is_none() && separated_by_spaces(lines),
        };
        if spaced {
            return Err(Error::new(SPACE_SEPARATED_MESSAGE));
        }
        check_tabs(first, is_tsv && !rows_only)?;
    } else if count == 1 && majority_decides && by_lines(lines, &DELIMITERS, None, reports).1 > 1 {
        return Err(Error::new(format!(
            "`delimiter` is wrong: {:?} separates none of its columns",
            char::from(delimiter)
        )));
    }
    let mut has_other_count = |(_, line): &&(usize, &[u8])| {
        !is_blank(line, count, delimiter) && splitter.split_into(line, count) != count
    };
    let bad_lines = lines.iter().filter(|line| has_other_count(line)).count();
    if 2 * bad_lines > lines.len() && (!(header || rows_only) || majority_decides) {
        return Err(field_count_error(lines, count, header, delimiter, expected));
    }
    check_columns(count)?;
    let mut mapping = columns::map_columns(in_file, settings, expected)?;
    mapping.notes.extend(header_note.map(str::to_owned));
    Ok(TextForm {
        delimiter,
        count,
        mapping,
        guessed_header: header_note.is_some(),
    })
}

/// How the lines of a table are read.
pub(crate) struct TextForm {
    delimiter: u8,
    /// Number of fields.
    count: usize,
    pub(crate) mapping: ColumnMapping,
    /// Whether line 1 could be names or a row, and no setting decides.
    guessed_header: bool,
}

impl TextForm {
    /// Reads the rows of these lines, all or a block of them; `None` if there are none.
    pub(crate) fn read(
        &self,
        mut lines: Vec<(usize, &[u8])>,
        settings: &Settings,
        expected: Option<&ExpectedColumns>,
    ) -> Result<Option<RowTable>> {
        self.keep_rows(&mut lines, expected)?;
        if lines.is_empty() {
            return Ok(None);
        }
        let mut mapping = self.mapping.clone();
        let is_blank = |(_, line): &&(usize, &[u8])| is_blank(line, self.count, self.delimiter);
        let blank = lines.iter().filter(is_blank).count();
        // A site is told of all its rows that cannot be used.
        if blank > 0 && expected.is_none_or(|expected| !expected.site) {
            mapping.notes.push(format!(
                "{blank} blank lines count as rows without values, because one line is one participant; if they belong to nobody, remove them before anything is sent"
            ));
        }
        let mut lines = Lines {
            lines: &lines,
            count: self.count,
            splitter: Splitter::new(self.delimiter),
        };
        let missing_advice = encode(settings, &mut lines, &mut mapping)?;
        let mut reading = Reading::new(settings, expected, &mapping);
        reading.problems.missing_advice = missing_advice;
        let mut table = read_values(lines, reading, mapping)?;
        table.guessed_header = self.guessed_header;
        Ok(Some(table))
    }

    /// Number of rows in these lines; `label` gets the label of each, if the table has a column of them.
    ///
    /// # Errors
    /// A line whose person's identifier cannot be read; those of `label`.
    pub(crate) fn scan(
        &self,
        mut lines: Vec<(usize, &[u8])>,
        expected: Option<&ExpectedColumns>,
        label: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<usize> {
        self.keep_rows(&mut lines, expected)?;
        if let Some(column) = self.mapping.label {
            let mut splitter = Splitter::new(self.delimiter);
            for (_, line) in &lines {
                match splitter.split_into(line, self.count) == self.count {
                    true => label(&splitter.cell(column))?,
                    false => label("")?,
                }
            }
        }
        Ok(lines.len())
    }

    /// Keeps the lines that are rows: in a report all of them, as one line is one participant, unless several rows may
    /// belong to one person: then a blank line belongs to nobody, and one whose person cannot be read is an error.
    fn keep_rows(
        &self,
        lines: &mut Vec<(usize, &[u8])>,
        expected: Option<&ExpectedColumns>,
    ) -> Result<()> {
        let persons = expected.is_some_and(|expected| expected.persons);
        if persons {
            check_persons_lines(lines, self.count, &mut Splitter::new(self.delimiter))?;
        }
        if persons || expected.is_none_or(|expected| !expected.reports) {
            lines.retain(|(_, line)| !is_blank(line, self.count, self.delimiter));
        }
        Ok(())
    }
}

/// The delimiter and number of fields of a header: the delimiter that yields most expected names, then most names. If
/// it yields only one, as for a title, the lines below decide on the delimiter, unless they are a site's.
fn by_header(
    lines: &[(usize, &[u8])],
    candidates: &[u8],
    expected: Option<&ExpectedColumns>,
    reports: bool,
) -> (u8, usize) {
    let (_, first) = lines[0];
    let expected_names = expected.and_then(|expected| expected.names.as_deref());
    let expected_names: HashSet<&String> = expected_names.unwrap_or_default().iter().collect();
    let scored = candidates.iter().map(|&delimiter| {
        let cells = names_of(Splitter::new(delimiter).cells(first));
        let matched = cells
            .iter()
            .filter(|cell| expected_names.contains(cell))
            .count();
        (matched, cells.len(), delimiter)
    });
    // Ties go to the first delimiter.
    let best = scored
        .rev()
        .max_by_key(|&(matched, count, _)| (matched, count));
    match best {
        Some((_, 1, _)) if expected.is_none_or(|expected| !expected.site) => {
            (by_lines(&lines[1..], candidates, None, reports).0, 1)
        }
        best => best.map_or((b',', 0), |(_, count, delimiter)| (delimiter, count)),
    }
}

/// The delimiter and number of fields (`fields`, if given) of lines without a header: those that suit most lines, so
/// that no single line decides.
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
                // Fields that are empty at the end of every line (for reports: of most lines) come from delimiters at
                // the lines' ends.
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
        // For reports, no single line may decide between delimiters that suit most lines.
        let suited = match reports {
            true => usize::from(2 * suited > lines.len()),
            false => suited,
        };
        (if count > 1 { suited } else { 0 }, count, delimiter)
    });
    let scored: Vec<(usize, usize, u8)> = scored.collect();
    // Ties go to the last delimiter: in 1,5;2,5 to the semicolon. If none suits, the first, the comma.
    let suited = scored.iter().filter(|scored| scored.0 > 0);
    let best = suited.max_by_key(|scored| scored.0).or(scored.first());
    best.map_or((b',', 0), |&(_, count, delimiter)| (delimiter, count))
}

/// The lines of a table, and their splitter.
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
                for (index, &column) in columns.iter().enumerate() {
                    each(index, &self.splitter.cell(column));
                }
            }
        }
        Ok(())
    }
}

fn read_values(
    mut lines: Lines<'_>,
    mut reading: Reading,
    mapping: ColumnMapping,
) -> Result<RowTable> {
    let mut values = Vec::with_capacity(lines.lines.len() * mapping.file_columns.len());
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
                table_column: None,
                reason: UnreadableReason::Fields {
                    has,
                    wants: count,
                    open: has_open_quote(text),
                },
            });
            values.extend(mapping.file_columns.iter().map(|_| f64::NAN));
            continue;
        }
        for (table_column, &column) in mapping.file_columns.iter().enumerate() {
            values.push(reading.cell(line, table_column, &splitter.cell(column), &mapping));
        }
    }
    reading.check(&mapping, RefusedColumns::default(), &mut lines)?;
    RowTable::from_mapping(mapping, values, reading.problems, labels)
}

/// The cells of a header without the empty ones at its end, which come from delimiters at the line's end.
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

/// Whether a line is blank or has only empty cells, as spreadsheets write deleted rows: for reports it is a row without
/// values, otherwise no row. In a table of one column it is a row with a missing value.
fn is_blank(line: &[u8], columns: usize, delimiter: u8) -> bool {
    let is_empty = |byte: &u8| byte.is_ascii_whitespace() || [b'"', delimiter].contains(byte);
    columns > 1 && line.iter().all(is_empty)
}

/// Whether a quoted cell continues in the next line.
fn has_open_quote(line: &[u8]) -> bool {
    line.iter().filter(|byte| **byte == b'"').count() % 2 == 1
}

/// Refuses a first line that is probably above the header, or only a part of it.
fn check_first(
    lines: &[(usize, &[u8])],
    header: bool,
    candidates: &[u8],
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<()> {
    let (line, first) = lines[0];
    if header && has_open_quote(first) {
        return Err(Error::new(format!(
            "a quoted name in line {line} continues in the next line; write the names in one line, without line breaks"
        )));
    }
    if settings.header != Header::Auto || !first.starts_with(b"#") {
        return Ok(());
    }
    let names = expected.and_then(|expected| expected.names.as_deref());
    let are_present = |names: &[String], delimiter: u8| {
        let cells = Splitter::new(delimiter).cells(first);
        let cells: BTreeSet<&str> = cells.iter().map(String::as_str).collect();
        names.iter().all(|name| source_of(name, &cells).is_some())
    };
    let mut candidates = candidates.iter();
    let is_known =
        names.is_some_and(|names| candidates.any(|delimiter| are_present(names, *delimiter)));
    let is_comment = |line: &[u8]| line.starts_with(b"#") || line.trim_ascii().is_empty();
    let below = lines.iter().find(|(_, line)| !is_comment(line));
    match below {
        Some((below, _)) if !is_known => Err(Error::new(format!(
            "line {line} begins with #, as comments do: if line {below} names the columns, delete the lines above it; if line {line} does, remove its #, or give `header` yes if the # belongs to the name"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a line whose person's identifier cannot be read: its row would count as another person.
fn check_persons_lines(
    lines: &[(usize, &[u8])],
    expected_count: usize,
    splitter: &mut Splitter,
) -> Result<()> {
    let delimiter = splitter.delimiter;
    for &(line, text) in lines {
        let count = splitter.split_into(text, expected_count);
        // The cell of an open quote includes what follows it.
        let has_open_cell = has_open_quote(text)
            && splitter.split(&[text, &[delimiter][..]].concat()) == splitter.split(text);
        if is_blank(text, expected_count, delimiter) || (count == expected_count && !has_open_cell)
        {
            continue;
        }
        let problem = match count {
            usize::MAX => TOO_LONG.to_owned(),
            _ if has_open_cell => " has a quoted cell that does not end on it".to_owned(),
            _ => format!(
                " has {} and not {expected_count}",
                counted(count as u64, "field")
            ),
        };
        let mut others = DELIMITERS.iter().filter(|other| **other != delimiter);
        let hint = match others.any(|other| text.contains(other)) {
            true => OTHER_DELIMITER,
            false => "",
        };
        return Err(Error::new(format!(
            "line {line}{problem}, so that its person cannot be read; correct the line, or leave it out{hint}"
        )));
    }
    Ok(())
}

/// Whether the first line is a header, and a note if that was a guess.
///
/// For reports no value may decide it: if the study has names, the line must have them; otherwise a setting decides.
/// For other uses the line itself decides.
fn has_header(
    first: &[u8],
    delimiters: &[u8],
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<(bool, Option<&'static str>)> {
    let header_error = |why: &str| {
        Err(Error::new(format!(
            "{why}, and line 1 may be names or the first participant: give `header` yes or `header` no"
        )))
    };
    match (settings.header, expected) {
        (Header::Yes, _) => Ok((true, None)),
        (Header::No, _) => Ok((false, None)),
        (Header::Auto, Some(expected)) if expected.reports => match &expected.names {
            _ if settings.by_position => {
                header_error("`by_position` takes the columns whatever they are called")
            }
            _ if settings.features.is_some() => header_error("`features` names the columns"),
            _ if settings.selects_by_number() => header_error("`keep` or `drop` gives a number"),
            None => header_error("the study's columns have no names"),
            // The server chooses the names: with names that are values it could probe the first row.
            Some(names) if names.iter().any(|name| is_value(name)) => header_error(
                "some names of the study's columns are numbers or stand for missing values",
            ),
            Some(_) => Ok((true, None)),
        },
        (Header::Auto, expected) => {
            let names = expected.and_then(|expected| expected.names.as_deref());
            let names: HashSet<&String> = names.unwrap_or_default().iter().collect();
            // Split by each delimiter that occurs; a line without delimiters is one column.
            let occurs = |delimiter: &&u8| first.contains(*delimiter);
            let cells_by_delimiter = delimiters.iter().filter(occurs);
            let cells_by_delimiter = cells_by_delimiter
                .map(|&delimiter| names_of(Splitter::new(delimiter).cells(first)));
            let mut cells_by_delimiter: Vec<Vec<String>> = cells_by_delimiter.collect();
            if cells_by_delimiter.is_empty() {
                cells_by_delimiter.push(vec![decode_cell(first).into_owned()]);
            }
            if cells_by_delimiter
                .iter()
                .flatten()
                .any(|cell| names.contains(cell))
            {
                return Ok((true, None));
            }
            let header = cells_by_delimiter
                .iter()
                .any(|cells| looks_like_header(cells));
            let all = |predicate: fn(&str) -> bool| {
                cells_by_delimiter
                    .iter()
                    .any(|cells| cells.iter().all(|cell| predicate(cell)))
            };
            Ok((
                header,
                match header {
                    true if all(is_value) => Some(NUMBERS_NOTE),
                    true => None,
                    false if all(is_word_value) => Some(WORDS_NOTE),
                    // Names and numbers can be mixed: sample,450,451.
                    false => Some(FIRST_ROW_NOTE),
                },
            ))
        }
    }
}

/// Whether a header of one column contains all expected names, separated by spaces.
fn names_between_spaces(header: &[u8], expected: &ExpectedColumns) -> bool {
    let header = decode_cell(header);
    let words: BTreeSet<&str> = header.split_whitespace().collect();
    let is_present = |name: &String| source_of(name, &words).is_some();
    let names = expected.names.as_ref();
    words.len() > 1 && names.is_some_and(|names| names.iter().all(is_present))
}

/// Whether most of these lines, of one column, contain several values separated by spaces.
fn separated_by_spaces(lines: &[(usize, &[u8])]) -> bool {
    let values = |line: &[u8]| {
        let line = decode_cell(line);
        let words = line.split_whitespace();
        words.filter(|word| is_value(word)).count()
    };
    let spaced = |(_, line): &&(usize, &[u8])| values(line) > 1;
    2 * lines.iter().filter(spaced).count() > lines.len()
}

/// Refuses a tab-separated file whose first line has another separator.
fn check_tabs(first: &[u8], is_tsv: bool) -> Result<()> {
    let other_delimiter = DELIMITERS
        .iter()
        .find(|delimiter| first.contains(delimiter));
    match other_delimiter.filter(|_| is_tsv) {
        Some(&delimiter) => Err(Error::new(format!(
            "line 1 has no tab; if {0:?} separates the columns, give `delimiter` '{0}'",
            char::from(delimiter)
        ))),
        None => Ok(()),
    }
}

/// Notes for a first line that could be a header or a row.
const NUMBERS_NOTE: &str = "line 1 is 0, 1, 2, …: it was read as column numbers written by pandas; if it is a row, give `header` no";
const WORDS_NOTE: &str = "line 1 has words that stand for missing values or truth: it was read as the first row; if it names the columns, give `header` yes";
const FIRST_ROW_NOTE: &str =
    "line 1 has numbers: it was read as the first row; if it names the columns, give `header` yes";

/// Whether the cells look like names: none is a number, only the first may be empty, and not all are words that mean a
/// missing value (`Na`, `inf`); or they are 0, 1, 2, …, as pandas writes them.
fn looks_like_header(cells: &[String]) -> bool {
    let rest = match cells {
        [index, rest @ ..] if index.is_empty() => rest,
        all => all,
    };
    if rest.len() > 1 && columns::is_numbering(rest) {
        return true;
    }
    let is_name = |cell: &String| !is_value(cell);
    rest.iter().any(is_name) && rest.iter().all(|cell| is_name(cell) || is_word_value(cell))
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
    let (line, field_count) = lines
        .iter()
        .filter(|(_, text)| !is_blank(text, count, delimiter))
        .map(|(line, text)| (*line, splitter.split_into(text, count)))
        .find(|&(_, field_count)| field_count != count)
        .unwrap_or_default();
    if field_count == usize::MAX {
        return Error::new(format!(
            "most lines do not have {count} fields: line {line}{TOO_LONG}"
        ));
    }
    let separated = match delimiter {
        b'\t' => "tabs".to_owned(),
        other => format!("'{}'", char::from(other)),
    };
    let hint = match field_count > count && delimiter == b',' {
        true => {
            "; if numbers have decimal commas, separate the columns by ';' or put the numbers in quotes"
        }
        false => OTHER_DELIMITER,
    };
    let missing_name_hint = match header && field_count == count + 1 {
        true => ", or a name for the first column is missing (as when R writes row names)",
        false => "",
    };
    // The header may be below a title.
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
            "it has {field_count} columns separated by {separated} (line {line}) but the {} has {count} features{hint}",
            expected.source
        )),
        _ => Error::new(format!(
            "most lines do not have the {count} fields of line 1: line {line} has {field_count}, separated by {separated}{hint}{missing_name_hint}{title}"
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
        // A line that is too long counts as one with too many fields.
        if line.len() > MAX_LINE_BYTES {
            self.fields = 0;
            return usize::MAX;
        }
        let line = without_spaces_before_quotes(line, self.delimiter);
        let line: &[u8] = &line;
        // Large enough for this line, so that the reader's buffers never overflow.
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

    /// Splits like [`Self::split`]; a line whose fields beyond `count` are all empty has delimiters at its end and
    /// counts as having `count` fields.
    fn split_into(&mut self, line: &[u8], count: usize) -> usize {
        let fields = self.split(line);
        match fields > count && fields != usize::MAX && self.filled() <= count {
            true => count,
            false => fields,
        }
    }

    /// Number of fields of the last split line, without the empty ones at its end.
    fn filled(&self) -> usize {
        let filled = |&field: &usize| !self.cell(field - 1).is_empty();
        (1..=self.fields).rev().find(filled).unwrap_or(0)
    }

    /// A field of the last split line.
    fn cell(&self, field: usize) -> Cow<'_, str> {
        let begin = if field == 0 { 0 } else { self.ends[field - 1] };
        decode_cell(&self.text[begin..self.ends[field]])
    }

    fn cells(&mut self, line: &[u8]) -> Vec<String> {
        let fields = self.split(line);
        (0..fields)
            .map(|field| self.cell(field).into_owned())
            .collect()
    }
}

/// Removes the spaces between a delimiter and a quote, as in `1, "2"`: a field is quoted only if it begins with the
/// quote.
fn without_spaces_before_quotes(line: &[u8], delimiter: u8) -> Cow<'_, [u8]> {
    if !line.windows(2).any(|pair| pair == b" \"") {
        return Cow::Borrowed(line);
    }
    let mut result = Vec::with_capacity(line.len());
    let (mut at_field_start, mut quoted) = (true, false);
    let mut spaces_end = 0;
    for (index, &byte) in line.iter().enumerate() {
        if byte == b' ' && at_field_start {
            // Search only once in a run of spaces.
            if spaces_end <= index {
                let spaces = line[index..].iter().take_while(|byte| **byte == b' ');
                spaces_end = index + spaces.count();
            }
            if line[spaces_end..].starts_with(b"\"") {
                continue;
            }
        }
        quoted = match (byte, quoted) {
            (b'"', false) => at_field_start,
            (b'"', true) => false,
            _ => quoted,
        };
        // A doubled quote inside a quoted field ends it and begins it again.
        at_field_start = (byte == b'"' && !quoted && line[index + 1..].starts_with(b"\""))
            || (!quoted && byte == delimiter);
        result.push(byte);
    }
    Cow::Owned(result)
}

#[cfg(test)]
mod tests;
