//! From noisy sums of reports to principal subspaces with error bars and verdicts.
//!
//! ```text
//! payloads ─▶ Accumulator ─▶ NoisyMoment ─┬▶ pca ─────────────┬▶ assess ─▶ components with a verdict ─▶ document
//!            (bucket sums)   (S̃, n, noise) └▶ fantope::solve ──┘
//! ```
//!
//! | room | holds |
//! |---|---|
//! | `input` | sums, seeds, reports of sites, missing cells, the noisy moment and the mean |
//! | `dense`, `sparse` | the estimators |
//! | `assessment` | noise floor, component count, verdict, groups, error bars, expected error, agreement, feasibility |
//! | `sites` | the estimate of a study of sites: counts, errors by target, comparison, robust estimate |
//! | `report` | the document and its warnings |
//! | `preparation` | centers and scales from the answers of a preparation |
//!
//! # What is not here
//!
//! TLS, storage, HTTP: the server has them. Only [`models`] and [`simulate`] touch raw rows, and those are synthetic.

pub mod assessment;
mod cancel;
mod components;
mod dense;
mod input;
pub mod linalg;
pub mod metrics;
pub mod models;
mod pipeline;
pub mod planning;
pub mod preparation;
mod report;
pub mod search;
pub mod simulate;
mod sites;
mod sparse;
pub mod statistics;
mod table;

pub use assessment as floor;
pub use assessment::feasibility;
pub use cancel::Cancel;
pub use components::ComponentsReport;
pub use dense::{pca, principal_components};
pub use input::seed_sample::SeedSample;
pub use input::seed_sums::{sum_ranges, sums_of_seeds};
pub use input::site_report::{SiteSum, check_site_report};
pub use input::{accumulate, centring, counts, moment};
pub use pipeline::{Request, Source, estimate};
pub use report::document::to_json;
pub use report::format;
pub use report::sites::{sample, sites_in_sentences};
pub use report::warning::{Outlook, Warning};
pub use sites::{check_site_settings, estimate_sites};
pub use sparse::{fantope, from_seeds as sparse_from_seeds, sparse_components};
pub use table::{Table, check_columns};
