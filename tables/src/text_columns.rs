//! Columns whose cells are text, in text tables and in Parquet: read as numbers or as categories, or refused by name in
//! the same words.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eigenveil_shared::wording::MAX_NAMED;

use crate::{
    categories::is_category,
    cells::{DecimalMark, Marks, is_date, is_missing, is_value, number},
    columns::{ColumnMapping, ExpectedColumns},
    error::{Error, Result},
    problems::{Problems, Unreadable, UnreadableReason},
    settings::Settings,
    table::{MIN_LINES_FOR_MAJORITY, MIN_ROWS_OF_IDENTIFIER},
};

/// Largest number of different texts of a column that is encoded or taken for a label.
const MAX_CATEGORIES: usize = 50;

/// A table whose cells can be read as text.
pub(crate) trait TextCells {
    /// Calls `each` with the trimmed cells of these columns of the file, and the position of the cell's column in
    /// `columns`. The cells of a column come in the order of the rows; a missing cell is empty.
    fn each_cell(&mut self, columns: &[usize], each: &mut dyn FnMut(usize, &str)) -> Result<()>;
}

/// Notations that could mean two things: columns of such numbers are refused as a whole.
const NOTATIONS: [UnreadableReason; 3] = [
    UnreadableReason::DecimalComma,
    UnreadableReason::Percent,
    UnreadableReason::OtherMark,
];

/// Reads the cells of a table, and counts what cannot be read.
pub(crate) struct Reading {
    mark: DecimalMark,
    /// Whether the rows become reports: then no value may decide how the table is read.
    reports: bool,
    /// Whether most rows may decide it ([`Settings::most_rows_decide`](crate::settings::Settings)).
    by_majority: bool,
    /// The columns of the table.
    columns: Vec<TextColumn>,
    pub(crate) problems: Problems,
}

/// Counts of the cells of one column, by kind.
#[derive(Clone, Default)]
struct TextColumn {
    texts: usize,
    /// Numbers in a notation that could mean two things, in the order of [`NOTATIONS`]: not a matter of single rows.
    notations: [usize; 3],
    marks: Marks,
}

impl TextColumn {
    /// The number in a cell, or 1 or 0 for whether it is of this category.
    fn read(
        &mut self,
        cell: &str,
        category: Option<&str>,
        mark: DecimalMark,
    ) -> Result<f64, UnreadableReason> {
        let read = match category {
            Some(_) if is_missing(cell) => Err(UnreadableReason::Missing),
            Some(category) => Ok(f64::from(u8::from(is_category(cell, category)))),
            None => number(cell, mark).inspect(|_| self.marks.record(cell)),
        };
        if let Err(reason) = read {
            let notation = NOTATIONS.iter().position(|of| *of == reason);
            match notation {
                Some(at) => self.notations[at] += 1,
                None => self.texts += usize::from(!is_value(cell)),
            }
        }
        read
    }
}

/// The probable kind of a column of text; messages name the kinds in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TextKind {
    Dates,
    Identifier,
    Categories,
    Other,
}

pub(crate) const DATES: &str = "dates, not numbers: write days since a fixed day, such as 1970-01-01, in this file and on every device, or leave it out with `drop`";

impl TextKind {
    fn advice(self) -> &'static str {
        match self {
            TextKind::Dates => DATES,
            TextKind::Identifier => {
                "text in most rows that differs in all of them, as identifiers do; leave it out with `drop`"
            }
            TextKind::Categories => {
                "text in most rows, few values in all, as labels and categories have; leave it out with `drop`, or let prepare `one_hot` make 0 and 1 of each value"
            }
            TextKind::Other => {
                "text in most rows, not numbers; leave it out with `drop`, or turn it into numbers"
            }
        }
    }

    fn of(column: usize, cells: &mut dyn TextCells) -> Result<Self> {
        let (mut dates, mut filled) = (0, 0);
        let mut different = BTreeSet::new();
        cells.each_cell(&[column], &mut |_, cell| {
            if !is_missing(cell) {
                filled += 1;
                dates += usize::from(is_date(cell));
                different.insert(cell.to_owned());
            }
        })?;
        Ok(if 2 * dates > filled {
            TextKind::Dates
        } else if filled >= MIN_ROWS_OF_IDENTIFIER && different.len() == filled {
            TextKind::Identifier
        } else if different.len() <= MAX_CATEGORIES && 2 * different.len() <= filled {
            TextKind::Categories
        } else {
            TextKind::Other
        })
    }
}

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

