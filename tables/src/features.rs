//! The features file: names of columns with public constants (`name,center,scale`) and what they mean to people
//! (`label,unit,description`), or names alone, one per line.

use std::path::Path;

use eigenveil_shared::{about::FeatureNotice, preprocess::Feature};

use crate::{
    cells::{is_value, number},
    error::{Error, Result},
};

/// Reads either form; the text is a table if its first line has a column `name`. Errors name the file `path`.
///
/// # Errors
/// A line that is not a feature or may be a row; a text without names.
pub fn parse(path: &Path, text: &str) -> Result<Vec<Feature>> {
    let text = without_mark(text);
    if let Some(delimiter) = table_delimiter(text) {
        return Ok(table(path, text, delimiter)?.0);
    }
    // Names are shown, so a table of rows must not be mistaken for names.
    let looks_like_row = |line: &str| {
        let mut cells = line.split([',', ';', '\t', '|']).map(str::trim);
        !line.trim().is_empty() && cells.any(is_value)
    };
    if let Some(at) = text.lines().position(looks_like_row) {
        return Err(Error::new(format!(
            "{}: line {} has a number or a missing value, as a row has, and is not a name; names that look like this go in a table with the column name",
            path.display(),
            at + 1
        )));
    }
    let names = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let features: Vec<Feature> = names.map(|name| Feature::new(name, 0.0, 1.0)).collect();
    if features.is_empty() {
        return Err(Error::new(format!(
            "{} has no names; it needs one per line, or the columns name,center,scale",
            path.display()
        )));
    }
    Ok(features)
}

/// Reads a table with the columns `name,center,scale`, and `observed,section` if cells may be missing; an empty center
/// is 0, an empty scale or observed share 1. Errors name the file `path`.
///
/// # Errors
/// A line that is not a feature.
pub fn parse_constants(path: &Path, text: &str) -> Result<Vec<Feature>> {
    let text = without_mark(text);
    let delimiter = table_delimiter(text).unwrap_or(b',');
    Ok(table(path, text, delimiter)?.0)
}

/// Reads what the features mean to people, from the columns `label,unit,description` of a table; `None` if there are
/// none, or the text is no table. Errors name the file `path`.
///
/// # Errors
/// A line that is not a feature.
pub fn parse_notices(path: &Path, text: &str) -> Result<Option<Vec<FeatureNotice>>> {
    let text = without_mark(text);
    let Some(delimiter) = table_delimiter(text) else {
        return Ok(None);
    };
    let notices = table(path, text, delimiter)?.1;
    let says_something = notices.iter().any(|own| *own != FeatureNotice::default());
    Ok(says_something.then_some(notices))
}

/// Whether the text is a table: its first line has a column `name`.
pub fn is_table(text: &str) -> bool {
    table_delimiter(without_mark(text)).is_some()
}

/// The separator of a first line that has a column `name`, quoted or not, in any case.
fn table_delimiter(text: &str) -> Option<u8> {
    let first = text.lines().next().unwrap_or_default();
    let is_name = |cell: &str| column_of(cell.trim().trim_matches('"')) == Some(Column::Name);
    let mut delimiters = [b',', b';', b'\t', b'|'].into_iter();
    delimiters.find(|&delimiter| first.split(char::from(delimiter)).any(is_name))
}

#[derive(Clone, Copy, PartialEq)]
enum Column {
    Name,
    Center,
    Scale,
    /// Public share of the participants who have the value.
    Observed,
    /// Name of the group of cells that are missing together.
    Section,
    Label,
    Unit,
    Description,
    /// Row names, as R and pandas write them.
    Index,
}

fn column_of(head: &str) -> Option<Column> {
    match head.trim().to_lowercase().as_str() {
        "name" => Some(Column::Name),
        "center" => Some(Column::Center),
        "scale" => Some(Column::Scale),
        "observed" => Some(Column::Observed),
        "section" => Some(Column::Section),
        "label" => Some(Column::Label),
        "unit" => Some(Column::Unit),
        "description" => Some(Column::Description),
        "" | "unnamed: 0" | "row.names" | "index" => Some(Column::Index),
        _ => None,
    }
}

