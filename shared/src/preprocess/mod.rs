//! From a raw row to one that is proved to lie in the unit ball.
//!
//! Sensitivity is derived from the type: only [`BoundedRow`] can be perturbed, and only
//! [`Preprocessor::prepare`] makes one. That never fails because of the row's values: whether a row is sent
//! must not depend on them. Every constant here is public, bounded and frozen in the study; none may be
//! computed from the participants' rows.

mod prepare;
mod row;
mod shares;

pub use prepare::Preprocessor;
pub use row::{BoundedRow, FeatureRow, Row};
pub use shares::{DOMINANT_MEAN_SHARE, LengthShares, dominant_column_share};

use serde::{Deserialize, Serialize};

use crate::{
    about::is_readable,
    error::{Error, ErrorCode, Result, error},
};

/// How a row is brought into the unit ball. `R` is a public constant of the study.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Norm {
    /// Divide by ‖x‖₂; a zero row stays zero.
    #[default]
    Normalize,
    /// Shorten rows longer than `R` to length `R`, then divide by `R`.
    Clip {
        /// The radius `R` > 0.
        radius: f64,
    },
    /// Divide by `R`; a row longer than `R` is sent as the zero row, and the device is told.
    Require {
        /// The radius `R` > 0.
        radius: f64,
    },
}

/// A [`Norm`] without its radius.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum BoundRows {
    /// [`Norm::Normalize`].
    #[default]
    Normalize,
    /// [`Norm::Clip`].
    Clip,
    /// [`Norm::Require`].
    Require,
}

impl BoundRows {
    /// The norm with this radius, where it has one.
    pub fn with_radius(self, radius: f64) -> Norm {
        match self {
            Self::Normalize => Norm::Normalize,
            Self::Clip => Norm::Clip { radius },
            Self::Require => Norm::Require { radius },
        }
    }

    /// The norm with this radius, or with the default one.
    ///
    /// # Errors
    /// `invalid-request` for a radius that the norm does not use.
    pub fn norm(self, radius: Option<f64>, default: f64) -> Result<Norm> {
        match (self, radius) {
            (Self::Normalize, Some(radius)) => Err(Error::invalid_request(format!(
                "`radius` {radius} is not used with `bound_rows` normalize, which divides each row by its own length; leave it out, or give `bound_rows` clip"
            ))
            .with_field("radius")),
            (_, radius) => Ok(self.with_radius(radius.unwrap_or(default))),
        }
    }
}

impl Norm {
    fn check(self) -> Result<()> {
        match self {
            Norm::Normalize => Ok(()),
            Norm::Clip { radius } | Norm::Require { radius } => {
                if SCALE_RANGE.contains(&radius) {
                    return Ok(());
                }
                Err(error!(
                    InvalidPreprocessing,
                    "the radius is {radius:e}; it must be from {:.1e} to {:.1e}, such as 1: measure the features in other units",
                    SCALE_RANGE.start(),
                    SCALE_RANGE.end()
                )
                .with_field("radius"))
            }
        }
    }
}

/// Smallest and largest scale of a feature, and radius: 2⁻¹⁰⁰ to 2¹⁰⁰, about 8e-31 to 1e30, wider than the units of
/// any measured quantity. With [`MAX_CENTER`] and [`VALUE_RANGE`] no finite row overflows, whatever constants a server
/// picks: else a tiny scale would make `row-not-finite` a threshold test of the server's choice.
pub const SCALE_RANGE: std::ops::RangeInclusive<f64> = power_of_two(-100)..=power_of_two(100);
/// Largest magnitude of a centre in units of its scale: 2³², seconds since 1970 on a scale of one second. An f64 beside
/// such a centre still has 20 bits below the scale; with a far larger one, it would show little more than whether the
/// value equals the centre.
pub const MAX_CENTER: f64 = power_of_two(32);
/// Magnitudes of a row's values (and of centres): what is larger counts as infinite, what is smaller as 0. 2⁻³⁰⁰ to
/// 2³⁰⁰, about 5e-91 to 2e90, beyond the range of f32 twice over. Fixed here and not by the study, so that no server
/// can place these thresholds.
pub const VALUE_RANGE: std::ops::RangeInclusive<f64> = power_of_two(-300)..=power_of_two(300);
/// Smallest magnitude of an entry of a prepared row that is not 0: 2⁻⁶⁰. Products of two entries, also as f32 and times
/// √2·2ᵇ, are then normal numbers; arithmetic with subnormal ones takes longer on most processors, which would show
/// in the time a report takes which entries are tiny. A signal of 2⁻¹²⁰ is nothing beside any noise.
pub const MIN_ENTRY: f64 = power_of_two(-60);

