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
    categories::Category,
    cells::{is_date, is_value, is_word_value, normalized},
    encoding::REPLACEMENT,
    error::{Error, Result},
    settings::{Header, Settings},
};

/// The source of features that a features file gives; where they are a study's or an estimate's, such a file only names
/// columns that have no names.
const FEATURES_FILE: &str = "features file";
/// Largest number of characters of a name in a message.
const MAX_NAME_CHARACTERS_SHOWN: usize = 40;
/// Maximum number of a column's texts in a message.
const MAX_TEXTS_NAMED: usize = 4;

/// The columns that a table must provide.
#[derive(Clone, Debug)]
pub struct ExpectedColumns {
    /// The source of the features, for messages: `study`, `estimate` or `features file`.
    pub source: &'static str,
    /// Number of features p.
    pub dimension: usize,
    /// Names of the features, if they have names.
    pub names: Option<Vec<String>>,
    /// Whether the rows become reports: then no value may decide how the table is read.
    pub reports: bool,
    /// Whether several rows may belong to one person: then the majority of rows must not decide either.
    pub persons: bool,
    /// Whether the rows are a site's, who is told what cannot be used and decides: then nothing is refused because of a
    /// value.
    pub site: bool,
    /// Whether a cell may be missing.
    pub missing_cells: bool,
    /// Whether a text that is none of a column's categories is another one, as in a preparation: no problem, and 0 for
    /// each of them. Not where a feature has the only two texts of its column.
    pub other_categories: bool,
}

impl ExpectedColumns {
    /// The columns for reports to a study of this dimension, with these names of its features.
    pub fn study(dimension: usize, names: Option<Vec<String>>) -> Self {
        Self {
            source: "study",
            dimension,
            names,
            reports: true,
            persons: false,
            site: false,
            missing_cells: false,
            other_categories: false,
        }
    }

    /// Whether most rows or most cells of a column may refuse the table.
    pub(crate) fn by_majority(&self) -> bool {
        !(self.persons || self.site)
    }

    /// These columns, with normalized names.
    pub(crate) fn with_normalized_names(&self) -> Self {
        let names = self.names.iter().flatten();
        let names = names.map(|name| normalized(name).into_owned()).collect();
        Self {
            names: self.names.is_some().then_some(names),
            ..*self
        }
    }

    /// The columns that a features file names, for commands without a study.
    pub fn features_file(features: &[Feature]) -> Self {
        Self {
            source: FEATURES_FILE,
            dimension: features.len(),
            names: Some(
                features
                    .iter()
                    .map(|feature| feature.name.clone())
                    .collect(),
            ),
            reports: false,
            persons: false,
            site: false,
            missing_cells: features.iter().any(|feature| feature.observed.is_some()),
            other_categories: false,
        }
    }
}

/// The columns of a table, as found in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileColumns {
    /// Number of columns.
    pub(crate) count: usize,
    pub(crate) names: Option<Vec<String>>,
    /// Whether the names are certainly names rather than values of a first row, so that messages may show them.
    pub(crate) names_may_be_shown: bool,
}

/// The columns of the file that become the columns of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnMapping {
    /// Column of the file, from 0, for each column of the table.
    pub(crate) file_columns: Vec<usize>,
    /// For each column of the table, the text for which it is 1 (otherwise 0); empty if all columns are numbers.
    pub(crate) categories: Vec<Option<Category>>,
    /// Column of the file with the rows' labels.
    pub(crate) label: Option<usize>,
    pub(crate) names: Option<Vec<String>>,
    /// Whether the names are certainly names, so that messages may show them.
    pub(crate) names_may_be_shown: bool,
    pub(crate) notes: Vec<String>,
}

impl ColumnMapping {
    /// A column of the table, with its name in the file.
    pub(crate) fn column(&self, index: usize) -> String {
        let name = self.names.as_ref().filter(|_| self.names_may_be_shown);
        let name = name.map(|names| match self.category(index) {
            Some(category) => &names[index][..names[index].len() - category.suffix().len() - 1],
            None => names[index].as_str(),
        });
        column_label(self.file_columns[index], name)
    }

