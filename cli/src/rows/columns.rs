//! Which columns of a table are taken, and in which order: by name.
//!
//! All of it is decided on the names and the number of columns, before any value is read, and so before anything is
//! perturbed or charged.

use std::collections::{BTreeMap, BTreeSet};

use eigenveil_shared::ErrorCode;

use super::flags::TableArgs;
use crate::error::{CliError, Result};

/// Names in a message, at most.
const SHOWN: usize = 8;
/// Characters of a name in a message, at most.
const SHOWN_CHARACTERS: usize = 40;

/// What the columns of a table are matched with.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Whose features they are, for messages: `study`, `estimate` or `features file`.
    pub of: &'static str,
    /// Number of features p.
    pub dimension: usize,
    /// Names of the features, where they have names.
    pub names: Option<Vec<String>>,
    /// Reports are made of the rows: no value may decide how the table is read.
    pub reports: bool,
}

impl Wanted {
    /// For reports to a study with so many features, and these names of them.
    pub fn study(dimension: usize, names: Option<Vec<String>>) -> Self {
        Self {
            of: "study",
            dimension,
            names,
            reports: true,
        }
    }
}

/// What a table says of its columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// Number of columns.
    pub(super) count: usize,
    /// Their names.
    pub(super) names: Option<Vec<String>>,
    /// The names are names for sure, and not the values of a first row: they may be shown.
    pub(super) shown: bool,
    /// The user said that there is no header.
    pub(super) headerless: bool,
}

/// The columns to take.
#[derive(Debug)]
pub(super) struct Layout {
    /// Column of the table, from 0, for each column of the result.
    pub(super) take: Vec<usize>,
    /// Their names.
    pub(super) names: Option<Vec<String>>,
    /// What the user is told once.
    pub(super) notes: Vec<String>,
}

impl Layout {
    /// A column of the result as it is called in messages.
    pub(super) fn column(&self, at: usize) -> String {
        let names = self.names.as_ref();
        column_called(self.take[at], names.map(|names| names[at].as_str()))
    }

    /// Whether the columns are taken as they stand.
    pub(super) fn is_identity(&self, count: usize) -> bool {
        self.take.len() == count && self.take.iter().enumerate().all(|(i, &at)| i == at)
    }
}

/// Decides which columns are taken.
///
/// # Errors
/// Wrong usage that names the columns concerned and the way out.
pub(super) fn layout(found: Found, how: &TableArgs, wanted: Option<&Wanted>) -> Result<Layout> {
    // They would reach the terminal.
    let unprintable = |name: &String| name.chars().any(char::is_control);
    if let Some(at) = found.names.iter().flatten().position(unprintable) {
        return Err(CliError::usage(format!(
            "the name of column {} has a control character; rename it",
            at + 1
        )));
    }
    let mut chosen = chosen(found, how)?;
    let mut notes = Vec::new();
    if let Some(features) = how.features()?
        && (chosen.names.is_none() || chosen.numbered)
    {
        if features.len() != chosen.take.len() {
            return Err(wrong_dimension(format!(
                "it has {} columns but the features file names {}; give a name for each column, or leave columns out with --drop",
                chosen.take.len(),
                features.len()
            )));
        }
        chosen.names = Some(features.into_iter().map(|feature| feature.name).collect());
        chosen.shown = true;
        notes.push("the columns have the names of the features file, in its order".to_owned());
    }
    let Some(wanted) = wanted else {
        chosen.check_names(&[], true)?;
        return Ok(chosen.into_layout(notes));
    };
    let (p, of) = (wanted.dimension, wanted.of);
    let count = |chosen: &Chosen| {
        if chosen.take.len() == p {
            return Ok(());
        }
        let index = match &chosen.names {
            Some(names) if chosen.shown => names.iter().find(|name| is_index(name)),
            _ => None,
        };
        let hint = index.map_or_else(String::new, |name| {
            format!(
                "; column {name:?} is probably an index: leave it out with {}",
                drop_flag(&[name])
            )
        });
        Err(wrong_dimension(format!(
            "it has {} columns but the {of} has {p} features; give the features the {of} names, in its order{hint}",
            chosen.take.len(),
        )))
    };
    match (&wanted.names, &chosen.names) {
        (None, names) => {
            count(&chosen)?;
            chosen.check_names(&[], true)?;
            notes.push(match names {
                Some(names) if chosen.shown => format!(
                    "the {of}'s columns have no names: those of the file are taken in its order: {}",
                    listed(names)
                ),
                _ => format!("the {of}'s columns have no names: those of the file are taken in its order"),
            });
            Ok(chosen.into_layout(notes))
        }
        (Some(wanted_names), _) if how.by_position => {
            count(&chosen)?;
            let mut own = chosen.names.clone().unwrap_or_default();
            if own != *wanted_names {
                let mut theirs = wanted_names.clone();
                own.sort();
                theirs.sort();
                if own == theirs {
                    return Err(CliError::usage(format!(
                        "its columns are those of the {of} in another order, which --by-position would mix up; leave --by-position out: they are matched by name"
                    )));
                }
            }
            notes.push(format!(
                "--by-position: the file's columns are taken for {}",
                listed(wanted_names)
            ));
            chosen.names = Some(wanted_names.clone());
            Ok(chosen.into_layout(notes))
        }
        (Some(wanted_names), None) => {
            count(&chosen)?;
            if !chosen.headerless {
                return Err(CliError::usage(format!(
                    "its columns have no names, those of the {of} are {}; name them with --features FILE (one name a line, in the file's order), or give --by-position if they are in the {of}'s order",
                    listed(wanted_names)
                )));
            }
            notes.push(format!(
                "--header no: the file's columns are taken for {}",
                listed(wanted_names)
            ));
            chosen.names = Some(wanted_names.clone());
            Ok(chosen.into_layout(notes))
        }
        (Some(wanted_names), Some(_)) => matched(chosen, wanted_names, of, notes),
    }
}

