//! Liu, Kong, Jain & Oh, *DP-PCA* (NeurIPS 2022): their figure, and the example it illustrates.

mod example_4_1;
mod figure_1;

pub(crate) use example_4_1::EXAMPLE_4_1;
pub(crate) use figure_1::FIGURE_1;
