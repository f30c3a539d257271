//! Selects the columns of a table and their order, by name.
//!
//! The selection depends only on the names and the number of columns. It is made before any value is read, and so
//! before anything is perturbed or charged.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use eigenveil_shared::{
    preprocess::Feature,
    wording::{MAX_NAMED, first_few},
};

use crate::{
    cells::{is_date, is_value, is_word, normal},
    encoding::LOST,
    error::{Error, Result},
    settings::{Header, Settings},
};

/// Largest number of characters of a name in a message.
const MAX_NAME_CHARACTERS_SHOWN: usize = 40;

/// The columns that a table must provide.
#[derive(Clone, Debug)]
pub struct ExpectedColumns {
    /// Where the features come from, for messages: `study`, `estimate` or `features file`.
    pub of: &'static str,
    /// Number of features p.
    pub dimension: usize,
    /// Names of the features, if they have names.
    pub names: Option<Vec<String>>,
    /// Whether the rows become reports: then no value may decide how the table is read.
    pub reports: bool,
    /// Whether several rows may be one person's: then what most rows have decides nothing, either.
    pub persons: bool,
    /// Whether a cell may be missing.
    pub missing_cells: bool,
}

impl ExpectedColumns {
    /// The columns for reports to a study of this dimension, with these names of its features.
    pub fn study(dimension: usize, names: Option<Vec<String>>) -> Self {
        Self {
            of: "study",
            dimension,
            names,
            reports: true,
            persons: false,
            missing_cells: false,
        }
    }

    /// These columns, with names in the form in which those of files are compared.
    pub(crate) fn in_normal_form(&self) -> Self {
        let names = self.names.iter().flatten();
        let names = names.map(|name| normal(name).into_owned()).collect();
        Self {
            names: self.names.is_some().then_some(names),
            ..*self
        }
    }

    /// The columns that a features file names, for commands without a study.
    pub fn features_file(features: &[Feature]) -> Self {
        Self {
            of: "features file",
            dimension: features.len(),
            names: Some(features.iter().map(|own| own.name.clone()).collect()),
            reports: false,
            persons: false,
            missing_cells: features.iter().any(|feature| feature.observed.is_some()),
        }
    }
}

/// The columns of a table, as found in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileColumns {
    /// Number of columns.
    pub(crate) count: usize,
    pub(crate) names: Option<Vec<String>>,
    /// The names are certainly names, not the values of a first row, so they may be shown.
    pub(crate) shown: bool,
}

/// Which columns of the file become the columns of the table.
#[derive(Debug, Default)]
pub(crate) struct ColumnMapping {
    /// Column of the file, from 0, for each column of the table.
    pub(crate) take: Vec<usize>,
    /// For each column of the table, the text for which it is 1 (otherwise 0); empty if all columns are numbers.
    pub(crate) categories: Vec<Option<String>>,
    /// Column of the file with the rows' labels.
    pub(crate) label: Option<usize>,
    pub(crate) names: Option<Vec<String>>,
    /// The names are certainly names, so messages may show them.
    pub(crate) shown: bool,
    pub(crate) notes: Vec<String>,
}

impl ColumnMapping {
    /// A column of the table, as the file calls it.
    pub(crate) fn column(&self, at: usize) -> String {
        let name = self.names.as_ref().filter(|_| self.shown);
        let name = name.map(|names| match self.category(at) {
            Some(category) => &names[at][..names[at].len() - category.len() - 1],
            None => names[at].as_str(),
        });
        column_called(self.take[at], name)
    }

    /// These columns of the table, the first few by name.
    pub(crate) fn listed(&self, columns: &[usize]) -> String {
        let columns = columns.iter().map(|&at| self.column(at));
        first_few(columns, MAX_NAMED, |more| format!(" and {more} more"))
    }

    /// The category for which a column of the table is 1.
    pub(crate) fn category(&self, at: usize) -> Option<&str> {
        self.categories.get(at)?.as_deref()
    }

    /// Whether all columns are taken in the file's order.
    pub(crate) fn is_identity(&self, count: usize) -> bool {
        self.take.len() == count && self.take.iter().enumerate().all(|(i, &at)| i == at)
    }
}

