//! CSV and similar text: columns separated by commas, semicolons, tabs or `|`. One line is one participant.
//!
//! If the first line names the columns, it alone decides how the others are read; a line that does not fit, or a field
//! that is not a number, makes only its own row unusable. Lines are split before quotes are interpreted, so that no
//! field can swallow the rows after it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use super::{
    categories::is_category,
    cells::{Marks, is_date, is_missing, is_value, is_word, number},
    columns::{self, ColumnMapping, ExpectedColumns, FileColumns},
    flags::{Header, Names, SPACES, TableArgs},
    problems::{MAX_COLUMNS_NAMED, Problems, Unreadable, UnreadableReason},
    table::{
        MIN_LINES_FOR_MAJORITY, MIN_ROWS_OF_IDENTIFIER, RowTable, check_columns, no_rows, text_of,
    },
};
use crate::error::{CliError, Result};

const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Largest number of different texts of a column that is encoded or taken for a label.
const MAX_CATEGORIES: usize = 50;
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
        names: header.then(|| names_of(splitter.cells(first))),
        // A first line of text may be a row, also above numbers: if it was only taken for names, messages do not show it.
        shown: how.header == Header::Yes,
        headerless: how.header == Header::No,
    };
    lines.drain(..usize::from(header));
    let mut is_bad = |(_, line): &&(usize, &str)| {
        !is_blank(line, count, delimiter) && splitter.split_into(line, count) != count
    };
    let bad_lines = lines.iter().filter(|line| is_bad(line)).count();
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
        .map(|(_, line)| is_blank(line, count, delimiter));
    let blank = blank.filter(|blank| *blank).count();
    if reports && blank > 0 {
        mapping.notes.push(format!(
            "{blank} blank lines count as rows without values, because one line is one participant; if they are nobody's, remove them before anything is sent"
        ));
    } else {
        lines.retain(|(_, line)| !is_blank(line, count, delimiter));
    }
    if let Some(columns) = &how.one_hot {
        encode(columns, &lines, count, &mut splitter, &mut mapping)?;
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
                // Empty in every line: these are delimiters at the lines' ends.
                let mut filled = 1;
                for (_, line) in lines {
                    if splitter.split(line) == count {
                        filled = filled.max(splitter.filled());
                    }
                }
                (suited, filled)
            }
        };
        (if count > 1 { suited } else { 0 }, count, delimiter)
    });
    let scored: Vec<(usize, usize, u8)> = scored.collect();
    // The last of equally good ones: in 1,5;2,5 the semicolon. The first, the comma, if none suits.
    let suited = scored.iter().filter(|scored| scored.0 > 0);
    let best = suited.max_by_key(|scored| scored.0).or(scored.first());
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
    let (mut problems, mut labels) = (Problems::default(), Vec::new());
    let mut texts = vec![0_usize; mapping.take.len()];
    // Numbers in a notation that could mean two things: not a matter of single rows.
    let mut notations = vec![(None, 0_usize); mapping.take.len()];
    let mut marks = vec![Marks::default(); mapping.take.len()];
    for &(line, text) in lines {
        let has = splitter.split_into(text, count);
        let label = mapping.label.map(|label| match has == count {
            true => splitter.cell(label).to_owned(),
            false => String::new(),
        });
        labels.extend(label);
        if has != count {
            problems.record(Unreadable {
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
            let read = match mapping.category(named) {
                Some(_) if is_missing(cell) => Err(UnreadableReason::Missing),
                Some(category) => Ok(f64::from(u8::from(is_category(cell, category)))),
                None => number(cell, delimiter).inspect(|_| marks[named].record(cell)),
            };
            values.push(read.unwrap_or_else(|reason| {
                match reason {
                    UnreadableReason::DecimalComma | UnreadableReason::Percent => {
                        notations[named] = (Some(reason), notations[named].1 + 1);
                    }
                    _ => texts[named] += usize::from(!is_value(cell)),
                }
                problems.record(Unreadable {
                    line,
                    column: Some(column + 1),
                    named: Some(named),
                    reason,
                });
                f64::NAN
            }));
        }
    }
    let kind = |at: usize| match reports {
        true => TextKind::Other,
        false => kind_of_text(mapping.take[at], lines, count, &mut splitter),
    };
    let (mut refused, mut sentences) =
        refused_columns(&texts, &notations, lines.len(), &mapping, reports, kind);
    for (at, _) in (0..).zip(&marks).filter(|(_, marks)| marks.are_mixed()) {
        let mixed = format!(
            "{}: numbers with a decimal comma beside numbers with a decimal point; write all of them as 1234.5",
            mapping.column(at)
        );
        // Of reports no row decides whether the others are read.
        match reports {
            true => mapping.notes.push(mixed),
            false => {
                refused.push(at);
                sentences.push(mixed);
            }
        }
    }
    if !refused.is_empty() {
        // Where nothing is sent, one message has all that must be mended.
        if !reports {
            let others = problems.without_columns(&refused);
            sentences.extend(others.describe(|at| mapping.column(at)));
        }
        return Err(CliError::usage(sentences.join("\n")));
    }
    // Between commas such a number is refused.
    let ambiguous = |marks: &Marks| delimiter != b',' && marks.are_ambiguous();
    for (at, _) in (0..).zip(&marks).filter(|(_, marks)| ambiguous(marks)) {
        mapping.notes.push(format!(
            "{}: every comma is followed by three digits; they were read as decimal commas: if they separate thousands, write 1234 for 1,234",
            mapping.column(at)
        ));
    }
    Ok(RowTable::new(mapping.take.len(), values, None)?
        .with_problems(problems)
        .with_labels(labels)
        .with_mapping(mapping))
}

/// What a column of text probably is.
#[derive(Clone, Copy, PartialEq)]
enum TextKind {
    Dates,
    Identifier,
    Categories,
    Other,
}

impl TextKind {
    const ALL: [Self; 4] = [
        TextKind::Dates,
        TextKind::Identifier,
        TextKind::Categories,
        TextKind::Other,
    ];

    fn advice(self) -> &'static str {
        match self {
            TextKind::Dates => {
                "dates, not numbers: write days since a fixed day, such as 1970-01-01, in this file and on every device, or leave it out with --drop"
            }
            TextKind::Identifier => {
                "text in most rows that differs in all of them, as identifiers do; leave it out with --drop"
            }
            TextKind::Categories => {
                "text in most rows, few values in all, as labels and categories have; leave it out with --drop, or let prepare --one-hot make 0 and 1 of each value"
            }
            TextKind::Other => {
                "text in most rows, not numbers; leave it out with --drop, or turn it into numbers"
            }
        }
    }
}

