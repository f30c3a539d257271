//! The exact sum of a table.

use std::{
    num::NonZeroUsize,
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use rand::Rng;
use zeroize::Zeroize;

use super::{RowShares, TableMechanism, product::Block};
use crate::{
    error::{Error, Result, error},
    mechanism::{SamplingCost, sampling_cost::CountingRng, spec::release_generator},
    packed::packed_len,
    preprocess::{BoundedRow, Preprocessor, Row},
};

/// Rows that are multiplied at once: a block of 400 columns stays near the processor.
const BLOCK_ROWS: usize = 512;

/// Σuuᵀ and the count of a table, exact: each row is in it once. It never leaves a site, and is overwritten when it is
/// dropped. Made by [`SiteStudyParams::sum`](crate::site_study::SiteStudyParams::sum) only; [`perturb`](Self::perturb)
/// consumes it.
pub struct TableSum {
    mechanism: TableMechanism,
    /// Rows that are not in the sums yet.
    block: Block,
    /// The packed upper triangle, in units of 4⁻ᵃ.
    pub(super) products: Vec<i64>,
    /// In units of 4⁻ᵃ.
    pub(super) count: i64,
    unusable: usize,
}

impl TableSum {
    /// The sum of the rows with these shares, whose number was checked; `rows` gives consecutive ones by number, from 0.
    pub(crate) fn of_table<E, I, F>(
        mechanism: TableMechanism,
        preprocessor: Preprocessor<'_>,
        shares: &RowShares,
        threads: NonZeroUsize,
        rows: F,
    ) -> Result<Self, E>
    where
        E: From<Error> + Send,
        I: IntoIterator<Item = Row>,
        F: Fn(Range<usize>) -> Result<I, E> + Sync,
    {
        Self::in_blocks(mechanism, preprocessor, shares, threads, BLOCK_ROWS, rows)
    }

    pub(super) fn in_blocks<E, I, F>(
        mechanism: TableMechanism,
        preprocessor: Preprocessor<'_>,
        shares: &RowShares,
        threads: NonZeroUsize,
        block_rows: usize,
        rows: F,
    ) -> Result<Self, E>
    where
        E: From<Error> + Send,
        I: IntoIterator<Item = Row>,
        F: Fn(Range<usize>) -> Result<I, E> + Sync,
    {
        let next = AtomicUsize::new(0);
        let add_rows = || -> Result<Self, E> {
            let mut sum = Self::empty(mechanism, block_rows);
            loop {
                let start = next.fetch_add(block_rows, Ordering::Relaxed);
                if start >= shares.rows() {
                    sum.add_block();
                    return Ok(sum);
                }
                let numbers = start..shares.rows().min(start + block_rows);
                sum.add_rows(preprocessor, shares, numbers.clone(), rows(numbers)?)?;
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads.get()).map(|_| scope.spawn(add_rows)).collect();
            let mut sum = add_rows()?;
            for other in others {
                match other.join() {
                    Ok(part) => sum.merge(&part?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(sum)
        })
    }

    /// Adds the rows with these numbers, which must be all of them.
    fn add_rows(
        &mut self,
        preprocessor: Preprocessor<'_>,
        shares: &RowShares,
        numbers: Range<usize>,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<()> {
        let wanted = numbers.len();
        let mut rows = rows.into_iter();
        for number in numbers {
            let row = rows.next().ok_or_else(|| other_number_of_rows(wanted))?;
            let Some(c) = shares.divisor(number) else {
                continue;
            };
            // Never fails because of a value.
            let (bounded, warning) = preprocessor.prepare_with_warning(&row)?;
            self.add(&bounded, c, warning.is_none());
        }
        match rows.next() {
            None => Ok(()),
            Some(_) => Err(other_number_of_rows(wanted)),
        }
    }

    fn empty(mechanism: TableMechanism, block_rows: usize) -> Self {
        let dimension = mechanism.dimension();
        Self {
            mechanism,
            block: Block::new(dimension, block_rows),
            products: vec![0; packed_len(dimension)],
            count: 0,
            unusable: 0,
        }
    }

    /// Adds one of its person's c rows. One that cannot be used is a row of zeros that does not count: the time that
    /// this takes says nothing about it. (What is told of unusable cells takes time elsewhere.)
    fn add(&mut self, row: &BoundedRow, c: u16, is_usable: bool) {
        let grid = self.mechanism.grid();
        let used = u8::from(is_usable);
        let rounded = grid.round(row.as_slice(), c);
        self.block
            .push(rounded.map(|number| number * f64::from(used)));
        self.count += grid.share(c) * i64::from(used);
        self.unusable += usize::from(!is_usable);
        if self.block.is_full() {
            self.add_block();
        }
    }

    fn add_block(&mut self) {
        self.block.add_to(&mut self.products);
    }

    fn merge(&mut self, other: &Self) {
        for (sum, part) in self.products.iter_mut().zip(&other.products) {
            *sum += part;
        }
        self.count += other.count;
        self.unusable += other.unusable;
    }

    /// Rows that could not be used, and are neither in the sum nor in the count. **For the site only.**
    pub fn unusable(&self) -> usize {
        self.unusable
    }

    /// Perturbs for release: a payload of P(P+1)/2 + 1 little-endian i64, the noisy triangle row by row and the noisy
    /// count. The noise is drawn here, once, from ChaCha20 keyed by the operating system; a retry sends the same bytes.
    ///
    /// # Errors
    /// `randomness-unavailable` when the operating system gives no randomness.
    pub fn perturb(self) -> Result<Vec<u8>> {
        Ok(self.perturb_measured()?.0)
    }

    /// Like [`perturb`](Self::perturb), and also returns what someone timing the noise could see. **For the audit
    /// only**: it must never leave a site.
    pub fn perturb_measured(self) -> Result<(Vec<u8>, SamplingCost)> {
        Ok(self.perturb_with_measured(&mut release_generator()?))
    }

    /// Perturbs with the caller's generator, **for simulation only**: reproducible noise protects nobody.
    pub fn perturb_with<R: Rng + ?Sized>(self, rng: &mut R) -> Vec<u8> {
        self.perturb_with_measured(rng).0
    }

    /// [`perturb_with`](Self::perturb_with) and [`perturb_measured`](Self::perturb_measured) at once.
    pub fn perturb_with_measured<R: Rng + ?Sized>(self, rng: &mut R) -> (Vec<u8>, SamplingCost) {
        let mut rng = CountingRng::new(rng);
        let payload = self.mechanism.release(&self.products, self.count, &mut rng);
        let cost = SamplingCost {
            attempts: 1,
            words: rng.words(),
        };
        (payload, cost)
    }
}

fn other_number_of_rows(wanted: usize) -> Error {
    error!(
        InvalidRequest,
        "the table gave another number of rows than the {wanted} that were asked for; it must not change while it is read"
    )
}

impl Drop for TableSum {
    fn drop(&mut self) {
        self.products.zeroize();
        self.count.zeroize();
        self.unusable.zeroize();
    }
}

/// Nothing of what it holds.
impl std::fmt::Debug for TableSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TableSum")
    }
}