/// Maps the columns of the file to the expected ones; an error names the columns and what to do.
pub(crate) fn map_columns(
    found: FileColumns,
    how: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<ColumnMapping> {
    // Names are shown on the terminal.
    let bad = |c: char| c.is_control() || c == LOST;
    let unprintable = |name: &String| name.contains(bad);
    if let Some(at) = found.names.iter().flatten().position(unprintable) {
        return Err(Error::new(format!(
            "the name of column {} has a control character, or a byte that its encoding has not; rename it, or name the encoding with `encoding`",
            at + 1
        )));
    }
    let (mut chosen, mut numbered) = select(found, how)?;
    if let Some(features) = &how.features
        && (chosen.names.is_none() || numbered)
    {
        let names = features.iter().map(|feature| feature.name.clone());
        chosen.name_by_features(names.collect())?;
        numbered = false;
    }
    let Some(expected) = expected else {
        chosen.check_names(&[], true)?;
        return Ok(chosen);
    };
    let of = expected.of;
    match (&expected.names, &chosen.names) {
        (None, names) => {
            chosen.check_count(expected)?;
            chosen.check_names(&[], true)?;
            let listed = match names {
                Some(names) if chosen.shown => format!(": {}", list_names(names)),
                _ => String::new(),
            };
            chosen.notes.push(format!(
                "the {of}'s columns have no names: the file's columns are taken in the file's order{listed}"
            ));
            Ok(chosen)
        }
        (Some(expected_names), _) if how.by_position => {
            chosen.check_count(expected)?;
            let mut own_names = chosen.names.clone().unwrap_or_default();
            if own_names != *expected_names {
                let mut theirs = expected_names.clone();
                own_names.sort();
                theirs.sort();
                if own_names == theirs {
                    return Err(Error::new(format!(
                        "its columns are those of the {of} in another order, which `by_position` would mix up; leave `by_position` out: they are matched by name"
                    )));
                }
            }
            Ok(chosen.named("`by_position`", expected_names))
        }
        (Some(expected_names), None) => {
            chosen.check_count(expected)?;
            if how.header != Header::No {
                return Err(Error::new(format!(
                    "its columns have no names, those of the {of} are {}; name them with `features` FILE (one name a line, in the file's order), or give `by_position` if they are in the {of}'s order",
                    list_names(expected_names)
                )));
            }
            Ok(chosen.named("`header` no", expected_names))
        }
        (Some(expected_names), Some(_)) => match_by_name(chosen, numbered, expected_names, of),
    }
}

/// The columns that `keep` and `drop` leave, and whether their names are 0, 1, 2, …: what pandas writes for columns
/// without names.
fn select(found: FileColumns, how: &Settings) -> Result<(ColumnMapping, bool)> {
    // A column without a name gets the name that pandas would give it.
    let named = |(at, name): (usize, String)| match name.is_empty() {
        true => format!("Unnamed: {at}"),
        false => name,
    };
    let names: Option<Vec<String>> = found
        .names
        .map(|names| names.into_iter().enumerate().map(named).collect());
    // Regardless of a flag or the format: the first row of a file without names is easily taken for names.
    let row =
        |name: &String| is_date(name) || name.split([';', ',', '|', '\t']).any(could_be_a_cell);
    let mut is_shown = found.shown && !names.iter().flatten().any(row);
    let mut find = |name: &str, by: &str| -> Result<usize> {
        let at = match &names {
            Some(names) => names.iter().position(|own| *own == normal(name)),
            None => match name.parse::<usize>() {
                Ok(number) if (1..=found.count).contains(&number) => Some(number - 1),
                _ => None,
            },
        };
        // A flag that names a column of line 1 confirms that line 1 is a header, unless a row could contain that text
        // too.
        is_shown |= at.is_some() && names.is_some() && !is_value(name) && !is_index(name);
        at.ok_or_else(|| {
            Error::new(match &names {
                Some(_) => format!("it has no column named {name:?}, which {by} gives"),
                None => format!(
                    "its columns have no names: give {by} numbers from 1 to {}, not {name:?}",
                    found.count
                ),
            })
        })
    };
    let label = how.label.iter();
    let label = label.map(|label| find(&label.column, label.flag));
    let label = label.collect::<Result<Vec<_>>>()?.pop();
    let take: Vec<usize> = match (&how.keep, &how.drop) {
        (Some(keep), _) => {
            let keep_columns = keep.iter().map(|name| find(name, "`keep`"));
            keep_columns.collect::<Result<_>>()?
        }
        (None, drop) => {
            let dropped = drop.iter().flatten();
            let dropped = dropped.map(|name| find(name, "`drop`"));
            let mut dropped = dropped.collect::<Result<BTreeSet<usize>>>()?;
            dropped.extend(label);
            (0..found.count)
                .filter(|at| !dropped.contains(at))
                .collect()
        }
    };
    if take.is_empty() {
        return Err(Error::new("no column is left"));
    }
    if take.iter().collect::<BTreeSet<_>>().len() < take.len() {
        return Err(Error::new("`keep` names a column twice"));
    }
    // Columns named 0, 1, 2, … still count as numbered beside an index column, or if some are left out.
    let all = names.as_deref().unwrap_or_default();
    let named: Vec<&String> = all.iter().filter(|name| !is_index(name)).collect();
    let taken: Option<Vec<String>> = names
        .as_ref()
        .map(|names| take.iter().map(|&at| names[at].clone()).collect());
    let numbered = taken
        .as_deref()
        .is_some_and(|taken| is_numbering(taken) || is_numbering(&named));
    let selected = ColumnMapping {
        take,
        label,
        names: taken,
        shown: is_shown,
        ..ColumnMapping::default()
    };
    Ok((selected, numbered))
}

impl ColumnMapping {
    /// Refuses duplicate names, and a probable index column unless it is expected or the names may be values.
    fn check_names(&self, expected: &[String], names_for_sure: bool) -> Result<()> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        let mut seen = BTreeMap::new();
        for (&at, name) in self.take.iter().zip(names) {
            if let Some(before) = seen.insert(name, at) {
                let (first, second, name) = (before + 1, at + 1, shortened(name));
                return Err(Error::new(match self.shown {
                    true => format!(
                        "columns {first} and {second} are both named {name:?}; rename one of them"
                    ),
                    false => format!(
                        "columns {first} and {second} have the same name; rename one of them, or give `header` no if line 1 is a row"
                    ),
                }));
            }
        }
        let rest: Vec<&String> = names.iter().filter(|name| !is_index(name)).collect();
        let mut columns = self.take.iter().zip(names);
        match columns.find(|(_, name)| is_index(name) && !expected.contains(name)) {
            Some((at, name)) if names_for_sure || is_numbering(&rest) => {
                // The name given to a column without one may be shown too.
                let is_shown = self.shown || *name == format!("Unnamed: {at}");
                Err(Error::new(format!(
                    "{} is probably the index that pandas writes; leave it out with {} (or write the table with index=False), or give the column a name",
                    column_called(*at, is_shown.then_some(name.as_str())),
                    if is_shown {
                        drop_flag(&[name])
                    } else {
                        "`drop` and its name".to_owned()
                    }
                )))
            }
            _ => Ok(()),
        }
    }

    fn name_by_features(&mut self, names: Vec<String>) -> Result<()> {
        if names.len() != self.take.len() {
            return Err(Error::wrong_dimension(format!(
                "it has {} columns but the features file names {}; give a name for each column, or leave columns out with `drop`",
                self.take.len(),
                names.len()
            )));
        }
        (self.names, self.shown) = (Some(names), true);
        let note = "the columns are named by the features file, in its order";
        self.notes.push(note.to_owned());
        Ok(())
    }

    fn check_count(&self, expected: &ExpectedColumns) -> Result<()> {
        let (p, of) = (expected.dimension, expected.of);
        if self.take.len() == p {
            return Ok(());
        }
        let index = match &self.names {
            Some(names) if self.shown => names.iter().find(|name| is_index(name)),
            _ => None,
        };
        let hint = index.map_or_else(String::new, |name| {
            format!(
                "; column {name:?} is probably an index: leave it out with {}",
                drop_flag(&[name])
            )
        });
        Err(Error::wrong_dimension(format!(
            "it has {} columns but the {of} has {p} features; give the features of the {of} in its order{hint}",
            self.take.len(),
        )))
    }

    /// The mapping with the expected names, because of a flag.
    fn named(mut self, flag: &str, names: &[String]) -> Self {
        let listed = list_names(names);
        let note = format!("{flag}: the file's columns are read as {listed}");
        self.notes.push(note);
        (self.names, self.shown) = (Some(names.to_vec()), true);
        self
    }
}

