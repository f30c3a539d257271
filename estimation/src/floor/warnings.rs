//! What an analyst must be told, in words.

use super::{
    Floor, Judgement, Spectrum, centring,
    components::{Measured, stands},
    participants_for_visibility,
};

/// The component that the last sentence of a warning speaks of: a tenth of what a unit row has.
const EXAMPLE_SHARE: f64 = 0.1;

/// The warnings an assessment carries, most important first.
pub(super) fn plain_words(
    measured: &Measured<'_>,
    floor: &Floor,
    judgements: &[Judgement],
) -> Vec<String> {
    let mut warnings = Vec::new();
    let k = judgements.len();
    let standing = judgements
        .iter()
        .filter(|judgement| stands(judgement))
        .count();
    let place = format!("At n = {} and {}", grouped(measured.n), measured.setting);
    if standing == 0 {
        let mut text = format!(
            "{place} no component stands above the noise: the largest eigenvalue is {}, and noise alone reaches about {}.",
            plain(measured.spectrum.leading.first().copied().unwrap_or(0.0)),
            plain(floor.threshold),
        );
        text.push_str(&outlook(measured, judgements, k.max(1)));
        warnings.push(text);
    } else if standing < k {
        let others = if k - standing == 1 {
            "the other one is"
        } else {
            "the others are"
        };
        let mut text = format!(
            "Only {standing} of the {k} components asked for stand above the noise; {others} mostly noise."
        );
        text.push_str(&outlook(measured, judgements, k));
        warnings.push(text);
    }
    if let Some(pairs) = indistinct(floor, judgements) {
        warnings.push(pairs);
    }
    warnings.extend(centring::not_evidence(measured, floor, judgements));
    if measured.vectors.nrows() == k && k > 0 {
        warnings.push(format!(
            "All {k} dimensions were asked for: the subspace is the whole space, and there is no noise bulk to measure."
        ));
    }
    warnings
}

/// How many participants it would take.
fn outlook(measured: &Measured<'_>, judgements: &[Judgement], k: usize) -> String {
    let p = measured.spectrum.dimension;
    let needed = |leading: Vec<f64>, bulk: f64| {
        let spectrum = Spectrum::new(p, leading, bulk).ok()?;
        participants_for_visibility(&spectrum, measured.noise).ok()?
    };
    let mut text = String::new();
    let seen: Vec<f64> = judgements
        .iter()
        .filter(|j| stands(j))
        .filter_map(|j| Some(j.spike?.theta))
        .collect();
    let missing = k.saturating_sub(seen.len());
    // Rows lie in the unit ball: whatever the visible components leave of 1 is the most that the
    // missing ones can share. That gives a number below which the wish is hopeless.
    let most = ((1.0 - seen.iter().sum::<f64>()) / missing.max(1) as f64).max(0.0);
    if missing > 0
        && most > 0.0
        && let Some(n) = needed(vec![most; missing], 0.0).filter(|&n| n > measured.n)
    {
        let which = if k == 1 {
            "it".to_owned()
        } else {
            format!("the first {k}")
        };
        text.push_str(&format!(
            " At the very least about {} participants are needed to see {which}.",
            rounded(n)
        ));
    }
    let rest = (1.0 - EXAMPLE_SHARE) / p as f64;
    if let Some(n) = needed(vec![EXAMPLE_SHARE + rest], rest).filter(|&n| n > measured.n) {
        text.push_str(&format!(
            " One that stands out from the rest by {:.0} % of the variance of unit rows would need about {}.",
            EXAMPLE_SHARE * 100.0,
            rounded(n)
        ));
    }
    text
}

/// Neighbouring visible components whose order and directions noise could swap.
fn indistinct(floor: &Floor, judgements: &[Judgement]) -> Option<String> {
    let pairs: Vec<String> = judgements
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| pair.iter().all(stands))
        .filter_map(|(j, pair)| {
            let (first, second) = (pair[0].spike?.theta, pair[1].spike?.theta);
            let gap = first - second;
            let sd = floor.noise.variance_between(first, second).sqrt();
            // sin² of the mixing is (sd/gap)²: beyond a quarter the two are not separate findings.
            (gap.abs() < 2.0 * sd).then(|| format!("{} and {}", j + 1, j + 2))
        })
        .collect();
    (!pairs.is_empty()).then(|| {
        format!(
            "Components {} cannot be told apart at this noise: their span means something, the single directions do not.",
            pairs.join(", ")
        )
    })
}

