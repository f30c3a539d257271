//! Cells that are missing in public rows: which columns lack theirs together.

use std::collections::HashMap;

use crate::Table;

/// Columns form a section if at least this share of the rows that lack one of two lack both.
const TOGETHER: f64 = 0.9;

/// For each column the first one of its section, where there is another; `missing` are the columns that lack cells.
pub(super) fn sections(table: Table<'_>, missing: &[usize]) -> Vec<Option<usize>> {
    // A bit a row.
    let mut lacking = vec![vec![0_u64; table.len.div_ceil(64)]; missing.len()];
    for index in 0..table.len {
        let row = (table.row)(index);
        for (bits, &column) in lacking.iter_mut().zip(missing) {
            bits[index / 64] |= u64::from(row.values()[column].is_nan()) << (index % 64);
        }
    }
    let mut members: Vec<Vec<usize>> = Vec::new();
    for (at, bits) in lacking.iter().enumerate() {
        let mut known = members.iter_mut();
        match known.find(|section| lack_together(&lacking[section[0]], bits)) {
            Some(section) => section.push(at),
            None => members.push(vec![at]),
        }
    }
    let mut sections = vec![None; table.columns];
    for section in members.iter().filter(|section| section.len() > 1) {
        for &at in section {
            sections[missing[at]] = Some(missing[section[0]]);
        }
    }
    sections
}

fn lack_together(one: &[u64], other: &[u64]) -> bool {
    let (mut both, mut either) = (0, 0);
    for (one, other) in one.iter().zip(other) {
        both += (one & other).count_ones();
        either += (one | other).count_ones();
    }
    f64::from(both) >= TOGETHER * f64::from(either)
}

/// The shares of people who have a value: in a section the mean of its columns.
pub(super) fn shares_of_sections(observed: &[f64], sections: &[Option<usize>]) -> Vec<f64> {
    let mut sums: HashMap<usize, (f64, f64)> = HashMap::new();
    for (share, section) in observed.iter().zip(sections) {
        if let Some(first) = section {
            let (sum, count) = sums.entry(*first).or_default();
            *sum += share;
            *count += 1.0;
        }
    }
    let shares = observed.iter().zip(sections);
    let shares = shares.map(|(share, section)| match section {
        Some(first) => sums.get(first).map_or(*share, |(sum, count)| sum / count),
        None => *share,
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::preprocess::Row;

    use super::*;

    /// Columns 1 and 3 lack the same rows but for one in fifty, column 2 others, and column 0 none.
    #[test]
    fn columns_that_lack_cells_together_are_a_section() {
        let cell = |there: bool| if there { 1.0 } else { f64::NAN };
        let row = |i: usize| {
            vec![
                1.0,
                cell(!i.is_multiple_of(2)),
                cell(!i.is_multiple_of(3)),
                cell(!i.is_multiple_of(2) || i == 8),
            ]
        };
        let table = Table {
            len: 100,
            columns: 4,
            row: &|index| Row::new(row(index)),
        };
        let section_numbers = sections(table, &[1, 2, 3]);
        assert_eq!(section_numbers, [None, Some(1), None, Some(1)]);
        let shares = shares_of_sections(&[1.0, 0.5, 0.66, 0.75], &section_numbers);
        assert_eq!(shares, [1.0, 0.625, 0.66, 0.625]);
        // One by one, with the same share.
        let row = |i: usize| vec![1.0, cell(!i.is_multiple_of(2)), cell(i.is_multiple_of(2))];
        let table = Table {
            len: 100,
            columns: 3,
            row: &|index| Row::new(row(index)),
        };
        assert_eq!(sections(table, &[1, 2]), [None; 3]);
    }
}