/// Orders the columns as expected; the names must be the same.
fn match_by_name(
    mut chosen: ColumnMapping,
    numbered: bool,
    expected: &[String],
    of: &str,
) -> Result<ColumnMapping> {
    let names = chosen.names.clone().unwrap_or_default();
    let file_names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    // If most expected names are there the line is a header; otherwise it may be a row, which is never shown.
    let sources: Vec<_> = expected
        .iter()
        .map(|name| source_of(name, &file_names))
        .collect();
    let known = sources.iter().flatten().count();
    chosen.shown |= 2 * known > expected.len();
    chosen.check_names(expected, chosen.shown || known > 0)?;
    let lacking = |name: &&String| source_of(name, &file_names).is_none();
    let missing: Vec<&String> = expected.iter().filter(lacking).collect();
    let used: BTreeSet<&str> = sources.iter().flatten().map(|(name, _)| *name).collect();
    let unused = |name: &&String| !used.contains(name.as_str());
    let more: Vec<&String> = names.iter().filter(unused).collect();
    if missing.is_empty() && more.is_empty() {
        if file_names.len() == expected.len() && names != expected {
            chosen.notes.push(format!(
                "the file's columns are in another order than the {of}'s; they were matched by name"
            ));
        }
        let encoded = sources.iter().flatten().filter(|source| source.1.is_some());
        let encoded: BTreeSet<&str> = encoded.map(|(name, _)| *name).collect();
        if !encoded.is_empty() {
            chosen.notes.push(format!(
                "read as 0 and 1 for the categories of the {of}: {}",
                list_names(&encoded.into_iter().collect::<Vec<_>>())
            ));
        }
        let places: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
        let (take, categories) = sources
            .iter()
            .flatten()
            .filter_map(|&(name, category)| {
                let at = *places.get(name)?;
                Some((chosen.take[at], category.map(str::to_owned)))
            })
            .unzip();
        return Ok(ColumnMapping {
            take,
            categories,
            names: Some(expected.to_vec()),
            shown: true,
            ..chosen
        });
    }
    if numbered {
        return Err(Error::new(format!(
            "its columns are named 0, 1, 2, …, as pandas does with columns without names, those of the {of} are {}; name them with `features` FILE (one name a line, in the file's order), or give `by_position` if they are in the {of}'s order",
            list_names(expected)
        )));
    }
    if !chosen.shown && known == 0 {
        return Err(Error::new(format!(
            "its header names none of the {of}'s columns, which are {}; give `header` no if line 1 is the first row and the columns are in this order, or write the names there",
            list_names(expected)
        )));
    }
    Err(other_columns(&chosen, &missing, &more, expected, of))
}

