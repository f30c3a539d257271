//! Hardt & Price, *The Noisy Power Method* (NeurIPS 2014): the methods of their three boxes.

mod noisy;
mod private;
mod streaming;

pub(crate) use noisy::FIGURE_1;
pub(crate) use private::FIGURE_3;
pub(crate) use streaming::FIGURE_2;