    /// These columns of the table, the first few by name.
    pub(crate) fn listed(&self, columns: &[usize]) -> String {
        let columns = columns.iter().map(|&index| self.column(index));
        first_few(columns, MAX_NAMED, |more| format!(" and {more} more"))
    }

    /// The category for which a column of the table is 1.
    pub(crate) fn category(&self, index: usize) -> Option<&Category> {
        self.categories.get(index)?.as_ref()
    }

    /// Whether these are all columns, in the file's order.
    pub(crate) fn is_identity(&self, count: usize) -> bool {
        self.file_columns.len() == count
            && self
                .file_columns
                .iter()
                .enumerate()
                .all(|(i, &index)| i == index)
    }
}

/// Maps the columns of the file to the expected ones; an error names the columns and what to do.
pub(crate) fn map_columns(
    in_file: FileColumns,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<ColumnMapping> {
    // Names are printed to the terminal.
    let is_unprintable = |c: char| c.is_control() || c == REPLACEMENT;
    let has_unprintable = |name: &String| name.contains(is_unprintable);
    if let Some(index) = in_file.names.iter().flatten().position(has_unprintable) {
        return Err(Error::new(format!(
            "the name of column {} has a control character, or a byte that is invalid in its encoding; rename it, or name the encoding with `encoding`",
            index + 1
        )));
    }
    let (mut chosen, mut numbered) = select(in_file, settings, expected)?;
    if let Some(features) = &settings.features {
        if chosen.names.is_none() || numbered {
            let names = features.iter().map(|feature| feature.name.clone());
            chosen.name_by_features(names.collect())?;
            numbered = false;
        } else if expected.is_some_and(|expected| expected.source != FEATURES_FILE) {
            return Err(Error::new(
                "`features` has no effect: its columns have names; leave it out",
            ));
        }
    }
    let Some(expected) = expected else {
        chosen.check_names(&[], true)?;
        return Ok(chosen);
    };
    let source = expected.source;
    match (&expected.names, &chosen.names) {
        (None, names) => {
            chosen.check_count(expected)?;
            chosen.check_names(&[], true)?;
            let listed = match names {
                Some(names) if chosen.names_may_be_shown => format!(": {}", list_names(names)),
                _ => String::new(),
            };
            chosen.notes.push(format!(
                "the {source}'s columns have no names: the file's columns are taken in the file's order{listed}"
            ));
            Ok(chosen)
        }
        (Some(expected_names), _) if settings.by_position => {
            chosen.check_count(expected)?;
            let mut file_names = chosen.names.clone().unwrap_or_default();
            if file_names != *expected_names {
                let mut expected_sorted = expected_names.clone();
                file_names.sort();
                expected_sorted.sort();
                if file_names == expected_sorted {
                    return Err(Error::new(format!(
                        "its columns are those of the {source} in another order, which `by_position` would mix up; omit `by_position`: they are matched by name"
                    )));
                }
            }
            Ok(chosen.with_expected_names("`by_position`", expected_names))
        }
        (Some(expected_names), None) => {
            chosen.check_count(expected)?;
            if settings.header != Header::No {
                return Err(Error::new(format!(
                    "its columns have no names, but those of the {source} are {}; name them with `features` FILE (one name per line, in the file's order), or give `by_position` if they are in the {source}'s order",
                    list_names(expected_names)
                )));
            }
            Ok(chosen.with_expected_names("`header` no", expected_names))
        }
        (Some(names), Some(_)) => match_by_name(chosen, numbered, names, expected),
    }
}

/// The columns that `keep` and `drop` select, and whether their names are 0, 1, 2, …, as pandas writes for columns
/// without names.
fn select(
    in_file: FileColumns,
    settings: &Settings,
    expected: Option<&ExpectedColumns>,
) -> Result<(ColumnMapping, bool)> {
    // A column without a name gets the name that pandas would give it.
    let named = |(index, name): (usize, String)| match name.is_empty() {
        true => format!("Unnamed: {index}"),
        false => name,
    };
    let names: Option<Vec<String>> = in_file
        .names
        .map(|names| names.into_iter().enumerate().map(named).collect());
    // This check ignores flags and format, because a first row is easily mistaken for names.
    let may_be_value =
        |name: &String| is_date(name) || name.split([';', ',', '|', '\t']).any(could_be_a_cell);
    let mut is_shown = in_file.names_may_be_shown && !names.iter().flatten().any(may_be_value);
    let mut find = |name: &str, field: &str| -> Result<usize> {
        let index = match &names {
            Some(names) => names
                .iter()
                .position(|file_name| *file_name == normalized(name)),
            None => match name.parse::<usize>() {
                Ok(number) if (1..=in_file.count).contains(&number) => Some(number - 1),
                _ => None,
            },
        };
        // A flag that names a column of line 1 confirms that line 1 is a header, unless a row could contain that text
        // too.
        is_shown |= index.is_some() && names.is_some() && !is_value(name) && !is_index(name);
        index.ok_or_else(|| {
            Error::new(match &names {
                Some(_) => format!("it has no column named {name:?}, which {field} gives"),
                None => format!(
                    "its columns have no names: give {field} numbers from 1 to {}, not {name:?}",
                    in_file.count
                ),
            })
        })
    };
    let label = settings.label.iter();
    let label = label.map(|label| find(&label.column, label.flag));
    let label = label.collect::<Result<Vec<_>>>()?.pop();
    let file_columns: Vec<usize> = match (&settings.keep, &settings.drop) {
        (Some(keep), _) => {
            let keep_columns = keep.iter().map(|name| find(name, "`keep`"));
            keep_columns.collect::<Result<_>>()?
        }
        (None, drop) => {
            let dropped = drop.iter().flatten();
            let dropped = dropped.map(|name| find(name, "`drop`"));
            let mut dropped = dropped.collect::<Result<BTreeSet<usize>>>()?;
            // A label may be a feature as well, but not whose row it is or how much that counts.
            let features = expected.filter(|expected| !expected.reports);
            let features = features.and_then(|expected| expected.names.as_ref());
            let is_feature = |index: &usize| {
                let own_names = names.as_ref().map(|names| names[*index].as_str());
                let own_names = BTreeSet::from_iter(own_names);
                let mut features = features.into_iter().flatten();
                features.any(|feature| source_of(feature, &own_names).is_some())
            };
            dropped.extend(label.filter(|index| !is_feature(index)));
            (0..in_file.count)
                .filter(|index| !dropped.contains(index))
                .collect()
        }
    };
    if file_columns.is_empty() {
        return Err(Error::new("no column is left"));
    }
    if file_columns.iter().collect::<BTreeSet<_>>().len() < file_columns.len() {
        return Err(Error::new("`keep` names a column twice"));
    }
    // Columns named 0, 1, 2, … still count as numbered beside an index column, or if some of them are left out.
    let all = names.as_deref().unwrap_or_default();
    let named: Vec<&String> = all.iter().filter(|name| !is_index(name)).collect();
    let selected_names: Option<Vec<String>> = names.as_ref().map(|names| {
        file_columns
            .iter()
            .map(|&index| names[index].clone())
            .collect()
    });
    let numbered = selected_names
        .as_deref()
        .is_some_and(|names| is_numbering(names) || is_numbering(&named));
    let selected = ColumnMapping {
        file_columns,
        label,
        names: selected_names,
        names_may_be_shown: is_shown,
        ..ColumnMapping::default()
    };
    Ok((selected, numbered))
}

impl ColumnMapping {
    /// Refuses duplicate names, and a probable index column unless it is expected or the names may be values.
    fn check_names(&self, expected: &[String], names_are_certain: bool) -> Result<()> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        let mut first_index = BTreeMap::new();
        for (&index, name) in self.file_columns.iter().zip(names) {
            if let Some(earlier) = first_index.insert(name, index) {
                let (first, second, name) = (earlier + 1, index + 1, shortened(name));
                return Err(Error::new(match self.names_may_be_shown {
                    true => format!(
                        "columns {first} and {second} are both named {name:?}; rename one of them"
                    ),
                    false => format!(
                        "columns {first} and {second} have the same name; rename one of them, or give `header` no if line 1 is a row"
                    ),
                }));
            }
        }
        let named: Vec<&String> = names.iter().filter(|name| !is_index(name)).collect();
        let mut columns = self.file_columns.iter().zip(names);
        match columns.find(|(_, name)| is_index(name) && !expected.contains(name)) {
            Some((index, name)) if names_are_certain || is_numbering(&named) => {
                // The name given to a column without a name may be shown, too.
                let is_shown = self.names_may_be_shown || *name == format!("Unnamed: {index}");
                Err(Error::new(format!(
                    "{} is probably the index that pandas writes; leave it out with {} (or write the table with index=False), or give the column a name",
                    column_label(*index, is_shown.then_some(name.as_str())),
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
        if names.len() != self.file_columns.len() {
            return Err(Error::wrong_dimension(format!(
                "it has {} columns but the features file names {}; give a name for each column, or leave columns out with `drop`",
                self.file_columns.len(),
                names.len()
            )));
        }
        (self.names, self.names_may_be_shown) = (Some(names), true);
        let note = "the columns are named by the features file, in its order";
        self.notes.push(note.to_owned());
        Ok(())
    }

    fn check_count(&self, expected: &ExpectedColumns) -> Result<()> {
        let (p, source) = (expected.dimension, expected.source);
        if self.file_columns.len() == p {
            return Ok(());
        }
        let index = match &self.names {
            Some(names) if self.names_may_be_shown => names.iter().find(|name| is_index(name)),
            _ => None,
        };
        let hint = index.map_or_else(String::new, |name| {
            format!(
                "; column {name:?} is probably an index: leave it out with {}",
                drop_flag(&[name])
            )
        });
        Err(Error::wrong_dimension(format!(
            "it has {} columns but the {source} has {p} features; give the features of the {source} in its order{hint}",
            self.file_columns.len(),
        )))
    }

    /// Gives the columns the expected names, as a flag requires.
    fn with_expected_names(mut self, flag: &str, names: &[String]) -> Self {
        let listed = list_names(names);
        let note = format!("{flag}: the file's columns are read as {listed}");
        self.notes.push(note);
        (self.names, self.names_may_be_shown) = (Some(names.to_vec()), true);
        self
    }
}

/// Orders the columns as expected; the names must be the same.
fn match_by_name(
    mut chosen: ColumnMapping,
    numbered: bool,
    expected: &[String],
    &ExpectedColumns {
        source, reports, ..
    }: &ExpectedColumns,
) -> Result<ColumnMapping> {
    let names = chosen.names.clone().unwrap_or_default();
    let file_names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    // If most expected names are present, the line is a header; otherwise it may be a row, which is never shown.
    let sources: Vec<_> = expected
        .iter()
        .map(|name| source_of(name, &file_names))
        .collect();
    let matched = sources.iter().flatten().count();
    chosen.names_may_be_shown |= 2 * matched > expected.len();
    chosen.check_names(expected, chosen.names_may_be_shown || matched > 0)?;
    let is_missing = |name: &&String| source_of(name, &file_names).is_none();
    let missing: Vec<&String> = expected.iter().filter(is_missing).collect();
    let used: BTreeSet<&str> = sources.iter().flatten().map(|(name, _)| *name).collect();
    let is_extra = |name: &&String| !used.contains(name.as_str());
    let extra: Vec<&String> = names.iter().filter(is_extra).collect();
    if missing.is_empty() && extra.is_empty() {
        if file_names.len() == expected.len() && names != expected {
            chosen.notes.push(format!(
                "the file's columns are in another order than the {source}'s; they were matched by name"
            ));
        }
        let encoded = sources
            .iter()
            .flatten()
            .filter(|(_, category)| category.is_some());
        let encoded: BTreeSet<&str> = encoded.map(|(name, _)| *name).collect();
        if !encoded.is_empty() {
            chosen.notes.push(format!(
                "read as 0 and 1 for the categories of the {source}: {}",
                list_names(&encoded.into_iter().collect::<Vec<_>>())
            ));
        }
        let positions: HashMap<&str, usize> = names.iter().map(String::as_str).zip(0..).collect();
        let mut features_of: HashMap<&str, usize> = HashMap::new();
        for &(name, _) in sources.iter().flatten() {
            *features_of.entry(name).or_default() += 1;
        }
        let (file_columns, categories) = sources
            .iter()
            .flatten()
            .filter_map(|&(name, category)| {
                let index = *positions.get(name)?;
                let alone = features_of.get(name) == Some(&1);
                let category = category.map(|text| Category::parse(text, alone));
                Some((chosen.file_columns[index], category))
            })
            .unzip();
        return Ok(ColumnMapping {
            file_columns,
            categories,
            names: Some(expected.to_vec()),
            names_may_be_shown: true,
            ..chosen
        });
    }
    if numbered {
        return Err(Error::new(format!(
            "its columns have pandas' default names 0, 1, 2, …, but those of the {source} are {}; name them with `features` FILE (one name per line, in the file's order), or give `by_position` if they are in the {source}'s order",
            list_names(expected)
        )));
    }
    if !chosen.names_may_be_shown && matched == 0 {
        return Err(Error::new(format!(
            "its header names none of the {source}'s columns, which are {}; give `header` no if line 1 is the first row and the columns are in this order, or write the names there",
            list_names(expected)
        )));
    }
    let (missing, extra) = (&missing[..], &extra[..]);
    Err(other_columns(
        &chosen,
        (missing, extra),
        expected,
        (source, reports),
    ))
}

/// The error for `missing` columns, and for `extra` ones that are not expected.
fn other_columns(
    chosen: &ColumnMapping,
    (missing, extra): (&[&String], &[&String]),
    expected: &[String],
    (source, reports): (&str, bool),
) -> Error {
    let mut differences = Vec::new();
    if !missing.is_empty() {
        differences.push(format!("it lacks {}", list_columns(missing)));
    }
    if !extra.is_empty() && chosen.names_may_be_shown {
        differences.push(format!("the {source} does not have {}", list_names(extra)));
    } else if !extra.is_empty() {
        differences.push(format!("the {source} lacks {} of its columns", extra.len()));
    }
    let mut ways_out = Vec::new();
    if !extra.is_empty() && extra.len() <= MAX_NAMED && chosen.names_may_be_shown {
        let persons = match reports {
            true => {
                " (or name one that says whose a row is with `person`: several rows of a person then make one report)"
            }
            false => "",
        };
        ways_out.push(format!(
            "leave out the others with {}{persons}",
            drop_flag(extra)
        ));
    } else if !extra.is_empty() {
        ways_out.push("select the right columns with `keep`".to_owned());
    }
    if !missing.is_empty() {
        ways_out.push(format!(
            "name the columns as the {source} does ({})",
            list_columns(expected)
        ));
    }
    Error::new(format!(
        "its columns are not those of the {source}: {}; {}",
        differences.join(", and "),
        ways_out.join(", and ")
    ))
}

/// Whether the names are 0, 1, 2, …, in this order, and not empty.
pub(crate) fn is_numbering(names: &[impl AsRef<str>]) -> bool {
    let mut numbered = names.iter().enumerate();
    !names.is_empty() && numbered.all(|(index, name)| name.as_ref() == index.to_string())
}

/// Names that pandas gives to an index column, in CSV and in Parquet.
fn is_index(name: &str) -> bool {
    name.strip_prefix("Unnamed: ")
        .is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
        || name.starts_with("__index_level_")
}

/// `drop` with these names, as a shell takes it.
fn drop_flag(names: &[impl AsRef<str>]) -> String {
    field_with_names("drop", names)
}

/// A field with these names, as a shell takes them.
pub(crate) fn field_with_names(field: &str, names: &[impl AsRef<str>]) -> String {
    let cells = names.iter().map(|name| match name.as_ref() {
        name if name.contains([',', '"']) => format!("\"{}\"", name.replace('"', "\"\"")),
        name => name.to_owned(),
    });
    let list = cells.collect::<Vec<_>>().join(",");
    // A name such as -x would be read as a flag.
    let separator = if list.starts_with('-') { '=' } else { ' ' };
    format!("`{field}`{separator}{}", shell_quoted(&list))
}

/// A word as a shell takes it.
fn shell_quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-.,/".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Whether this piece of a name could be a cell, if another separator divides the columns.
fn could_be_a_cell(piece: &str) -> bool {
    let cell = piece.trim_matches(|c: char| c == '%' || c.is_whitespace());
    !cell.is_empty() && is_value(cell) && !is_word_value(cell)
}

/// A column of the file, from 0, with its name if it has one, for a message.
pub(crate) fn column_label(column: usize, name: Option<&str>) -> String {
    let number = column + 1;
    match name {
        Some(name) => format!("column {number} ({name})"),
        None => format!("column {number}"),
    }
}

/// The names for a message of at most two lines.
pub(crate) fn list_names(names: &[impl AsRef<str>]) -> String {
    let names = names.iter();
    let names = names.map(|name| format!("{:?}", shortened(name.as_ref())));
    first_few(names, MAX_NAMED, |more| format!(" and {more} more"))
}

/// Features for a message, as the columns that have them: of text, with the texts that are categories.
fn list_columns(features: &[impl AsRef<str>]) -> String {
    let mut columns: Vec<(&str, Vec<&str>)> = Vec::new();
    for feature in features {
        let feature = feature.as_ref();
        let (column, texts): (&str, Vec<&str>) = match feature.split_once('=') {
            Some((column, texts)) if !column.is_empty() => (column, texts.split('|').collect()),
            _ => (feature, Vec::new()),
        };
        match columns.last_mut() {
            Some((last, others)) if *last == column && !others.is_empty() => others.extend(texts),
            _ => columns.push((column, texts)),
        }
    }
    let columns = columns.into_iter().map(|(column, texts)| {
        let column = shortened(column);
        let texts = texts.into_iter().map(shortened);
        match first_few(texts, MAX_TEXTS_NAMED, |_| ", …".to_owned()) {
            texts if texts.is_empty() => format!("{column:?}"),
            texts => format!("{column:?} (text: {texts})"),
        }
    });
    first_few(columns, MAX_NAMED, |more| format!(" and {more} more"))
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
    file_names: &BTreeSet<&str>,
) -> Option<(&'a str, Option<&'a str>)> {
    if file_names.contains(name) {
        return Some((name, None));
    }
    name.match_indices('=')
        .map(|(index, _)| (&name[..index], &name[index + 1..]))
        .find(|(column, _)| file_names.contains(*column))
        .map(|(column, category)| (column, Some(category)))
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::ErrorCode;

    use super::*;
    use crate::testing::{assert_says, strings, study, with, without};

    fn in_file(names: &[&str], names_may_be_shown: bool) -> FileColumns {
        FileColumns {
            count: names.len(),
            names: Some(strings(names)),
            names_may_be_shown,
        }
    }

    fn unnamed(count: usize) -> FileColumns {
        FileColumns {
            count,
            ..FileColumns::default()
        }
    }

    fn default_mapping(in_file: FileColumns, expected: &ExpectedColumns) -> Result<ColumnMapping> {
        map_columns(in_file, &Settings::default(), Some(expected))
    }

    fn by_position() -> Settings {
        Settings {
            by_position: true,
            ..Settings::default()
        }
    }

    #[test]
    fn names_with_control_characters_are_refused() {
        let names = in_file(&["a\u{1b}[2J", "b"], true);
        let error = map_columns(names, &Settings::default(), None).unwrap_err();
        assert_says(&error, &["column 1 has a control character"], &[]);
        let lost = map_columns(
            in_file(&["a", "gr\u{fffd}n"], true),
            &Settings::default(),
            None,
        );
        assert_says(&lost.unwrap_err(), &["column 2", "`encoding`"], &["gr"]);
    }

    /// The features of a column of text are one column, with its texts.
    #[test]
    fn a_column_of_text_that_lacks_is_named_with_its_texts() {
        let expected = study(Some(&["age", "sex=m|f", "grp=1", "grp=2"]), 4);
        let error = default_mapping(in_file(&["age"], true), &expected).unwrap_err();
        let lacks = "it lacks \"sex\" (text: m, f), \"grp\" (text: 1, 2)";
        assert_says(&error, &[lacks], &["grp=1", "sex=m"]);
    }

    /// Also one whose categories are features. Whose row it is stays no feature of a report.
    #[test]
    fn a_label_may_be_a_feature() {
        let settings = Settings {
            label: Some(crate::Label {
                flag: "`label`",
                column: "sex".to_owned(),
            }),
            ..Settings::default()
        };
        let names = || in_file(&["sex", "age"], true);
        for features in [["sex", "age"], ["sex=f", "age"]] {
            let expected = ExpectedColumns {
                reports: false,
                ..study(Some(&features), 2)
            };
            let mapped = map_columns(names(), &settings, Some(&expected)).unwrap();
            assert_eq!((mapped.file_columns, mapped.label), (vec![0, 1], Some(0)));
            let report = map_columns(names(), &settings, Some(&study(Some(&features), 2)));
            assert_says(&report.unwrap_err(), &["it lacks \"sex"], &[]);
        }
        let expected = ExpectedColumns {
            reports: false,
            ..study(Some(&["age"]), 1)
        };
        let mapped = map_columns(names(), &settings, Some(&expected)).unwrap();
        assert_eq!((mapped.file_columns, mapped.label), (vec![1], Some(0)));
    }

    #[test]
    fn columns_are_not_duplicated_or_reordered_by_position() {
        let twice = Settings {
            keep: Some(strings(&["a", "a"])),
            ..by_position()
        };
        let expected = study(Some(&["a", "b"]), 2);
        let mapped =
            |names: &[&str], settings| map_columns(in_file(names, true), settings, Some(&expected));
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
        let error = default_mapping(in_file(&["a", "17.25", "99.5"], false), &expected);
        let error = error.unwrap_err();
        assert_says(&error, &["lacks \"b\""], &["17.25"]);
        // Rows with another separator, or with a percent sign.
        for row in ["17.25;99.5;female", "17.25 | 3", "17.25%"] {
            let error = default_mapping(in_file(&[row], false), &expected).unwrap_err();
            assert_says(&error, &[], &["17.25"]);
        }
    }

    #[test]
    fn columns_are_matched_by_name() {
        let expected = study(Some(&["a", "b", "c"]), 3);
        let same = default_mapping(in_file(&["a", "b", "c"], false), &expected).unwrap();
        assert!(same.is_identity(3) && same.notes.is_empty());
        let moved = default_mapping(in_file(&["c", "a", "b"], false), &expected).unwrap();
        assert_eq!(moved.file_columns, [1, 2, 0]);
        assert_eq!(moved.names.unwrap(), ["a", "b", "c"]);
        assert!(moved.notes[0].contains("matched by name"));
        let more = in_file(&["id", "c", "a", "b"], false);
        let with = map_columns(more, &without(&["id"]), Some(&expected)).unwrap();
        assert_eq!(with.file_columns, [2, 3, 1]);
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
            let error = default_mapping(in_file(names, false), &expected).unwrap_err();
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
            let error = default_mapping(in_file(line, false), &expected).unwrap_err();
            assert_says(&error, &["`header` no"], &["secret", "17.25"]);
        }
        // A line with a number or a date is not shown either, even with `header` yes.
        for cell in ["17.25", "-1e5", "<0.5", "1,5", "2024-03-01"] {
            for line in [&[cell, "secret"][..], &["a", "secret", cell]] {
                let error = default_mapping(in_file(line, true), &expected).unwrap_err();
                assert_says(&error, &["\"a\""], &["secret", cell]);
            }
        }
        let mapping = default_mapping(in_file(&["secret", "x"], false), &study(None, 2)).unwrap();
        assert!(!mapping.notes[0].contains("secret"));
    }

    #[test]
    fn an_index_in_a_line_that_may_be_a_row_is_not_shown() {
        for name in ["Unnamed: 8641", "__index_level_8641"] {
            for (names_may_be_shown, drop) in [(false, "`drop` and its name"), (true, "8641")] {
                let line = in_file(&["a", name], names_may_be_shown);
                let error = map_columns(line, &Settings::default(), None).unwrap_err();
                assert_says(&error, &["column 2", drop], &[]);
                assert_eq!(
                    error.to_string().contains("8641"),
                    names_may_be_shown,
                    "{error}"
                );
            }
        }
    }

    /// `drop 1` may mean the first column: that a cell of line 1 is 1 does not make the line a header.
    #[test]
    fn a_flag_with_a_value_does_not_show_the_first_line() {
        let expected = study(Some(&["a", "b"]), 2);
        for (flag, cell) in [("1", "1"), ("NA", "NA"), ("<5", "<5"), ("Unnamed: 0", "")] {
            let line = in_file(&[cell, "SECRETNAME", "8641.25"], false);
            let error = map_columns(line, &without(&[flag]), Some(&expected));
            let error = error.unwrap_err();
            assert_says(&error, &[], &["SECRET", "8641"]);
        }
        let line = in_file(&["id", "x", "b"], false);
        let error = map_columns(line, &without(&["id"]), Some(&expected)).unwrap_err();
        assert!(error.to_string().contains("does not have \"x\""), "{error}");
    }

    #[test]
    fn tables_and_studies_without_names() {
        let (named, plain) = (study(Some(&["a", "b"]), 2), study(None, 2));
        let error = default_mapping(unnamed(2), &named).unwrap_err();
        assert_says(&error, &["`features`", "`by_position`"], &[]);
        let by_position = by_position();
        let mapping = map_columns(unnamed(2), &by_position, Some(&named)).unwrap();
        assert_eq!(mapping.names.unwrap(), ["a", "b"]);
        let renamed = map_columns(in_file(&["x", "y"], true), &by_position, Some(&named)).unwrap();
        assert_eq!(renamed.file_columns, [0, 1]);
        let mapping = map_columns(unnamed(2), &with(Header::No), Some(&named)).unwrap();
        assert!(mapping.notes[0].contains("`header` no"));
        assert!(default_mapping(unnamed(2), &plain).unwrap().notes[0].contains("no names"));
        let listed = default_mapping(in_file(&["x", "y"], true), &plain).unwrap();
        assert!(listed.notes[0].contains("the file's order: \"x\", \"y\""));
        for expected in [&named, &plain] {
            let error = map_columns(unnamed(3), &by_position, Some(expected)).unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        }
        // Columns without names are given by numbers from 1.
        let left = map_columns(unnamed(3), &without(&["1"]), None).unwrap();
        assert_eq!(left.file_columns, [1, 2]);
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
        for file_columns in [unnamed(2), in_file(&["0", "1"], true)] {
            let named = map_columns(file_columns, &settings, Some(&expected)).unwrap();
            assert_eq!(named.file_columns, [1, 0]);
        }
        let other = study(Some(&["a", "c"]), 2);
        let error = map_columns(in_file(&["0", "1"], true), &settings, Some(&other)).unwrap_err();
        assert_says(
            &error,
            &["it lacks \"c\"", "does not have \"b\""],
            &["0, 1"],
        );
        // Existing names are kept, where the file says more than names.
        let named = || in_file(&["a", "b"], true);
        let error = map_columns(named(), &settings, Some(&expected)).unwrap_err();
        assert_says(&error, &["`features` has no effect"], &[]);
        let constants = ExpectedColumns::features_file(&features);
        let mapped = map_columns(named(), &settings, Some(&constants)).unwrap();
        assert_eq!(mapped.file_columns, [1, 0]);
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
            let mapping = map_columns(in_file(&names, false), &settings, None).unwrap();
            assert_eq!(mapping.file_columns, [1, 2]);
            assert_eq!(mapping.names.unwrap(), ["b", "a"]);
        }
    }
}
