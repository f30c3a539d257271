//! Halves of the reports: one provides the directions that the other is tested along.

use eigenveil_shared::{Result, study::StudyParams};
use nalgebra::DMatrix;

use crate::{
    input::{accumulate::Accumulator, seed_sample::gives_directions},
    linalg::{packed_to_dense, top_k},
};

/// Probability of `impossible` where a device made every report, at most.
pub const FALSE_ALARM_RATE: f64 = 1e-3;
/// The share of it that each of the two limits may use.
pub(super) const SHARE: f64 = 0.5 * FALSE_ALARM_RATE;
pub(super) const MAX_DIRECTIONS: usize = 8;
const MIN_REPORTS: u64 = 64;

/// The leading directions of one half of the reports, and the sum of the other half.
pub struct SampleSplit {
    /// `p × d`, orthonormal, leading first; p is the dimension of the reports.
    pub directions: DMatrix<f64>,
    /// The decoded sum of the other half.
    pub others: Accumulator,
}

impl SampleSplit {
    /// Splits the sums of a study's payloads by the parity of their bucket numbers; `None` if a half has fewer than 64
    /// reports.
    pub fn new(buckets: &[(u32, Accumulator)], params: &StudyParams) -> Result<Option<Self>> {
        let p = params.report_dimension();
        let mut split = [Accumulator::new(p)?, Accumulator::new(p)?];
        for (number, sum) in buckets {
            split[usize::from(!gives_directions(*number))].merge(sum)?;
        }
        if p < 2 || split.iter().any(|half| half.count() < MIN_REPORTS) {
            return Ok(None);
        }
        let [mut first, mut others] = split;
        first.decode(params.mechanism());
        others.decode(params.mechanism());
        let moment = packed_to_dense(first.sum());
        let directions = top_k(&moment, MAX_DIRECTIONS.min(p - 1))?.vectors;
        Ok(Some(Self { directions, others }))
    }
}
