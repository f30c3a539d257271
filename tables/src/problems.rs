//! Unreadable cells and lines, counted by column and reason, so that one message names all of them.

use std::collections::{BTreeMap, HashSet};

use eigenveil_shared::{
    preprocess::VALUE_RANGE,
    wording::{MAX_NAMED, counted, first_few},
};

pub(crate) const INDEX_ZERO: &str = "index 0, but indices are taken from 1; if the file counts from 0 (as scikit-learn's dump_svmlight_file does), give `first_index` 0";

/// The problem of a line that counts as one with too many fields.
pub(crate) const TOO_LONG: &str = " is longer than 16 MiB";
/// The way out of a wrong number of fields, to follow the problem.
pub(crate) const OTHER_DELIMITER: &str =
    "; if something else separates the columns, name it with `delimiter`";

const OTHER_SPELLING: &str = "spelled otherwise than 1234.5: `decimal` , reads 1.234,5 and `decimal` . reads 1,234.5; correct any other spelling in the file";
const OTHER_ENCODING: &str = "that is invalid in its encoding; name the encoding with `encoding`, such as ibm850 or shift_jis";

/// Position of a value that is not a number, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreadable {
    pub(crate) line: usize,
    /// Column of the file; `None` for the whole line.
    pub(crate) column: Option<usize>,
    /// Column of the table, from 0, which may have a name.
    pub(crate) table_column: Option<usize>,
    pub(crate) reason: UnreadableReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadableReason {
    Missing,
    NotANumber,
    /// An infinite number, or one beyond the range of a row's values.
    TooLarge,
    /// A number in an unsupported spelling.
    OtherSpelling,
    /// A byte that is invalid in the text's encoding.
    OtherEncoding,
    /// A text that is none of the categories; in a report the row belongs to no category.
    OtherCategory,
    /// A LIBSVM index beyond the study's dimension.
    Outside,
    /// A LIBSVM index 0 in a file taken to count from 1.
    IndexZero,
    /// A line that is not LIBSVM text.
    NotLibsvm,
    /// A line whose number of fields differs from that of the first line (the largest number: a line that is too long);
    /// `open` if a quote is not closed on the line.
    Fields {
        has: usize,
        wants: usize,
        open: bool,
    },
}

impl UnreadableReason {
    /// Order of the messages.
    fn rank(self) -> u8 {
        match self {
            UnreadableReason::NotANumber => 0,
            UnreadableReason::TooLarge => 1,
            UnreadableReason::OtherSpelling => 2,
            UnreadableReason::OtherEncoding => 3,
            UnreadableReason::OtherCategory => 4,
            UnreadableReason::Missing => 5,
            UnreadableReason::Outside => 6,
            UnreadableReason::IndexZero => 7,
            UnreadableReason::NotLibsvm => 8,
            UnreadableReason::Fields { .. } => 9,
        }
    }

    /// The problem and the way out, as text to follow the position of a single cell or line; `left_out` is what can be
    /// left out where a value is missing.
    fn describe_one(self, left_out: &str) -> String {
        match self {
            UnreadableReason::Missing => {
                format!(": the value is missing; fill it in, or leave {left_out} out")
            }
            UnreadableReason::NotANumber => ": not a number; every field must be a number".to_owned(),
            UnreadableReason::TooLarge => format!(
                ": the value is too large; give a number of at most {:.0e} in magnitude",
                VALUE_RANGE.end()
            ),
            UnreadableReason::Outside => {
                ": an index is beyond the last column of the study".to_owned()
            }
            UnreadableReason::IndexZero => format!(": {INDEX_ZERO}"),
            UnreadableReason::NotLibsvm => ": not LIBSVM text, which is a label and then index:value with increasing indices from 1".to_owned(),
            UnreadableReason::OtherSpelling => format!(": a number {OTHER_SPELLING}"),
            UnreadableReason::OtherEncoding => format!(": a byte {OTHER_ENCODING}"),
            UnreadableReason::OtherCategory => ": none of the categories".to_owned(),
            UnreadableReason::Fields {
                has: usize::MAX, ..
            } => TOO_LONG.to_owned(),
            UnreadableReason::Fields { has, wants, open } => format!(
                " has {} and not {wants}{}",
                counted(has as u64, "field"),
                match (open, has) {
                    (true, _) => "; a quoted cell must end on its line",
                    (false, 1) => OTHER_DELIMITER,
                    (false, _) if has > wants => "; a decimal comma adds one",
                    (false, _) => "",
                }
            ),
        }
    }

    /// The problem of several cells, as text to follow the columns and their counts.
    fn describe_several(self, left_out: &str) -> String {
        match self {
            UnreadableReason::Missing => {
                format!("values are missing; fill them in, or leave {left_out} out")
            }
            UnreadableReason::TooLarge => format!(
                "values are too large; give numbers of at most {:.0e} in magnitude",
                VALUE_RANGE.end()
            ),
            UnreadableReason::OtherSpelling => format!("values are numbers {OTHER_SPELLING}"),
            UnreadableReason::OtherEncoding => format!("values have a byte {OTHER_ENCODING}"),
            UnreadableReason::OtherCategory => "values are none of the categories".to_owned(),
            _ => "values are not numbers; every field must be a number".to_owned(),
        }
    }
}

