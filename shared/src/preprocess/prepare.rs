//! Bringing a row into the unit ball.
//!
//! The time this takes is meant not to depend on the values: unusable values, missing cells and tiny ones are masked,
//! not branched around (`shared/tests/instructions.rs` counts), and no operation meets a subnormal number, which most
//! processors are slow with. With the bounds of the [parent module](super), values and centres are 0 or of magnitude
//! 2⁻³⁰⁰ to 2³⁰⁰; so `x − center` is 0 or 2⁻³⁵² to 2³⁰¹ (it is a multiple of 2⁻³⁵²), over `scale` 2⁻⁴⁵² to 2⁴⁰¹,
//! relative to the largest 2⁻⁸⁵⁴ at least, of which what is below 2⁻²⁰⁰ is dropped before it is squared.

use std::hint::black_box;

use pulp::{Arch, Simd, WithSimd};

use super::{
    BoundedRow, FeatureRow, MIN_ENTRY, Norm, Preprocessing, Row, VALUE_RANGE, power_of_two,
    row::{divide, drop_missing, drop_tiny, masked},
};
use crate::{
    dot::dot,
    error::{Error, ErrorCode, Result, error},
};

/// Magnitude, relative to the row's largest value, below which a value is dropped: nothing in f64 notices.
const MIN_RELATIVE_MAGNITUDE: f64 = power_of_two(-200);

/// Brings rows into the unit ball; made by [`Preprocessing::preprocessor`].
#[derive(Clone, Copy, Debug)]
pub struct Preprocessor<'a> {
    constants: &'a Preprocessing,
}

impl<'a> Preprocessor<'a> {
    /// A preprocessor of constants that were checked before (by [`crate::study::StudyParams`]).
    pub(crate) fn from_checked(constants: &'a Preprocessing) -> Self {
        Self { constants }
    }

    /// Prepares one row of length p for a mechanism: ‖result‖₂ ≤ 1, and one value longer with private
    /// centring.
    ///
    /// A row that cannot be used (a NaN, unless the study [allows missing cells](Preprocessing::allows_missing_cells);
    /// too long under [`Norm::Require`]) becomes the zero row, with the constant of private centring behind it: taking
    /// part must not depend on the data.
    ///
    /// A missing cell counts as its centre. Under [`Norm::Clip`] a row with missing cells is first divided by the root
    /// of the share of cells that it has.
    ///
    /// ```
    /// use eigenveil_shared::preprocess::{Norm, Preprocessing, Row};
    /// let preprocessing = Preprocessing::new(2, Norm::Clip { radius: 10.0 });
    /// let preprocessor = preprocessing.preprocessor()?;
    /// assert_eq!(preprocessor.prepare(&Row::new(vec![3.0, 4.0]))?.as_slice(), &[0.3, 0.4]);
    /// assert_eq!(preprocessor.prepare(&Row::new(vec![30.0, 40.0]))?.as_slice(), &[0.6, 0.8]);
    /// assert_eq!(preprocessor.prepare(&Row::new(vec![f64::NAN, 1.0]))?.as_slice(), &[0.0, 0.0]);
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    ///
    /// # Errors
    /// `wrong-dimension` only: that depends on the program, not on the values.
    pub fn prepare(&self, row: &Row) -> Result<BoundedRow> {
        Ok(self.append_constant(self.bound_to_unit_ball(row)?.0))
    }

    /// Prepares like [`prepare`](Self::prepare), with the reason beside a row that became the zero row:
    /// `row-not-finite`, `row-outside-ball`. The reason holds no value, and is **for the participant only**.
    pub fn prepare_with_warning(&self, row: &Row) -> Result<(BoundedRow, Option<Error>)> {
        let (x, fit) = self.bound_to_unit_ball(row)?;
        Ok((self.append_constant(x), fit.problem(self.constants.norm)))
    }

