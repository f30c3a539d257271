//! The pairs to try, each with its study: of rows, and of tables ([`PairKind::tables`]).

use eigenveil_shared::{
    Error,
    mechanism::double_cap::expand,
    names,
    preprocess::{DEFAULT_CENTRING, Feature, Norm, Row},
};
use serde::{Deserialize, Serialize};

use crate::Participant;

/// The offset of all values of [`PairKind::OffsetRows`].
pub(crate) const OFFSET: f64 = 1e6;

/// A pair of raw rows, or of raw tables, and how their study prepares them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairKind {
    /// (e₁, e₂): the only worst pair of `symmetric-gaussian`.
    Axes,
    /// Two random orthogonal unit rows.
    Orthogonal,
    /// (e₁, 0).
    UnitZero,
    /// (1,000 e₁, 7 e₂), far outside the ball, under `clip`.
    Clipped,
    /// (e₁/1,000, 1,000 e₂) under `normalize`.
    Normalized,
    /// (e₁, 2 e₂) under `require`: the second is too long and becomes the zero row.
    Required,
    /// (e₁, a row with a NaN) under `normalize`.
    Unusable,
    /// (e₁/2, e₂/20): strictly inside the ball, as most rows of a study with `clip` are.
    ShortAxes,
    /// Two random orthogonal rows, ½ and 1/20 long.
    ShortDense,
    /// (e₁/2, e₂/20) under `require`.
    ShortAxesRequired,
    /// Two random orthogonal rows, ½ and 1/20 long, under `require`.
    ShortDenseRequired,
    /// Two rows outside the ball under `clip` with private centring, orthogonal once the constant is appended: the
    /// worst pair there.
    Centred,
    /// (5 e₁, a row with a NaN) under `normalize` with private centring: the second is reduced to the appended
    /// constant.
    CentredUnusable,
    /// The rows of [`Centred`](Self::Centred) with all other cells missing, in a study that allows that.
    MissingCells,
    /// (10 e₁ of weight 4, 10 e₂ of weight ¼) under `clip`, in a study with weights: the first counts 1.
    Weighted,
    /// (e₁ and e₁, two rows of one person; e₂ alone) under `clip`: one of a person's rows is reported.
    TwoRows,
    // From here on tables. Beside the rows in question each has 32 others, which are the same and some unusable, but for
    // `AllUnusable`.
    /// A row 10⁶ e₁ or 7 e₂, far outside the ball, under `clip`: replaced.
    RowReplaced,
    /// A row e₁ or none.
    RowAdded,
    /// A first row, random of length 1, or none.
    RowRemoved,
    /// A row e₁ or one with a NaN.
    RowUnusable,
    /// A row e₁ between two with a NaN, or three rows with a NaN.
    AllUnusable,
    /// A row e₁ or e₂, with 10⁶ added to all values of all rows, which the study's constants take away.
    OffsetRows,
    /// The rows of [`Centred`](Self::Centred) under `normalize` with private centring, as studies of sites have by
    /// default.
    CentredRow,
    /// A row 5 e₁ or none, in such a study.
    CentredRowAdded,
    /// Eight rows e₁ of one person or none, in a study that protects persons, of whom eight rows count.
    PersonAdded,
    /// Nine rows e₁ of one person, of which one is left out, or eight rows e₂.
    PersonReplaced,
    /// Seven rows e₁ of one person and one with a NaN, or eight rows e₂.
    PersonUnusable,
}

names! {
    pub PairKind {
        Axes = "axes",
        Orthogonal = "orthogonal",
        UnitZero = "unit-zero",
        Clipped = "clipped",
        Normalized = "normalized",
        Required = "required",
        Unusable = "unusable",
        ShortAxes = "short-axes",
        ShortDense = "short-dense",
        ShortAxesRequired = "short-axes-required",
        ShortDenseRequired = "short-dense-required",
        Centred = "centred",
        CentredUnusable = "centred-unusable",
        MissingCells = "missing-cells",
        Weighted = "weighted",
        TwoRows = "two-rows",
        RowReplaced = "row-replaced",
        RowAdded = "row-added",
        RowRemoved = "row-removed",
        RowUnusable = "row-unusable",
        AllUnusable = "all-unusable",
        OffsetRows = "offset-rows",
        CentredRow = "centred-row",
        CentredRowAdded = "centred-row-added",
        PersonAdded = "person-added",
        PersonReplaced = "person-replaced",
        PersonUnusable = "person-unusable",
    } else |text, names| Error::invalid_request(format!(
        "there is no pair {text:?}; the pairs are {}",
        names.join(", ")
    ));
}

impl PairKind {
    /// Whether it is a pair of a site's tables.
    pub const fn is_of_tables(self) -> bool {
        self as u8 >= Self::RowReplaced as u8
    }

    /// The norm rule of the pair's study.
    pub const fn norm(self) -> Norm {
        match self {
            Self::Normalized
            | Self::Unusable
            | Self::CentredUnusable
            | Self::CentredRow
            | Self::CentredRowAdded => Norm::Normalize,
            Self::Required | Self::ShortAxesRequired | Self::ShortDenseRequired => {
                Norm::Require { radius: 1.0 }
            }
            _ => Norm::Clip { radius: 1.0 },
        }
    }

    /// The constant of private centring, if the pair's study has one.
    pub const fn centring(self) -> Option<f64> {
        match self {
            Self::Centred
            | Self::CentredUnusable
            | Self::MissingCells
            | Self::CentredRow
            | Self::CentredRowAdded => Some(DEFAULT_CENTRING),
            _ => None,
        }
    }