/// 2ᵉ for −1022 ≤ e ≤ 1023.
const fn power_of_two(exponent: i64) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Public constants of one feature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Name, shown beside the loadings.
    pub name: String,
    /// Subtracted from the value; at most [`MAX_CENTER`] scales in magnitude.
    #[serde(default)]
    pub center: f64,
    /// Divides the centred value; within [`SCALE_RANGE`].
    #[serde(default = "one")]
    pub scale: f64,
    /// Public share of the participants who have this value, within [`OBSERVED_RANGE`]. In a study whose features have
    /// it, a NaN is a missing cell, which counts as the centre; the server divides by what that takes from the moment.
    /// `None` (for all features or for none): a row with a missing cell is sent as the zero row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed: Option<f64>,
    /// Features of one section (of a questionnaire, of a laboratory order) are missing together; the others one by
    /// one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
}

impl Feature {
    /// A feature with its public constants.
    pub fn new(name: impl Into<String>, center: f64, scale: f64) -> Self {
        Self {
            name: name.into(),
            center,
            scale,
            observed: None,
            section: None,
        }
    }

    /// Sets the share of participants that have this feature.
    #[must_use]
    pub fn observed(self, share: f64) -> Self {
        Self {
            observed: Some(share),
            ..self
        }
    }

    /// The variable of which this feature is a category: the text before `=`, as in `sex=f`.
    pub fn variable(&self) -> Option<&str> {
        let (variable, _) = self.name.split_once('=')?;
        (!variable.is_empty()).then_some(variable)
    }

    fn check_center_and_scale(&self) -> Result<()> {
        let Self {
            name,
            center,
            scale,
            ..
        } = self;
        if !SCALE_RANGE.contains(scale) {
            let way_out = match *scale {
                0.0 => {
                    "a column whose values are all equal has scale 0: leave it out, or give it scale 1"
                }
                positive if positive > 0.0 => "measure the feature in another unit",
                _ => "give a positive number, such as the standard deviation",
            };
            return Err(error!(
                InvalidPreprocessing,
                "feature {name:?} has scale {scale:e}; it must be from {:.1e} to {:.1e}: {way_out}",
                SCALE_RANGE.start(),
                SCALE_RANGE.end()
            )
            .with_field("features"));
        }
        // Both sides are exact or far from the edge; a NaN is refused too.
        let near = center.abs() <= MAX_CENTER * scale;
        if !near {
            return Err(error!(
                InvalidPreprocessing,
                "feature {name:?} has center {center:e} and scale {scale:e}; the center must be at most {MAX_CENTER:.1e} scales from 0: use a larger scale, or count from another origin"
            )
            .with_field("features"));
        }
        Ok(())
    }

    /// Checks share and section; `sections` has the share of each section so far.
    fn check_observed<'a>(
        &'a self,
        others_have: bool,
        sections: &mut std::collections::BTreeMap<&'a str, f64>,
    ) -> Result<()> {
        let name = &self.name;
        let refused = |detail: String| Err(Error::new(ErrorCode::InvalidPreprocessing, detail));
        let Some(observed) = self.observed else {
            if others_have || self.section.is_some() {
                return refused(format!(
                    "feature {name:?} does not say how often it is observed, but others do or it has a section; give observed for every feature, 1 where it is never missing"
                ));
            }
            return Ok(());
        };
        if !OBSERVED_RANGE.contains(&observed) {
            return refused(format!(
                "feature {name:?} is observed in a share of {observed} of the participants; it must be from {} to {}: leave out a feature that few have",
                OBSERVED_RANGE.start(),
                OBSERVED_RANGE.end()
            ));
        }
        let Some(section) = self.section.as_deref() else {
            return Ok(());
        };
        if section.is_empty() || section.len() > MAX_FEATURE_NAME || !is_readable(section) {
            return Err(error!(
                InvalidName,
                "the section of feature {name:?} has {} bytes; it must be one line of 1 to {MAX_FEATURE_NAME} bytes of printable text",
                section.len()
            )
            .with_field("features"));
        }
        let first = *sections.entry(section).or_insert(observed);
        if first != observed {
            return refused(format!(
                "section {section:?} has features that are observed in shares of {first} and {observed}; its cells are missing together, so give one share"
            ));
        }
        Ok(())
    }
}

