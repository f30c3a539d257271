//! What Algorithm 3 leaves open.

use eigenveil_shared::{Error, ErrorCode, Result};

use crate::Options;

/// Constants of the two private estimates. None depends on the data and none touches privacy: other values make the
/// estimates wider, or rarer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// ζ in (0, 1): failure probability that the box of the mean allows for.
    pub zeta: f64,
    /// K > 0: the gradients' tail is `K√λ·ln^a`.
    pub tail_scale: f64,
    /// a ≥ 0.
    pub tail_power: f64,
    /// Groups of the eigenvalue's histogram, as a multiple ≥ 1 of its threshold: with one or two times `ln(1/δζ)/ε` groups
    /// the fullest bin stays under it.
    pub groups: f64,
    /// Rows of a group, at least 2: a top eigenvalue of few rows means little.
    pub group_rows: usize,
}

impl Default for Constants {
    fn default() -> Self {
        Self {
            zeta: 0.01,
            tail_scale: 1.0,
            tail_power: 1.0,
            groups: 8.0,
            group_rows: 20,
        }
    }
}

impl Constants {
    /// As set, the others as usual.
    pub(super) fn with(options: &Options) -> Self {
        let usual = Self::default();
        Self {
            zeta: options.zeta.unwrap_or(usual.zeta),
            tail_scale: options.tail_scale.unwrap_or(usual.tail_scale),
            tail_power: options.tail_power.unwrap_or(usual.tail_power),
            groups: options.groups.unwrap_or(usual.groups),
            group_rows: options.group_rows.unwrap_or(usual.group_rows),
        }
    }

    /// # Errors
    /// `invalid-request` names the first that is out of range.
    pub(super) fn check(&self) -> Result<()> {
        let limits = [
            (
                "zeta",
                self.zeta,
                0.0 < self.zeta && self.zeta < 1.0,
                "above 0 and below 1",
            ),
            (
                "tail-scale",
                self.tail_scale,
                self.tail_scale.is_finite() && self.tail_scale > 0.0,
                "positive and finite",
            ),
            (
                "tail-power",
                self.tail_power,
                self.tail_power.is_finite() && self.tail_power >= 0.0,
                "finite and not negative",
            ),
            (
                "groups",
                self.groups,
                (1.0..1e6).contains(&self.groups),
                "at least 1 (times the threshold) and below 1e6",
            ),
            (
                "group-rows",
                self.group_rows as f64,
                (2..1_000_000).contains(&self.group_rows),
                "at least 2 and below 1e6",
            ),
        ];
        match limits.iter().find(|(_, _, fits, _)| !fits) {
            None => Ok(()),
            Some((name, value, _, limit)) => Err(Error::new(
                ErrorCode::InvalidRequest,
                format!("{name} is {value}; it must be {limit}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_refused_by_name() {
        let usual = Constants::default();
        assert!(usual.check().is_ok());
        for (name, wrong) in [
            ("zeta", Constants { zeta: 0.0, ..usual }),
            (
                "zeta",
                Constants {
                    zeta: f64::NAN,
                    ..usual
                },
            ),
            (
                "tail-scale",
                Constants {
                    tail_scale: 0.0,
                    ..usual
                },
            ),
            (
                "tail-power",
                Constants {
                    tail_power: -1.0,
                    ..usual
                },
            ),
            (
                "groups",
                Constants {
                    groups: 0.5,
                    ..usual
                },
            ),
            (
                "group-rows",
                Constants {
                    group_rows: 1,
                    ..usual
                },
            ),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.detail().starts_with(name), "{error}");
        }
    }
}
