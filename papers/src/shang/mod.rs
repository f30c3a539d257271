//! Shang et al., *PCA in the Stochastic Differential Privacy Model*: its data sets and its comparison.

mod figure_1;
mod table_2;

pub(crate) use figure_1::FIGURE_1;
pub(crate) use table_2::TABLE_2;
