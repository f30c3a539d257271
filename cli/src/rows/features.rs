//! The features file: names of columns with public constants (`name,center,scale`), or names alone, one a line.

use std::path::Path;

use eigenveil_shared::preprocess::Feature;

use super::cells::is_value;
use crate::{
    error::{CliError, Result},
    files,
};

/// Reads either form; the file is CSV if its first line has a column `name`.
pub fn read(path: &Path) -> Result<Vec<Feature>> {
    let text = text_of(path)?;
    let first = text.lines().next().unwrap_or_default();
    if first.split(',').any(|cell| cell.trim() == "name") {
        return constants(path, &text);
    }
    // Names are shown: a table of rows must not be taken for them.
    let of_a_row = |line: &str| {
        let mut cells = line.split([',', ';', '\t', '|']).map(str::trim);
        !line.trim().is_empty() && cells.any(is_value)
    };
    if let Some(at) = text.lines().position(of_a_row) {
        return Err(CliError::usage(format!(
            "{}: line {} has a number or a missing value, as a row has, and is not a name; names that look like this go in a table with the column name",
            path.display(),
            at + 1
        )));
    }
    let features: Vec<Feature> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|name| Feature::new(name, 0.0, 1.0))
        .collect();
    if features.is_empty() {
        return Err(CliError::usage(format!(
            "{} has no names; it needs one a line, or the columns name,center,scale",
            path.display()
        )));
    }
    Ok(features)
}

/// Reads a file with the columns `name,center,scale`; a missing center is 0, a missing scale 1.
pub fn read_constants(path: &Path) -> Result<Vec<Feature>> {
    constants(path, &text_of(path)?)
}

fn constants(path: &Path, text: &str) -> Result<Vec<Feature>> {
    // The text of the error may quote a cell: a value, if it is a table of rows.
    let refused = |error: ::csv::Error| {
        let line = error.position().map_or(1, ::csv::Position::line);
        CliError::usage(format!(
            "{}: line {line} is not a feature; it must have the columns name,center,scale: a text and two numbers",
            path.display()
        ))
    };
    ::csv::ReaderBuilder::new()
        .trim(::csv::Trim::All)
        .from_reader(text.as_bytes())
        .deserialize()
        .map(|line| line.map_err(refused))
        .collect()
}

fn text_of(path: &Path) -> Result<String> {
    let text = files::read_text(path)?;
    Ok(text.trim_start_matches('\u{feff}').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_alone_and_constants_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = folder.path().join("features");
            std::fs::write(&path, text).unwrap();
            read(&path)
        };
        let names = of("\u{feff}height\r\nsize, cm\n\n").unwrap();
        assert_eq!(
            (names[0].name.as_str(), names[1].name.as_str(), names.len()),
            ("height", "size, cm", 2)
        );
        let constants = of("name,center,scale\nheight,170,10\n").unwrap();
        assert_eq!((constants[0].center, constants[0].scale), (170.0, 10.0));
        assert_eq!(of("name\nheight\n").unwrap()[0].scale, 1.0);
        assert_eq!(of("name\n\"2,4-D\"\n450\n").unwrap()[0].name, "2,4-D");
        assert!(of("").is_err() && of("name,centre\nheight,1\n").is_err());
        // Rows by mistake.
        for row in [
            "SECRETNAME,8641.25",
            "8641.25",
            "SECRETNAME;",
            "SECRETNAME\t<5",
        ] {
            let error = of(&format!("height\n{row}\n")).unwrap_err().to_string();
            assert!(
                error.contains("line 2") && !error.contains("SECRET") && !error.contains("8641"),
                "{error}"
            );
        }
    }
}
