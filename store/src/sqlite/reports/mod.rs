//! What a study keeps of its reports: bucket sums or seeds, identifiers, and how many came when.

pub(super) mod arrivals;
pub(super) mod buckets;
pub(super) mod checksum;
pub(super) mod recent;
pub(super) mod seeds;
