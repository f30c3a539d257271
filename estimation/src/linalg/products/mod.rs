//! Products of matrices: symmetric sums, general ones, and those of many rows.

mod gram;
mod product;
mod symmetric;
mod tall;

pub use gram::{GramSum, Precision};
pub(crate) use product::outer_columns_lower;
pub use product::{
    add_outer_lower, add_symmetrised_outer_lower, cross_product, outer_scaled, product,
};
pub(crate) use symmetric::symmetric_product;
pub(super) use tall::{add_tall_product, tall_cross};
pub use tall::{tall_cross_product, tall_product};