fn kind_of_text(
    column: usize,
    lines: &[(usize, &str)],
    count: usize,
    splitter: &mut Splitter,
) -> TextKind {
    let (mut dates, mut cells) = (0, 0);
    let mut different = BTreeSet::new();
    for (_, line) in lines {
        if splitter.split_into(line, count) == count && !is_missing(splitter.cell(column)) {
            cells += 1;
            dates += usize::from(is_date(splitter.cell(column)));
            different.insert(splitter.cell(column).to_owned());
        }
    }
    if 2 * dates > cells {
        TextKind::Dates
    } else if cells >= MIN_ROWS_OF_IDENTIFIER && different.len() == cells {
        TextKind::Identifier
    } else if different.len() <= MAX_CATEGORIES && 2 * different.len() <= cells {
        TextKind::Categories
    } else {
        TextKind::Other
    }
}

/// Columns that are mostly text, as the type of a Parquet column would say: all rows would be unusable. A single row
/// cannot decide it unless the others are evenly split. So are columns of numbers whose notation could mean two
/// things; where nothing is sent a single such number is enough, because which rows have one may depend on their values.
/// With them a sentence for each kind.
fn refused_columns(
    texts: &[usize],
    notations: &[(Option<UnreadableReason>, usize)],
    rows: usize,
    mapping: &ColumnMapping,
    reports: bool,
    mut kind: impl FnMut(usize) -> TextKind,
) -> (Vec<usize>, Vec<String>) {
    let several = rows >= MIN_LINES_FOR_MAJORITY;
    let most = |count: usize| several && 2 * count > rows;
    let (mut refused, mut sentences) = (Vec::new(), Vec::new());
    let mut refuse = |columns: Vec<usize>, why: &str| {
        if columns.is_empty() {
            return;
        }
        let named = columns.iter().take(MAX_COLUMNS_NAMED);
        let names: Vec<String> = named.map(|&at| mapping.column(at)).collect();
        let more = match columns.len().saturating_sub(MAX_COLUMNS_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        sentences.push(format!("{}{more}: {why}", names.join(", ")));
        refused.extend(columns);
    };
    let of_text = (0..texts.len()).filter(|&at| most(texts[at]));
    let kinds: Vec<(usize, TextKind)> = of_text.map(|at| (at, kind(at))).collect();
    for wanted in TextKind::ALL {
        let columns = kinds.iter().filter(|(_, kind)| *kind == wanted);
        refuse(columns.map(|(at, _)| *at).collect(), wanted.advice());
    }
    let comma = "numbers with a decimal comma, or one between thousands; write them as 1234.5, or separate the columns by ';'";
    let percent =
        "numbers with a percent sign; write 12.5 or 0.125 for 12.5 %, the same in every row";
    for (wanted, why) in [
        (UnreadableReason::DecimalComma, comma),
        (UnreadableReason::Percent, percent),
    ] {
        let columns = (0..texts.len()).filter(|&at| {
            let (found, count) = notations[at];
            found == Some(wanted) && several && (!reports || most(count))
        });
        refuse(columns.collect(), why);
    }
    (refused, sentences)
}

/// Encodes columns of text: one column of 0 and 1 for each value that is there, in alphabetic order.
fn encode(
    columns: &Names,
    lines: &[(usize, &str)],
    count: usize,
    splitter: &mut Splitter,
    mapping: &mut ColumnMapping,
) -> Result<()> {
    for wanted in &columns.0 {
        let names = mapping.names.as_deref().unwrap_or_default();
        let at = names.iter().position(|name| name == wanted);
        let Some(column) = at.map(|at| mapping.take[at]) else {
            return Err(CliError::usage(format!(
                "it has no column {wanted:?}, which --one-hot names; give --header yes if line 1 names the columns"
            )));
        };
        let mut categories = BTreeSet::new();
        for (_, line) in lines {
            if splitter.split_into(line, count) == count && !is_missing(splitter.cell(column)) {
                categories.insert(splitter.cell(column).to_owned());
            }
        }
        if !(2..=MAX_CATEGORIES).contains(&categories.len()) {
            return Err(CliError::usage(format!(
                "column {wanted:?} has {} different values; --one-hot takes a column of 2 to {MAX_CATEGORIES}",
                categories.len()
            )));
        }
        mapping.encode(column, categories.into_iter().collect());
    }
    Ok(())
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
            let read = delimiters.iter().filter(some);
            let read = read.map(|&delimiter| names_of(Splitter::new(delimiter).cells(first)));
            let mut read: Vec<Vec<String>> = read.collect();
            if read.is_empty() {
                read.push(vec![first.trim().to_owned()]);
            }
            let known = |cell| names.is_some_and(|names: &[String]| names.contains(cell));
            if read.iter().any(|cells| cells.iter().any(known)) {
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

/// Notes for a first line that could be either.
const NUMBERS_NOTE: &str = "line 1 is 0, 1, 2, …: it was read as column numbers written by pandas; if it is a row, give --header no";
const WORDS_NOTE: &str = "line 1 has words that stand for missing values or truth: it was read as the first row; if it names the columns, give --header yes";
const FIRST_ROW_NOTE: &str =
    "line 1 has numbers: it was read as the first row; if it names the columns, give --header yes";

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
) -> CliError {
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
        true => "; if numbers have decimal commas, separate the columns by ';'",
        false => "; if something else separates the columns, name it with --delimiter",
    };
    let more = match header && has == count + 1 {
        true => ", or a name for the first column is missing (as when R writes row names)",
        false => "",
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

    /// As [`Self::split`]; a line with more fields than these, all of them empty, has delimiters at its end and counts as
    /// having `count`.
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
    for (at, c) in line.char_indices() {
        if c == ' ' && begins && line[at..].trim_start_matches(' ').starts_with('"') {
            continue;
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
