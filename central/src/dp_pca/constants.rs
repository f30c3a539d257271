//! Constants that Algorithm 3 leaves open.

use crate::parameter::{GROUP_ROWS, GROUPS, Options, TAIL_POWER, TAIL_SCALE, ZETA};

/// Constants of the two private estimates. None depends on the data and none affects privacy: other values make the
/// estimates wider, or make them fail more often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Constants {
    /// ζ in (0, 1): failure probability that the box of the mean allows for.
    pub(super) zeta: f64,
    /// K > 0: the gradients' tail is `K√λ·ln^a`.
    pub(super) tail_scale: f64,
    /// a ≥ 0.
    pub(super) tail_power: f64,
    /// Number of groups in the eigenvalue histogram, as a multiple (≥ 1) of its release threshold: with only one or two
    /// times `ln(1/δζ)/ε` groups the fullest bin would stay below it.
    pub(super) group_factor: f64,
    /// Rows of a group, at least 2: the top eigenvalue of few rows is unreliable.
    pub(super) group_rows: usize,
}

impl Constants {
    pub(super) const DEFAULT: Self = Self {
        zeta: 0.01,
        tail_scale: 1.0,
        tail_power: 1.0,
        group_factor: 8.0,
        group_rows: 20,
    };

    pub(super) fn from_options(options: &Options) -> Self {
        let default = Self::DEFAULT;
        Self {
            zeta: options.number(ZETA).unwrap_or(default.zeta),
            tail_scale: options.number(TAIL_SCALE).unwrap_or(default.tail_scale),
            tail_power: options.number(TAIL_POWER).unwrap_or(default.tail_power),
            group_factor: options.number(GROUPS).unwrap_or(default.group_factor),
            group_rows: options.count(GROUP_ROWS).unwrap_or(default.group_rows),
        }
    }
}