    /// Prepares like [`prepare_with_warning`](Self::prepare_with_warning) in a study with [`Weights`](super::Weights):
    /// the bounded row, with the constant of private centring, times the root of its weight. A weight above 1 counts as
    /// 1; one that is not a positive number as 0, and the warning says so.
    ///
    /// # Errors
    /// `wrong-dimension`, and `invalid-preprocessing` in a study without weights.
    pub fn prepare_weighted(&self, row: &Row, weight: f64) -> Result<(BoundedRow, Option<Error>)> {
        if self.constants.weights.is_none() {
            return Err(Error::new(
                ErrorCode::InvalidPreprocessing,
                "a weight was given, but in this study every participant counts the same",
            ));
        }
        let (x, fit) = self.bound_to_unit_ball(row)?;
        let mut bounded = self.append_constant(x);
        let mut share = [weight];
        drop_missing(&mut share);
        let allowed = share[0].clamp(0.0, 1.0);
        share[0] = allowed;
        drop_tiny(&mut share, MIN_ENTRY);
        bounded.multiply(share[0].sqrt(), MIN_ENTRY);
        let problem = fit.problem(self.constants.norm).or_else(|| {
            (allowed == 0.0).then(|| {
                Error::new(
                    ErrorCode::RowNotFinite,
                    "the weight is not a number above 0; the row is sent as the zero row",
                )
            })
        });
        Ok((bounded, problem))
    }

    /// The features without the constant that private centring appends, where the row can be used: for scores
    /// on the owner's machine and for trusted-curator baselines, never for a report.
    ///
    /// # Errors
    /// `wrong-dimension`, `row-not-finite`, `row-outside-ball` under [`Norm::Require`]. No error holds a value of
    /// the row.
    pub fn prepare_features(&self, row: &Row) -> Result<FeatureRow> {
        let (x, fit) = self.bound_to_unit_ball(row)?;
        match fit.problem(self.constants.norm) {
            None => Ok(FeatureRow::new_unchecked(x)),
            Some(problem) => Err(problem),
        }
    }

    /// Prepares row `index` (from 0) of a table like [`prepare_features`](Self::prepare_features): an error names the
    /// row, counted from 1.
    pub fn prepare_features_nth(&self, index: usize, row: &Row) -> Result<FeatureRow> {
        self.prepare_features(row).map_err(|error| {
            Error::new(
                error.code(),
                format!("row {}: {}", index + 1, error.detail()),
            )
        })
    }

    /// The features in the unit ball, with room for one value more; zeros where the row is unusable.
    fn bound_to_unit_ball(&self, row: &Row) -> Result<(Vec<f64>, Fit)> {
        self.check_dimension(row)?;
        let mut x = Vec::with_capacity(self.constants.report_dimension());
        x.extend_from_slice(row.values());
        let fit = Arch::new().dispatch(ScaleInPlace {
            constants: self.constants,
            x: &mut x,
        });
        Ok((x, fit))
    }

    /// `(x, a)/√(1+a²)`, never normalised again: a short x must stay shorter than a long one.
    fn append_constant(&self, mut x: Vec<f64>) -> BoundedRow {
        if let Some(a) = self.constants.centring {
            // Within its capacity: nothing of the row is left behind in another place.
            x.push(a);
            divide(&mut x, a.hypot(1.0), MIN_ENTRY);
            clip_to_unit_norm(&mut x);
        }
        BoundedRow::new_unchecked(x)
    }

    fn check_dimension(&self, row: &Row) -> Result<()> {
        let p = self.constants.dimension;
        if row.values().len() == p {
            return Ok(());
        }
        Err(error!(
            WrongDimension,
            "the row has {} values but the study has {p} features; send the features the study names, in its order",
            row.values().len()
        ))
    }
}

/// Raw features to features in the unit ball, in place, in the widest registers there are.
struct ScaleInPlace<'a> {
    constants: &'a Preprocessing,
    x: &'a mut [f64],
}

