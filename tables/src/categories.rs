//! Columns of text that become columns of 0 and 1, one for each category: the feature `sex=f` is 1 where the column `sex`
//! has an f. Cells are compared as text: `4` and `4.0` are two categories.

use crate::columns::ColumnMapping;

impl ColumnMapping {
    /// Replaces a column of text by a column of 0 and 1 for each of these categories, named `column=category`, the form
    /// that [`source_of`](crate::columns) parses.
    pub(crate) fn encode(&mut self, column: usize, categories: Vec<String>) {
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