/// The columns that `--keep` and `--drop` leave.
struct Chosen {
    take: Vec<usize>,
    names: Option<Vec<String>>,
    /// The names are 0, 1, 2, …: what pandas writes for columns without names.
    numbered: bool,
    shown: bool,
    headerless: bool,
}

fn chosen(found: Found, how: &TableArgs) -> Result<Chosen> {
    // A column without a name gets the one that pandas would give it.
    let names: Option<Vec<String>> = found.names.map(|names| {
        (0..)
            .zip(names)
            .map(|(at, name)| {
                if name.is_empty() {
                    format!("Unnamed: {at}")
                } else {
                    name
                }
            })
            .collect()
    });
    let mut shown = found.shown;
    let mut find = |name: &str| -> Result<usize> {
        let at = match &names {
            Some(names) => names.iter().position(|own| own == name),
            None => match name.parse::<usize>() {
                Ok(number) if (1..=found.count).contains(&number) => Some(number - 1),
                _ => None,
            },
        };
        // Who names a column of the first line knows that it is a header.
        shown |= at.is_some() && names.is_some();
        at.ok_or_else(|| {
            CliError::usage(match &names {
                Some(_) => format!("it has no column {name:?}, which --keep or --drop names"),
                None => format!(
                    "its columns have no names: give --keep and --drop numbers from 1 to {}, not {name:?}",
                    found.count
                ),
            })
        })
    };
    let take: Vec<usize> = match (&how.keep, &how.drop) {
        (Some(columns), _) => columns
            .0
            .iter()
            .map(|name| find(name))
            .collect::<Result<_>>()?,
        (None, Some(drop)) => {
            let dropped: BTreeSet<usize> = drop
                .0
                .iter()
                .map(|name| find(name))
                .collect::<Result<_>>()?;
            (0..found.count)
                .filter(|at| !dropped.contains(at))
                .collect()
        }
        (None, None) => (0..found.count).collect(),
    };
    if take.is_empty() {
        return Err(CliError::usage("no column is left"));
    }
    if take.iter().collect::<BTreeSet<_>>().len() < take.len() {
        return Err(CliError::usage("--keep names a column twice"));
    }
    // Beside an index, or some of them left out, they still are.
    let all = names.as_deref().unwrap_or_default();
    let named: Vec<&String> = all.iter().filter(|name| !is_index(name)).collect();
    let taken: Option<Vec<String>> = names
        .as_ref()
        .map(|names| take.iter().map(|&at| names[at].clone()).collect());
    let numbered = taken
        .as_deref()
        .is_some_and(|taken| is_numbering(taken) || is_numbering(&named));
    Ok(Chosen {
        take,
        names: taken,
        numbered,
        shown,
        headerless: found.headerless,
    })
}

