//! Columns whose cells are text, in text tables, Parquet and data frames: read as numbers or as categories, or refused
//! with the same messages.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use crate::{
    cells::{DecimalMark, is_missing, normalized, number},
    columns::{ColumnMapping, ExpectedColumns, field_with_names, list_names, source_of},
    encoding::REPLACEMENT,
    error::{Error, Result},
    problems::{Problems, Unreadable, UnreadableReason},
    settings::Settings,
};

/// Largest number of categories of a column.
const MAX_CATEGORIES: usize = 50;
/// Minimum number of nonempty cells at which a majority of them may refuse their column.
pub(crate) const MIN_FILLED: usize = 20;

/// A table whose cells can be read as text.
pub(crate) trait TextCells {
    /// Calls `each` with the position of a column in `columns`, and a [`normalized`] cell of that column of the file,
    /// for all cells of these columns. The cells of a column come in the order of the rows; a missing cell is empty.
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()>;
}

/// A table of numbers alone.
impl TextCells for () {
    fn each_cell(&mut self, _: &[usize], _: &mut dyn FnMut(usize, &str)) -> Result<()> {
        Ok(())
    }
}

/// Reads the cells of a table, and counts what cannot be read.
pub(crate) struct Reading {
    mark: Option<DecimalMark>,
    /// The source of the features, for messages.
    source: &'static str,
    /// Whether the rows become reports: then no single value may decide on the message about a column.
    reports: bool,
    /// Whether most cells of a column may refuse it: not if they may belong to one person.
    by_majority: bool,
    /// Whether a cell may be missing.
    missing_cells: bool,
    /// Whether a text that is none of the categories is another one.
    other_categories: bool,
    /// All categories, by the column of the file.
    categories: HashMap<usize, HashSet<String>>,
    /// Counts by column of the table; if several are categories of one column, only the first has counts.
    columns: Vec<Option<Counts>>,
    pub(crate) problems: Problems,
}

/// Counts of the cells of one column.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// Neither blank nor a word for a missing value.
    filled: usize,
    unreadable: usize,
}

impl Counts {
    fn is_mostly_unreadable(self) -> bool {
        2 * self.unreadable > self.filled
    }
}

const NO_NUMBERS: &str = "most of its cells are no numbers such as 1234.5: state another decimal mark with `decimal` , or `decimal` ., write dates as days since a fixed day, let prepare `one_hot` turn categories into 0 and 1, name a column that says whose a row is with `person`, or leave the column out with `drop`";

/// Unusable columns of a table, with a sentence for each reason.
#[derive(Default)]
pub(crate) struct RefusedColumns {
    columns: Vec<usize>,
    sentences: Vec<String>,
}

impl RefusedColumns {
    pub(crate) fn add(&mut self, columns: &[usize], why: &str, mapping: &ColumnMapping) {
        if columns.is_empty() {
            return;
        }
        self.sentences
            .push(format!("{}: {why}", mapping.listed(columns)));
        self.columns.extend(columns);
    }
}

impl Reading {
    /// Creates the counts before the first cell.
    pub(crate) fn new(
        settings: &Settings,
        expected: Option<&ExpectedColumns>,
        mapping: &ColumnMapping,
    ) -> Self {
        let mut categories: HashMap<usize, HashSet<String>> = HashMap::new();
        let columns = mapping
            .file_columns
            .iter()
            .enumerate()
            .map(|(table_column, &column)| {
                let counts = match mapping.category(table_column) {
                    Some(category) => {
                        let known = categories.entry(column).or_default();
                        let is_first = known.is_empty();
                        known.extend(category.texts().cloned());
                        is_first
                    }
                    None => true,
                };
                counts.then(Counts::default)
            });
        Self {
            mark: settings.decimal,
            source: expected.map_or("features file", |expected| expected.source),
            reports: expected.is_some_and(|expected| expected.reports),
            by_majority: expected.is_none_or(ExpectedColumns::by_majority),
            columns: columns.collect(),
            categories,
            missing_cells: settings.public_rows
                || expected.is_some_and(|expected| expected.missing_cells),
            other_categories: expected.is_some_and(|expected| expected.other_categories),
            problems: Problems::new(expected.is_some()),
        }
    }

