//! Columns whose cells are text, in text tables and in Parquet: read as numbers or as categories, or refused by name in
//! the same words.

use std::collections::BTreeSet;

use super::{
    categories::is_category,
    cells::{DecimalMark, Marks, is_date, is_missing, is_value, number},
    columns::ColumnMapping,
    flags::Names,
    problems::{MAX_COLUMNS_NAMED, Problems, UnreadableReason},
    table::{MIN_LINES_FOR_MAJORITY, MIN_ROWS_OF_IDENTIFIER},
};
use crate::error::{CliError, Result};

/// Largest number of different texts of a column that is encoded or taken for a label.
const MAX_CATEGORIES: usize = 50;

/// A table whose cells can be read as text.
pub(super) trait TextCells {
    /// Calls `each` with the trimmed cells of a column of the file, one after the other; a missing one is empty.
    fn each_cell(&mut self, column: usize, each: &mut dyn FnMut(&str)) -> Result<()>;
}

/// Refused as a whole, with a sentence.
const NOTATIONS: [(UnreadableReason, &str); 3] = [
    (
        UnreadableReason::DecimalComma,
        "numbers with a decimal comma, or one between thousands; say which with --decimal , or --decimal .",
    ),
    (
        UnreadableReason::Percent,
        "numbers with a percent sign; write 12.5 or 0.125 for 12.5 %, the same in every row",
    ),
    (
        UnreadableReason::OtherMark,
        "numbers with another decimal mark than --decimal says",
    ),
];

/// How the columns of a table are judged.
#[derive(Clone, Copy)]
pub(super) struct Judgement {
    pub(super) mark: DecimalMark,
    /// No value may decide how the table is read.
    pub(super) reports: bool,
    /// Most rows may ([`TableArgs::most_rows_decide`](super::flags::TableArgs)).
    pub(super) by_majority: bool,
}

/// What the cells of one column were.
#[derive(Clone, Default)]
pub(super) struct TextColumn {
    texts: usize,
    /// Numbers in a notation that could mean two things, in the order of [`NOTATIONS`]: not a matter of single rows.
    notations: [usize; 3],
    marks: Marks,
}

impl TextColumn {
    /// The number in a cell, or whether it is of this category.
    pub(super) fn read(
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
            let notation = NOTATIONS.iter().position(|(of, _)| *of == reason);
            match notation {
                Some(at) => self.notations[at] += 1,
                None => self.texts += usize::from(!is_value(cell)),
            }
        }
        read
    }
}

/// What a column of text probably is.
#[derive(Clone, Copy, PartialEq)]
enum TextKind {
    Dates,
    Identifier,
    Categories,
    Other,
}

pub(super) const DATES: &str = "dates, not numbers: write days since a fixed day, such as 1970-01-01, in this file and on every device, or leave it out with --drop";

impl TextKind {
    const ALL: [Self; 4] = [
        TextKind::Dates,
        TextKind::Identifier,
        TextKind::Categories,
        TextKind::Other,
    ];