impl Chosen {
    /// Refuses two columns of one name, and a probable index, unless it is wanted or the names may be values.
    fn check_names(&self, wanted: &[String], names_for_sure: bool) -> Result<()> {
        let Some(names) = &self.names else {
            return Ok(());
        };
        let mut seen = BTreeMap::new();
        for (&at, name) in self.take.iter().zip(names) {
            if let Some(before) = seen.insert(name, at) {
                return Err(CliError::usage(if self.shown {
                    format!(
                        "columns {} and {} are both named {:?}; rename one of them",
                        before + 1,
                        at + 1,
                        shortened(name)
                    )
                } else {
                    format!(
                        "columns {} and {} have the same name; rename one of them, or give --header no if line 1 is a row",
                        before + 1,
                        at + 1
                    )
                }));
            }
        }
        let (index, rest): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| is_index(name));
        match index.iter().find(|name| !wanted.contains(name)) {
            Some(name) if names_for_sure || is_numbering(&rest) => Err(CliError::usage(format!(
                "column {name:?} is probably the index that pandas writes beside the rows; leave it out with {} (or write the table with index=False), or give the column a name",
                drop_flag(&[name])
            ))),
            _ => Ok(()),
        }
    }

    fn into_layout(self, notes: Vec<String>) -> Layout {
        Layout {
            take: self.take,
            names: self.names,
            notes,
        }
    }
}

/// The columns in the order wanted; the same names or an error.
fn matched(
    mut chosen: Chosen,
    wanted: &[String],
    of: &str,
    mut notes: Vec<String>,
) -> Result<Layout> {
    let names = chosen.names.clone().unwrap_or_default();
    let own: BTreeSet<&String> = names.iter().collect();
    // Where most are wanted the line is a header; otherwise it may be a row, which is never shown.
    let known = wanted.iter().filter(|name| own.contains(name)).count();
    chosen.shown |= 2 * known > wanted.len();
    chosen.check_names(wanted, chosen.shown || known > 0)?;
    let missing: Vec<&String> = wanted.iter().filter(|name| !own.contains(name)).collect();
    let theirs: BTreeSet<&String> = wanted.iter().collect();
    let more: Vec<&String> = names.iter().filter(|name| !theirs.contains(name)).collect();
    if missing.is_empty() && more.is_empty() {
        if names != wanted {
            notes.push(format!(
                "the file's columns are in another order than the {of}'s; they were matched by name"
            ));
        }
        let take = wanted
            .iter()
            .filter_map(|name| names.iter().position(|own| own == name))
            .map(|at| chosen.take[at])
            .collect();
        return Ok(Layout {
            take,
            names: Some(wanted.to_vec()),
            notes,
        });
    }
    if chosen.numbered {
        return Err(CliError::usage(format!(
            "its columns are named 0, 1, 2, …, as pandas does with columns without names, those of the {of} are {}; name them with --features FILE (one name a line, in the file's order), or give --by-position if they are in the {of}'s order",
            listed(wanted)
        )));
    }
    if !chosen.shown && known == 0 {
        return Err(CliError::usage(format!(
            "line 1 names none of the {of}'s columns, which are {}; give --header no if it is the first row and the columns are in this order, or write the names there",
            listed(wanted)
        )));
    }
    let mut what = Vec::new();
    if !missing.is_empty() {
        what.push(format!("it lacks {}", listed(&missing)));
    }
    if !more.is_empty() && chosen.shown {
        what.push(format!("the {of} does not have {}", listed(&more)));
    } else if !more.is_empty() {
        what.push(format!(
            "{} of its columns the {of} does not have",
            more.len()
        ));
    }
    let mut way = Vec::new();
    if !more.is_empty() && more.len() <= SHOWN && chosen.shown {
        way.push(format!(
            "leave out what is not wanted with {}",
            drop_flag(&more)
        ));
    } else if !more.is_empty() {
        way.push("take the columns that are wanted with --keep".to_owned());
    }
    if !missing.is_empty() {
        way.push(format!(
            "name the columns as the {of} does ({})",
            listed(wanted)
        ));
    }
    Err(CliError::usage(format!(
        "its columns are not those of the {of}: {}; {}",
        what.join(", and "),
        way.join(", and ")
    )))
}

/// Whether these are 0, 1, 2, …, in this order.
pub(super) fn is_numbering(names: &[impl AsRef<str>]) -> bool {
    names
        .iter()
        .enumerate()
        .all(|(at, name)| name.as_ref() == at.to_string())
}

/// Names that only an index has: pandas', in CSV and in Parquet.
fn is_index(name: &str) -> bool {
    name.strip_prefix("Unnamed: ")
        .is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
        || name.starts_with("__index_level_")
}

fn wrong_dimension(message: String) -> CliError {
    eigenveil_shared::Error::new(ErrorCode::WrongDimension, message).into()
}