    /// The weights of the two rows, if the pair's study has weights.
    pub(crate) fn weights(self) -> Option<(f64, f64)> {
        (self == Self::Weighted).then_some((4.0, 0.25))
    }

    /// The features of the pair's study, if cells may be missing in it or values have an offset.
    pub(crate) fn features(self, p: usize) -> Option<Vec<Feature>> {
        let features = |center| (0..p).map(move |i| Feature::new(format!("x{i}"), center, 1.0));
        match self {
            Self::MissingCells => {
                Some(features(0.0).map(|feature| feature.observed(0.5)).collect())
            }
            Self::OffsetRows => Some(features(OFFSET).collect()),
            _ => None,
        }
    }

    /// Whether such a study exists in this dimension, of which reports have at most `largest`: private centring needs one
    /// more for its constant.
    pub fn fits(self, largest: usize, dimension: usize) -> bool {
        self.centring().is_none() || dimension < largest
    }

    /// The raw rows of length `p` ≥ 2, with their weights, of a pair of rows.
    pub fn participants(self, p: usize, seed: u64) -> (Participant, Participant) {
        let ((a, b), weights) = (self.rows(p, seed), self.weights());
        let again = (self == Self::TwoRows).then(|| a.clone());
        let participant = |row, more_rows, weight| Participant {
            row,
            more_rows,
            weight,
        };
        let (of_a, of_b) = weights.unzip();
        let more_of_a = again.into_iter().collect();
        (
            participant(a, more_of_a, of_a),
            participant(b, Vec::new(), of_b),
        )
    }

    /// Two rows; of a pair of tables those that make the difference.
    pub(crate) fn rows(self, p: usize, seed: u64) -> (Row, Row) {
        let axis = |length: f64, at: usize| {
            let mut row = vec![0.0; p];
            row[at] = length;
            row
        };
        let (a, b) = match self {
            Self::Axes
            | Self::TwoRows
            | Self::OffsetRows
            | Self::PersonAdded
            | Self::PersonReplaced
            | Self::PersonUnusable => (axis(1.0, 0), axis(1.0, 1)),
            Self::Orthogonal | Self::RowRemoved => orthogonal(p, seed),
            Self::ShortAxes | Self::ShortAxesRequired => (axis(0.5, 0), axis(0.05, 1)),
            Self::ShortDense | Self::ShortDenseRequired => {
                let (mut a, mut b) = orthogonal(p, seed);
                a.iter_mut().for_each(|x| *x *= 0.5);
                b.iter_mut().for_each(|x| *x *= 0.05);
                (a, b)
            }
            Self::UnitZero => (axis(1.0, 0), vec![0.0; p]),
            Self::Clipped => (axis(1e3, 0), axis(7.0, 1)),
            Self::RowReplaced => (axis(1e6, 0), axis(7.0, 1)),
            Self::Normalized => (axis(1e-3, 0), axis(1e3, 1)),
            Self::Required => (axis(1.0, 0), axis(2.0, 1)),
            Self::Unusable | Self::RowAdded | Self::RowUnusable | Self::AllUnusable => {
                (axis(1.0, 0), axis(f64::NAN, 1))
            }
            Self::MissingCells => {
                let (a, b) = Self::Centred.rows(p, seed);
                let others_missing = |row: Row| {
                    let cells = row.values().iter();
                    cells
                        .map(|x| if *x == 0.0 { f64::NAN } else { *x })
                        .collect()
                };
                (others_missing(a), others_missing(b))
            }
            Self::Centred | Self::CentredRow => {
                // Cosine −a²: with the constant a appended to both, the inner product is zero.
                let cosine = -DEFAULT_CENTRING * DEFAULT_CENTRING;
                let mut b = axis(10.0 * cosine, 0);
                b[1] = 10.0 * (1.0 - cosine * cosine).sqrt();
                (axis(10.0, 0), b)
            }
            Self::CentredUnusable | Self::CentredRowAdded => (axis(5.0, 0), axis(f64::NAN, 1)),
            Self::Weighted => (axis(10.0, 0), axis(10.0, 1)),
        };
        (Row::new(a), Row::new(b))
    }
}

/// One of 256 random rows of length 1.
pub(crate) fn unit_row(which: u8, p: usize, seed: u64) -> Vec<f64> {
    let mut key = [which; 16];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut z = vec![0.0; p];
    let length = expand(&key, &mut z).sqrt();
    for z in &mut z {
        *z /= length;
    }
    z
}

/// Gram–Schmidt on two random rows.
fn orthogonal(p: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let (a, mut b) = (unit_row(1, p, seed), unit_row(2, p, seed));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // Twice, in case the two rows happen to be close.
    for _ in 0..2 {
        let along = dot(&a, &b);
        for (b, a) in b.iter_mut().zip(&a) {
            *b -= along * a;
        }
    }
    let length = dot(&b, &b).sqrt();
    for b in &mut b {
        *b /= length;
    }
    (a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_pairs_are_orthonormal_and_depend_on_the_seed() {
        for p in [2, 3, 40] {
            let (a, b) = orthogonal(p, 9);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            assert!(dot(&a, &b).abs() < 1e-14);
            assert!((dot(&a, &a) - 1.0).abs() < 1e-14 && (dot(&b, &b) - 1.0).abs() < 1e-14);
            assert_ne!(a, orthogonal(p, 10).0);
        }
    }
}
