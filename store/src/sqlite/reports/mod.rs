//! What a study keeps of its reports: bucket sums, seeds or tables of sites, identifiers, and how many came when.

pub(super) mod arrivals;
pub(super) mod buckets;
pub(super) mod checksum;
pub(super) mod folds;
pub(super) mod recent;
pub(super) mod seeds;
pub(super) mod site_reports;
