//! What several reports of one participant give away together, and what a shuffler gives back.
//!
//! * [`Guarantee`]: what one report satisfies, as one of four checked types ([`Pure`], [`Approximate`],
//!   [`Gaussian`], [`Zcdp`]), with the conversions that are theorems and no others.
//! * [`Composition`]: the reports of one participant to different studies, taken together: fixed in advance,
//!   or chosen from outcomes within limits that were.
//! * [`Shuffled`]: the reports of many participants to one study, seen only as an unordered set. It is
//!   not a [`Guarantee`] and cannot be composed with one: it holds against another observer.
//!
//! Neighbours: any two rows of one participant (replacement, the local model). Rounding: every ε, δ, μ
//! and ρ that comes out is rounded up, against us. Warn about δ > 1/n with
//! [`delta_warning`](super::delta_warning).
//!
//! # Reports to several studies
//!
//! ```
//! use eigenveil_shared::privacy::accountant::{Composition, Gaussian, Pure};
//! let gaussian = Gaussian::calibrated(1.0, 1e-6)?; // ε = 1 at δ = 1e-6, five times:
//! let five: Composition = [gaussian; 5].into_iter().collect();
//! let mut mixed = five.clone();
//! mixed.add(Pure::new(1.0)?);
//! //                                                   ε at δ = 1e-6
//! for (reports, epsilon) in [
//!     (Composition::from(gaussian),                    1.0001),
//!     (five,                                           2.3998), // basic: 5 at δ = 5e-6
//!     (mixed,                                          3.3640), // basic: 6
//! ] {
//!     let composed = reports.epsilon(1e-6).unwrap_or(f64::INFINITY);
//!     assert!(composed <= epsilon && composed > epsilon - 2e-4, "{composed}");
//! }
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```
//!
//! # One report among many
//!
//! ε of the shuffled reports at δ = 1e-6, numerical bound and closed form:
//!
//! | ε₀ | n | [`Shuffled::epsilon`] | [`Shuffled::closed_form_epsilon`] |
//! |---|---|---|---|
//! | 1 | 10⁴ | 0.053 | 0.214 |
//! | 1 | 10⁶ | 0.0043 | 0.0235 |
//! | 4 | 10⁵ | 0.170 | 0.535 |
//! | 4 | 10⁶ | 0.0493 | 0.201 |
//! | 8 | 10⁷ | 0.128 | 0.432 |
//!
//! ```
//! use eigenveil_shared::privacy::accountant::{Pure, Shuffled};
//! use std::num::NonZeroU64;
//! let participants = NonZeroU64::new(1_000_000).unwrap_or(NonZeroU64::MIN);
//! let shuffled = Shuffled::new(Pure::new(4.0)?, participants);
//! assert!(shuffled.epsilon(1e-6) < 0.0494);
//! # Ok::<(), eigenveil_shared::Error>(())
//! ```

mod binomial;
mod composition;
mod guarantee;
mod loss;
mod shuffle;
mod zcdp;

pub use composition::Composition;
pub use guarantee::{Approximate, Gaussian, Guarantee, Pure, Zcdp};
pub use shuffle::Shuffled;