impl WithSimd for ScaleInPlace<'_> {
    type Output = Fit;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Fit {
        let ScaleInPlace { constants, x } = self;
        let (smallest, largest) = (*VALUE_RANGE.start(), *VALUE_RANGE.end());
        // A constant of the study, not of the row.
        let allows_missing = constants.allows_missing_cells();
        let finite = x.iter().fold(true, |all, v| {
            all & ((v.abs() <= largest) | (allows_missing & v.is_nan()))
        });
        let usable = mask(finite);
        mask_all(x, usable);
        drop_tiny(x, smallest);
        let mut shortened = 1.0;
        if let Some(features) = &constants.features {
            for (value, feature) in x.iter_mut().zip(features) {
                // Public: a branch here tells nothing about the row.
                let tiny = feature.center.abs() < smallest;
                let center = if tiny { 0.0 } else { feature.center };
                *value = (*value - center) / feature.scale;
            }
            // A missing cell is NaN up to here, and now its centre.
            let observed = drop_missing(x);
            mask_all(x, usable);
            if allows_missing {
                // A row of which a part is missing is shortened as the whole row would be.
                shortened = ((observed as f64).max(1.0) / x.len() as f64).sqrt();
            }
        }

        // Everything from here in units of a power of two near the largest value: exact, and squares stay in range.
        let down = reciprocal_power_of_two(x.iter().fold(0.0_f64, |m, v| m.max(v.abs())));
        for value in &mut *x {
            *value *= down;
        }
        drop_tiny(x, MIN_RELATIVE_MAGNITUDE);
        // At least 1 unless the row is zero.
        let length = norm(x);
        let (divisor, inside) = match constants.norm {
            Norm::Normalize => (length.max(1.0), true),
            Norm::Clip { radius } => (length.max(radius * down * shortened), true),
            Norm::Require { radius } => (radius * down, length <= radius * down),
        };
        mask_all(x, mask(inside));
        divide(x, divisor, MIN_ENTRY);
        clip_to_unit_norm(x);
        Fit { finite, inside }
    }
}

/// Whether a row can be used. Nothing branches on it but what tells the participant.
#[derive(Clone, Copy)]
struct Fit {
    finite: bool,
    inside: bool,
}

impl Fit {
    /// Why the row was replaced by the zero row.
    fn problem(self, norm: Norm) -> Option<Error> {
        if !self.finite {
            return Some(error!(
                RowNotFinite,
                "the row has a value that is missing, infinite or beyond {:.0e} in magnitude; impute it, or leave it as it is: a device sends such a row as the zero row",
                VALUE_RANGE.end()
            ));
        }
        match norm {
            Norm::Require { radius } if !self.inside => Some(error!(
                RowOutsideBall,
                "the row's length exceeds the required radius {radius}; use a study that clips rows, or scale the features by public constants"
            )),
            _ => None,
        }
    }
}

/// The row, or zeros where the mask, which has passed a barrier, is 0.
#[inline(always)]
fn mask_all(x: &mut [f64], mask: u64) {
    for value in x {
        *value = masked(*value, mask);
    }
}

/// Euclidean norm of values whose squares are normal numbers.
#[inline(always)]
fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

/// The proof that the stored numbers have length at most one: rounding may leave it an ulp above. Dropping what
/// has become tiny only shortens.
#[inline(always)]
fn clip_to_unit_norm(x: &mut [f64]) {
    let length = norm(x);
    let over = mask(length > 1.0);
    let divisor = masked(length * (1.0 + 4.0 * f64::EPSILON), over) + masked(1.0, !over);
    divide(x, divisor, MIN_ENTRY);
}

/// 2⁻ᵉ for a value of [2ᵉ, 2ᵉ⁺¹), |e| ≤ 500; 2⁵⁰⁰ for 0.
#[inline(always)]
fn reciprocal_power_of_two(value: f64) -> f64 {
    let exponent = value.max(power_of_two(-500)).to_bits() >> 52;
    f64::from_bits((2046 - exponent) << 52)
}

