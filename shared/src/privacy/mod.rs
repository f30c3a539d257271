//! Budgets, the calibration of Gaussian noise, and the statement shown with every result.

pub mod accountant;
mod budget;
pub mod gaussian;
mod normal;
mod rounded;
pub(crate) mod search;
mod statement;

pub use budget::{Budget, MAX_EPSILON, WARN_EPSILON, format_delta};
pub use rounded::{format_epsilon, format_rounded_up};
pub use search::smallest_epsilon;
pub use statement::{PrivacyStatement, delta_warning, epsilon_warning};
