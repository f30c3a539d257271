//! What several reports of one participant give away together, and what a shuffler gives back.
//!
//! * [`Guarantee`]: what one report satisfies, or several of one kind to different studies.
//! * [`Shuffled`]: the reports of many participants to one study, seen only as an unordered set. It is
//!   not a [`Guarantee`] and cannot be added to one: it holds against another observer.
//!
//! Neighbours: any two rows of one participant (replacement, the local model). Rounding: every ε, δ, μ
//! and ρ that comes out is rounded up, against us. Warn about δ > 1/n with
//! [`delta_warning`](super::delta_warning).

mod binomial;
mod guarantee;
mod shuffle;

pub use guarantee::{Guarantee, Pure};
pub use shuffle::Shuffled;
