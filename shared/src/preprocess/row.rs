//! Raw and prepared rows. None prints its values, and each overwrites them when it is dropped.

use std::fmt;

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
            *value = flush(*value * factor, limit);
        }
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

#[inline(always)]
pub(super) fn masked(value: f64, mask: u64) -> f64 {
    f64::from_bits(value.to_bits() & mask)
}

/// The value, or 0 if its magnitude is below `limit`: bits of positive numbers are ordered as the numbers are.
#[inline(always)]
pub(super) fn flush(value: f64, limit: f64) -> f64 {
    let below = value.abs().to_bits().wrapping_sub(limit.to_bits()) >> 63;
    masked(value, below.wrapping_sub(1))
}
