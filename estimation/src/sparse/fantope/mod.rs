//! Row-sparse principal components: the Fantope relaxation (Algorithm 2 of Wang & Xu; Vu, Cho, Lei & Rohe 2013).
//!
//! ```text
//! max ⟨S̃,X⟩ − λ‖X‖₁,₁   over   F^k = {0 ≼ X ≼ I, tr X = k}
//! ```
//!
//! Since `X ≽ 0` has a fixed trace, `λΣ|Xᵢᵢ| = λk` is a constant: the diagonal is in effect not
//! penalised, and a multiple of the identity added to S̃ changes nothing but the objective's offset.

pub mod admm;
mod anderson;
pub mod cross_validation;
mod elementwise;
pub mod lambda;
pub mod path;
mod problem;
pub mod projection;
mod pursuit;
mod refit;
mod screening;
mod spectrum;

pub use admm::{AdmmSettings, check_settings, solve, solve_by_full_projections};
pub use cross_validation::cross_validate;
pub use lambda::{KAPPA, automatic_lambda, max_useful_lambda, negligible_gap, resolve_lambda};
pub use path::{diagonal_lambda, lambda_path};
pub use problem::embed;
pub use problem::{Solution, Stop};
pub use projection::{project_eigenvalues, project_onto_fantope};
pub use pursuit::pursue;
pub use refit::{refit, refit_within_blocks};

pub(crate) use spectrum::{Accuracy, LeadingSum, start_block};
