//! Hardt & Price, *The Noisy Power Method* (NeurIPS 2014): the methods of their three boxes, and all of them beside
//! Oja's.

mod budgets;
mod noisy;
mod private;
mod streaming;

pub(crate) use budgets::EQUAL_BUDGETS;
pub(crate) use noisy::FIGURE_1;
pub(crate) use private::FIGURE_3;
pub(crate) use streaming::FIGURE_2;