/// The features of a table, and what each means to people.
fn table(path: &Path, text: &str, delimiter: u8) -> Result<(Vec<Feature>, Vec<FeatureNotice>)> {
    // The text of a cell is not shown: in a table of rows it would be a value.
    let line_error = |line: u64| {
        Error::new(format!(
            "{}: line {line} is not a feature; it must have the columns name,center,scale (and observed,section if cells may be missing, label,unit,description for people to read): texts and numbers",
            path.display()
        ))
    };
    let line_of = |error: &::csv::Error| error.position().map_or(1, ::csv::Position::line);
    let mut reader = ::csv::ReaderBuilder::new()
        .trim(::csv::Trim::All)
        .delimiter(delimiter)
        .from_reader(text.as_bytes());
    let heads = reader
        .headers()
        .map_err(|error| line_error(line_of(&error)))?;
    let columns: Option<Vec<Column>> = heads.iter().map(column_of).collect();
    let columns = columns.filter(|columns| columns.contains(&Column::Name));
    let columns = columns.ok_or_else(|| line_error(1))?;
    let number_error = |line: u64| {
        Error::new(format!(
            "{}: line {line} has a center, scale or share that is not a number such as 1234.5",
            path.display()
        ))
    };
    let (mut features, mut notices) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record.map_err(|error| line_error(line_of(&error)))?;
        let line = record.position().map_or(1, ::csv::Position::line);
        let mut feature = Feature::new("", 0.0, 1.0);
        let mut notice = FeatureNotice::default();
        for (column, cell) in columns.iter().zip(&record) {
            let constant = |default: f64| {
                if cell.is_empty() {
                    return Ok(default);
                }
                number(cell, None).map_err(|_| number_error(line))
            };
            let stated = || (!cell.is_empty()).then(|| cell.to_owned());
            match column {
                Column::Name => cell.clone_into(&mut feature.name),
                Column::Center => feature.center = constant(0.0)?,
                Column::Scale => feature.scale = constant(1.0)?,
                Column::Observed => feature.observed = Some(constant(1.0)?),
                Column::Section => feature.section = stated(),
                Column::Label => notice.label = stated(),
                Column::Unit => notice.unit = stated(),
                Column::Description => notice.description = stated(),
                Column::Index => {}
            }
        }
        features.push(feature);
        notices.push(notice);
    }
    Ok((features, notices))
}

/// The text without a byte-order mark.
fn without_mark(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assert_says;

    #[test]
    fn names_alone_and_constants_are_read() {
        let parsed = |text: &str| parse(Path::new("features"), text);
        let names = parsed("\u{feff}height\r\nsize, cm\n\n").unwrap();
        let names: Vec<&str> = names.iter().map(|feature| feature.name.as_str()).collect();
        assert_eq!(names, ["height", "size, cm"]);
        let constants = parsed("name,center,scale\nheight,170,10\n").unwrap();
        assert_eq!((constants[0].center, constants[0].scale), (170.0, 10.0));
        assert_eq!(parsed("name\nheight\n").unwrap()[0].scale, 1.0);
        let observed = parsed("name,observed,section\nheight,,\nweight,0.8,lab\n").unwrap();
        assert_eq!(observed[0], Feature::new("height", 0.0, 1.0).observed(1.0));
        assert_eq!(observed[1].observed, Some(0.8));
        assert_eq!(observed[1].section.as_deref(), Some("lab"));
        assert_eq!(parsed("name\n\"2,4-D\"\n450\n").unwrap()[0].name, "2,4-D");
        assert!(parsed("").is_err() && parsed("name,centre\nheight,1\n").is_err());
        let text = "Name,Unit,center,Description,label\nheight,cm,170,\"barefoot, standing\",Height\nbmi,,25,,\n";
        assert_eq!(parsed(text).unwrap()[0], Feature::new("height", 170.0, 1.0));
        let notices = |text: &str| parse_notices(Path::new("features"), text).unwrap();
        let notices_of_two = notices(text).unwrap();
        let lines: Vec<String> = notices_of_two.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["Height (cm): barefoot, standing", ""]);
        assert_eq!(notices("name,label\nheight,\n"), None);
        assert_eq!(notices("height\nweight\n"), None);
        // The same features as written by R, pandas, Excel and an editor.
        for text in [
            "\"\",\"name\",\"center\",\"scale\"\n\"1\",\"height\",170.5,10\n",
            ",Name,Center,Scale\n0,height,170.5,10.0\n",
            "name;center;scale\nheight;170.5;10\n",
            "NAME\tCENTER\tSCALE\nheight\t170.5\t10\n",
            "name , center , scale\nheight , 170.5 , 10\n",
        ] {
            let height = Feature::new("height", 170.5, 10.0);
            assert_eq!(parsed(text).unwrap(), [height], "{text}");
        }
        for text in ["name;center\nage;2,870\n", "name,center\nage,\"2,870\"\n"] {
            let error = parsed(text).unwrap_err();
            assert_says(&error, &["line 2", "not a number", "1234.5"], &["870"]);
        }
        // Rows by mistake.
        for row in "SECRETNAME,8641.25|8641.25|SECRETNAME;|SECRETNAME\t<5".split('|') {
            let error = parsed(&format!("height\n{row}\n")).unwrap_err();
            assert_says(&error, &["line 2"], &["SECRET", "8641"]);
        }
    }
}
