//! Mechanisms over a table: a site's report of all its rows at once.
//!
//! A site sends Σxxᵀ over its usable rows and their number, both with noise that is drawn once:
//!
//! ```text
//! Row ──Preprocessor──▶ BoundedRow ──RowGrid──▶ u, whole numbers ──▶ TableSum ──perturb──▶ payload
//!                       (‖x‖₂ ≤ 1)             (‖u‖₂ ≤ 2ᵃ)         (exact, i64)  (ε, δ)    (i64)
//! ```
//!
//! * Neighbours: tables that differ in one row, added, removed or replaced; a row that becomes unusable is removed. In
//!   a study that protects persons: in one person's rows, of which there are at most a public number.
//! * Norm and sensitivity: L2 on (svec Σuuᵀ, count), and on the same with `tri`, in units of 4ᵃ: at most √2, whatever
//!   the number of rows.
//! * Guarantee: that of the mechanism of one row with a triangle one larger, which has room for the count: (ε, δ).
//! * Rounding: rows are rounded first, so that their products and sums are exact, the same in any order. Noise is added
//!   to what is left of the sum within a cell of the released grid, so that f64 costs as little as in the report of one
//!   row, whatever the size of the sum.
//!
//! `docs/derivations/sites.md` has the proofs.

mod payload;
mod product;
mod reach;
mod release;
mod row_grid;
mod shares;
mod sum;

#[cfg(test)]
mod tests;

pub use payload::{NoisyTable, TablePayload};
pub use release::{MAX_TABLE_DIMENSION, TableMechanism};
pub use row_grid::{MAX_ROWS_PER_PERSON, MAX_TABLE_ROWS};
pub use shares::RowShares;
pub use sum::TableSum;
