//! Maunu, Yu & Lerman, *Stochastic and Private Nonconvex Outlier-Robust PCA*: their ten figures, as published and with
//! accounted noise.

mod figure_1;
mod figure_5;
mod figures_2_7_8_9;
mod figures_3_10;
mod figures_4_6;
mod grid;
mod haystack;
mod method;
mod popres;

pub(crate) use figure_1::FIGURE_1;
pub(crate) use figure_5::FIGURE_5;
pub(crate) use figures_2_7_8_9::{FIGURE_2, FIGURE_7, FIGURE_8, FIGURE_9};
pub(crate) use figures_3_10::{FIGURE_3, FIGURE_10};
pub(crate) use figures_4_6::{FIGURE_4, FIGURE_6};