    fn advice(self) -> &'static str {
        match self {
            TextKind::Dates => DATES,
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

    fn of(column: usize, cells: &mut dyn TextCells) -> Result<Self> {
        let (mut dates, mut filled) = (0, 0);
        let mut different = BTreeSet::new();
        cells.each_cell(column, &mut |cell| {
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
pub(super) struct RefusedColumns {
    columns: Vec<usize>,
    sentences: Vec<String>,
}

impl RefusedColumns {
    pub(super) fn add(&mut self, columns: &[usize], why: &str, mapping: &ColumnMapping) {
        if columns.is_empty() {
            return;
        }
        self.sentences
            .push(format!("{}: {why}", mapping.listed(columns)));
        self.columns.extend(columns);
    }
}

const MIXED: &str = "numbers with a decimal comma beside numbers with a decimal point; write all of them as 1234.5, or say what the decimal mark is with --decimal , or --decimal .";
const IN_DOUBT: &str = "numbers such as 1.234 or 1,234, which are a thousand if the decimal mark is that of the other columns; say which it is with --decimal , or --decimal .";

const COMMAS: &str = "every comma is followed by three digits; they were read as decimal commas: if they separate thousands, give --decimal .";
const POINTS: &str = "every point is followed by three digits, and other numbers have none; they were read as decimal points: if they separate thousands, give --decimal ,";
const STYLED: &str = "brackets and a minus sign behind a number were read as negative (5,- as 5), currencies and spaces left out: if they mean something else, change them";

/// Refuses columns that are mostly text, because all rows would be unusable, together with those `refused` already. A
/// single row cannot decide it unless the others are evenly split. One message names all that must be mended.
/// Wrong usage that names the columns.
pub(super) fn check_text(
    texts: &[TextColumn],
    rows: usize,
    how: Judgement,
    mapping: &mut ColumnMapping,
    problems: &Problems,
    mut refused: RefusedColumns,
    cells: &mut dyn TextCells,
) -> Result<()> {
    let reports = how.reports;
    let most = |at: &usize| rows >= MIN_LINES_FOR_MAJORITY && 2 * texts[*at].texts > rows;
    let mut kinds = Vec::new();
    for at in (0..texts.len()).filter(most) {
        // More are not named.
        let kind = match reports || kinds.len() >= MAX_COLUMNS_NAMED {
            true => TextKind::Other,
            false => TextKind::of(mapping.take[at], cells)?,
        };
        kinds.push((at, kind));
    }
    if !how.by_majority {
        let columns: Vec<usize> = kinds.drain(..).map(|(at, _)| at).collect();
        mapping.note(&columns, TextKind::Other.advice());
    }
    for wanted in TextKind::ALL {
        let columns = kinds.iter().filter(|(_, kind)| *kind == wanted);
        let columns: Vec<usize> = columns.map(|(at, _)| *at).collect();
        refused.add(&columns, wanted.advice(), mapping);
    }
    check_notations(texts, rows, how, mapping, &mut refused);
    if !refused.columns.is_empty() {
        let mut sentences = refused.sentences;
        if !reports {
            let others = problems.clone().without_columns(&refused.columns);
            sentences.extend(others.describe(|at| mapping.column(at)));
        }
        return Err(CliError::usage(sentences.join("\n")));
    }
    Ok(())
}

/// Refuses or notes columns of numbers whose notation could mean two things. Where nothing is sent a single such number
/// is enough, because which rows have one may depend on their values; of reports what most rows have decides.
fn check_notations(
    texts: &[TextColumn],
    rows: usize,
    how: Judgement,
    mapping: &mut ColumnMapping,
    refused: &mut RefusedColumns,
) {
    let reports = how.reports;
    let several = rows >= MIN_LINES_FOR_MAJORITY && how.by_majority;
    let of = |is: &dyn Fn(&TextColumn) -> bool| -> Vec<usize> {
        (0..texts.len()).filter(|&at| is(&texts[at])).collect()
    };
    for (at, (_, why)) in NOTATIONS.into_iter().enumerate() {
        let found = |own: &TextColumn| own.notations[at] > 0;
        let most = |own: &TextColumn| 2 * own.notations[at] > rows;
        let decides = |own: &TextColumn| found(own) && several && (!reports || most(own));
        refused.add(&of(&decides), why, mapping);
        if reports {
            mapping.note(&of(&found), why);
        }
    }
    let said = matches!(how.mark, DecimalMark::Point | DecimalMark::Comma);
    // Of reports no row decides whether the others are read.
    let counted = |own: &TextColumn| match reports {
        true if several => own.marks.of_most(rows),
        true => Marks::default(),
        false => own.marks,
    };
    let sum = |marks: &dyn Fn(&TextColumn) -> Marks| {
        let marks = texts.iter().map(marks);
        marks.fold(Marks::default(), |sum, own| sum + own)
    };
    let (file, decisive) = (sum(&|own| own.marks), sum(&counted));
    if !said {
        let clear = |own: &TextColumn| !own.marks.are_in_doubt(file);
        refused.add(&of(&|own| counted(own).are_mixed()), MIXED, mapping);
        let in_doubt = of(&|own| counted(own).are_in_doubt(decisive));
        refused.add(&in_doubt, IN_DOUBT, mapping);
        if reports {
            mapping.note(&of(&|own| own.marks.are_mixed()), MIXED);
            mapping.note(&of(&|own| !clear(own)), IN_DOUBT);
        }
        let commas = |own: &TextColumn| own.marks.are_only_doubtful_commas() && clear(own);
        let points = |own: &TextColumn| own.marks.are_only_doubtful_points() && clear(own);
        mapping.note(&of(&commas), COMMAS);
        mapping.note(&of(&points), POINTS);
    }
    mapping.note(&of(&|own| own.marks.are_styled()), STYLED);
}

/// Encodes columns of text: one column of 0 and 1 for each value that is there, in alphabetic order.
pub(super) fn encode(
    columns: &Names,
    cells: &mut dyn TextCells,
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
        cells.each_cell(column, &mut |cell| {
            if !is_missing(cell) {
                categories.insert(cell.to_owned());
            }
        })?;
        if !(2..=MAX_CATEGORIES).contains(&categories.len()) {
            return Err(CliError::usage(format!(
                "column {wanted:?} has {} different values; --one-hot takes a column of 2 to {MAX_CATEGORIES}",
                categories.len()
            )));
        }
        // 4 and 4.0 are one category.
        let mut different: Vec<String> = Vec::new();
        for category in categories {
            if !different.iter().any(|own| is_category(&category, own)) {
                different.push(category);
            }
        }
        mapping.encode(column, different);
    }
    Ok(())
}
