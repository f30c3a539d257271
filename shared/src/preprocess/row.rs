//! Raw and bounded rows. Neither prints its values.

use std::fmt;

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

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({} values)", self.0.len())
    }
}

/// Proof that ‖x‖₂ ≤ 1: made by [`Preprocessor`](super::Preprocessor) only, and the only thing a
/// mechanism takes.
#[derive(Clone, PartialEq)]
pub struct BoundedRow(Vec<f64>);

impl BoundedRow {
    pub(super) fn proved(values: Vec<f64>) -> Self {
        Self(values)
    }

    pub(super) fn zero(dimension: usize) -> Self {
        Self(vec![0.0; dimension])
    }

    pub(super) fn into_values(self) -> Vec<f64> {
        self.0
    }

    /// The number of values: p, or p + 1 with private centring.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    /// The prepared values, for a mechanism, for scores on the owner's machine, or for a
    /// trusted-curator baseline.
    pub fn as_slice(&self) -> &[f64] {
        &self.0
    }
}

impl fmt::Debug for BoundedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BoundedRow({} values)", self.0.len())
    }
}
