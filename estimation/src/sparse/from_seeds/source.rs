//! The source of the reports: seeds that can be read more than once.

use eigenveil_shared::{
    Error, Result,
    mechanism::double_cap::{Seed, expand},
};
use nalgebra::DMatrix;

use crate::{
    cancel::Cancel,
    input::{accumulate::Accumulator, seed_sample::SeedSample},
    linalg::{GramSum, parallel_for_each},
};

/// Seeds expanded at a time.
pub(super) const BLOCK: usize = 256;

/// The stored seeds of a study. Every pass gives the same seeds, bucket after bucket.
pub trait SeedSource {
    /// Number of buckets.
    fn buckets(&self) -> u32;

    /// Stored reports that are left out because another report with the same seed is included.
    fn repeated(&self) -> u64 {
        0
    }

    /// Passes the seeds that are in no sum of [`folded`](Self::folded) to `take`, range by range, each with the number
    /// of its bucket. A range is added up by itself: whether it is in a folded sum changes no bit of its bucket's.
    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()>;

    /// Passes the sums of the first seeds of buckets to `take`, at most one per bucket, with its number. A source that
    /// is to be read seed by seed has none.
    fn folded(
        &self,
        _cancel: Cancel<'_>,
        _take: &mut dyn FnMut(u32, Accumulator) -> Result<()>,
    ) -> Result<()> {
        Ok(())
    }

    /// Seeds of the odd buckets, for the check whether real rows can have produced them: all, or a [`SeedSample`] of
    /// each bucket.
    fn sample(&self, cancel: Cancel<'_>) -> Result<Vec<Seed>> {
        let buckets = self.buckets();
        let mut samples: Vec<SeedSample> = (0..buckets)
            .map(|bucket| SeedSample::new(bucket, buckets))
            .collect();
        self.pass(&mut |bucket, seeds| {
            cancel.check()?;
            samples[bucket as usize].add(seeds);
            Ok(())
        })?;
        Ok(samples
            .iter()
            .flat_map(SeedSample::seeds)
            .copied()
            .collect())
    }
}

/// Seeds in memory, bucket after bucket.
impl SeedSource for Vec<Vec<Seed>> {
    fn buckets(&self) -> u32 {
        self.len() as u32
    }

    fn pass(&self, take: &mut dyn FnMut(u32, &[Seed]) -> Result<()>) -> Result<()> {
        for (bucket, seeds) in (0..).zip(self) {
            take(bucket, seeds)?;
        }
        Ok(())
    }
}

/// Expanded directions restricted to some rows, one report per column; the squared lengths are those of all p numbers.
pub(super) struct Directions<T> {
    p: usize,
    /// The rows of a direction that are stored; `None`: all of them.
    rows: Option<Vec<usize>>,
    /// `rows × BLOCK`, directions of length one.
    pub(super) block: DMatrix<T>,
}

impl<T: nalgebra::Scalar + Default + Send> Directions<T> {
    pub(super) fn new(p: usize, rows: Option<Vec<usize>>) -> Self {
        let dimension = rows.as_ref().map_or(p, Vec::len);
        Self {
            p,
            rows,
            block: DMatrix::from_element(dimension, BLOCK, T::default()),
        }
    }

    /// Expands at most [`BLOCK`] seeds into the leading columns, shared out among threads.
    pub(super) fn fill(&mut self, seeds: &[Seed], round: impl Fn(f64) -> T + Sync) {
        let Self { p, rows, block } = self;
        let rows = rows.as_deref();
        let width = block.nrows().max(1);
        let columns = block.as_mut_slice().chunks_exact_mut(width);
        parallel_for_each(seeds.iter().zip(columns), |(seed, column)| {
            let mut normals = vec![0.0; *p];
            let inverse = expand(seed, &mut normals).sqrt().recip();
            match rows {
                None => {
                    for (out, z) in column.iter_mut().zip(&normals) {
                        *out = round(z * inverse);
                    }
                }
                Some(rows) => {
                    for (out, &row) in column.iter_mut().zip(rows) {
                        *out = round(normals[row] * inverse);
                    }
                }
            }
        });
    }
}

/// `Σ ggᵀ` on `rows` (and their columns) in f64, bucket by bucket; `cancel` is checked once a block.
pub(super) fn sums_of_rows(
    source: &(impl SeedSource + ?Sized),
    p: usize,
    rows: &[usize],
    cancel: Cancel<'_>,
) -> Result<Vec<Accumulator>> {
    let mut directions = Directions::new(p, Some(rows.to_vec()));
    let mut sums: Vec<(u32, GramSum<f64>, u64)> = Vec::new();
    source.pass(&mut |bucket, seeds| {
        let at = match sums.iter().position(|(number, ..)| *number == bucket) {
            Some(at) => at,
            None => {
                sums.push((bucket, GramSum::new(rows.len()), 0));
                sums.len() - 1
            }
        };
        let (_, gram, count) = &mut sums[at];
        for some in seeds.chunks(BLOCK) {
            cancel.check()?;
            directions.fill(some, |z| z);
            for column in directions.block.column_iter().take(some.len()) {
                gram.add(column.as_slice(), 1.0);
            }
            *count += some.len() as u64;
        }
        Ok(())
    })?;
    sums.into_iter()
        .map(|(_, gram, count)| Accumulator::from_parts(gram.finish(), count))
        .collect()
}

/// The reports of the second pass must be those of the first.
pub(super) fn check_same_reports(sums: &[Accumulator], n: u64) -> Result<()> {
    let counted: u64 = sums.iter().map(Accumulator::count).sum();
    if counted == n {
        return Ok(());
    }
    Err(Error::estimate_failed(format!(
        "the first pass over the seeds had {n} reports and the second {counted}; request the estimate again"
    )))
}