/// The error for columns that are `missing`, and for `more` that are not expected.
fn other_columns(
    chosen: &ColumnMapping,
    missing: &[&String],
    more: &[&String],
    expected: &[String],
    of: &str,
) -> Error {
    let mut differences = Vec::new();
    if !missing.is_empty() {
        differences.push(format!("it lacks {}", list_names(missing)));
    }
    if !more.is_empty() && chosen.shown {
        differences.push(format!("the {of} does not have {}", list_names(more)));
    } else if !more.is_empty() {
        differences.push(format!(
            "{} of its columns the {of} does not have",
            more.len()
        ));
    }
    let mut ways = Vec::new();
    if !more.is_empty() && more.len() <= MAX_NAMED && chosen.shown {
        ways.push(format!("leave out the others with {}", drop_flag(more)));
    } else if !more.is_empty() {
        ways.push("select the right columns with `keep`".to_owned());
    }
    if !missing.is_empty() {
        ways.push(format!(
            "name the columns as the {of} does ({})",
            list_names(expected)
        ));
    }
    Error::new(format!(
        "its columns are not those of the {of}: {}; {}",
        differences.join(", and "),
        ways.join(", and ")
    ))
}

/// Whether these are 0, 1, 2, …, in this order, at least one.
pub(crate) fn is_numbering(names: &[impl AsRef<str>]) -> bool {
    let mut numbered = names.iter().enumerate();
    !names.is_empty() && numbered.all(|(at, name)| name.as_ref() == at.to_string())
}