/// All ones or all zeros, which the compiler cannot turn back into a branch.
#[inline(always)]
fn mask(keep: bool) -> u64 {
    black_box(u64::from(keep)).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{Feature, Weights},
        *,
    };

    fn prepare(constants: &Preprocessing, values: &[f64]) -> (BoundedRow, Option<ErrorCode>) {
        let preprocessor = constants.preprocessor().unwrap();
        let row = Row::new(values.to_vec());
        let (bounded, local_warning) = preprocessor.prepare_with_warning(&row).unwrap();
        assert_eq!(preprocessor.prepare(&row).unwrap(), bounded);
        let strict = preprocessor.prepare_features(&row);
        let code = local_warning.map(|notice| notice.code());
        assert_eq!(strict.as_ref().err().map(Error::code), code);
        if let (Ok(strict), None) = (strict, constants.centring) {
            assert_eq!(strict.as_slice(), bounded.as_slice());
        }
        (bounded, code)
    }

    #[test]
    fn normalize_clip_require() {
        let normalize = Preprocessing::new(2, Norm::Normalize);
        assert_eq!(prepare(&normalize, &[3.0, 4.0]).0.as_slice(), &[0.6, 0.8]);
        assert_eq!(prepare(&normalize, &[0.0, 0.0]).0.as_slice(), &[0.0, 0.0]);
        let require = Preprocessing::new(2, Norm::Require { radius: 5.0 });
        assert_eq!(prepare(&require, &[3.0, 4.0]).0.as_slice(), &[0.6, 0.8]);
        let (row, why) = prepare(&require, &[3.0, 4.1]);
        assert_eq!(row.as_slice(), &[0.0, 0.0]);
        assert_eq!(why, Some(ErrorCode::RowOutsideBall));
        let preprocessor = require.preprocessor().unwrap();
        let row = Row::new(vec![3.0, 4.1]);
        let error = preprocessor.prepare_features_nth(6, &row).unwrap_err();
        let detail = error.detail();
        assert!(detail.contains("row 7") && detail.contains('5'), "{detail}");
        assert!(!detail.contains("4.1"), "{detail}");
        let short = preprocessor.prepare(&Row::new(vec![1.0])).unwrap_err();
        assert_eq!(short.code(), ErrorCode::WrongDimension);
    }

    #[test]
    fn public_constants_come_first() {
        let constants = Preprocessing {
            features: Some(vec![
                Feature::new("height", 170.0, 10.0),
                Feature::new("weight", 70.0, 20.0),
            ]),
            ..Preprocessing::new(2, Norm::Clip { radius: 2.0 })
        };
        let (row, _) = prepare(&constants, &[180.0, 70.0]);
        assert_eq!(row.as_slice(), &[0.5, 0.0]);
        // Unusable: the zero row, and not that of the centres.
        let (row, why) = prepare(&constants, &[f64::NAN, 70.0]);
        assert_eq!(row.as_slice(), &[0.0, 0.0]);
        assert_eq!(why, Some(ErrorCode::RowNotFinite));
    }

    #[test]
    fn a_weight_shortens_the_bounded_row_and_its_constant() {
        let constants = |weights| Preprocessing {
            centring: Some(1.0),
            weights,
            ..Preprocessing::new(2, Norm::Normalize)
        };
        let weighted = constants(Some(Weights::default()));
        let row = Row::new(vec![3.0, 4.0]);
        let preprocessor = weighted.preprocessor().unwrap();
        let (whole, _) = prepare(&weighted, row.values());
        for (weight, counts, warned) in [
            (0.25, 0.5, false),
            (1.0, 1.0, false),
            (7.0, 1.0, false),
            (0.0, 0.0, true),
            (-1.0, 0.0, true),
            (f64::NAN, 0.0, true),
        ] {
            let (row, warning) = preprocessor.prepare_weighted(&row, weight).unwrap();
            for (own, whole) in row.as_slice().iter().zip(whole.as_slice()) {
                assert!((own - counts * whole).abs() < 1e-15, "{weight}");
            }
            assert_eq!(warning.is_some(), warned, "{weight}");
        }
        let unweighted = constants(None);
        let preprocessor = unweighted.preprocessor().unwrap();
        let error = preprocessor.prepare_weighted(&row, 0.5).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidPreprocessing);
    }

    #[test]
    fn a_missing_cell_is_its_centre_and_clip_gives_a_row_its_length_back() {
        let feature = |i| Feature::new(format!("x{i}"), f64::from(i), 1.0).observed(0.8);
        let preprocessing = |norm| Preprocessing {
            features: Some((1..=4).map(feature).collect()),
            ..Preprocessing::new(4, norm)
        };
        let nan = f64::NAN;
        let prepared = |norm, values: [f64; 4]| {
            let (row, why) = prepare(&preprocessing(norm), &values);
            (row.as_slice().to_vec(), why)
        };
        let clip = Norm::Clip { radius: 10.0 };
        // One cell of four: twice as long as it is.
        let (row, why) = prepared(clip, [nan, 5.0, nan, nan]);
        assert_eq!((row, why), (vec![0.0, 0.6, 0.0, 0.0], None));
        assert_eq!(prepared(clip, [nan, 9.0, nan, nan]).0, [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(prepared(clip, [1.0, 5.0, 3.0, 4.0]).0, [0.0, 0.3, 0.0, 0.0]);
        let require = Norm::Require { radius: 10.0 };
        let (row, _) = prepared(require, [nan, 5.0, nan, nan]);
        assert_eq!(row, [0.0, 0.3, 0.0, 0.0]);
        let (row, _) = prepared(Norm::Normalize, [nan, 5.0, 7.0, nan]);
        assert_eq!(row, [0.0, 0.6, 0.8, 0.0]);
        for norm in [Norm::Normalize, clip, require] {
            assert_eq!(prepared(norm, [nan; 4]), (vec![0.0; 4], None));
            let (row, why) = prepared(norm, [nan, f64::INFINITY, 1.0, 1.0]);
            assert_eq!((row, why), (vec![0.0; 4], Some(ErrorCode::RowNotFinite)));
        }
    }

    /// Where values count as infinite and as zero is fixed, whatever constants a study has.
    #[test]
    fn no_constant_moves_what_is_unusable() {
        let (least, most) = (*VALUE_RANGE.start(), *VALUE_RANGE.end());
        let root = 0.5_f64.sqrt();
        for scale in [2.0_f64.powi(-100), 1.0, 2.0_f64.powi(100)] {
            for centre in [0.0, 1.0, 2.0_f64.powi(32)] {
                let feature = |name: &str| Feature::new(name, centre * scale, scale);
                let clips = [-100, 100].map(|e| 2.0_f64.powi(e));
                let [small, large] = clips.map(|radius| Norm::Clip { radius });
                for norm in [Norm::Normalize, small, large] {
                    let constants = Preprocessing {
                        features: Some(vec![feature("a"), feature("b")]),
                        ..Preprocessing::new(2, norm)
                    };
                    for value in [0.0, least, 1.0, most, -most] {
                        assert_eq!(prepare(&constants, &[value, 1.0]).1, None, "{value:e}");
                    }
                    let over = most.next_up();
                    for value in [over, -over, f64::MAX, f64::INFINITY, f64::NAN] {
                        let (row, why) = prepare(&constants, &[value, 1.0]);
                        assert_eq!(why, Some(ErrorCode::RowNotFinite), "{value:e}");
                        assert_eq!(row.as_slice(), &[0.0, 0.0]);
                    }
                }
            }
        }
        let normalize = Preprocessing::new(2, Norm::Normalize);
        for value in [least, 1e-30, 1e30, most] {
            for v in prepare(&normalize, &[value, value]).0.as_slice() {
                assert!((v - root).abs() < 1e-15, "{value}: {v}");
            }
        }
        for value in [least.next_down(), 5e-324, -0.0] {
            let (row, _) = prepare(&normalize, &[value, value]);
            assert_eq!(row.as_slice(), &[0.0, 0.0]);
        }
    }

    #[test]
    fn an_unusable_row_still_has_the_constant_of_centring() {
        let constants = Preprocessing {
            centring: Some(1.0),
            ..Preprocessing::new(2, Norm::Require { radius: 1.0 })
        };
        for values in [[f64::NAN, 0.0], [2.0, 0.0]] {
            let (row, why) = prepare(&constants, &values);
            assert!(why.is_some());
            assert_eq!(&row.as_slice()[..2], &[0.0, 0.0]);
            assert!((row.as_slice()[2] - 0.5_f64.sqrt()).abs() < 1e-15);
        }
    }

    #[test]
    fn debug_shows_no_values() {
        let row = Row::new(vec![0.123456, 7.0]);
        let (bounded, _) = prepare(&Preprocessing::new(2, Norm::Normalize), row.values());
        assert_eq!(format!("{row:?}"), "Row(2 values)");
        assert_eq!(format!("{bounded:?}"), "BoundedRow(2 values)");
    }

    /// Magnitudes over all of f64, subnormal numbers included, and zeros.
    fn any_value() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (-1074..1024_i32, -2.0_f64..2.0).prop_map(|(e, m)| {
                m * 2.0_f64.powi(e.max(-1022)) * 2.0_f64.powi((e + 1022).min(0))
            }),
            1 => Just(0.0),
            1 => -3.0_f64..3.0,
            1 => Just(f64::NAN),
        ]
    }

    /// Constants at and within the edges, as a server that means harm would choose them.
    fn any_constants(dimension: usize) -> impl Strategy<Value = Preprocessing> {
        let exponent = prop_oneof![Just(-100), Just(0), Just(100), -100..=100];
        let norm = (0..3, exponent.clone()).prop_map(|(kind, e)| {
            let radius = 2.0_f64.powi(e);
            match kind {
                0 => Norm::Normalize,
                1 => Norm::Clip { radius },
                _ => Norm::Require { radius },
            }
        });
        let [large, tiny] = [32, -300].map(|e| 2.0_f64.powi(e));
        let centre = prop_oneof![Just(0.0), Just(large), Just(tiny), -2.0_f64..2.0];
        let constants = proptest::collection::vec((exponent, centre), dimension);
        let observed = prop_oneof![Just(None), Just(Some(0.5)), Just(Some(1.0))];
        let centring = prop_oneof![Just(None), Just(Some(0.01)), Just(Some(1.0))];
        (norm, constants, centring, observed).prop_map(
            move |(norm, constants, centring, observed)| {
                let features = constants.into_iter().enumerate().map(|(i, (e, centre))| {
                    let scale = 2.0_f64.powi(e);
                    Feature {
                        observed,
                        ..Feature::new(format!("x{i}"), centre * scale, scale)
                    }
                });
                Preprocessing {
                    dimension,
                    features: Some(features.collect()),
                    norm,
                    centring,
                    weights: None,
                }
            },
        )
    }

    proptest! {
        /// Fails where entries keep every size: products of tiny ones are subnormal then.
        #[test]
        fn every_prepared_row_is_in_the_unit_ball_and_has_no_tiny_entry(
            (constants, near, values) in (1_usize..12).prop_flat_map(|p| {
                (any_constants(p), proptest::collection::vec(-2_i32..3, p), proptest::collection::vec(any_value(), p))
            })
        ) {
            // A value far off, or the centre itself and its neighbours.
            let features = constants.features.clone().unwrap();
            let values: Vec<f64> = values.iter().zip(&near).zip(&features).map(|((value, near), feature)| match near {
                0 => feature.center,
                1 => feature.center.next_up(),
                _ => *value,
            }).collect();
            let (row, _) = prepare(&constants, &values);
            let x = row.as_slice();
            let squared: f64 = x.iter().map(|v| v * v).sum();
            prop_assert!(squared.sqrt() <= 1.0 + 1e-15);
            for a in x {
                prop_assert!(*a == 0.0 || a.abs() >= MIN_ENTRY, "{a:e}");
                for b in x {
                    let product = a * b;
                    prop_assert!(product == 0.0 || product.is_normal() && (product as f32).is_normal(), "{product:e}");
                }
            }
        }
    }
}