fn one() -> f64 {
    1.0
}

/// Smallest and largest share of participants who have a feature that is sometimes missing. Dividing by a smaller one
/// would multiply the noise by more than 100.
pub const OBSERVED_RANGE: std::ops::RangeInclusive<f64> = 0.1..=1.0;

/// Longest feature name in bytes.
pub const MAX_FEATURE_NAME: usize = 200;

/// The preprocessing of a study: `x ↦ (x − center)/scale` per feature, then [`Norm`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Preprocessing {
    /// Dimension p of a row.
    pub dimension: usize,
    /// One entry per feature; `None` leaves the values as they come.
    pub features: Option<Vec<Feature>>,
    /// How the row is brought into the unit ball.
    pub norm: Norm,
    /// Private centring: the constant a that is appended to the bounded row, `y = (x, a)/√(1+a²)`, so
    /// that the mean can be estimated and removed; `None` leaves it out.
    pub centring: Option<f64>,
    /// Whether a participant's row may count less than 1; `None`: each counts the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
}

/// A study whose participants count by private weights w in (0, 1]: a device multiplies the bounded row by √w, so that
/// a report shows w·xxᵀ. The weight is protected with the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Weights {
    /// Public mean w̄ of the weights, within [`MEAN_WEIGHT_RANGE`], if it is known. Under `normalize` private centring
    /// measures it; without either, an estimate has no totals and shares.
    #[serde(default)]
    pub mean: Option<f64>,
}

/// Smallest and largest mean weight. n reports say as much as n·w̄² of weight 1: scale the largest weight to 1.
pub const MEAN_WEIGHT_RANGE: std::ops::RangeInclusive<f64> = 0.01..=1.0;

/// The constant of private centring when nobody knows ‖E x‖: a = 1/√2 has the smallest worst-case price.
pub const DEFAULT_CENTRING: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// Smallest and largest constant of private centring. Above 1 the sensitivity would no longer be √2; far
/// below, the mean drowns.
pub const CENTRING_RANGE: std::ops::RangeInclusive<f64> = 0.01..=1.0;

impl Preprocessing {
    /// Values as they come, without private centring.
    pub fn new(dimension: usize, norm: Norm) -> Self {
        Self {
            dimension,
            features: None,
            norm,
            centring: None,
            weights: None,
        }
    }

    /// Dimension of a report: p, or p + 1 with private centring.
    pub fn report_dimension(&self) -> usize {
        self.dimension
            .saturating_add(usize::from(self.centring.is_some()))
    }

    /// Whether a NaN is a missing cell, which counts as the centre: where the features say how often they are observed.
    pub fn allows_missing_cells(&self) -> bool {
        let features = self.features.as_deref().unwrap_or_default();
        features.iter().any(|feature| feature.observed.is_some())
    }

    /// Checks the constants.
    ///
    /// # Errors
    /// `invalid-preprocessing` when a radius, centre, scale, observed share or centring constant is out of range or the
    /// number of features is not `p`; `invalid-name` when a feature or section name is empty, too long, doubled or not
    /// printable.
    pub fn check(&self) -> Result<()> {
        self.norm.check()?;
        if let Some(a) = self.centring
            && !CENTRING_RANGE.contains(&a)
        {
            return Err(error!(
                InvalidPreprocessing,
                "the constant of private centring is {a}; it must be from {} to {} (1/sqrt 2 unless the length of the mean is known)",
                CENTRING_RANGE.start(),
                CENTRING_RANGE.end()
            ));
        }
        if let Some(Weights { mean: Some(mean) }) = self.weights
            && !MEAN_WEIGHT_RANGE.contains(&mean)
        {
            return Err(error!(
                InvalidPreprocessing,
                "the mean weight is {mean}; it must be from {} to {}: scale the largest weight to 1",
                MEAN_WEIGHT_RANGE.start(),
                MEAN_WEIGHT_RANGE.end()
            ));
        }
        let Some(features) = &self.features else {
            return Ok(());
        };
        if features.len() != self.dimension {
            return Err(error!(
                InvalidPreprocessing,
                "{} features are described but the dimension is {}; give one line per feature",
                features.len(),
                self.dimension
            ));
        }
        let missing = self.allows_missing_cells();
        let mut names = std::collections::BTreeSet::new();
        let mut sections = std::collections::BTreeMap::new();
        for (number, feature) in (1..).zip(features) {
            let name = feature.name.as_str();
            if name.is_empty() || name.len() > MAX_FEATURE_NAME || !is_readable(name) {
                return Err(error!(
                    InvalidName,
                    "the name of feature {number} has {} bytes; it must be one line of 1 to {MAX_FEATURE_NAME} bytes of printable text, not only spaces",
                    name.len()
                )
                .with_field("features"));
            }
            if !names.insert(name) {
                return Err(error!(
                    InvalidName,
                    "two features are named {name:?}; names must differ"
                )
                .with_field("features"));
            }
            feature.check_center_and_scale()?;
            feature.check_observed(missing, &mut sections)?;
        }
        Ok(())
    }

