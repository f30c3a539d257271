//! The columns file of a preparation: `name,kind`, and what the columns mean to people (`label,unit,description`). A
//! kind is `number LO HI`, `yes-no` or `categories A|B|C`, with `may-be-missing` behind it where cells may be missing.

use std::path::Path;

use eigenveil_shared::{about::FeatureNotice, preparation::PreparationColumn};

use crate::error::{Error, Result};

/// Reads the columns, and what they mean, one notice for each feature; no notices if none says anything. Errors name
/// the file `path`.
///
/// # Errors
/// A file without the columns `name` and `kind`, a line without them, or a kind that is none.
pub fn parse(
    path: &Path,
    text: &str,
) -> Result<(Vec<PreparationColumn>, Option<Vec<FeatureNotice>>)> {
    let at_line =
        |line: u64, why: &str| Error::new(format!("{}: line {line}: {why}", path.display()));
    const NO_COLUMN: &str = "this is not a column; a columns file has name,kind, such as age,number 0 120 (and label,unit,description for people to read)";
    let mut reader = ::csv::ReaderBuilder::new()
        .trim(::csv::Trim::All)
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let line_of = |error: &::csv::Error| error.position().map_or(1, ::csv::Position::line);
    let heads = reader
        .headers()
        .map_err(|error| at_line(line_of(&error), NO_COLUMN))?;
    let heads: Vec<String> = heads.iter().map(str::to_lowercase).collect();
    let at = |head: &str| heads.iter().position(|other| other == head);
    const KNOWN: [&str; 5] = ["name", "kind", "label", "unit", "description"];
    let (Some(name), Some(kind)) = (at("name"), at("kind")) else {
        return Err(at_line(1, NO_COLUMN));
    };
    if !heads.iter().all(|head| KNOWN.contains(&&head[..])) {
        return Err(at_line(1, NO_COLUMN));
    }
    let (mut columns, mut notices) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record.map_err(|error| at_line(line_of(&error), NO_COLUMN))?;
        let line = record.position().map_or(1, ::csv::Position::line);
        let column = PreparationColumn::parse(&record[name], &record[kind])
            .map_err(|error| at_line(line, error.detail()))?;
        let stated = |head: &str| {
            let cell = record.get(at(head)?)?;
            (!cell.is_empty()).then(|| cell.to_owned())
        };
        let notice = FeatureNotice {
            label: stated("label"),
            unit: stated("unit"),
            description: stated("description"),
        };
        notices.extend(column.feature_names().iter().map(|_| notice.clone()));
        columns.push(column);
    }
    let says_something = notices
        .iter()
        .any(|notice| *notice != FeatureNotice::default());
    Ok((columns, says_something.then_some(notices)))
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::preparation::ColumnKind;

    use super::*;
    use crate::testing::assert_says;

    #[test]
    fn columns_are_read_with_what_they_mean() {
        let parsed = |text: &str| parse(Path::new("columns.csv"), text);
        let (columns, notices) = parsed(
            "\u{feff}Name,Kind,Unit\nage,number 0 120,years\ntown,categories Rome|Milan,\nlab,number 0 10 may-be-missing,mg/dl\n",
        )
        .unwrap();
        assert_eq!(columns[0].kind, ColumnKind::number(0.0, 120.0));
        assert_eq!(columns[1].kind, ColumnKind::categories(["Rome", "Milan"]));
        assert!(columns[2].may_be_missing);
        // One notice for each feature: age, town=Rome, town=Milan, lab.
        let units = notices.unwrap();
        let units: Vec<_> = units.iter().map(|notice| notice.unit.as_deref()).collect();
        assert_eq!(units, [Some("years"), None, None, Some("mg/dl")]);
        assert_eq!(parsed("name,kind\nsmokes,yes-no\n").unwrap().1, None);
        for (text, words) in [
            ("name,kind\nage,number 0\n", ["line 2", "number LO HI"]),
            ("name,kind\nage\n", ["line 2", "not a column"]),
            ("age,120\n", ["line 1", "name,kind"]),
            (
                "name,kind,center\nage,number 0 1,2\n",
                ["line 1", "name,kind"],
            ),
            ("", ["line 1", "name,kind"]),
        ] {
            assert_says(&parsed(text).unwrap_err(), &words, &[]);
        }
    }
}
