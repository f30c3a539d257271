//! Columns whose cells are text, in text tables, Parquet and data frames: read as numbers or as categories, or refused by
//! name in the same words.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use crate::{
    cells::{DecimalMark, is_missing, normal, number},
    columns::{ColumnMapping, ExpectedColumns, list_names, source_of, with_names},
    encoding::LOST,
    error::{Error, Result},
    problems::{Problems, Unreadable, UnreadableReason},
    settings::Settings,
};

/// Largest number of different texts of a column that is encoded.
const MAX_CATEGORIES: usize = 50;
/// Number of cells that are not empty from which most of them may refuse their column.
pub(crate) const MIN_FILLED: usize = 20;

/// A table whose cells can be read as text.
pub(crate) trait TextCells {
    /// Calls `each` with the cells of these columns of the file, in their [`normal`] form, and the position of the cell's
    /// column in `columns`. The cells of a column come in the order of the rows; a missing cell is empty.
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
    /// Where the features come from.
    of: &'static str,
    /// Whether the rows become reports: then no single value may decide what is said of a column.
    reports: bool,
    /// Whether most cells of a column may refuse it: not where they may be one person's.
    by_majority: bool,
    /// All categories of each column of the file that has some.
    categories: HashMap<usize, HashSet<String>>,
    /// The columns of the table; where several are categories of one column, the first counts.
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

const NO_NUMBERS: &str = "most of its cells are no numbers such as 1234.5: say another decimal mark with `decimal` , or `decimal` ., write dates as days since a fixed day, let prepare `one_hot` make 0 and 1 of categories, or leave the column out with `drop`";

/// Columns of a table that no command can use, with a sentence for each reason.
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
    /// A reading that has read nothing yet.
    pub(crate) fn new(
        how: &Settings,
        expected: Option<&ExpectedColumns>,
        mapping: &ColumnMapping,
    ) -> Self {
        let mut categories: HashMap<usize, HashSet<String>> = HashMap::new();
        let columns = mapping.take.iter().enumerate().map(|(named, &column)| {
            let counts = match mapping.category(named) {
                Some(category) => {
                    let known = categories.entry(column).or_default();
                    known.insert(category.to_owned()) && known.len() == 1
                }
                None => true,
            };
            counts.then(Counts::default)
        });
        Self {
            mark: how.decimal,
            of: expected.map_or("features file", |expected| expected.of),
            reports: expected.is_some_and(|expected| expected.reports),
            by_majority: expected.is_none_or(|expected| !expected.persons),
            columns: columns.collect(),
            categories,
            problems: Problems::default(),
        }
    }

    /// The number in a cell of the column `named` of the table, or whether it is of the column's category; otherwise as
    /// [`number`](Self::number). A cell that is a category is nothing else: NA may be Namibia.
    pub(crate) fn cell(
        &mut self,
        line: usize,
        named: usize,
        cell: &str,
        mapping: &ColumnMapping,
    ) -> f64 {
        let read = match mapping.category(named) {
            None => number(cell, self.mark),
            Some(category) if cell == category => Ok(1.0),
            Some(_) if self.categories[&mapping.take[named]].contains(cell) => Ok(0.0),
            Some(_) if is_missing(cell) => Err(UnreadableReason::Missing),
            Some(_) if cell.contains(LOST) => Err(UnreadableReason::OtherEncoding),
            Some(_) => Err(UnreadableReason::OtherCategory),
        };
        self.number(line, named, read, mapping)
    }

    /// The number in the column `named` of the table; NaN, and a problem, where there is none.
    pub(crate) fn number(
        &mut self,
        line: usize,
        named: usize,
        read: Result<f64, UnreadableReason>,
        mapping: &ColumnMapping,
    ) -> f64 {
        if let Some(counts) = &mut self.columns[named] {
            counts.filled += usize::from(read != Err(UnreadableReason::Missing));
            if let Err(reason) = read {
                counts.unreadable += usize::from(reason != UnreadableReason::Missing);
                self.problems.record(Unreadable {
                    line,
                    column: Some(mapping.take[named] + 1),
                    named: Some(named),
                    reason,
                });
            }
        }
        match read {
            Ok(number) => number,
            // As if the column had a further category, which is no feature.
            Err(UnreadableReason::OtherCategory) => 0.0,
            Err(_) => f64::NAN,
        }
    }

