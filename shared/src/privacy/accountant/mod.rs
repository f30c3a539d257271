//! What several reports of one participant give away together.
//!
//! [`Guarantee`]: what one report satisfies, or several of one kind to different studies.
//!
//! Neighbours: any two rows of one participant (replacement, the local model). Rounding: every ε, δ, μ
//! and ρ that comes out is rounded up, against us. Warn about δ > 1/n with
//! [`delta_warning`](super::delta_warning).

mod guarantee;

pub use guarantee::{Guarantee, Pure};