/// `--drop` with these names, as a shell takes it.
fn drop_flag(names: &[impl AsRef<str>]) -> String {
    let cells: Vec<String> = names
        .iter()
        .map(|name| {
            let name = name.as_ref();
            if name.contains([',', '"']) {
                format!("\"{}\"", name.replace('"', "\"\""))
            } else {
                name.to_owned()
            }
        })
        .collect();
    let list = cells.join(",");
    // A name such as -x would be taken for a flag.
    let flag = if list.starts_with('-') {
        "--drop="
    } else {
        "--drop "
    };
    format!("{flag}{}", crate::output::quoted(&list))
}

/// A column of the file, from 0, and its name where it has one, for a message.
pub(super) fn column_called(column: usize, name: Option<&str>) -> String {
    let number = column + 1;
    match name {
        Some(name) => format!("column {number} ({name})"),
        None => format!("column {number}"),
    }
}

/// Names for a message: not more than a line or two.
fn listed(names: &[impl AsRef<str>]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("{:?}", shortened(name.as_ref())))
        .collect();
    let mut text = shown.join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= SHOWN_CHARACTERS {
        return name.to_owned();
    }
    let begun: String = name.chars().take(SHOWN_CHARACTERS).collect();
    format!("{begun}…")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::flags::Names;

    fn strings(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn found(names: &[&str], shown: bool) -> Found {
        Found {
            count: names.len(),
            names: Some(strings(names)),
            shown,
            headerless: false,
        }
    }

    fn study(names: Option<&[&str]>, dimension: usize) -> Wanted {
        Wanted::study(dimension, names.map(strings))
    }

    fn nameless(count: usize) -> Found {
        Found {
            count,
            ..Found::default()
        }
    }

    fn usual_layout(found: Found, wanted: &Wanted) -> Result<Layout> {
        layout(found, &TableArgs::default(), Some(wanted))
    }

    fn drop(names: &[&str]) -> TableArgs {
        TableArgs {
            drop: Some(Names(strings(names))),
            ..TableArgs::default()
        }
    }

    fn by_position() -> TableArgs {
        TableArgs {
            by_position: true,
            ..TableArgs::default()
        }
    }

    #[test]
    fn names_that_would_steer_a_terminal_are_refused() {
        let names = found(&["a\u{1b}[2J", "b"], true);
        let error = layout(names, &TableArgs::default(), None).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("column 1 has a control character"),
            "{error}"
        );
    }

    #[test]
    fn no_column_is_taken_twice_or_mixed_up() {
        let twice = TableArgs {
            keep: Some(Names(strings(&["a", "a"]))),
            ..by_position()
        };
        let wanted = study(Some(&["a", "b"]), 2);
        let error = layout(found(&["a", "b"], true), &twice, Some(&wanted)).unwrap_err();
        assert!(error.to_string().contains("twice"), "{error}");
        let by_position = by_position();
        let error = layout(found(&["b", "a"], true), &by_position, Some(&wanted)).unwrap_err();
        assert!(error.to_string().contains("another order"), "{error}");
        assert!(layout(found(&["x", "y"], true), &by_position, Some(&wanted)).is_ok());
    }

    /// One cell that is a wanted name does not make the others of its line names.
    #[test]
    fn a_row_is_not_shown() {
        let wanted = study(Some(&["a", "b", "c"]), 3);
        let error = usual_layout(found(&["a", "17.25", "99.5"], false), &wanted);
        let error = error.unwrap_err().to_string();
        assert!(
            !error.contains("17.25") && error.contains("lacks \"b\""),
            "{error}"
        );
    }

    #[test]
    fn columns_are_matched_by_name() {
        let wanted = study(Some(&["a", "b", "c"]), 3);
        let same = usual_layout(found(&["a", "b", "c"], false), &wanted).unwrap();
        assert!(same.is_identity(3) && same.notes.is_empty());
        let moved = usual_layout(found(&["c", "a", "b"], false), &wanted).unwrap();
        assert_eq!(moved.take, [1, 2, 0]);
        assert_eq!(moved.names.unwrap(), ["a", "b", "c"]);
        assert!(moved.notes[0].contains("matched by name"));
        let more = found(&["id", "c", "a", "b"], false);
        let with = layout(more, &drop(&["id"]), Some(&wanted)).unwrap();
        assert_eq!(with.take, [2, 3, 1]);
    }

    #[test]
    fn what_differs_is_named_with_the_way_out() {
        let wanted = study(Some(&["a", "b", "c"]), 3);
        for (names, words) in [
            (&["a", "b"][..], &["lacks \"c\"", "name the columns"][..]),
            (
                &["a", "b", "c", "target, all"],
                &["does not have \"target, all\"", "--drop '\"target, all\"'"],
            ),
            (&["a", "b", "c", "-x"], &["--drop=-x"]),
            (&["a", "b", "C"], &["lacks \"c\"", "\"C\"", "--drop C"]),
            (&["a", "b", "b", "c"], &["columns 2 and 3", "\"b\""]),
            (&["", "a", "b", "c"], &["index", "--drop 'Unnamed: 0'"]),
            (
                &["a", "b", "c", "__index_level_0__"],
                &["index", "--drop __index_level_0__"],
            ),
            (&["", "0", "1", "2"], &["index", "--drop 'Unnamed: 0'"]),
            (&["0", "1", "2"], &["pandas", "--features", "--by-position"]),
        ] {
            let error = usual_layout(found(names, false), &wanted)
                .unwrap_err()
                .to_string();
            for word in words {
                assert!(error.contains(word), "{names:?}: {error}");
            }
        }
    }

    /// A first line that may be a row is not shown.
    #[test]
    fn values_of_a_row_are_in_no_message() {
        let wanted = study(Some(&["a", "b"]), 2);
        for line in [
            &["17.25", "secret"][..],
            &["", "17.25"],
            &["secret", "secret"],
            &["secret"],
        ] {
            let error = usual_layout(found(line, false), &wanted)
                .unwrap_err()
                .to_string();
            assert!(
                !error.contains("secret") && !error.contains("17.25"),
                "{error}"
            );
            assert!(error.contains("--header no"), "{error}");
        }
        let nameless = usual_layout(found(&["secret", "x"], false), &study(None, 2)).unwrap();
        assert!(!nameless.notes[0].contains("secret"));
    }

    #[test]
    fn tables_and_studies_without_names() {
        let (named, plain) = (study(Some(&["a", "b"]), 2), study(None, 2));
        let error = usual_layout(nameless(2), &named).unwrap_err().to_string();
        assert!(
            error.contains("--features") && error.contains("--by-position"),
            "{error}"
        );
        let by_position = by_position();
        let taken = layout(nameless(2), &by_position, Some(&named)).unwrap();
        assert_eq!(taken.names.unwrap(), ["a", "b"]);
        let renamed = layout(found(&["x", "y"], true), &by_position, Some(&named)).unwrap();
        assert_eq!(renamed.take, [0, 1]);
        let said = Found {
            headerless: true,
            ..nameless(2)
        };
        assert!(usual_layout(said, &named).unwrap().notes[0].contains("--header no"));
        assert!(usual_layout(nameless(2), &plain).unwrap().notes[0].contains("no names"));
        for wanted in [&named, &plain] {
            let error = layout(nameless(3), &by_position, Some(wanted)).unwrap_err();
            assert_eq!(error.code(), Some(ErrorCode::WrongDimension));
        }
        // Numbers from 1 where there are no names.
        assert_eq!(
            layout(nameless(3), &drop(&["1"]), None).unwrap().take,
            [1, 2]
        );
        for bad in ["0", "4", "a"] {
            assert!(layout(nameless(3), &drop(&[bad]), None).is_err());
        }
    }

    #[test]
    fn a_features_file_names_what_has_no_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.txt");
        std::fs::write(&path, "b\na\n").unwrap();
        let how = TableArgs {
            features: Some(path),
            ..TableArgs::default()
        };
        let wanted = study(Some(&["a", "b"]), 2);
        for found in [nameless(2), found(&["0", "1"], true)] {
            assert_eq!(layout(found, &how, Some(&wanted)).unwrap().take, [1, 0]);
        }
        // Names that are there stay.
        let own = layout(found(&["a", "b"], true), &how, Some(&wanted)).unwrap();
        assert_eq!(own.take, [0, 1]);
        assert!(layout(nameless(3), &how, None).is_err());
        // pandas' numbers stay numbers when some of them, or an index, are left out.
        for (names, left) in [
            (["0", "1", "2"], "0"),
            (["Unnamed: 0", "0", "1"], "Unnamed: 0"),
        ] {
            let how = TableArgs {
                features: how.features.clone(),
                ..drop(&[left])
            };
            let taken = layout(found(&names, false), &how, None).unwrap();
            assert_eq!(taken.take, [1, 2]);
            assert_eq!(taken.names.unwrap(), ["b", "a"]);
        }
    }
}
