//! From noisy sums of reports to principal subspaces with error bars and verdicts.
//!
//! ```text
//! payloads ─▶ Accumulator ─▶ NoisyMoment ─┬▶ pca ─────────────┬▶ floor::assess ─▶ components with a verdict
//!            (bucket sums)   (S̃, n, noise) └▶ fantope::solve ──┘
//! ```
//!
//! * [`estimate()`]: from a study's reports to the analyst's document.
//! * [`accumulate`], [`moment`]: sums of decoded reports, and their mean with the noise of one report.
//! * [`centring`]: the mean, and the covariance around it, from reports with a constant appended.
//! * `missing`: the moment divided by the shares of observed cells.
//! * [`components`]: from a moment to judged components.
//! * [`pca`](mod@pca): top-k eigenvectors (Algorithm 1 of Wang & Xu).
//! * [`fantope`]: row-sparse components (Algorithm 2) with a duality gap as certificate.
//! * [`floor`]: the spectrum of pure noise, from which every component gets a verdict, a debiased eigenvalue and an
//!   expected alignment; the number of participants needed.
//! * [`format`](mod@format): whole numbers for people.
//! * [`plan`]: how many participants a target needs, from eigenvalues or a pilot's estimate.
//! * [`metrics`]: distances between subspaces. [`models`]: synthetic populations with a known truth.
//! * [`simulate`]: the whole path from rows to estimate, repeated, with the truth known.
//! * [`jackknife`]: standard errors from the buckets. [`agreement`]: do the buckets agree?
//! * [`feasibility`]: could rows in the unit ball have produced the reports?
//! * [`sparse_from_seeds`]: row-sparse components at p in the tens of thousands, from seeds read twice.
//! * [`statistics`]: the moment itself: entries, correlations, regressions with intervals.
//! * [`linalg`]: the only module that names the kernel library.
//!
//! # What is not here
//!
//! TLS, storage, HTTP: the server has them. Only [`models`] and [`simulate`] touch raw rows, and those are synthetic.

pub mod accumulate;
pub mod agreement;
mod cancel;
pub mod centring;
pub mod components;
pub mod fantope;
pub mod feasibility;
pub mod floor;
pub mod format;
pub mod jackknife;
pub mod linalg;
pub mod metrics;
mod missing;
pub mod models;
pub mod moment;
pub mod npy;
pub mod pca;
mod pipeline;
pub mod plan;
mod search;
mod seed_sums;
pub mod simulate;
pub mod sparse_from_seeds;
pub mod statistics;

pub use cancel::Cancel;
pub use pipeline::{Request, Source, estimate};
pub use seed_sums::sums_of_seeds;
