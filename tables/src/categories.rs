//! Text columns that become columns of 0 and 1, one for each category: the feature `sex=f` is 1 if the cell of the
//! column `sex` is f. A column of two values becomes one feature that names both: `sex=m|f` is 1 for m and 0 for f.
//! Cells are compared as text: `4` and `4.0` are two categories.

use crate::columns::ColumnMapping;

/// Between the two categories of one feature; a text with it is never one of two.
const OR: char = '|';

/// The texts of a feature of 0 and 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Category {
    /// The text for which it is 1.
    pub(crate) one: String,
    /// The only other category of the column, for which it is 0.
    pub(crate) zero: Option<String>,
}

impl Category {
    /// The category that a feature's name has after `column=`; `alone` if it is the only feature of this column.
    pub(crate) fn parse(text: &str, alone: bool) -> Self {
        match text.split_once(OR) {
            Some((one, zero)) if alone && ![one, zero].contains(&"") && !zero.contains(OR) => {
                Self {
                    one: one.to_owned(),
                    zero: Some(zero.to_owned()),
                }
            }
            _ => Self {
                one: text.to_owned(),
                zero: None,
            },
        }
    }

    /// The categories of a column of text: one for both of two values, one for each of others.
    fn all_of(texts: Vec<String>) -> Vec<Self> {
        let is_plain = |text: &String| !text.contains(OR);
        match <[String; 2]>::try_from(texts) {
            Ok([zero, one]) if [&zero, &one].into_iter().all(is_plain) => vec![Self {
                one,
                zero: Some(zero),
            }],
            Ok(both) => Self::each(both.into()),
            Err(texts) => Self::each(texts),
        }
    }

    fn each(texts: Vec<String>) -> Vec<Self> {
        let each = texts.into_iter().map(|one| Self { one, zero: None });
        each.collect()
    }

    /// All texts of which it is known whether they are 1 or 0.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.one).chain(&self.zero)
    }

    /// The end of its feature's name, after `column=`.
    pub(crate) fn suffix(&self) -> String {
        match &self.zero {
            Some(zero) => format!("{}{OR}{zero}", self.one),
            None => self.one.clone(),
        }
    }
}

impl ColumnMapping {
    /// Replaces a text column by columns of 0 and 1 for these categories, named `column=category`, the form that
    /// [`source_of`](crate::columns) parses.
    pub(crate) fn encode(&mut self, column: usize, texts: Vec<String>) {
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
        let categories = Category::all_of(texts);
        if let [
            Category {
                one,
                zero: Some(zero),
            },
        ] = &categories[..]
        {
            self.notes.push(format!(
                "column {name:?} has two values and becomes one feature: 1 for {one:?}, 0 for {zero:?}"
            ));
        }
        let category_names = categories
            .iter()
            .map(|category| format!("{name}={}", category.suffix()));
        names.splice(index..=index, category_names);
        self.file_columns
            .splice(index..=index, std::iter::repeat_n(column, categories.len()));
        self.categories
            .splice(index..=index, categories.into_iter().map(Some));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text with the separator is a category of its own wherever it is not one of two features' names.
    #[test]
    fn two_values_are_one_feature_and_its_name_says_which() {
        let texts = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        for (values, suffixes) in [
            (&["f", "m"][..], &["m|f"][..]),
            (&["a", "b", "c"], &["a", "b", "c"]),
            (&["a|b", "c"], &["a|b", "c"]),
        ] {
            let categories = Category::all_of(texts(values));
            let actual: Vec<String> = categories.iter().map(Category::suffix).collect();
            assert_eq!(actual, suffixes);
            let alone = actual.len() == 1;
            let read: Vec<Category> = actual
                .iter()
                .map(|text| Category::parse(text, alone))
                .collect();
            assert_eq!(read, categories);
        }
        for (text, alone) in [("a|b", false), ("|b", true), ("a|", true), ("a|b|c", true)] {
            assert_eq!(Category::parse(text, alone).suffix(), text);
            assert_eq!(Category::parse(text, alone).one, text);
        }
    }
}
