//! How many there are of what an estimate is made of.

/// Three counts, each for the errors that fall with it: draws of noise, rows, and sites.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counts {
    /// Reports, for each of which noise was drawn once.
    pub draws: u64,
    /// Reports of one row each whose mean has as much noise: noise falls with it.
    pub n_eff: f64,
    /// Rows of the same weight whose mean has as much sampling: sampling falls with it.
    pub rows: f64,
    /// Sites that the rows are from, with which falls what differs between them; 0 where each report is of one row.
    pub sites: usize,
}

impl Counts {
    /// The counts of n reports of one row each. Their weights are in the noise model: n reports of mean weight w̄ have the
    /// noise of n·w̄² reports of weight 1.
    pub fn of_rows(n: u64) -> Self {
        Self {
            draws: n,
            n_eff: n as f64,
            rows: n as f64,
            sites: 0,
        }
    }

    /// Rows of the tables of a study of sites; `None` where each report is of one row.
    pub(crate) fn rows_of_tables(&self) -> Option<u64> {
        (self.sites > 0).then_some(self.rows.round() as u64)
    }
}
