//! Constants that Algorithm 3 leaves open.

use eigenveil_shared::Result;

use crate::parameter::{GROUP_ROWS, GROUPS, Options, TAIL_POWER, TAIL_SCALE, ZETA};

/// Constants of the two private estimates. None depends on the data and none affects privacy: other values make the
/// estimates wider, or make them fail more often.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// ζ in (0, 1): failure probability that the box of the mean allows for.
    pub zeta: f64,
    /// K > 0: the gradients' tail is `K√λ·ln^a`.
    pub tail_scale: f64,
    /// a ≥ 0.
    pub tail_power: f64,
    /// Groups of the eigenvalue's histogram, as a multiple ≥ 1 of its threshold: with only one or two times
    /// `ln(1/δζ)/ε` groups the fullest bin would stay below it.
    pub groups: f64,
    /// Rows of a group, at least 2: the top eigenvalue of few rows is unreliable.
    pub group_rows: usize,
}

impl Default for Constants {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Constants {
    pub(super) const DEFAULT: Self = Self {
        zeta: 0.01,
        tail_scale: 1.0,
        tail_power: 1.0,
        groups: 8.0,
        group_rows: 20,
    };

    pub(super) fn with(options: &Options) -> Self {
        let default = Self::DEFAULT;
        Self {
            zeta: options.number(ZETA).unwrap_or(default.zeta),
            tail_scale: options.number(TAIL_SCALE).unwrap_or(default.tail_scale),
            tail_power: options.number(TAIL_POWER).unwrap_or(default.tail_power),
            groups: options.number(GROUPS).unwrap_or(default.groups),
            group_rows: options.count(GROUP_ROWS).unwrap_or(default.group_rows),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        ZETA.check(self.zeta)?;
        TAIL_SCALE.check(self.tail_scale)?;
        TAIL_POWER.check(self.tail_power)?;
        GROUPS.check(self.groups)?;
        GROUP_ROWS.check(self.group_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_rejected_by_name() {
        type Change = fn(&mut Constants);
        let default = Constants::default();
        assert!(default.check().is_ok());
        let wrong: [(&str, Change); 6] = [
            ("zeta", |c| c.zeta = 0.0),
            ("zeta", |c| c.zeta = f64::NAN),
            ("tail-scale", |c| c.tail_scale = 0.0),
            ("tail-power", |c| c.tail_power = -1.0),
            ("groups", |c| c.groups = 0.5),
            ("group-rows", |c| c.group_rows = 1),
        ];
        for (name, make_wrong) in wrong {
            let mut constants = default;
            make_wrong(&mut constants);
            let error = constants.check().unwrap_err();
            assert!(error.detail().starts_with(name), "{error}");
        }
    }
}
