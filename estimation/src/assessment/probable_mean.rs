//! Detection of a first component that is probably the mean: reports show `E[xxᵀ]` = Σ + μμᵀ and never μ.
//!
//! Only studies that neither state a centre nor centre privately are checked (`docs/estimation.md`). The evidence is m
//! clear loadings of one sign, which occur by chance once in 2^(m−1), or nearly all of the squared length in one
//! direction.

use eigenveil_shared::{estimate::Verdict, preprocess::Preprocessing};

use super::FloorReport;
use crate::report::warning::Warning;

/// Minimum number of loadings with the same sign: this happens by chance once in 32.
const MIN_OF_ONE_SIGN: usize = 6;
/// Share of the squared length that a single direction rarely reaches if the rows are centred.
const LARGE_SHARE: f64 = 0.8;

/// A warning where the leading component is probably the mean of the rows; `None` without evidence for it, if the
/// component is not above the noise, or if the study centres.
pub fn probable_mean_warning(
    preprocessing: &Preprocessing,
    floor_report: &FloorReport,
) -> Option<Warning> {
    let features = preprocessing.features.iter().flatten();
    if preprocessing.centring.is_some() || features.clone().any(|feature| feature.center != 0.0) {
        return None;
    }
    let leading = floor_report.components.first()?;
    if leading.verdict != Verdict::Above {
        return None;
    }
    // Rows have a length of 1 at most.
    let share = leading.explained_variance_ratio.unwrap_or(leading.variance);
    let large = Some(share).filter(|share| *share >= LARGE_SHARE);
    let of_one_sign =
        clear_loadings_of_one_sign(&leading.loadings, leading.alignment.unwrap_or(1.0));
    let of_one_sign = of_one_sign.filter(|count| *count >= MIN_OF_ONE_SIGN);
    (of_one_sign.is_some() || large.is_some()).then_some(Warning::ProbablyTheMean {
        of_one_sign,
        share: large,
    })
}

/// Number of loadings above the noise, if they all have one sign.
fn clear_loadings_of_one_sign(loadings: &[f64], alignment: f64) -> Option<usize> {
    let p = loadings.len() as f64;
    // The part of the component lost to noise is spread over all directions; the sign of a loading below a quarter of
    // the average size says little.
    let noise = ((1.0 - alignment).max(0.0) / p).sqrt();
    let least = (3.0 * noise).max(0.25 / p.sqrt());
    let clear = loadings.iter().filter(|loading| loading.abs() > least);
    let (mut positive, mut negative) = (0, 0);
    for loading in clear {
        if *loading > 0.0 {
            positive += 1;
        } else {
            negative += 1;
        }
    }
    (positive == 0 || negative == 0).then_some(positive + negative)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_loadings_are_ignored() {
        let mut loadings = vec![0.3; 9];
        loadings.push(-0.02);
        assert_eq!(clear_loadings_of_one_sign(&loadings, 0.99), Some(9));
        loadings[9] = -0.3;
        assert_eq!(clear_loadings_of_one_sign(&loadings, 0.99), None);
        // So much noise that nothing is clear.
        assert_eq!(clear_loadings_of_one_sign(&[0.3; 10], 0.5), Some(0));
    }
}