    /// Refuses columns of which most cells cannot be read, because most rows would be unusable, together with those in
    /// `refused`. A single row cannot decide this unless the others are evenly split. Where nothing is sent, one cell that
    /// is none of the categories refuses its column. One error names all columns that must be mended.
    pub(crate) fn check(
        &self,
        mapping: &ColumnMapping,
        mut refused: RefusedColumns,
        cells: &mut dyn TextCells,
    ) -> Result<()> {
        let is_category = |at: usize| mapping.category(at).is_some();
        let unfit = |at: &usize| {
            let counts = self.columns[*at].unwrap_or_default();
            let some = !self.reports && is_category(*at) && counts.unreadable > 0;
            some || self.by_majority && counts.filled >= MIN_FILLED && counts.is_mostly_unreadable()
        };
        let unfit = (0..self.columns.len()).filter(unfit);
        let (categories, numbers): (Vec<usize>, Vec<usize>) =
            unfit.partition(|&at| is_category(at));
        refused.add(&numbers, NO_NUMBERS, mapping);
        let mended = refused.columns.clone();
        for at in categories {
            let why = self.other_categories(at, mapping.take[at], cells)?;
            refused.add(&[at], &why, mapping);
        }
        if refused.columns.is_empty() {
            return Ok(());
        }
        let mut sentences = refused.sentences;
        if !self.reports {
            // Of categories, where the first cell is, too.
            let others = self.problems.clone().without_columns(&mended);
            sentences.extend(others.describe(|at| mapping.column(at)));
        }
        Err(Error::new(sentences.join("\n")))
    }

    /// Why a column of categories is refused, with the categories and the texts that several rows have instead; the
    /// table's column `at` is the first of them, and `column` is the file's.
    fn other_categories(
        &self,
        at: usize,
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
        // A text of one row may be what one person said.
        let mut texts: Vec<(String, usize)> = rows.into_iter().filter(|(_, n)| *n > 1).collect();
        texts.sort_by_key(|(_, rows)| Reverse(*rows));
        let texts: Vec<String> = texts.into_iter().map(|(text, _)| text).collect();
        let mut known: Vec<&String> = categories.iter().collect();
        known.sort_unstable();
        let counts = self.columns[at].unwrap_or_default();
        Ok(format!(
            "{} of its cells are none of the categories of the {}, which are {}; {}; write them as there, or name their encoding with `encoding`",
            match counts.is_mostly_unreadable() {
                true => "most",
                false => "some",
            },
            self.of,
            list_names(&known),
            match texts.is_empty() {
                true => "no two rows have the same instead".to_owned(),
                false => format!("they are {}", list_names(&texts)),
            }
        ))
    }
}

/// Encodes the columns of text that `one_hot` names: one column of 0 and 1 for each value found, in alphabetical order.
/// Returns how words that stand for missing values could be kept, if there are some.
pub(crate) fn encode(
    how: &Settings,
    cells: &mut dyn TextCells,
    mapping: &mut ColumnMapping,
) -> Result<Option<String>> {
    let wanted = how.one_hot.iter().flatten();
    let wanted: Vec<String> = wanted.map(|wanted| normal(wanted).into_owned()).collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    let names = mapping.names.clone().unwrap_or_default();
    let in_file: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let mut columns: BTreeMap<&str, Encoded> = BTreeMap::new();
    for wanted in &wanted {
        let (name, word) = source_of(wanted, &in_file).ok_or_else(|| {
            Error::new(format!(
                "it has no column {wanted:?}, which `one_hot` names; give `header` yes if line 1 names the columns"
            ))
        })?;
        columns.entry(name).or_default().kept.extend(word);
    }
    let position = |name: &&str| names.iter().position(|own| own == name);
    let places = columns
        .keys()
        .filter_map(|name| Some(mapping.take[position(name)?]));
    let places: Vec<usize> = places.collect();
    let mut encoded: Vec<&mut Encoded> = columns.values_mut().collect();
    // All in one pass: a line is split as a whole.
    cells.each_cell(&places, &mut |place, cell| encoded[place].add(cell))?;
    let mut words = Vec::new();
    for ((name, found), column) in columns.into_iter().zip(places) {
        if let Some(row) = found.unprintable {
            return Err(Error::new(format!(
                "column {name:?} has a line break, another control character or a byte that its encoding has not in row {row}; replace it, as its texts become names"
            )));
        }
        if !(2..=MAX_CATEGORIES).contains(&found.categories.len()) {
            return Err(Error::new(format!(
                "column {name:?} has {} different values; `one_hot` takes a column of 2 to {MAX_CATEGORIES}",
                found.categories.len()
            )));
        }
        words.extend(found.words.iter().map(|word| format!("{name}={word}")));
        mapping.encode(column, found.categories.into_iter().collect());
    }
    Ok((!words.is_empty()).then(|| {
        let flag = with_names("one_hot", &words);
        format!("a word that is a value there and not missing is kept as a category by {flag}")
    }))
}

/// The texts of a column that is encoded.
#[derive(Default)]
struct Encoded<'a> {
    /// Words for missing values that are categories.
    kept: BTreeSet<&'a str>,
    categories: BTreeSet<String>,
    /// Other words for missing values.
    words: BTreeSet<String>,
    rows: usize,
    /// The first row whose text is none that a name may have.
    unprintable: Option<usize>,
}

impl Encoded<'_> {
    fn add(&mut self, cell: &str) {
        self.rows += 1;
        let texts = match is_missing(cell) && !self.kept.contains(cell) {
            true if cell.is_empty() => return,
            true => &mut self.words,
            false => &mut self.categories,
        };
        if cell.contains(|c: char| c.is_control() || c == LOST) {
            self.unprintable.get_or_insert(self.rows);
        } else if !texts.contains(cell) {
            texts.insert(cell.to_owned());
        }
    }
}