    /// The number in a cell of this column of the table, or 1 or 0 for the column's category; problems are counted as
    /// in [`number`](Self::number). A cell that is a category means nothing else: NA may be Namibia.
    pub(crate) fn cell(
        &mut self,
        line: usize,
        table_column: usize,
        cell: &str,
        mapping: &ColumnMapping,
    ) -> f64 {
        let read = match mapping.category(table_column) {
            None => number(cell, self.mark),
            Some(category) if cell == category.one => Ok(1.0),
            Some(_) if self.categories[&mapping.file_columns[table_column]].contains(cell) => {
                Ok(0.0)
            }
            Some(_) if is_missing(cell) => Err(UnreadableReason::Missing),
            Some(_) if cell.contains(REPLACEMENT) => Err(UnreadableReason::OtherEncoding),
            Some(category) if self.other_categories && category.zero.is_none() => Ok(0.0),
            Some(_) => Err(UnreadableReason::OtherCategory),
        };
        self.number(line, table_column, read, mapping)
    }

    /// Counts a cell of this column of the table; returns its number, or NaN if it has none.
    pub(crate) fn number(
        &mut self,
        line: usize,
        table_column: usize,
        read: Result<f64, UnreadableReason>,
        mapping: &ColumnMapping,
    ) -> f64 {
        if let Some(counts) = &mut self.columns[table_column] {
            counts.filled += usize::from(read != Err(UnreadableReason::Missing));
            if let Err(reason) = read {
                counts.unreadable += usize::from(reason != UnreadableReason::Missing);
                self.problems.record(Unreadable {
                    line,
                    column: Some(mapping.file_columns[table_column] + 1),
                    table_column: Some(table_column),
                    reason,
                });
            }
        }
        match read {
            Ok(number) => number,
            // As for a further category of the column that is not a feature.
            Err(UnreadableReason::OtherCategory) => 0.0,
            Err(_) => f64::NAN,
        }
    }

    /// Refuses the columns in `refused`, and columns of which most cells are unreadable, because most rows would be
    /// unusable. A single row cannot decide this unless the others are evenly split. If nothing is sent, one cell that
    /// is none of the categories refuses its column. One error names all refused columns.
    pub(crate) fn check(
        &self,
        mapping: &ColumnMapping,
        mut refused: RefusedColumns,
        cells: &mut dyn TextCells,
    ) -> Result<()> {
        let is_category = |table_column: usize| mapping.category(table_column).is_some();
        let unusable = |table_column: &usize| {
            let counts = self.columns[*table_column].unwrap_or_default();
            let is_wrong_category =
                !self.reports && is_category(*table_column) && counts.unreadable > 0;
            is_wrong_category
                || self.by_majority && counts.filled >= MIN_FILLED && counts.is_mostly_unreadable()
        };
        let unusable = (0..self.columns.len()).filter(unusable);
        let (categories, numbers): (Vec<usize>, Vec<usize>) =
            unusable.partition(|&table_column| is_category(table_column));
        refused.add(&numbers, NO_NUMBERS, mapping);
        let refused_numbers = refused.columns.clone();
        for table_column in categories {
            let reason =
                self.other_categories(table_column, mapping.file_columns[table_column], cells)?;
            refused.add(&[table_column], &reason, mapping);
        }
        if refused.columns.is_empty() {
            return Ok(());
        }
        let mut sentences = refused.sentences;
        if !self.reports {
            // For categories, this adds the position of the first cell.
            let mut others = self.problems.clone().without_columns(&refused_numbers);
            if self.missing_cells {
                others = others.without(UnreadableReason::Missing);
            }
            sentences.extend(others.describe(|table_column| mapping.column(table_column)));
        }
        Err(Error::new(sentences.join("\n")))
    }

