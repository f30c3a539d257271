//! Raw and prepared rows. None prints its values, and each overwrites them when it is dropped.

use std::{fmt, hint::black_box};

use zeroize::Zeroize;

/// A participant's raw row: p values as they come. Never leaves the device.
#[derive(Clone, PartialEq)]
pub struct Row(Vec<f64>);

impl Row {
    /// A raw row.
    pub fn new(values: Vec<f64>) -> Self {
        Self(values)
    }

    /// The raw values.
    pub fn values(&self) -> &[f64] {
        &self.0
    }
}

impl From<Vec<f64>> for Row {
    fn from(values: Vec<f64>) -> Self {
        Self(values)
    }
}

/// Proof that ‖x‖₂ ≤ 1: made by [`Preprocessor::prepare`](super::Preprocessor::prepare) only, and the only
/// thing a mechanism takes. Each value is 0 or at least [`MIN_ENTRY`](super::MIN_ENTRY) in magnitude.
#[derive(Clone, PartialEq)]
pub struct BoundedRow(Vec<f64>);

impl BoundedRow {
    pub(super) fn new_unchecked(values: Vec<f64>) -> Self {
        Self(values)
    }

    /// Multiplies by a factor of at most 1; what becomes smaller than `limit` is 0.
    pub(super) fn multiply(&mut self, factor: f64, limit: f64) {
        debug_assert!((0.0..=1.0).contains(&factor));
        for value in &mut self.0 {
            *value *= factor;
        }
        drop_tiny(&mut self.0, limit);
    }

    /// The number of values: p, or p + 1 with private centring.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    /// The prepared values, for a mechanism.
    pub fn as_slice(&self) -> &[f64] {
        &self.0
    }
}

/// The p prepared features of a usable row, ‖x‖₂ ≤ 1: for scores on the owner's machine and for trusted-curator
/// baselines. No mechanism takes one, because making one fails where a row cannot be used:
///
/// ```compile_fail
/// # use eigenveil_shared::{preprocess::Row, study::StudyParams};
/// fn send(params: &StudyParams, row: &Row) -> eigenveil_shared::Result<Vec<u8>> {
///     params.mechanism().perturb(&params.preprocessor().prepare_features(row)?)
/// }
/// ```
#[derive(Clone, PartialEq)]
pub struct FeatureRow(Vec<f64>);

impl FeatureRow {
    pub(super) fn new_unchecked(values: Vec<f64>) -> Self {
        Self(values)
    }

    /// The number of values, p.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    /// The prepared values.
    pub fn as_slice(&self) -> &[f64] {
        &self.0
    }
}

/// Values are overwritten on drop, and never printed.
macro_rules! secret {
    ($($row:ident)*) => {$(
        impl Drop for $row {
            fn drop(&mut self) {
                self.0.zeroize();
            }
        }

        impl fmt::Debug for $row {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($row), "({} values)"), self.0.len())
            }
        }
    )*};
}

secret!(Row BoundedRow FeatureRow);

/// Cells whose masks pass the barrier together.
const LANES: usize = 8;

/// The value, or 0 where the mask is 0 and not all ones.
#[inline(always)]
pub(super) fn masked(value: f64, mask: u64) -> f64 {
    f64::from_bits(value.to_bits() & mask)
}

/// Masks each value, and says how many are kept. The masks pass a barrier first: a compiler that sees where one comes
/// from makes it a compare and a jump, wherever values are not in a vector.
#[inline(always)]
fn keep(values: &mut [f64], mask: impl Fn(f64) -> u64) -> u64 {
    let mut count = 0;
    let (blocks, rest) = values.as_chunks_mut::<LANES>();
    for block in blocks {
        let mut masks = [0; LANES];
        for lane in 0..LANES {
            masks[lane] = mask(block[lane]);
        }
        let masks = black_box(masks);
        for lane in 0..LANES {
            block[lane] = masked(block[lane], masks[lane]);
            count += masks[lane] & 1;
        }
    }
    for value in rest {
        let mask = black_box(mask(*value));
        *value = masked(*value, mask);
        count += mask & 1;
    }
    count
}

/// Sets what is below `limit` in magnitude to 0, and leaves NaN.
#[inline(always)]
pub(super) fn drop_tiny(values: &mut [f64], limit: f64) {
    // Bits of positive numbers are ordered as the numbers are, those of NaN last.
    keep(values, |value| {
        let below = value.abs().to_bits().wrapping_sub(limit.to_bits()) >> 63;
        below.wrapping_sub(1)
    });
}

/// Sets NaN to 0, and says how many values are numbers (infinity included).
#[inline(always)]
pub(super) fn drop_missing(values: &mut [f64]) -> u64 {
    keep(values, |value| {
        let beyond = f64::INFINITY.to_bits().wrapping_sub(value.abs().to_bits()) >> 63;
        beyond.wrapping_sub(1)
    })
}

/// Divides each value; what becomes smaller than `limit` is 0.
#[inline(always)]
pub(super) fn divide(values: &mut [f64], divisor: f64, limit: f64) {
    for value in &mut *values {
        *value /= divisor;
    }
    drop_tiny(values, limit);
}
