//! Rows as whole numbers.

/// Most rows (or persons) that a study may allow a table.
pub const MAX_TABLE_ROWS: u64 = 1 << 32;
/// Most rows of one person that a study may count.
pub const MAX_ROWS_PER_PERSON: u16 = 1_000;

/// Largest a: 2¹³ rows of length 2²⁰ have sums of products of up to 2⁵³, which f64 holds exactly.
const MAX_BITS: u32 = 20;
/// A sum over a table is at most 2⁶² in magnitude.
const SUM_BITS: u32 = 62;
/// 1.5·2⁵²: near it every f64 is a whole number, so adding and subtracting it rounds to the nearest one.
const ROUNDING_OFFSET: f64 = 1.5 * (1_u64 << 52) as f64;

/// u = rint(s·x/√c), so that the c rows of one person, each in the unit ball, have Σ‖u‖² ≤ 4ᵃ
/// (`docs/derivations/sites.md`, "Rows in whole numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowGrid {
    /// a.
    bits: u32,
    /// s.
    scale: u64,
}

impl RowGrid {
    /// The finest grid for rows of this dimension, in tables of at most `max_units` rows or persons, of whom each has
    /// at most `rows_per_unit` rows.
    pub(super) fn new(dimension: usize, max_units: u64, rows_per_unit: u16) -> Self {
        let fits = |bits: &u32| u128::from(max_units) << (2 * bits) <= 1_u128 << SUM_BITS;
        let bits = (0..=MAX_BITS).rev().find(fits).unwrap_or(0);
        Self::with_bits(bits, dimension, rows_per_unit)
    }

    /// s = 2ᵃ − ⌈√(c·p)/2⌉ − 1: rounding adds at most √(c·p)/2 to the length of c rows together, f64 less than 1.
    pub(super) fn with_bits(bits: u32, dimension: usize, rows_per_unit: u16) -> Self {
        let numbers = u64::from(rows_per_unit).saturating_mul(dimension as u64);
        let floor = numbers.isqrt();
        let root = floor + u64::from(floor * floor < numbers);
        let scale = (1_u64 << bits).saturating_sub(root.div_ceil(2) + 1);
        Self { bits, scale }
    }

    /// a.
    pub(super) fn bits(self) -> u32 {
        self.bits
    }

    /// 4ᵃ, which stands for 1 in sums.
    pub(super) fn unit(self) -> i64 {
        1 << (2 * self.bits)
    }

    /// The part in the count of one of c rows, in sums: together they count at most 1.
    pub(super) fn share(self, c: u16) -> i64 {
        self.unit() / i64::from(c)
    }

    /// The whole numbers of one of c rows.
    pub(super) fn round(self, row: &[f64], c: u16) -> impl Iterator<Item = f64> {
        let factor = self.scale as f64 / f64::from(c).sqrt();
        row.iter()
            .map(move |x| (x * factor + ROUNDING_OFFSET) - ROUNDING_OFFSET)
    }

    /// (2ᵃ/s)², by which a sum of uuᵀ in units of 4ᵃ is multiplied to become one of xxᵀ.
    pub(super) fn decoding(self) -> f64 {
        let ratio = (1_u64 << self.bits) as f64 / self.scale as f64;
        ratio * ratio
    }

    #[cfg(test)]
    pub(super) fn scale(self) -> u64 {
        self.scale
    }
}
