//! Liu, Kong, Jain & Oh, *DP-PCA* (NeurIPS 2022): their figure, the example it is of, and the learning rates.

mod example_4_1;
mod gradients;
mod learning_rate;

pub(crate) use example_4_1::EXAMPLE_4_1;
pub(crate) use gradients::FIGURE_1;
pub(crate) use learning_rate::LEARNING_RATE;
