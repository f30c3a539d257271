//! What the noise floor warns of.

use super::{EigenvalueVerdict, Floor, Measured, Spectrum, participants_for_visibility};
use crate::report::{
    format::{round_down, round_up},
    warning::{Outlook, Warning},
};

/// The assumed share of an unseen component, in excess of the bulk, of the variance of unit rows; an upper limit.
const EXAMPLE_SHARE: f64 = 0.1;

/// Excess noise along a component, `m_v²/a²`, that triggers a warning.
const EXCESS_TO_WARN_OF: f64 = 0.25;

/// The warnings of a floor report, most important first, and the number of participants needed where only some
/// components are visible.
pub(super) fn of_floor(
    measured: &Measured<'_>,
    floor: &Floor,
    verdicts: &[EigenvalueVerdict],
) -> (Vec<Warning>, Option<Outlook>) {
    let (mut warnings, mut rest) = (Vec::new(), None);
    let k = verdicts.len();
    let standing = verdicts.iter().filter(|judged| judged.is_above()).count();
    if standing == 0 {
        warnings.push(Warning::NothingStands {
            n: measured.rows_of_tables.unwrap_or(measured.n_eff as u64),
            setting: measured.setting.to_owned(),
            largest: measured.spectrum.leading.first().copied().unwrap_or(0.0),
            threshold: floor.threshold,
            outlook: outlook(measured, verdicts, k.max(1)),
        });
    } else if standing < k {
        warnings.push(Warning::FewStand { standing, k });
        rest = Some(outlook(measured, verdicts, k)).filter(Outlook::is_known);
    }
    warnings.extend(towards_mean(measured, floor));
    if measured.vectors.nrows() == k && k > 0 {
        warnings.push(Warning::AllDimensions(k));
    }
    (warnings, rest)
}

/// A warning for components that lie along m̂ and barely above the noise.
///
/// The noise of Ĉ has the metric `I + m̂m̂ᵀ/a²` instead of I (`docs/derivations/centring.md`, "The spurious component").
/// With x = ‖m‖/a > 1 its `−δmᵀ − mδᵀ` (δ the error of m̂) leaves the bulk: pure noise then has an eigenvalue at
/// `(x + 1/x)·r` above the centre, with squared cosine `(x² − 1)/(2x²)` to m̂, which looks like a component but is not.
fn towards_mean(measured: &Measured<'_>, floor: &Floor) -> Option<Warning> {
    let limit = floor.threshold + (floor.threshold - floor.edge);
    let doubtful = |&j: &usize| {
        let value = measured.values[j];
        let barely = value > floor.edge && value <= limit;
        barely && measured.excess_along_mean(j) >= EXCESS_TO_WARN_OF
    };
    let doubtful = (0..measured.values.len()).filter(doubtful);
    let numbers: Vec<usize> = doubtful.map(|j| j + 1).collect();
    (!numbers.is_empty()).then_some(Warning::TowardsMean(numbers))
}

/// The number of participants needed for the first `k`, as in `eigenveil plan`, if each invisible component held a
/// tenth of the variance of unit rows; and the number below which it is hopeless. Of tables of sites nothing is told: it
/// takes a plan, by how the rows would be divided.
fn outlook(measured: &Measured<'_>, verdicts: &[EigenvalueVerdict], k: usize) -> Outlook {
    if measured.rows_of_tables.is_some() {
        return Outlook::default();
    }
    let p = measured.spectrum.dimension;
    let seen: Vec<f64> = verdicts
        .iter()
        .filter(|judged| judged.is_above())
        .filter_map(|j| Some(j.spike?.theta))
        .collect();
    let unseen = k.saturating_sub(seen.len());
    // Rows lie in the unit ball: the missing components share at most what the visible ones leave of 1.
    let left = (1.0 - seen.iter().sum::<f64>()).max(0.0);
    if unseen == 0 || left == 0.0 {
        return Outlook::default();
    }
    let most = left / unseen as f64;
    // Leaves variance for the other directions and is no larger than the visible ones; a multiple of 0.1 %, so that the
    // text is exact.
    let smallest_visible = seen.iter().copied().fold(f64::INFINITY, f64::min);
    let share = EXAMPLE_SHARE.min(0.5 * most).min(smallest_visible);
    let share = (1_000.0 * share).floor() / 1_000.0;
    let needed = |share: f64| {
        let shares = seen
            .iter()
            .copied()
            .chain(std::iter::repeat_n(share, unseen));
        let rest = ((left - share * unseen as f64) / p as f64).max(0.0);
        let mut leading: Vec<f64> = shares.map(|share| share + rest).collect();
        leading.sort_by(|a, b| b.total_cmp(a));
        let spectrum = Spectrum::new(p, leading, rest).ok()?;
        let n = participants_for_visibility(&spectrum, measured.noise).ok()??;
        (n as f64 > measured.n_eff).then_some(n)
    };
    Outlook {
        k,
        unseen,
        share,
        needed: needed(share)
            .filter(|_| share > 0.0)
            .map(|n| round_up(n, 2)),
        at_least: needed(most).map(|n| round_down(n, 2)),
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::mechanism::NoiseModel;
    use nalgebra::DMatrix;

    use super::super::{assess, measured};

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
