//! How a payload is read when reports are summed, and when they are audited.

use super::double_cap::DoubleCapParameters;

/// How a payload becomes an estimate `D` of `xxᵀ`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decoding {
    /// A seed stands for a direction g: `D = c(ggᵀ − I/p)`.
    Direction(DoubleCapParameters),
    /// The numbers are the entries of `D`.
    Entries,
    /// The numbers count steps of a grid.
    Grid {
        /// Value of one step on the diagonal.
        diagonal_step: f64,
        /// Value of one step off the diagonal.
        off_diagonal_step: f64,
    },
}

/// The statistic to which the audit reduces a report, to tell row a from row b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AuditStatistic {
    /// Which of the two rows' double caps the direction lies in.
    Caps(DoubleCapParameters),
    /// `Σ w(aᵢaⱼ − bᵢbⱼ)nᵢⱼ` over the numbers n of a payload.
    Linear {
        /// w on the diagonal and off it: inverse variances, up to a common factor, give the log-likelihood ratio of
        /// Gaussian noise.
        weights: [f64; 2],
        /// Whether the noise is Gaussian, so that the statistic's law is known but for its scale.
        gaussian: bool,
    },
}
