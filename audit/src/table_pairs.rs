//! The pairs of tables to try: what a site has, and what neighbouring tables differ in.

use eigenveil_shared::preprocess::Row;

use crate::{
    PairKind, Table,
    pairs::{OFFSET, unit_row},
};

/// Rows that both tables of a pair have, one of four with a missing cell.
const REST: u8 = 32;
/// Most rows of one person that count, in the pairs of persons.
pub(crate) const ROWS_PER_PERSON: u16 = 8;
/// Rows of the largest table.
pub(crate) const LARGEST_TABLE: u64 = REST as u64 + ROWS_PER_PERSON as u64 + 1;
/// The person whose rows the tables of a pair differ in; the others are numbered from 0.
const PERSON: u16 = 1_000;

impl PairKind {
    /// Most rows of one person that count, where the pair's study protects persons.
    pub(crate) fn rows_per_person(self) -> Option<u16> {
        let protects_persons = matches!(
            self,
            Self::PersonAdded | Self::PersonReplaced | Self::PersonUnusable
        );
        protects_persons.then_some(ROWS_PER_PERSON)
    }

    /// The raw tables, of rows of length `p` ≥ 2, of a pair of tables.
    pub fn tables(self, p: usize, seed: u64) -> (Table, Table) {
        let (a, b) = self.rows(p, seed);
        let rest: Vec<Row> = (0..REST).map(|number| rest_row(number, p, seed)).collect();
        let with = |own: &[&Row]| {
            let clones = own.iter().map(|row| (*row).clone());
            rest.iter().cloned().chain(clones).collect::<Vec<_>>()
        };
        let times = |row: &Row, count: usize| with(&vec![row; count]);
        let cap = usize::from(ROWS_PER_PERSON);
        let (mut a, mut b) = match self {
            Self::RowAdded | Self::CentredRowAdded => (with(&[&a]), rest.clone()),
            // Another place than at the end.
            Self::RowRemoved => {
                let mut first = vec![a];
                first.extend(rest.iter().cloned());
                (first, rest.clone())
            }
            Self::AllUnusable => (vec![b.clone(), a, b.clone()], vec![b; 3]),
            Self::PersonAdded => (times(&a, cap), rest.clone()),
            // One row more than count.
            Self::PersonReplaced => (times(&a, cap + 1), times(&b, cap)),
            Self::PersonUnusable => {
                let mut rows = times(&a, cap - 1);
                rows.push(rest_row(0, p, seed));
                (rows, times(&b, cap))
            }
            _ => (with(&[&a]), with(&[&b])),
        };
        if self == Self::OffsetRows {
            for row in a.iter_mut().chain(&mut b) {
                *row = row
                    .values()
                    .iter()
                    .map(|x| x + OFFSET)
                    .collect::<Vec<_>>()
                    .into();
            }
        }
        let table = |rows: Vec<Row>| Table {
            persons: self.rows_per_person().map(|_| {
                let person_rows = rows.len() - usize::from(REST);
                (0..u16::from(REST))
                    .chain(vec![PERSON; person_rows])
                    .collect()
            }),
            rows,
        };
        (table(a), table(b))
    }
}

/// A row that both tables have: random, of length 1; of each fourth the first value is missing.
fn rest_row(number: u8, p: usize, seed: u64) -> Row {
    // Other ones than those of pairs of rows.
    let mut row = unit_row(3 + number, p, seed);
    if number.is_multiple_of(4) {
        row[0] = f64::NAN;
    }
    Row::new(row)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use eigenveil_shared::{codec::SiteReportFormat, mechanism::MechanismKind, privacy::Budget};
    use rand::{SeedableRng, rngs::ChaCha20Rng};

    use super::*;
    use crate::AuditSettings;

    /// Neighbours of a study, as far apart as they may be: √2 but for the last person, of whom one row is unusable. What
    /// the definition says of a table is what the site's software sums up.
    #[test]
    fn tables_are_neighbours_and_their_contents_those_of_a_report() {
        let budget = Budget::approximate(16.0, 1e-3).unwrap();
        let settings = AuditSettings {
            max_rows: Some(1_000),
            ..AuditSettings::new(MechanismKind::DiscreteGaussian, 3, budget, 1_000)
        };
        let pairs = settings.selected_pairs();
        assert_eq!(pairs.len(), 11);
        for pair in pairs {
            let params = settings.site_study(pair, 1_000).unwrap();
            let (a, b) = pair.tables(3, 5);
            let rows = [&a, &b].map(|table| table.rows.len());
            assert!(rows.iter().all(|rows| *rows as u64 <= LARGEST_TABLE));
            let [exact_a, exact_b] = [&a, &b].map(|table| table.exact(&params).unwrap());
            let p = params.report_dimension();
            let mut squared = (exact_a.1 - exact_b.1).powi(2);
            for i in 0..p {
                for j in 0..p {
                    squared += (exact_a.0.get(i, j) - exact_b.0.get(i, j)).powi(2);
                }
            }
            let expected = match pair {
                PairKind::PersonUnusable => 1.0 + (49.0 + 1.0) / 64.0,
                _ => 2.0,
            };
            assert!((squared - expected).abs() < 1e-9, "{pair}: {squared}");
            // The mean of many reports.
            let format = SiteReportFormat::new(&params);
            let mechanism = params.mechanism();
            let mut rng = ChaCha20Rng::seed_from_u64(3);
            let (mut trace, mut count) = (0.0, 0.0);
            for _ in 0..400 {
                let row = |number: usize| a.rows[number].clone();
                let sum = params.sum(&a.shares(&params), NonZeroUsize::MIN, row);
                let payload = format.payload(sum.unwrap().perturb_with(&mut rng)).unwrap();
                let table = mechanism.decode(&payload);
                trace += table.moment.trace() / 400.0;
                count += table.rows / 400.0;
            }
            // Five and a half standard deviations of 22 numbers.
            let sd = 5.5 * mechanism.count_sd() / 20.0;
            assert!((count - exact_a.1).abs() < sd, "{pair}: {count}");
            let off = (trace - exact_a.0.trace()).abs();
            assert!(off < sd * (p as f64).sqrt(), "{pair}: {trace}");
        }
    }
}
