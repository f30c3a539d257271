//! Columns of text that become columns of 0 and 1, one for each category: the feature `sex=f` is 1 where the column `sex`
//! has an f.

use std::collections::BTreeSet;

use super::columns::ColumnMapping;

/// Whether a cell is of this category: the same text, or the same number (`4` and `4.0`).
pub(super) fn is_category(cell: &str, category: &str) -> bool {
    cell == category
        || matches!((cell.parse::<f64>(), category.parse::<f64>()), (Ok(a), Ok(b)) if a == b)
}

/// The column that a feature is read from, and its category if the column is text: `sex` and `f` for `sex=f`.
pub(super) fn source_of<'a>(
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

impl ColumnMapping {
    /// Replaces a column of text by a column of 0 and 1 for each of these categories, named as [`source_of`] reads it.
    pub(super) fn encode(&mut self, column: usize, categories: Vec<String>) {
        let (Some(names), Some(at)) = (
            &mut self.names,
            self.take.iter().position(|&taken| taken == column),
        ) else {
            return;
        };
        self.categories.resize(self.take.len(), None);
        let name = names[at].clone();
        let named = categories
            .iter()
            .map(|category| format!("{name}={category}"));
        names.splice(at..=at, named);
        self.take
            .splice(at..=at, std::iter::repeat_n(column, categories.len()));
        self.categories
            .splice(at..=at, categories.into_iter().map(Some));
    }
}
