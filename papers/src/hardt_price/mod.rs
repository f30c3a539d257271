//! Hardt & Price, *The Noisy Power Method* (NeurIPS 2014): the methods of their three boxes.

mod figure_1;
mod figure_2;
mod figure_3;

pub(crate) use figure_1::FIGURE_1;
pub(crate) use figure_2::FIGURE_2;
pub(crate) use figure_3::FIGURE_3;
