//! From a raw row to one that is proved to lie in the unit ball.
//!
//! Sensitivity is derived from the type: only [`BoundedRow`] can be perturbed, and only
//! [`Preprocessor::prepare`] makes one. Every constant here is public and frozen in the study; none
//! may be computed from the participants' rows.

mod row;

pub use row::{BoundedRow, Row};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorCode, Result};

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
    /// Divide by `R`; a row longer than `R` is an error on the device.
    Require {
        /// The radius `R` > 0.
        radius: f64,
    },
}

impl Norm {
    fn check(self) -> Result<()> {
        match self {
            Norm::Normalize => Ok(()),
            Norm::Clip { radius } | Norm::Require { radius } => {
                // The reciprocal must be a normal number too, or dividing by R loses everything.
                if radius.is_normal() && radius > 0.0 && radius.recip().is_normal() {
                    Ok(())
                } else {
                    Err(Error::new(
                        ErrorCode::InvalidPreprocessing,
                        format!(
                            "the radius is {radius}; it must be a positive finite number, such as 1"
                        ),
                    ))
                }
            }
        }
    }
}

/// Public constants of one feature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Feature {
    /// Name, shown beside the loadings.
    pub name: String,
    /// Subtracted from the value.
    #[serde(default)]
    pub center: f64,
    /// Divides the centred value; > 0.
    #[serde(default = "one")]
    pub scale: f64,
}

fn one() -> f64 {
    1.0
}

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
    #[serde(default)]
    pub centring: Option<f64>,
}

/// The constant of private centring when nobody knows ‖E x‖: a = 1/√2 has the smallest worst-case price.
pub const DEFAULT_CENTRING: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// Smallest and largest constant of private centring. Above 1 the sensitivity would no longer be √2; far
/// below, the mean drowns.
pub const CENTRING_RANGE: std::ops::RangeInclusive<f64> = 0.01..=1.0;

impl Preprocessing {
    /// Dimension of a report: p, or p + 1 with private centring.
    pub fn report_dimension(&self) -> usize {
        self.dimension + usize::from(self.centring.is_some())
    }

    /// Checks the constants.
    ///
    /// # Errors
    /// `invalid-preprocessing` when a radius, centre, scale or centring constant is not usable or the
    /// number of features is not `p`; `invalid-name` when a feature name is empty, too long, doubled or not printable.
    pub fn check(&self) -> Result<()> {
        self.norm.check()?;
        if let Some(a) = self.centring
            && !CENTRING_RANGE.contains(&a)
        {
            return Err(Error::new(
                ErrorCode::InvalidPreprocessing,
                format!(
                    "the constant of private centring is {a}; it lies in {} to {} (1/sqrt 2 unless the length of the mean is known)",
                    CENTRING_RANGE.start(),
                    CENTRING_RANGE.end()
                ),
            ));
        }
        let Some(features) = &self.features else {
            return Ok(());
        };
        if features.len() != self.dimension {
            return Err(Error::new(
                ErrorCode::InvalidPreprocessing,
                format!(
                    "{} features are described but the dimension is {}; give one line per feature",
                    features.len(),
                    self.dimension
                ),
            ));
        }
        let mut names = std::collections::BTreeSet::new();
        for (index, feature) in features.iter().enumerate() {
            let usable =
                feature.center.is_finite() && feature.scale.is_normal() && feature.scale > 0.0;
            if !usable {
                return Err(Error::new(
                    ErrorCode::InvalidPreprocessing,
                    format!(
                        "feature {index} has center {} and scale {}; the center must be finite and the scale positive and finite",
                        feature.center, feature.scale
                    ),
                ));
            }
            let name = feature.name.as_str();
            if name.is_empty()
                || name.len() > MAX_FEATURE_NAME
                || name.chars().any(char::is_control)
            {
                return Err(Error::new(
                    ErrorCode::InvalidName,
                    format!(
                        "the name of feature {index} has {} bytes; it needs 1 to {MAX_FEATURE_NAME} printable ones",
                        name.len()
                    ),
                ));
            }
            if !names.insert(name) {
                return Err(Error::new(
                    ErrorCode::InvalidName,
                    format!("two features are named {name:?}; names must differ"),
                ));
            }
        }
        Ok(())
    }