/// Three significant digits.
fn plain(x: f64) -> String {
    let decimals = 2 - x.abs().log10().floor().clamp(-99.0, 99.0) as i32;
    match usize::try_from(decimals) {
        Ok(decimals) if decimals <= 6 => format!("{x:.decimals$}"),
        _ => format!("{x:.2e}"),
    }
}

/// A whole number with its thousands separated, for people.
///
/// ```
/// assert_eq!(eigenveil_estimation::floor::grouped(1_234_567), "1,234,567");
/// ```
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Two significant digits, rounded up: "about" must not promise too little.
fn rounded(n: u64) -> String {
    grouped(rounded_up(n, 2))
}

/// `n` to this many significant digits, rounded up.
///
/// ```
/// assert_eq!(eigenveil_estimation::floor::rounded_up(123_456, 3), 124_000);
/// ```
pub fn rounded_up(n: u64, digits: u32) -> u64 {
    let limit = 10_u64.saturating_pow(digits);
    let mut unit = 1;
    while n / unit >= limit {
        unit *= 10;
    }
    n.div_ceil(unit).saturating_mul(unit)
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::mechanism::NoiseModel;
    use nalgebra::DMatrix;

    use super::{
        super::{Eigenvalues, assess},
        *,
    };

    #[test]
    fn numbers_are_readable() {
        assert_eq!(plain(0.123_456), "0.123");
        assert_eq!(plain(-12.345), "-12.3");
        assert_eq!(plain(1.5e-9), "1.50e-9");
        assert_eq!(plain(0.0), "0.00e0");
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1797), "1,797");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(rounded(99), "99");
        assert_eq!(rounded(101), "110");
        assert_eq!(rounded(123_456), "130,000");
    }

    /// The digits of the example data set at ε = 1: hopeless, and said so with a way out.
    #[test]
    fn a_drowned_study_says_what_it_would_take() {
        let p = 64;
        let noise = NoiseModel::Gaussian {
            off_diagonal_sd: 4.2,
            diagonal_sd: 5.9,
        };
        let spectrum: Vec<f64> = (0..p).map(|i| 1.5 - 3.0 * i as f64 / 63.0).collect();
        let vectors = DMatrix::identity(p, 2);
        let result = assess(&Measured {
            vectors: &vectors,
            values: &spectrum[..2],
            spectrum: Eigenvalues::all(&spectrum),
            noise: &noise,
            n: 1797,
            mean: None,
            support: None,
            error_bars: None,
            setting: "ε = 1",
        })
        .unwrap();
        let [warning] = &result.warnings[..] else {
            panic!("{:?}", result.warnings)
        };
        assert!(warning.starts_with("At n = 1,797 and ε = 1 no component stands above the noise"));
        assert!(
            warning.contains("participants are needed to see the first 2."),
            "{warning}"
        );
        assert!(warning.contains("by 10 % of the variance"), "{warning}");
    }

    #[test]
    fn a_clear_estimate_has_no_warning() {
        let noise = NoiseModel::Gaussian {
            off_diagonal_sd: 1.0,
            diagonal_sd: 1.0,
        };
        let spectrum: Vec<f64> = [0.5, 0.3].into_iter().chain(vec![0.0; 18]).collect();
        let vectors = DMatrix::identity(20, 2);
        let result = assess(&Measured {
            vectors: &vectors,
            values: &spectrum[..2],
            spectrum: Eigenvalues::all(&spectrum),
            noise: &noise,
            n: 1_000_000,
            mean: None,
            support: None,
            error_bars: None,
            setting: "ε = 1",
        })
        .unwrap();
        assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    }
}