    /// The checked preprocessor.
    pub fn preprocessor(&self) -> Result<Preprocessor<'_>> {
        self.check()?;
        Ok(Preprocessor::from_checked(self))
    }
}

/// A prepared row of unnamed features, for tests.
#[cfg(test)]
pub(crate) fn bounded(values: Vec<f64>, norm: Norm) -> BoundedRow {
    let constants = Preprocessing::new(values.len(), norm);
    let row = Row::new(values);
    constants.preprocessor().unwrap().prepare(&row).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(name: &str, center: f64, scale: f64) -> Feature {
        Feature::new(name, center, scale)
    }

    fn with(features: Vec<Feature>) -> Preprocessing {
        Preprocessing {
            features: Some(features),
            ..Preprocessing::new(2, Norm::Normalize)
        }
    }

    #[test]
    fn constants_are_held_within_their_bounds() {
        let (least, most) = (*SCALE_RANGE.start(), *SCALE_RANGE.end());
        assert_eq!((least, most), (2.0_f64.powi(-100), 2.0_f64.powi(100)));
        let refused = |constants: Preprocessing| {
            let error = constants.check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidPreprocessing, "{error}");
        };
        let radius = |radius| Preprocessing {
            norm: Norm::Clip { radius },
            ..with(vec![feature("a", 0.0, 1.0), feature("b", 0.0, 1.0)])
        };
        for good in [least, 1.0, most] {
            radius(good).check().unwrap();
            let centres = [0.0, MAX_CENTER * good, -MAX_CENTER * good];
            let beside = |center| with(vec![feature("a", 0.0, 1.0), feature("b", center, good)]);
            for center in centres {
                beside(center).check().unwrap();
            }
            let far = (MAX_CENTER * good).next_up();
            for center in [far, -far, f64::NAN, f64::INFINITY] {
                refused(beside(center));
            }
        }
        let beyond = [least.next_down(), most.next_up(), f64::NAN, f64::INFINITY];
        for bad in beyond.into_iter().chain([0.0, -1.0, 2.3e-308]) {
            refused(radius(bad));
            refused(Preprocessing {
                norm: Norm::Require { radius: bad },
                ..radius(1.0)
            });
            refused(with(vec![feature("a", 0.0, bad), feature("b", 0.0, 1.0)]));
        }
    }

    /// Another unit does not make a scale of 0 one that a study may have.
    #[test]
    fn a_scale_that_is_refused_has_its_own_way_out() {
        for (scale, way_out) in [
            (0.0, "leave it out, or give it scale 1"),
            (1e-40, "another unit"),
            (-2.0, "give a positive number"),
            (f64::NAN, "give a positive number"),
        ] {
            let features = vec![feature("a", 0.0, scale), feature("b", 0.0, 1.0)];
            let error = with(features).check().unwrap_err();
            assert!(error.detail().contains(way_out), "{error}");
        }
    }

    #[test]
    fn features_that_do_not_fit_are_refused() {
        for (names, code) in [
            (&["a"][..], ErrorCode::InvalidPreprocessing),
            (&["a", "a"], ErrorCode::InvalidName),
            (&["a", ""], ErrorCode::InvalidName),
            (&["a", "b\n"], ErrorCode::InvalidName),
        ] {
            let features = names.iter().map(|name| feature(name, 0.0, 1.0));
            let refused = with(features.collect()).check().unwrap_err();
            assert_eq!(refused.code(), code);
        }
    }
}