    /// The checked preprocessor.
    ///
    /// # Errors
    /// As [`Preprocessing::check`].
    pub fn preprocessor(&self) -> Result<Preprocessor<'_>> {
        self.check()?;
        Ok(Preprocessor { constants: self })
    }
}

/// Brings rows into the unit ball; made by [`Preprocessing::preprocessor`].
#[derive(Clone, Copy, Debug)]
pub struct Preprocessor<'a> {
    constants: &'a Preprocessing,
}

impl<'a> Preprocessor<'a> {
    /// A preprocessor of constants that were checked before (by [`crate::study::StudyParams`]).
    pub(crate) fn of_checked(constants: &'a Preprocessing) -> Self {
        Self { constants }
    }

    /// Prepares one row of length p for a mechanism: ‖result‖₂ ≤ 1, and one value longer with private
    /// centring.
    ///
    /// ```
    /// use eigenveil_shared::preprocess::{Norm, Preprocessing, Row};
    /// let preprocessing = Preprocessing {
    ///     dimension: 2, features: None, norm: Norm::Clip { radius: 10.0 }, centring: None,
    /// };
    /// let preprocessor = preprocessing.preprocessor()?;
    /// assert_eq!(preprocessor.prepare(&Row::new(vec![3.0, 4.0]))?.as_slice(), &[0.3, 0.4]);
    /// assert_eq!(preprocessor.prepare(&Row::new(vec![30.0, 40.0]))?.as_slice(), &[0.6, 0.8]);
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    ///
    /// # Errors
    /// `wrong-dimension`, `row-not-finite` (also after scaling), `row-outside-ball` under
    /// [`Norm::Require`]. No error holds a value of the row.
    pub fn prepare(&self, row: &Row) -> Result<BoundedRow> {
        Ok(self.append_constant(self.prepare_features(row)?))
    }

    /// As [`prepare`](Self::prepare) without the constant that private centring appends: for scores on
    /// the owner's machine and for trusted-curator baselines.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_features(&self, row: &Row) -> Result<BoundedRow> {
        let constants = self.constants;
        self.check_dimension(row)?;
        let mut x = row.values().to_vec();
        if let Some(features) = &constants.features {
            for (value, feature) in x.iter_mut().zip(features) {
                *value = (*value - feature.center) / feature.scale;
            }
        }
        if !x.iter().all(|v| v.is_finite()) {
            return Err(Error::new(
                ErrorCode::RowNotFinite,
                "the row has a value that is NaN or infinite after centring and scaling; remove or impute it on the device",
            ));
        }
        let length = norm(&x);
        let divisor = match constants.norm {
            Norm::Normalize => length,
            Norm::Clip { radius } => length.max(radius),
            Norm::Require { radius } if length > radius => {
                return Err(Error::new(
                    ErrorCode::RowOutsideBall,
                    format!(
                        "the row is longer than the required radius {radius}; use a study with --norm clip, or scale the features by public constants"
                    ),
                ));
            }
            Norm::Require { radius } => radius,
        };
        if length == 0.0 {
            return Ok(BoundedRow::zero(constants.dimension));
        }
        divide(&mut x, divisor);
        Ok(bounded(x))
    }

    /// `(x, a)/√(1+a²)`, never normalised again: a short x must stay shorter than a long one.
    fn append_constant(&self, row: BoundedRow) -> BoundedRow {
        let Some(a) = self.constants.centring else {
            return row;
        };
        let mut y = row.into_values();
        y.push(a);
        divide(&mut y, a.hypot(1.0));
        bounded(y)
    }

    /// As [`prepare`](Self::prepare) for row `index` (from 0) of a table: an error names the row,
    /// counted from 1.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_nth(&self, index: usize, row: &Row) -> Result<BoundedRow> {
        self.prepare(row).map_err(|error| in_row(index, &error))
    }

    /// As [`prepare_features`](Self::prepare_features) for row `index` (from 0) of a table: an error names
    /// the row, counted from 1.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub fn prepare_features_nth(&self, index: usize, row: &Row) -> Result<BoundedRow> {
        self.prepare_features(row)
            .map_err(|error| in_row(index, &error))
    }

    /// As [`prepare`](Self::prepare), but a row that cannot be prepared becomes the zero row (with
    /// the constant of private centring behind it), with the reason beside it, so that *taking part* does not depend on the data: the reason stays on the device.
    ///
    /// # Errors
    /// `wrong-dimension` only: that depends on the program, not on the values.
    pub fn prepare_or_zero(&self, row: &Row) -> Result<(BoundedRow, Option<Error>)> {
        self.check_dimension(row)?;
        match self.prepare(row) {
            Ok(bounded) => Ok((bounded, None)),
            Err(reason) => {
                let zero = BoundedRow::zero(self.constants.dimension);
                Ok((self.append_constant(zero), Some(reason)))
            }
        }
    }

    fn check_dimension(&self, row: &Row) -> Result<()> {
        let p = self.constants.dimension;
        if row.values().len() == p {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::WrongDimension,
            format!(
                "the row has {} values but the study has {p} features; send the features the study names, in its order",
                row.values().len()
            ),
        ))
    }
}