/// Names that pandas gives to an index column, in CSV and in Parquet.
fn is_index(name: &str) -> bool {
    name.strip_prefix("Unnamed: ")
        .is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
        || name.starts_with("__index_level_")
}

/// `drop` with these names, as a shell takes it.
fn drop_flag(names: &[impl AsRef<str>]) -> String {
    with_names("drop", names)
}

/// A field with these names, as a shell takes them.
pub(crate) fn with_names(field: &str, names: &[impl AsRef<str>]) -> String {
    let cells = names.iter().map(|name| match name.as_ref() {
        name if name.contains([',', '"']) => format!("\"{}\"", name.replace('"', "\"\"")),
        name => name.to_owned(),
    });
    let list = cells.collect::<Vec<_>>().join(",");
    // A name such as -x would be read as a flag.
    let between = if list.starts_with('-') { '=' } else { ' ' };
    format!("`{field}`{between}{}", shell_quoted(&list))
}

/// A word as a shell takes it.
fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.,/".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Whether a row could have this piece of a name, in a file whose columns something else separates, too.
fn could_be_a_cell(piece: &str) -> bool {
    let cell = piece.trim_matches(|c: char| c == '%' || c.is_whitespace());
    !cell.is_empty() && is_value(cell) && !is_word(cell)
}

/// A column of the file, from 0, and its name where it has one, for a message.
pub(crate) fn column_called(column: usize, name: Option<&str>) -> String {
    let number = column + 1;
    match name {
        Some(name) => format!("column {number} ({name})"),
        None => format!("column {number}"),
    }
}

/// The names for a message, a line or two at most.
pub(crate) fn list_names(names: &[impl AsRef<str>]) -> String {
    let names = names.iter();
    let names = names.map(|name| format!("{:?}", shortened(name.as_ref())));
    first_few(names, MAX_NAMED, |more| format!(" and {more} more"))
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME_CHARACTERS_SHOWN) {
        None => name.to_owned(),
        Some((end, _)) => format!("{}…", &name[..end]),
    }
}

