//! The rows of the demo: from a file, or the built-in digits.

use std::{path::Path, sync::Arc};

use eigenveil_shared::preprocess::Feature;
use eigenveil_tables::{RowTable, Settings, features, parse};

use crate::{
    error::Result,
    tables::{self, TableArgs},
};

/// 1,797 × 64 bytes; origin and licence in `examples/data/README.md`.
const DIGITS: &[u8] = include_bytes!("digits.npy");
/// Public constants of the 64 pixels, from other people's digits.
const DIGITS_FEATURES: &str = include_str!("digits_features.csv");

/// Rows with a description.
pub(super) struct DemoRows {
    pub(super) table: Arc<RowTable>,
    pub(super) name: String,
    pub(super) described: String,
    /// By the features file, the columns' names, or the pixels'.
    pub(super) features: Option<Vec<Feature>>,
}

impl DemoRows {
    pub(super) fn load(path: Option<&Path>, how: &TableArgs) -> Result<Self> {
        let (table, features, name, described) = match path {
            None => (
                parse(Path::new("digits.npy"), DIGITS, &Settings::default(), None)?,
                Some(features::parse_constants(
                    Path::new("features"),
                    DIGITS_FEATURES,
                )?),
                "handwritten digits".to_owned(),
                "1,797 handwritten digits, 8 × 8 pixels (UCI Optdigits, CC BY 4.0)".to_owned(),
            ),
            Some(path) => {
                let (table, constants) = tables::read_with_constants(path, how.settings()?)?;
                let names = || Some(table.names()?.iter().cloned().map(named).collect());
                let features = constants.or_else(names);
                let name = path
                    .file_name()
                    .unwrap_or(path.as_os_str())
                    .to_string_lossy()
                    .into_owned();
                let described = format!("{} rows of {name}", table.len());
                (table, features, name, described)
            }
        };
        Ok(Self {
            table: Arc::new(table),
            name,
            described,
            features,
        })
    }
}

/// A feature that is not shifted or scaled.
fn named(name: String) -> Feature {
    Feature::new(name, 0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_digits_are_unchanged() {
        let rows = DemoRows::load(None, &TableArgs::default()).unwrap();
        assert_eq!((rows.table.len(), rows.table.dimension()), (1_797, 64));
        let first = rows.table.row(0);
        // The first image of the set: a zero whose first line of pixels is 0 0 5 13 9 1 0 0.
        let line = [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0];
        assert_eq!(first.values()[..8], line);
        assert_eq!(rows.features.unwrap()[9].name, "pixel_1_1");
    }
}
