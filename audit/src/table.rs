//! A site's table, and its contents by the definition.

use eigenveil_shared::{
    Result, mechanism::table::RowShares, packed::PackedSymmetric, preprocess::Row,
    site_study::SiteStudyParams,
};

/// A site's raw table.
#[derive(Clone, Debug)]
pub struct Table {
    /// The raw rows.
    pub rows: Vec<Row>,
    /// Whose each row is, in a study that protects persons.
    pub persons: Option<Vec<u16>>,
}

impl Table {
    /// How much each row counts in this study.
    pub fn shares(&self, params: &SiteStudyParams) -> RowShares {
        let cap = params.terms().rows_per_person.unwrap_or(1);
        match &self.persons {
            None => RowShares::of_rows(self.rows.len()),
            Some(persons) => RowShares::of_persons(persons, cap),
        }
    }

    /// Part of each row in its person's, 0 beyond the cap: the shares by their definition.
    pub fn parts(&self, params: &SiteStudyParams) -> Vec<f64> {
        let cap = params.terms().rows_per_person.map_or(1, usize::from);
        let Some(persons) = &self.persons else {
            return vec![1.0; self.rows.len()];
        };
        let count = |rows: &[u16], of: u16| rows.iter().filter(|person| **person == of).count();
        let parts = persons.iter().enumerate().map(|(at, of)| {
            let is_left_out = count(&persons[..at], *of) >= cap;
            match is_left_out {
                true => 0.0,
                false => 1.0 / count(persons, *of).min(cap) as f64,
            }
        });
        parts.collect()
    }

    /// Σxxᵀ over the usable rows and their number, by the definition: without rounding and noise.
    pub(crate) fn exact(&self, params: &SiteStudyParams) -> Result<(PackedSymmetric, f64)> {
        let preprocessor = params.preprocessing().preprocessor()?;
        let mut moment = PackedSymmetric::zeros(params.report_dimension());
        let mut count = 0.0;
        for (row, part) in self.rows.iter().zip(self.parts(params)) {
            if let (bounded, None) = preprocessor.prepare_with_warning(row)? {
                moment.add_outer(bounded.as_slice(), part);
                count += part;
            }
        }
        Ok((moment, count))
    }
}
