//! Reports received over time, as every engine counts them.

/// Reports that came within an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalCount {
    /// Length of the interval in seconds.
    pub seconds: u64,
    /// Its begin, in seconds since 1970-01-01 UTC.
    pub start: u64,
    /// Number of reports.
    pub n: u64,
}
