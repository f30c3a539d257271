//! From reports to the noisy second moment, whatever the estimator.

pub mod accumulate;
pub mod centring;
pub mod counts;
pub(crate) mod missing;
pub mod moment;
pub(crate) mod seed_sample;
pub(crate) mod seed_sums;
pub(crate) mod site_report;
