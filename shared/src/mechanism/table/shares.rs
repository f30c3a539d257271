//! The rows of each person, and how much each of them counts.

use std::{collections::HashMap, hash::Hash};

/// How much each row of a table counts: 1, or 1/c where a person has c rows.
#[derive(Clone)]
pub struct RowShares {
    rows: usize,
    units: usize,
    /// c of each row, 0 if it is left out; `None` if every row counts 1.
    divisors: Option<Vec<u16>>,
    /// Rows without a label.
    others: usize,
}

impl RowShares {
    /// So many rows that count 1 each: what is protected is a row.
    pub fn of_rows(rows: usize) -> Self {
        Self {
            rows,
            units: rows,
            divisors: None,
            others: 0,
        }
    }

    /// A label for each row, the same for the rows of one person: what is protected is a person, whose first `cap` rows
    /// count 1/c each, c their number. The others are left out.
    ///
    /// ```
    /// use eigenveil_shared::mechanism::table::RowShares;
    /// let shares = RowShares::of_persons(["ann", "bob", "ann", "ann"], 2);
    /// assert_eq!((shares.rows(), shares.units(), shares.beyond_cap()), (4, 2, 1));
    /// ```
    pub fn of_persons<L: Hash + Eq>(labels: impl IntoIterator<Item = L>, cap: u16) -> Self {
        Self::of_some_persons(labels.into_iter().map(Some), cap)
    }

    /// Shares like those of [`of_persons`](Self::of_persons), where rows without a label are left out: their persons
    /// take no part.
    pub fn of_some_persons<L: Hash + Eq>(
        labels: impl IntoIterator<Item = Option<L>>,
        cap: u16,
    ) -> Self {
        let mut numbers = HashMap::new();
        let mut others = 0;
        // Kept rows of each person, and the person of each row that is kept.
        let mut kept_rows: Vec<u16> = Vec::new();
        let mut persons = Vec::new();
        for label in labels {
            let Some(label) = label else {
                persons.push(None);
                others += 1;
                continue;
            };
            let person = *numbers.entry(label).or_insert(kept_rows.len());
            if person == kept_rows.len() {
                kept_rows.push(0);
            }
            let room = kept_rows[person] < cap;
            kept_rows[person] += u16::from(room);
            persons.push(room.then_some(person));
        }
        let divisors = persons.iter().map(|person| match person {
            Some(person) => kept_rows[*person],
            None => 0,
        });
        Self {
            rows: persons.len(),
            units: kept_rows.len(),
            divisors: Some(divisors.collect()),
            others,
        }
    }

    /// Rows of the table.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of persons, or of rows.
    pub fn units(&self) -> usize {
        self.units
    }

    /// Rows that are left out because their person has more than the cap. **For the site only.**
    pub fn beyond_cap(&self) -> usize {
        let divisors = self.divisors.iter().flatten();
        divisors.filter(|c| **c == 0).count() - self.others
    }

    /// Whether what is protected is a person.
    pub(crate) fn protects_persons(&self) -> bool {
        self.divisors.is_some()
    }

    /// Most rows of one person that count.
    pub(crate) fn largest(&self) -> u16 {
        match &self.divisors {
            None => 1,
            Some(divisors) => divisors.iter().copied().max().unwrap_or(0),
        }
    }

    /// c of this row; `None` if it is left out.
    pub(super) fn divisor(&self, row: usize) -> Option<u16> {
        match &self.divisors {
            None => Some(1),
            Some(divisors) => divisors.get(row).copied().filter(|c| *c > 0),
        }
    }
}

/// The numbers alone: how many rows a person has is nobody's business.
impl std::fmt::Debug for RowShares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowShares({} rows)", self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_person_share_one() {
        let labels = [0, 1, 0, 2, 3, 3, 3, 3, 1];
        let shares = RowShares::of_persons(labels, 3);
        let divisors: Vec<_> = (0..9).map(|row| shares.divisor(row)).collect();
        let [one, two, three] = [1_u16, 2, 3].map(Some);
        assert_eq!(
            divisors,
            [two, two, two, one, three, three, three, None, two]
        );
        assert_eq!((shares.rows(), shares.units()), (9, 4));
        assert_eq!((shares.beyond_cap(), shares.largest()), (1, 3));
        // A cap of one keeps the first row of each.
        let first = RowShares::of_persons(labels, 1);
        let counted = (0..9).filter(|row| first.divisor(*row).is_some());
        assert!(counted.eq([0, 1, 3, 4]));
        // Person 3 takes no part.
        let some = labels.map(|label| Some(label).filter(|label| *label != 3));
        let some = RowShares::of_some_persons(some, 1);
        let counted = (0..9).filter(|row| some.divisor(*row).is_some());
        assert!(counted.eq([0, 1, 3]));
        assert_eq!((some.rows(), some.units(), some.beyond_cap()), (9, 3, 2));
        let rows = RowShares::of_rows(2);
        assert_eq!((rows.divisor(0), rows.largest()), (Some(1), 1));
        assert_eq!((rows.units(), rows.beyond_cap()), (2, 0));
    }
}