    /// The reason to refuse a column of categories, with the categories and the texts that several rows have instead;
    /// `table_column` is the table's column of its first category, and `column` is the file's column.
    fn other_categories(
        &self,
        table_column: usize,
        column: usize,
        cells: &mut dyn TextCells,
    ) -> Result<String> {
        let categories = &self.categories[&column];
        let mut rows: BTreeMap<String, usize> = BTreeMap::new();
        cells.each_cell(&[column], &mut |_, cell| {
            if !is_missing(cell) && !categories.contains(cell) {
                *rows.entry(cell.to_owned()).or_default() += 1;
            }
        })?;
        // A text in a single row may be one person's answer.
        let mut texts: Vec<(String, usize)> = rows.into_iter().filter(|(_, n)| *n > 1).collect();
        texts.sort_by_key(|(_, rows)| Reverse(*rows));
        let texts: Vec<String> = texts.into_iter().map(|(text, _)| text).collect();
        let mut known: Vec<&String> = categories.iter().collect();
        known.sort_unstable();
        let counts = self.columns[table_column].unwrap_or_default();
        Ok(format!(
            "{} of its cells are none of the categories of the {}, which are {}; {}; write them as there, or name their encoding with `encoding`",
            match counts.is_mostly_unreadable() {
                true => "most",
                false => "some",
            },
            self.source,
            list_names(&known),
            match texts.is_empty() {
                true => "no two rows have the same instead".to_owned(),
                false => format!("they are {}", list_names(&texts)),
            }
        ))
    }
}

/// Encodes the text columns that `one_hot` names: one column of 0 and 1 for each value, in alphabetical order, or one
/// for two values. Returns advice on keeping words that mean missing values, if there are any; where cells may be
/// missing, it is a note.
pub(crate) fn encode(
    settings: &Settings,
    cells: &mut dyn TextCells,
    mapping: &mut ColumnMapping,
) -> Result<Option<String>> {
    let requested = settings.one_hot.iter().flatten();
    let requested: Vec<String> = requested
        .map(|requested| normalized(requested).into_owned())
        .collect();
    if requested.is_empty() {
        return Ok(None);
    }
    let names = mapping.names.clone().unwrap_or_default();
    let file_names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut columns: BTreeMap<&str, Encoded> = BTreeMap::new();
    for requested in &requested {
        let (name, word) = source_of(requested, &file_names).ok_or_else(|| {
            Error::new(format!(
                "it has no column {requested:?}, which `one_hot` names; give `header` yes if line 1 names the columns"
            ))
        })?;
        columns.entry(name).or_default().category_words.extend(word);
    }
    let position = |name: &&str| names.iter().position(|file_name| file_name == name);
    let file_columns = columns
        .keys()
        .filter_map(|name| Some(mapping.file_columns[position(name)?]));
    let file_columns: Vec<usize> = file_columns.collect();
    let mut encoded: Vec<&mut Encoded> = columns.values_mut().collect();
    // In one pass, because a line is split as a whole.
    cells.each_cell(&file_columns, &mut |index, cell| encoded[index].add(cell))?;
    let mut words = Vec::new();
    for ((name, texts), column) in columns.into_iter().zip(file_columns) {
        if let Some(row) = texts.unprintable {
            return Err(Error::new(format!(
                "column {name:?} has a line break, another control character or a byte that is invalid in its encoding in row {row}; replace it, as its texts become names"
            )));
        }
        if !(2..=MAX_CATEGORIES).contains(&texts.categories.len()) {
            return Err(Error::new(format!(
                "column {name:?} has {} different values; `one_hot` takes a column of 2 to {MAX_CATEGORIES}",
                texts.categories.len()
            )));
        }
        words.extend(texts.words.iter().map(|word| format!("{name}={word}")));
        mapping.encode(column, texts.categories.into_iter().collect());
    }
    let advice = (!words.is_empty()).then(|| {
        let flag = field_with_names("one_hot", &words);
        format!(
            "a word that is a value there rather than a missing one is kept as a category by {flag}"
        )
    });
    if settings.public_rows {
        mapping.notes.extend(advice);
        return Ok(None);
    }
    Ok(advice)
}

/// The texts of an encoded column.
#[derive(Default)]
struct Encoded<'a> {
    /// Words for missing values that are categories.
    category_words: BTreeSet<&'a str>,
    categories: BTreeSet<String>,
    /// Other words for missing values.
    words: BTreeSet<String>,
    rows: usize,
    /// The first row whose text cannot be part of a name.
    unprintable: Option<usize>,
}

impl Encoded<'_> {
    fn add(&mut self, cell: &str) {
        self.rows += 1;
        let texts = match is_missing(cell) && !self.category_words.contains(cell) {
            true if cell.is_empty() => return,
            true => &mut self.words,
            false => &mut self.categories,
        };
        if cell.contains(|c: char| c.is_control() || c == REPLACEMENT) {
            self.unprintable.get_or_insert(self.rows);
        } else if !texts.contains(cell) {
            texts.insert(cell.to_owned());
        }
    }
}
