//! Centers, scales and shares from the answers of a preparation ([`estimate_preparation`]), its second round
//! ([`second_round`]), and how many people it needs ([`PreparationPlan`]).
//!
//! ```text
//! counts of one or two rounds ─▶ Questions ─▶ fit ─▶ moments or rates ─▶ error bars, messages ─▶ features
//!                                (cells, rows)  (EM)
//! ```
//!
//! `docs/derivations/preparation.md` has the formulas, `shared/tests/vectors/preparation.py` a second implementation.

mod column;
mod error_bars;
mod estimate;
mod fit;
mod information;
mod made_up;
mod rates;
mod round;
mod second_round;

#[cfg(test)]
mod tests;

pub use column::{CategoryShare, PreparedColumn, Share};
pub use estimate::{PreparationEstimate, estimate_answers, estimate_preparation, second_round_of};
pub use information::{
    ADVISED_ANSWERS, FEWEST_ANSWERS, PreparationPlan, PreparationPlanRequest, information,
    plan_preparation,
};
pub use round::Round;
pub use second_round::second_round;
