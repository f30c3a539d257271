//! The warnings for the analyst, in words.

use super::{EigenvalueVerdict, Floor, Measured, Spectrum, centring, participants_for_visibility};
use crate::format;

/// The assumed share of an unseen component, in excess of the bulk, of the variance of unit rows; an upper limit.
const EXAMPLE_SHARE: f64 = 0.1;

/// The warnings of a floor report, most important first, and the number of participants needed where only some
/// components are visible.
pub(super) fn plain_words(
    measured: &Measured<'_>,
    floor: &Floor,
    verdicts: &[EigenvalueVerdict],
) -> (Vec<String>, Option<String>) {
    let (mut warnings, mut rest) = (Vec::new(), None);
    let k = verdicts.len();
    let standing = verdicts.iter().filter(|judged| judged.is_above()).count();
    let place = format!(
        "At n = {} and {}",
        format::with_thousands(measured.n_eff as u64),
        measured.setting
    );
    if standing == 0 {
        let mut text = format!(
            "{place} no component stands above the noise: the largest eigenvalue is {}, and noise alone reaches about {}.",
            plain(measured.spectrum.leading.first().copied().unwrap_or(0.0)),
            plain(floor.threshold),
        );
        text.push_str(&outlook(measured, verdicts, k.max(1)));
        warnings.push(text);
    } else if standing < k {
        let others = if k - standing == 1 {
            "the other one is"
        } else {
            "the others are"
        };
        warnings.push(format!(
            "Only {standing} of the {k} components asked for stand above the noise; {others} mostly noise."
        ));
        let words = outlook(measured, verdicts, k).trim_start().to_owned();
        rest = (!words.is_empty()).then_some(words);
    }
    warnings.extend(centring::spurious_component_warning(
        measured, floor, verdicts,
    ));
    if measured.vectors.nrows() == k && k > 0 {
        warnings.push(format!(
            "All {k} dimensions were asked for: the subspace is the whole space, and there is no noise bulk to measure."
        ));
    }
    (warnings, rest)
}

/// The number of participants needed for the first `k`, as in `eigenveil plan`, if each invisible component held a
/// tenth of the variance of unit rows; and the number below which it is hopeless.
fn outlook(measured: &Measured<'_>, verdicts: &[EigenvalueVerdict], k: usize) -> String {
    let p = measured.spectrum.dimension;
    let seen: Vec<f64> = verdicts
        .iter()
        .filter(|judged| judged.is_above())
        .filter_map(|j| Some(j.spike?.theta))
        .collect();
    let missing = k.saturating_sub(seen.len());
    // Rows lie in the unit ball: the missing components share at most what the visible ones leave of 1.
    let left = (1.0 - seen.iter().sum::<f64>()).max(0.0);
    if missing == 0 || left == 0.0 {
        return String::new();
    }
    let most = left / missing as f64;
    // Leaves variance for the other directions and is no larger than the visible ones; a multiple of 0.1 %, so that the
    // text is exact.
    let smallest_visible = seen.iter().copied().fold(f64::INFINITY, f64::min);
    let share = EXAMPLE_SHARE.min(0.5 * most).min(smallest_visible);
    let share = (1_000.0 * share).floor() / 1_000.0;
    let needed = |share: f64| {
        let shares = seen
            .iter()
            .copied()
            .chain(std::iter::repeat_n(share, missing));
        let rest = ((left - share * missing as f64) / p as f64).max(0.0);
        let mut leading: Vec<f64> = shares.map(|share| share + rest).collect();
        leading.sort_by(|a, b| b.total_cmp(a));
        let spectrum = Spectrum::new(p, leading, rest).ok()?;
        let n = participants_for_visibility(&spectrum, measured.noise).ok()??;
        (n as f64 > measured.n_eff).then_some(n)
    };
    let mut text = String::new();
    if let Some(n) = needed(share).filter(|_| share > 0.0) {
        let (which, holder) = match k {
            1 => ("one".to_owned(), "it"),
            _ if missing < k => (first_in_words(k), "each of those not seen"),
            _ => (first_in_words(k), "each"),
        };
        text.push_str(&format!(
            " About {} participants would be needed for {which} if {holder} held {:.1} % of the variance of unit rows more than the other directions do.",
            format::in_words(format::round_up(n, 2)),
            100.0 * share
        ));
    }
    if let Some(n) = needed(most) {
        text.push_str(&format!(
            " Fewer than {} cannot be enough, whatever the rows.",
            format::in_words(format::round_down(n, 2))
        ));
    }
    text
}

/// "the first three".
fn first_in_words(k: usize) -> String {
    const WORDS: [&str; 9] = [
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    ];
    match k.checked_sub(2).and_then(|place| WORDS.get(place)) {
        Some(word) => format!("the first {word}"),
        None => format!("the first {k}"),
    }
}

/// Three significant digits.
fn plain(x: f64) -> String {
    let decimals = 2 - x.abs().log10().floor().clamp(-99.0, 99.0) as i32;
    match usize::try_from(decimals) {
        Ok(decimals) if decimals <= 6 => format!("{x:.decimals$}"),
        _ => format!("{x:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::mechanism::NoiseModel;
    use nalgebra::DMatrix;

    use super::{
        super::{assess, measured},
        *,
    };

    #[test]
    fn numbers_are_readable() {
        assert_eq!(plain(0.123_456), "0.123");
        assert_eq!(plain(-12.345), "-12.3");
        assert_eq!(plain(1.5e-9), "1.50e-9");
        assert_eq!(plain(0.0), "0.00e0");
        assert_eq!(first_in_words(3), "the first three");
        assert_eq!(first_in_words(11), "the first 11");
    }

    #[test]
    fn a_clear_estimate_has_no_warning() {
        let noise = NoiseModel::gaussian(1.0);
        let spectrum: Vec<f64> = [0.5, 0.3].into_iter().chain(vec![0.0; 18]).collect();
        let vectors = DMatrix::identity(20, 2);
        let clear = measured(&vectors, &spectrum[..2], &spectrum, &noise, 1e6);
        let result = assess(&clear).unwrap();
        assert!(result.warnings.is_empty(), "{:?}", result.warnings);
    }
}
