//! Maunu, Yu & Lerman, *Stochastic and Private Nonconvex Outlier-Robust PCA*: their ten figures, at the printed
//! noise and at noise that holds.

mod batches;
mod convergence;
mod europe;
mod grid;
mod haystack;
mod method;
mod popres;
mod sizes;
mod transitions;

pub(crate) use batches::FIGURE_5;
pub(crate) use convergence::FIGURE_1;
pub(crate) use europe::{FIGURE_3, FIGURE_10};
pub(crate) use sizes::{FIGURE_2, FIGURE_7, FIGURE_8, FIGURE_9};
pub(crate) use transitions::{FIGURE_4, FIGURE_6};
