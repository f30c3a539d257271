//! Text columns that become columns of 0 and 1, one for each category: the feature `sex=f` is 1 if the cell of the
//! column `sex` is f. Cells are compared as text: `4` and `4.0` are two categories.

use crate::columns::ColumnMapping;

impl ColumnMapping {
    /// Replaces a text column by a column of 0 and 1 for each of these categories, named `column=category`, the form
    /// that [`source_of`](crate::columns) parses.
    pub(crate) fn encode(&mut self, column: usize, categories: Vec<String>) {
        let (Some(names), Some(index)) = (
            &mut self.names,
            self.file_columns
                .iter()
                .position(|&file_column| file_column == column),
        ) else {
            return;
        };
        self.categories.resize(self.file_columns.len(), None);
        let name = names[index].clone();
        let category_names = categories
            .iter()
            .map(|category| format!("{name}={category}"));
        names.splice(index..=index, category_names);
        self.file_columns
            .splice(index..=index, std::iter::repeat_n(column, categories.len()));
        self.categories
            .splice(index..=index, categories.into_iter().map(Some));
    }
}