fn in_row(index: usize, error: &Error) -> Error {
    Error::new(
        error.code(),
        format!("row {}: {}", index + 1, error.detail()),
    )
}

/// Euclidean norm without overflow or harmful underflow.
fn norm(x: &[f64]) -> f64 {
    let largest = x.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    if largest == 0.0 {
        return 0.0;
    }
    let (down, up) = power_of_two_near(largest);
    up * x
        .iter()
        .map(|v| (v * down) * (v * down))
        .sum::<f64>()
        .sqrt()
}

/// The proof that the stored numbers have length at most one: rounding may leave it an ulp above.
fn bounded(mut x: Vec<f64>) -> BoundedRow {
    let rounded = norm(&x);
    if rounded > 1.0 {
        divide(&mut x, rounded * (1.0 + 4.0 * f64::EPSILON));
    }
    BoundedRow::proved(x)
}

fn divide(x: &mut [f64], divisor: f64) {
    let (down, _) = power_of_two_near(divisor);
    let divisor = divisor * down;
    for value in x {
        *value = (*value * down) / divisor;
    }
}

/// `(2^-e, 2^e)` with `2^e` near `value`: exact scalings that keep squares in range.
fn power_of_two_near(value: f64) -> (f64, f64) {
    let (_, exponent) = libm::frexp(value);
    let exponent = exponent.clamp(-1000, 1000);
    (libm::ldexp(1.0, -exponent), libm::ldexp(1.0, exponent))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(norm: Norm, dimension: usize) -> Preprocessing {
        Preprocessing {
            dimension,
            features: None,
            norm,
            centring: None,
        }
    }

    fn prepare(constants: &Preprocessing, values: &[f64]) -> Result<BoundedRow> {
        constants
            .preprocessor()
            .unwrap()
            .prepare(&Row::new(values.to_vec()))
    }

    #[test]
    fn normalize_clip_require() {
        let normalize = of(Norm::Normalize, 2);
        assert_eq!(
            prepare(&normalize, &[3.0, 4.0]).unwrap().as_slice(),
            &[0.6, 0.8]
        );
        assert_eq!(
            prepare(&normalize, &[0.0, 0.0]).unwrap().as_slice(),
            &[0.0, 0.0]
        );
        let require = of(Norm::Require { radius: 5.0 }, 2);
        assert_eq!(
            prepare(&require, &[3.0, 4.0]).unwrap().as_slice(),
            &[0.6, 0.8]
        );
        let error = prepare(&require, &[3.0, 4.1]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::RowOutsideBall);
        assert!(error.detail().contains('5') && !error.detail().contains("4.1"));
    }

    #[test]
    fn public_constants_come_first() {
        let constants = Preprocessing {
            dimension: 2,
            features: Some(vec![
                Feature {
                    name: "height".into(),
                    center: 170.0,
                    scale: 10.0,
                },
                Feature {
                    name: "weight".into(),
                    center: 70.0,
                    scale: 20.0,
                },
            ]),
            norm: Norm::Clip { radius: 2.0 },
            centring: None,
        };
        assert_eq!(
            prepare(&constants, &[180.0, 70.0]).unwrap().as_slice(),
            &[0.5, 0.0]
        );
    }

    #[test]
    fn extreme_values_do_not_overflow() {
        let normalize = of(Norm::Normalize, 2);
        for scale in [1e300, 1e-300, 5e-324, f64::MAX / 8.0] {
            let row = prepare(&normalize, &[scale, scale]).unwrap();
            for v in row.as_slice() {
                assert!((v - 0.5_f64.sqrt()).abs() < 1e-15, "{scale}: {v}");
            }
        }
    }

    #[test]
    fn unusable_rows_become_zero_with_a_local_reason() {
        let constants = of(Norm::Normalize, 2);
        let preprocessor = constants.preprocessor().unwrap();
        let (row, reason) = preprocessor
            .prepare_or_zero(&Row::new(vec![f64::NAN, 1.0]))
            .unwrap();
        assert_eq!(row.as_slice(), &[0.0, 0.0]);
        assert_eq!(reason.unwrap().code(), ErrorCode::RowNotFinite);
        let error = preprocessor
            .prepare_or_zero(&Row::new(vec![1.0]))
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::WrongDimension);
    }

    #[test]
    fn unusable_constants_are_refused() {
        for radius in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
            let error = of(Norm::Clip { radius }, 2).check().unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidPreprocessing, "{radius}");
        }
        let feature = |name: &str, scale| Feature {
            name: name.into(),
            center: 0.0,
            scale,
        };
        let with = |features| Preprocessing {
            dimension: 2,
            features: Some(features),
            norm: Norm::Normalize,
            centring: None,
        };
        assert!(
            with(vec![feature("a", 1.0), feature("b", 1.0)])
                .check()
                .is_ok()
        );
        for (features, code) in [
            (vec![feature("a", 1.0)], ErrorCode::InvalidPreprocessing),
            (
                vec![feature("a", 1.0), feature("b", 0.0)],
                ErrorCode::InvalidPreprocessing,
            ),
            (
                vec![feature("a", 1.0), feature("a", 1.0)],
                ErrorCode::InvalidName,
            ),
            (
                vec![feature("a", 1.0), feature("", 1.0)],
                ErrorCode::InvalidName,
            ),
            (
                vec![feature("a", 1.0), feature("b\n", 1.0)],
                ErrorCode::InvalidName,
            ),
        ] {
            assert_eq!(with(features).check().unwrap_err().code(), code);
        }
    }

    #[test]
    fn debug_shows_no_values() {
        let row = Row::new(vec![0.123456, 7.0]);
        let bounded = prepare(&of(Norm::Normalize, 2), row.values()).unwrap();
        assert_eq!(format!("{row:?}"), "Row(2 values)");
        assert_eq!(format!("{bounded:?}"), "BoundedRow(2 values)");
    }

    proptest! {
        #[test]
        fn every_prepared_row_is_in_the_unit_ball(
            values in proptest::collection::vec(proptest::num::f64::NORMAL | proptest::num::f64::ZERO, 1..40),
            radius in 1e-6_f64..1e6,
        ) {
            for norm_kind in [Norm::Normalize, Norm::Clip { radius }] {
                let row = prepare(&of(norm_kind, values.len()), &values).unwrap();
                let squared: f64 = row.as_slice().iter().map(|v| v * v).sum();
                prop_assert!(squared.sqrt() <= 1.0 + 1e-15);
                prop_assert!(row.as_slice().iter().all(|v| v.is_finite()));
            }
        }
    }
}
