//! Row-sparse principal components: the Fantope relaxation (Algorithm 2 of Wang & Xu; Vu, Cho, Lei &
//! Rohe 2013).
//!
//! ```text
//! max ⟨S̃,X⟩ − λ‖X‖₁,₁   over   F^k = {0 ≼ X ≼ I, tr X = k}
//! ```
//!
//! * [`projection`]: the exact Euclidean projection onto F^k.
//! * [`admm`]: the solver, which stops on a duality gap and reports it.
//! * [`lambda`]: λ from the known noise of the mechanism.
//! * [`cross_validation`]: λ from the buckets.
//! * [`refit`](refit()): PCA on the selected rows, which removes the shrinkage.
//!
//! Since `X ≽ 0` has a fixed trace, `λΣ|Xᵢᵢ| = λk` is a constant: the diagonal is in effect not
//! penalised, and a multiple of the identity added to S̃ changes nothing but the objective's offset.

pub mod admm;
pub mod cross_validation;
pub mod lambda;
pub mod projection;
mod refit;
mod spectrum;
mod sweep;

pub use admm::{AdmmSettings, Progress, Solution, Stop, solve, solve_by_full_projections};
pub use cross_validation::cross_validate;
pub use lambda::{KAPPA, automatic_lambda, largest_useful_lambda, resolve_lambda};
pub use projection::{project_eigenvalues, project_onto_fantope};
pub use refit::refit;

pub(crate) use refit::embed;
pub(crate) use spectrum::{Accuracy, LeadingSum};