const MIXED: &str = "numbers with a decimal comma beside numbers with a decimal point; write all of them as 1234.5, or say what the decimal mark is with `decimal` , or `decimal` .";
const IN_DOUBT: &str = "numbers such as 1.234 or 1,234, which are a thousand if the decimal mark is that of the other columns; say which it is with `decimal` , or `decimal` .";

const COMMAS: &str = "every comma is followed by three digits; they were read as decimal commas: if they separate thousands, give `decimal` .";
const POINTS: &str = "every point is followed by three digits, and other numbers have none; they were read as decimal points: if they separate thousands, give `decimal` ,";
const STYLED: &str = "brackets and a minus sign behind a number were read as negative (5,- as 5), currencies and spaces left out: if they mean something else, change them";

impl Reading {
    /// A reading that has read nothing yet. `guessed` is the decimal mark if no flag states it.
    pub(crate) fn new(
        how: &Settings,
        expected: Option<&ExpectedColumns>,
        guessed: DecimalMark,
        columns: usize,
    ) -> Self {
        let reports = expected.is_some_and(|expected| expected.reports);
        Self {
            mark: how.decimal.unwrap_or(guessed),
            reports,
            by_majority: how.most_rows_decide(reports),
            columns: vec![TextColumn::default(); columns],
            problems: Problems::default(),
        }
    }

    /// The number in a cell of the column `named` of the table, or whether it is of the column's category; otherwise as
    /// [`number`](Self::number).
    pub(crate) fn cell(
        &mut self,
        line: usize,
        named: usize,
        cell: &str,
        mapping: &ColumnMapping,
    ) -> f64 {
        let read = self.columns[named].read(cell, mapping.category(named), self.mark);
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
        read.unwrap_or_else(|reason| {
            self.problems.record(Unreadable {
                line,
                column: Some(mapping.take[named] + 1),
                named: Some(named),
                reason,
            });
            f64::NAN
        })
    }

    /// Refuses columns that are mostly text, because all rows would be unusable, together with those in `refused`. A
    /// single row cannot decide this unless the others are evenly split. One error names all columns that must be
    /// mended.
    pub(crate) fn check(
        &self,
        rows: usize,
        mapping: &mut ColumnMapping,
        mut refused: RefusedColumns,
        cells: &mut dyn TextCells,
    ) -> Result<()> {
        let most = |at: &usize| 2 * self.columns[*at].texts > rows;
        let several = rows >= MIN_LINES_FOR_MAJORITY;
        let texts: Vec<usize> = (0..self.columns.len())
            .filter(|at| several && most(at))
            .collect();
        if self.by_majority {
            let mut kinds: BTreeMap<TextKind, Vec<usize>> = BTreeMap::new();
            for (found, &at) in texts.iter().enumerate() {
                // Further columns are not named.
                let kind = match self.reports || found >= MAX_NAMED {
                    true => TextKind::Other,
                    false => TextKind::of(mapping.take[at], cells)?,
                };
                kinds.entry(kind).or_default().push(at);
            }
            for (kind, columns) in kinds {
                refused.add(&columns, kind.advice(), mapping);
            }
        } else {
            mapping.note(&texts, TextKind::Other.advice());
        }
        self.check_notations(rows, mapping, &mut refused);
        if refused.columns.is_empty() {
            return Ok(());
        }
        let mut sentences = refused.sentences;
        if !self.reports {
            let others = self.problems.clone().without_columns(&refused.columns);
            sentences.extend(others.describe(|at| mapping.column(at)));
        }
        Err(Error::new(sentences.join("\n")))
    }

