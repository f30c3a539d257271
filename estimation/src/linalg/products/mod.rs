//! Products of matrices: symmetric sums, general ones, and those of many rows.

mod gram;
mod product;
mod tall;

pub use gram::{GramSum, Precision};
pub(super) use product::product_of_views;
pub use product::{
    add_outer_lower, add_symmetrised_outer_lower, cross_product, outer_scaled, product,
};
pub(crate) use product::{outer_columns_lower, symmetric_product};
pub use tall::{
    RowBlock, add_row_block_product, row_block_cross_product, tall_cross_product, tall_product,
};
