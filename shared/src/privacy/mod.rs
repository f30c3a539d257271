//! Budgets, the calibration of Gaussian noise, the statement shown with every result, and the cost of several reports
//! ([`account()`]).

mod account;
pub mod accountant;
mod budget;
pub mod gaussian;
mod normal;
mod rounded;
pub(crate) mod search;
mod statement;

pub use account::{AccountAnswer, AccountRequest, account};
pub use budget::{Budget, MAX_EPSILON, WARN_EPSILON, format_delta};
pub use rounded::{format_epsilon, format_rounded_up};
pub use search::smallest_epsilon;
pub use statement::{
    PrivacyStatement, REFUSAL, STOPPING, budget_warnings, delta_above, delta_warning,
    epsilon_warning,
};
