//! The pairs of rows that are tried.

use std::{fmt, str::FromStr};

use eigenveil_shared::{
    Error, ErrorCode, Result,
    mechanism::double_cap::expand,
    preprocess::{BoundedRow, Row},
    study::StudyParams,
};
use serde::Serialize;

/// A pair of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairKind {
    /// (e₁, e₂): the only worst pair of `symmetric-gaussian`.
    Axes,
    /// Two random orthogonal unit rows.
    Orthogonal,
    /// (e₁, 0).
    UnitZero,
}

impl PairKind {
    /// Every pair, in the order in which they are tried.
    pub const ALL: [PairKind; 3] = [Self::Axes, Self::Orthogonal, Self::UnitZero];

    /// The name as written on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Axes => "axes",
            Self::Orthogonal => "orthogonal",
            Self::UnitZero => "unit-zero",
        }
    }

    /// The rows, prepared as this study's devices prepare theirs.
    ///
    /// # Errors
    /// Those of preparing a row.
    pub fn rows(self, params: &StudyParams, seed: u64) -> Result<(BoundedRow, BoundedRow)> {
        let p = params.dimension();
        let axis = |at: usize| (0..p).map(|i| f64::from(u8::from(i == at))).collect();
        let (a, b) = match self {
            Self::Axes => (axis(0), axis(1)),
            Self::Orthogonal => orthogonal(p, seed),
            Self::UnitZero => (axis(0), vec![0.0; p]),
        };
        let preprocessor = params.preprocessor();
        Ok((
            preprocessor.prepare(&Row::new(a))?,
            preprocessor.prepare(&Row::new(b))?,
        ))
    }
}

impl fmt::Display for PairKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PairKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|pair| pair.as_str() == text)
            .ok_or_else(|| {
                Error::new(
                    ErrorCode::InvalidRequest,
                    format!(
                        "there is no pair {text:?}; the pairs are axes, orthogonal and unit-zero"
                    ),
                )
            })
    }
}

/// Gram–Schmidt on two Gaussian vectors.
fn orthogonal(p: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
    let gaussian = |which: u8| {
        let mut key = [which; 16];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut z = vec![0.0; p];
        let length = expand(&key, &mut z).sqrt();
        for z in &mut z {
            *z /= length;
        }
        z
    };
    let (a, mut b) = (gaussian(1), gaussian(2));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // Twice, for two rows that happen to be close.
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