const MAY_BE_MISSING: &str = "where a study takes missing cells, a file with the shares of people who have each value (observed) says so: give it with `features`";

#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    /// The number of problems and the first one, by reason and column of the file.
    counted: BTreeMap<(u8, Option<usize>), (usize, Unreadable)>,
    /// Whether every column is needed, so that none can be left out.
    columns_are_needed: bool,
    /// Advice on missing cells.
    pub(crate) missing_advice: Option<String>,
}

impl Problems {
    /// None yet; `columns_are_needed` if none can be left out.
    pub(crate) fn new(columns_are_needed: bool) -> Self {
        Self {
            columns_are_needed,
            ..Self::default()
        }
    }

    pub(crate) fn record(&mut self, problem: Unreadable) {
        let key = (problem.reason.rank(), problem.column);
        self.counted.entry(key).or_insert((0, problem)).0 += 1;
    }

    /// Adds the problems of further lines.
    pub(crate) fn merge(&mut self, others: &Self) {
        self.columns_are_needed |= others.columns_are_needed;
        for (key, (count, first)) in &others.counted {
            let known = self.counted.entry(*key).or_insert((0, *first));
            known.0 += count;
            if first.line < known.1.line {
                known.1 = *first;
            }
        }
    }

    pub(crate) fn without(mut self, reason: UnreadableReason) -> Self {
        self.counted.retain(|_, (_, cell)| cell.reason != reason);
        self
    }

    /// Keeps the problems of other columns.
    pub(crate) fn without_columns(mut self, columns: &[usize]) -> Self {
        let columns: HashSet<&usize> = columns.iter().collect();
        let other = |cell: &Unreadable| {
            cell.table_column
                .is_none_or(|column| !columns.contains(&column))
        };
        self.counted.retain(|_, (_, cell)| other(cell));
        self
    }

    /// Number of cells without a number, by column of the table.
    pub(crate) fn cells(&self) -> BTreeMap<usize, usize> {
        let mut cells = BTreeMap::new();
        for (count, first) in self.counted.values() {
            let has_number = first.reason == UnreadableReason::OtherCategory;
            if let Some(column) = first.table_column.filter(|_| !has_number) {
                *cells.entry(column).or_default() += count;
            }
        }
        cells
    }

    pub(crate) fn first_line(&self) -> Option<usize> {
        self.counted.values().map(|(_, first)| first.line).min()
    }

    /// One sentence for each reason, without any value of a row; `column_name` gives the name of a column of the table.
    pub(crate) fn describe(&self, column_name: impl Fn(usize) -> String) -> Option<String> {
        let mut by_reason: BTreeMap<u8, Vec<&(usize, Unreadable)>> = BTreeMap::new();
        for ((reason, _), problems) in &self.counted {
            by_reason.entry(*reason).or_default().push(problems);
        }
        let column = |cell: &Unreadable| match (cell.column, cell.table_column) {
            (_, Some(at)) => Some(column_name(at)),
            (Some(column), None) => Some(format!("column {column}")),
            (None, None) => None,
        };
        let has_missing = by_reason.contains_key(&UnreadableReason::Missing.rank());
        let [row, rows] = match self.columns_are_needed {
            true => ["the row", "these rows"],
            false => ["the row or the column", "these rows or columns"],
        };
        let mut sentences: Vec<String> = by_reason
            .into_values()
            .filter_map(|problems| {
                let (count, first) = problems.iter().min_by_key(|(_, first)| first.line)?;
                let (line, reason) = (first.line, first.reason);
                let Some(position) = column(first) else {
                    let more = match count - 1 {
                        0 => String::new(),
                        more => format!(" ({more} more lines have the same problem)"),
                    };
                    return Some(format!("line {line}{}{more}", reason.describe_one(row)));
                };
                if problems.iter().map(|(count, _)| count).sum::<usize>() == 1 {
                    return Some(format!(
                        "line {line}, {position}{}",
                        reason.describe_one(row)
                    ));
                }
                let counted_columns = problems.iter().map(|(count, cell)| {
                    let column = column(cell).unwrap_or_default();
                    format!("{column}: {count}")
                });
                let columns = first_few(counted_columns, MAX_NAMED, |more| {
                    format!(" and {more} more columns")
                });
                Some(format!(
                    "{columns} {} (the first in line {line})",
                    reason.describe_several(rows)
                ))
            })
            .collect();
        sentences.extend(self.missing_advice.clone().filter(|_| has_missing));
        let may_be_missing = has_missing && !self.columns_are_needed;
        sentences.extend(may_be_missing.then(|| MAY_BE_MISSING.to_owned()));
        (!sentences.is_empty()).then(|| sentences.join("\n"))
    }
}