    /// Refuses or notes columns of numbers whose notation could mean two things. If nothing is sent, a single such
    /// number is enough, because which rows have one may depend on their values; for reports, the majority of the rows
    /// decides.
    fn check_notations(
        &self,
        rows: usize,
        mapping: &mut ColumnMapping,
        refused: &mut RefusedColumns,
    ) {
        let reports = self.reports;
        let several = rows >= MIN_LINES_FOR_MAJORITY && self.by_majority;
        let columns_where = |is: &dyn Fn(&TextColumn) -> bool| -> Vec<usize> {
            let columns = 0..self.columns.len();
            columns.filter(|&at| is(&self.columns[at])).collect()
        };
        for (at, notation) in NOTATIONS.into_iter().enumerate() {
            let why = format!("numbers with {}", notation.notation().unwrap_or_default());
            let has_notation = |own: &TextColumn| own.notations[at] > 0;
            let most = |own: &TextColumn| 2 * own.notations[at] > rows;
            let decides =
                |own: &TextColumn| has_notation(own) && several && (!reports || most(own));
            refused.add(&columns_where(&decides), &why, mapping);
            if reports {
                mapping.note(&columns_where(&has_notation), &why);
            }
        }
        let is_stated = matches!(self.mark, DecimalMark::Point | DecimalMark::Comma);
        // For reports, no single row decides whether the others are read.
        let counted = |own: &TextColumn| match reports {
            true if several => own.marks.of_most(rows),
            true => Marks::default(),
            false => own.marks,
        };
        let sum = |marks: &dyn Fn(&TextColumn) -> Marks| {
            let marks = self.columns.iter().map(marks);
            marks.fold(Marks::default(), |sum, own| sum + own)
        };
        let (file, decisive) = (sum(&|own| own.marks), sum(&counted));
        if !is_stated {
            let clear = |own: &TextColumn| !own.marks.are_in_doubt(file);
            refused.add(
                &columns_where(&|own| counted(own).are_mixed()),
                MIXED,
                mapping,
            );
            let in_doubt = columns_where(&|own| counted(own).are_in_doubt(decisive));
            refused.add(&in_doubt, IN_DOUBT, mapping);
            if reports {
                mapping.note(&columns_where(&|own| own.marks.are_mixed()), MIXED);
                mapping.note(&columns_where(&|own| !clear(own)), IN_DOUBT);
            }
            let commas = |own: &TextColumn| own.marks.are_only_doubtful_commas() && clear(own);
            let points = |own: &TextColumn| own.marks.are_only_doubtful_points() && clear(own);
            mapping.note(&columns_where(&commas), COMMAS);
            mapping.note(&columns_where(&points), POINTS);
        }
        mapping.note(&columns_where(&|own| own.marks.are_styled()), STYLED);
    }
}

/// Encodes columns of text: one column of 0 and 1 for each value found, in alphabetical order.
pub(crate) fn encode(
    columns: &[String],
    cells: &mut dyn TextCells,
    mapping: &mut ColumnMapping,
) -> Result<()> {
    let names = mapping.names.as_deref().unwrap_or_default();
    let mut indices: HashMap<&String, usize> =
        names.iter().zip(mapping.take.iter().copied()).collect();
    let places = columns.iter().map(|wanted| {
        indices.remove(wanted).ok_or_else(|| {
            Error::new(format!(
                "it has no column {wanted:?}, which `one_hot` names; give `header` yes if line 1 names the columns"
            ))
        })
    });
    let places = places.collect::<Result<Vec<usize>>>()?;
    // All in one pass: a line is split as a whole.
    let mut found = vec![BTreeSet::new(); places.len()];
    cells.each_cell(&places, &mut |place, cell| {
        if !is_missing(cell) && !found[place].contains(cell) {
            found[place].insert(cell.to_owned());
        }
    })?;
    for ((wanted, column), categories) in columns.iter().zip(places).zip(found) {
        if !(2..=MAX_CATEGORIES).contains(&categories.len()) {
            return Err(Error::new(format!(
                "column {wanted:?} has {} different values; `one_hot` takes a column of 2 to {MAX_CATEGORIES}",
                categories.len()
            )));
        }
        // 4 and 4.0 are one category.
        let mut different: Vec<String> = Vec::new();
        for category in categories {
            if !different.iter().any(|other| is_category(&category, other)) {
                different.push(category);
            }
        }
        mapping.encode(column, different);
    }
    Ok(())
}