/// The column that a feature is read from, and its category if the column is text: `sex` and `f` for `sex=f`.
pub(crate) fn source_of<'a>(
    name: &'a str,
    own: &BTreeSet<&str>,
) -> Option<(&'a str, Option<&'a str>)> {
    if own.contains(name) {
        return Some((name, None));
    }
    name.match_indices('=')
        .map(|(at, _)| (&name[..at], &name[at + 1..]))
        .find(|(column, _)| own.contains(*column))
        .map(|(column, category)| (column, Some(category)))
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;
    use crate::testing::{assert_says, strings, study, with, without};

    fn found(names: &[&str], shown: bool) -> FileColumns {
        FileColumns {
            count: names.len(),
            names: Some(strings(names)),
            shown,
        }
    }

    fn unnamed(count: usize) -> FileColumns {
        FileColumns {
            count,
            ..FileColumns::default()
        }
    }

    fn default_mapping(found: FileColumns, expected: &ExpectedColumns) -> Result<ColumnMapping> {
        map_columns(found, &Settings::default(), Some(expected))
    }

    fn by_position() -> Settings {
        Settings {
            by_position: true,
            ..Settings::default()
        }
    }

    #[test]
    fn names_with_control_characters_are_refused() {
        let names = found(&["a\u{1b}[2J", "b"], true);
        let error = map_columns(names, &Settings::default(), None).unwrap_err();
        assert_says(&error, &["column 1 has a control character"], &[]);
        let lost = map_columns(
            found(&["a", "gr\u{fffd}n"], true),
            &Settings::default(),
            None,
        );
        assert_says(&lost.unwrap_err(), &["column 2", "`encoding`"], &["gr"]);
    }

    #[test]
    fn columns_are_not_duplicated_or_reordered_by_position() {
        let twice = Settings {
            keep: Some(strings(&["a", "a"])),
            ..by_position()
        };
        let expected = study(Some(&["a", "b"]), 2);
        let mapped = |names: &[&str], how| map_columns(found(names, true), how, Some(&expected));
        assert_says(&mapped(&["a", "b"], &twice).unwrap_err(), &["twice"], &[]);
        let by_position = by_position();
        let error = mapped(&["b", "a"], &by_position).unwrap_err();
        assert_says(&error, &["another order"], &[]);
        assert!(mapped(&["x", "y"], &by_position).is_ok());
    }

    /// One expected name in a line does not make its other cells names.
    #[test]
    fn a_first_line_that_may_be_a_row_is_not_shown() {
        let expected = study(Some(&["a", "b", "c"]), 3);
        let error = default_mapping(found(&["a", "17.25", "99.5"], false), &expected);
        let error = error.unwrap_err();
        assert_says(&error, &["lacks \"b\""], &["17.25"]);
        // Read with another mark between the columns, or in percent.
        for row in ["17.25;99.5;female", "17.25 | 3", "17.25%"] {
            let error = default_mapping(found(&[row], false), &expected).unwrap_err();
            assert_says(&error, &[], &["17.25"]);
        }
    }

    #[test]
    fn columns_are_matched_by_name() {
        let expected = study(Some(&["a", "b", "c"]), 3);
        let same = default_mapping(found(&["a", "b", "c"], false), &expected).unwrap();
        assert!(same.is_identity(3) && same.notes.is_empty());
        let moved = default_mapping(found(&["c", "a", "b"], false), &expected).unwrap();
        assert_eq!(moved.take, [1, 2, 0]);
        assert_eq!(moved.names.unwrap(), ["a", "b", "c"]);
        assert!(moved.notes[0].contains("matched by name"));
        let more = found(&["id", "c", "a", "b"], false);
        let with = map_columns(more, &without(&["id"]), Some(&expected)).unwrap();
        assert_eq!(with.take, [2, 3, 1]);
    }

    #[test]
    fn errors_name_the_difference_and_the_remedy() {
        let expected = study(Some(&["a", "b", "c"]), 3);
        let level = "__index_level_0__";
        for (names, words) in [
            (&["a", "b"][..], &["lacks \"c\"", "name the columns"][..]),
            (
                &["a", "b", "c", "target, all"],
                &["does not have \"target, all\"", "`drop` '\"target, all\"'"],
            ),
            (&["a", "b", "c", "-x"], &["`drop`=-x"]),
            (&["a", "b", "C"], &["lacks \"c\"", "\"C\"", "`drop` C"]),
            (&["a", "b", "b", "c"], &["columns 2 and 3", "\"b\""]),
            (&["", "a", "b", "c"], &["index", "`drop` 'Unnamed: 0'"]),
            (
                &["a", "b", "c", level],
                &["index", "`drop` __index_level_0__"],
            ),
            (&["", "0", "1", "2"], &["index", "`drop` 'Unnamed: 0'"]),
            (&["0", "1", "2"], &["pandas", "`features`", "`by_position`"]),
        ] {
            let error = default_mapping(found(names, false), &expected).unwrap_err();
            assert_says(&error, words, &[]);
        }
    }

    /// A first line that may be a row is not shown.
    #[test]
    fn messages_contain_no_values() {
        let expected = study(Some(&["a", "b"]), 2);
        for line in [
            &["17.25", "secret"][..],
            &["", "17.25"],
            &[""],
            &["secret", "secret"],
            &["secret"],
        ] {
            let error = default_mapping(found(line, false), &expected).unwrap_err();
            assert_says(&error, &["`header` no"], &["secret", "17.25"]);
        }
        // Nor one with a number or a day, even if `header` yes says that it has names.
        for cell in ["17.25", "-1e5", "<0.5", "1,5", "2024-03-01"] {
            for line in [&[cell, "secret"][..], &["a", "secret", cell]] {
                let error = default_mapping(found(line, true), &expected).unwrap_err();
                assert_says(&error, &["\"a\""], &["secret", cell]);
            }
        }
        let mapping = default_mapping(found(&["secret", "x"], false), &study(None, 2)).unwrap();
        assert!(!mapping.notes[0].contains("secret"));
    }

    #[test]
    fn an_index_in_a_line_that_may_be_a_row_is_not_shown() {
        for name in ["Unnamed: 8641", "__index_level_8641"] {
            for (shown, drop) in [(false, "`drop` and its name"), (true, "8641")] {
                let line = found(&["a", name], shown);
                let error = map_columns(line, &Settings::default(), None).unwrap_err();
                assert_says(&error, &["column 2", drop], &[]);
                assert_eq!(error.to_string().contains("8641"), shown, "{error}");
            }
        }
    }

    /// `drop 1` may mean the first column: that a cell of line 1 is 1 does not make the line a header.
    #[test]
    fn a_flag_with_a_value_does_not_show_the_first_line() {
        let expected = study(Some(&["a", "b"]), 2);
        for (flag, cell) in [("1", "1"), ("NA", "NA"), ("<5", "<5"), ("Unnamed: 0", "")] {
            let line = found(&[cell, "SECRETNAME", "8641.25"], false);
            let error = map_columns(line, &without(&[flag]), Some(&expected));
            let error = error.unwrap_err();
            assert_says(&error, &[], &["SECRET", "8641"]);
        }
        let line = found(&["id", "x", "b"], false);
        let error = map_columns(line, &without(&["id"]), Some(&expected)).unwrap_err();
        assert!(error.to_string().contains("does not have \"x\""), "{error}");
    }

    #[test]
    fn tables_and_studies_without_names() {
        let (named, plain) = (study(Some(&["a", "b"]), 2), study(None, 2));
        let error = default_mapping(unnamed(2), &named).unwrap_err();
        assert_says(&error, &["`features`", "`by_position`"], &[]);
        let by_position = by_position();
        let taken = map_columns(unnamed(2), &by_position, Some(&named)).unwrap();
        assert_eq!(taken.names.unwrap(), ["a", "b"]);
        let renamed = map_columns(found(&["x", "y"], true), &by_position, Some(&named)).unwrap();
        assert_eq!(renamed.take, [0, 1]);
        let taken = map_columns(unnamed(2), &with(Header::No), Some(&named)).unwrap();
        assert!(taken.notes[0].contains("`header` no"));
        assert!(default_mapping(unnamed(2), &plain).unwrap().notes[0].contains("no names"));
        let listed = default_mapping(found(&["x", "y"], true), &plain).unwrap();
        assert!(listed.notes[0].contains("the file's order: \"x\", \"y\""));
        for expected in [&named, &plain] {
            let error = map_columns(unnamed(3), &by_position, Some(expected)).unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        }
        // Numbers from 1 where there are no names.
        let left = map_columns(unnamed(3), &without(&["1"]), None).unwrap();
        assert_eq!(left.take, [1, 2]);
        for bad in ["0", "4", "a"] {
            assert!(map_columns(unnamed(3), &without(&[bad]), None).is_err());
        }
    }

    #[test]
    fn a_features_file_names_unnamed_columns() {
        let features = ["b", "a"].map(|name| Feature::new(name, 0.0, 1.0));
        let settings = Settings {
            features: Some(features.to_vec()),
            ..Settings::default()
        };
        let expected = study(Some(&["a", "b"]), 2);
        for found in [unnamed(2), found(&["0", "1"], true)] {
            let named = map_columns(found, &settings, Some(&expected)).unwrap();
            assert_eq!(named.take, [1, 0]);
        }
        let other = study(Some(&["a", "c"]), 2);
        let error = map_columns(found(&["0", "1"], true), &settings, Some(&other)).unwrap_err();
        assert_says(
            &error,
            &["it lacks \"c\"", "does not have \"b\""],
            &["0, 1"],
        );
        // Names that are there stay.
        let mapped = map_columns(found(&["a", "b"], true), &settings, Some(&expected)).unwrap();
        assert_eq!(mapped.take, [0, 1]);
        assert!(map_columns(unnamed(3), &settings, None).is_err());
        // pandas' numbers stay numbers when some of them, or an index, are left out.
        for (names, left) in [
            (["0", "1", "2"], "0"),
            (["Unnamed: 0", "0", "1"], "Unnamed: 0"),
        ] {
            let settings = Settings {
                features: settings.features.clone(),
                ..without(&[left])
            };
            let taken = map_columns(found(&names, false), &settings, None).unwrap();
            assert_eq!(taken.take, [1, 2]);
            assert_eq!(taken.names.unwrap(), ["b", "a"]);
        }
    }
}
