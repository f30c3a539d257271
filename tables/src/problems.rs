//! Unreadable cells and lines, counted by column and reason, so that one message names all of them.

use std::collections::{BTreeMap, HashSet};

use eigenveil_shared::wording::{MAX_NAMED, first_few};

pub(crate) const INDEX_ZERO: &str = "index 0, but indices are taken from 1; if the file counts from 0 (as scikit-learn's dump_svmlight_file does), give `first_index` 0";

/// Position of a value that is not a number, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unreadable {
    pub(crate) line: usize,
    /// Column of the file; `None` for the whole line.
    pub(crate) column: Option<usize>,
    /// The column of the table, from 0, which may have a name.
    pub(crate) named: Option<usize>,
    pub(crate) reason: UnreadableReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadableReason {
    Missing,
    NotANumber,
    DecimalComma,
    /// A percentage: 12 or 0.12?
    Percent,
    /// A number whose decimal mark is not that of `decimal`.
    OtherMark,
    /// A LIBSVM index beyond the study's dimension.
    Outside,
    /// A LIBSVM index 0 in a file taken to count from 1.
    IndexZero,
    /// A line that is not LIBSVM text.
    NotLibsvm,
    /// A line with another number of fields than the first; `open` if a quote is not closed on the line.
    Fields {
        has: usize,
        wants: usize,
        open: bool,
    },
}

impl UnreadableReason {
    /// The order of messages.
    fn rank(self) -> u8 {
        match self {
            UnreadableReason::NotANumber => 0,
            UnreadableReason::DecimalComma => 1,
            UnreadableReason::Percent => 2,
            UnreadableReason::Missing => 3,
            UnreadableReason::Outside => 4,
            UnreadableReason::IndexZero => 5,
            UnreadableReason::NotLibsvm => 6,
            UnreadableReason::Fields { .. } => 7,
            UnreadableReason::OtherMark => 8,
        }
    }

    /// A mark in numbers that could mean two things, and the way out.
    pub(crate) fn notation(self) -> Option<&'static str> {
        match self {
            UnreadableReason::DecimalComma => Some(
                "a decimal comma, or one between thousands; say which with `decimal` , or `decimal` .",
            ),
            UnreadableReason::Percent => {
                Some("a percent sign; write 12.5 or 0.125 for 12.5 %, the same in every row")
            }
            UnreadableReason::OtherMark => Some("another decimal mark than `decimal` says"),
            _ => None,
        }
    }

    /// The problem and the way out, as text to follow the position of a single cell or line.
    fn one(self) -> String {
        let notation = self.notation().unwrap_or_default();
        match self {
            UnreadableReason::Missing => {
                ": the value is missing; fill it in, or leave the row or the column out".to_owned()
            }
            UnreadableReason::NotANumber => ": not a number; every field must be a number".to_owned(),
            UnreadableReason::Outside => {
                ": an index is beyond the last column of the study".to_owned()
            }
            UnreadableReason::IndexZero => format!(": {INDEX_ZERO}"),
            UnreadableReason::NotLibsvm => ": not LIBSVM text, which is a label and then index:value with increasing indices from 1".to_owned(),
            UnreadableReason::Percent => format!(" has {notation}"),
            UnreadableReason::OtherMark => ": its decimal mark is not that of `decimal`".to_owned(),
            UnreadableReason::DecimalComma => format!(": {notation}"),
            UnreadableReason::Fields { has, wants, open } => format!(
                " has {has} fields but the first line has {wants}{}",
                match (open, has > wants) {
                    (true, _) => "; a quoted cell must end on its line",
                    (false, true) => "; a decimal comma adds one",
                    (false, false) => "",
                }
            ),
        }
    }

    /// The problem of several cells, as text to follow the columns and their counts.
    fn several(self) -> String {
        match (self, self.notation()) {
            (_, Some(notation)) => format!("numbers have {notation}"),
            (UnreadableReason::Missing, _) => {
                "values are missing; fill them in, or leave these rows or columns out".to_owned()
            }
            _ => "values are not numbers; every field must be a number".to_owned(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    /// The number of problems and the first one, by reason and column of the file.
    counted: BTreeMap<(u8, Option<usize>), (usize, Unreadable)>,
}

impl Problems {
    pub(crate) fn record(&mut self, found: Unreadable) {
        let key = (found.reason.rank(), found.column);
        self.counted.entry(key).or_insert((0, found)).0 += 1;
    }

    pub(crate) fn without_missing(mut self) -> Self {
        self.counted
            .retain(|_, (_, cell)| cell.reason != UnreadableReason::Missing);
        self
    }

    /// Keeps the problems of other columns.
    pub(crate) fn without_columns(mut self, columns: &[usize]) -> Self {
        let columns: HashSet<&usize> = columns.iter().collect();
        let other = |cell: &Unreadable| cell.named.is_none_or(|at| !columns.contains(&at));
        self.counted.retain(|_, (_, cell)| other(cell));
        self
    }

    pub(crate) fn first_line(&self) -> Option<usize> {
        self.counted.values().map(|(_, first)| first.line).min()
    }

    /// One sentence for each reason, without any value of a row; `called` gives the name of a column of the table.
    pub(crate) fn describe(&self, called: impl Fn(usize) -> String) -> Option<String> {
        let mut by_reason: BTreeMap<u8, Vec<&(usize, Unreadable)>> = BTreeMap::new();
        for ((reason, _), found) in &self.counted {
            by_reason.entry(*reason).or_default().push(found);
        }
        let column = |cell: &Unreadable| match (cell.column, cell.named) {
            (_, Some(at)) => Some(called(at)),
            (Some(column), None) => Some(format!("column {column}")),
            (None, None) => None,
        };
        let sentences: Vec<String> = by_reason
            .into_values()
            .filter_map(|found| {
                let (count, first) = found.iter().min_by_key(|(_, first)| first.line)?;
                let (line, reason) = (first.line, first.reason);
                let Some(place) = column(first) else {
                    let more = match count - 1 {
                        0 => String::new(),
                        more => format!(" (so have {more} lines more)"),
                    };
                    return Some(format!("line {line}{}{more}", reason.one()));
                };
                if found.iter().map(|(count, _)| count).sum::<usize>() == 1 {
                    return Some(format!("line {line}, {place}{}", reason.one()));
                }
                let named = found.iter().map(|(count, cell)| {
                    let column = column(cell).unwrap_or_default();
                    format!("{column}: {count}")
                });
                let columns =
                    first_few(named, MAX_NAMED, |more| format!(" and {more} columns more"));
                Some(format!(
                    "{columns} {} (the first in line {line})",
                    reason.several()
                ))
            })
            .collect();
        (!sentences.is_empty()).then(|| sentences.join("\n"))
    }
}
