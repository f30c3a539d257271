//! Where the components end (`docs/derivations/eigengap.md`).

use eigenveil_shared::{
    Error, Result,
    estimate::{ComponentCount, SpectrumEstimate},
    mechanism::NoiseModel,
};

use super::{
    Eigenvalues, Floor,
    observed_spectrum::{NoisySpectrum, profile},
};

/// A boundary with a gap of this many 2√V is sure: so large a gap is rarely an accident of choosing the largest.
pub const SURE_GAP: f64 = 4.0;

/// The gap after component `i` (from 1) in units of 2√V, as `n_eff` reports show it: below 2.45 equal eigenvalues could
/// be behind it.
pub fn gap_after(spectrum: &SpectrumEstimate, n_eff: f64, i: usize) -> Result<f64> {
    let last = spectrum.standing[i - 1];
    let next = spectrum.standing.get(i).copied();
    let next = next.unwrap_or_else(|| last.min(spectrum.unseen.max(top_of_rest(spectrum))));
    let excess = |j: usize| spectrum.excess_along_mean.get(j).copied().unwrap_or(0.0);
    Ok(profile(spectrum, n_eff)?.gap(last, next, excess(i - 1) + excess(i)))
}

/// The gap between two eigenvalues in units of 2√V, at the noise of `n_eff` such reports.
pub fn gap_between(
    spectrum: &SpectrumEstimate,
    n_eff: f64,
    (one, other): (f64, f64),
) -> Result<f64> {
    Ok(profile(spectrum, n_eff)?.gap(one, other, 0.0))
}

fn top_of_rest(spectrum: &SpectrumEstimate) -> f64 {
    spectrum.rest_mean + spectrum.rest_half_width
}

/// How many components there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChosenCount {
    /// The components, 0 if nothing stands above the floor.
    pub(crate) k: usize,
    /// Whether no gap is large enough to be sure where they end.
    pub(crate) is_open: bool,
}

/// Where the components end (`k = auto`): at the last gap that is sure, before the background; where none is, at the
/// last that is likely, or else at the largest.
fn choose_count(spectrum: &SpectrumEstimate, n_eff: f64) -> Result<ChosenCount> {
    let count = spectrum.standing.len();
    let p = count + spectrum.rest_count;
    let gaps: Vec<f64> = (1..=count)
        .map(|i| gap_after(spectrum, n_eff, i))
        .collect::<Result<_>>()?;
    let beyond =
        |least: f64| -> Vec<usize> { (1..=count).filter(|&i| gaps[i - 1] >= least).collect() };
    let mut ends = beyond(SURE_GAP);
    let is_sure = !ends.is_empty();
    if !is_sure {
        // One of `count` gaps between equal eigenvalues exceeds this in one study of twenty.
        ends = beyond((2.0 * (count as f64 / 0.05).ln()).sqrt());
    }
    let mut k = 0;
    for end in ends {
        // More than half of the directions left, none told apart from the next: the background.
        let size = end - k;
        if size > 1 && 2 * size > p - k {
            break;
        }
        k = end;
    }
    if k > 0 {
        // The largest of several gaps that are not sure looks larger than it is: so does what follows from it.
        return Ok(ChosenCount {
            k,
            is_open: !is_sure,
        });
    }
    let largest = (1..=count).max_by(|&a, &b| gaps[a - 1].total_cmp(&gaps[b - 1]));
    Ok(ChosenCount {
        k: largest.unwrap_or(0),
        is_open: largest.is_some(),
    })
}

/// k, if it is fixed; else [`choose_count`] for a noisy moment with these eigenvalues.
pub(crate) fn count_components(
    requested: ComponentCount,
    eigenvalues: &Eigenvalues<'_>,
    noise: &NoiseModel,
    n_eff: f64,
    excess: &[f64],
) -> Result<ChosenCount> {
    if let ComponentCount::Fixed(k) = requested {
        return Ok(ChosenCount {
            k: checked_rank(k, eigenvalues.dimension)?,
            is_open: false,
        });
    }
    let floor = Floor::from_leading(eigenvalues, noise, n_eff)?;
    let (trace, p) = (eigenvalues.trace, eigenvalues.dimension as f64);
    let total = noise.mean_squared_norm(trace);
    let spectrum = NoisySpectrum {
        floor: &floor,
        threshold: floor.threshold,
        eigenvalues: *eigenvalues,
        missing: total.map(|total| (total - trace) / p),
        noise,
        n_eff,
        excess,
    };
    choose_count(&spectrum.estimate()?, n_eff)
}

/// k, between 1 and p.
pub(crate) fn checked_rank(k: usize, p: usize) -> Result<usize> {
    if k == 0 || k > p {
        return Err(Error::invalid_request(format!(
            "k is {k}; it must be between 1 and p = {p}, or auto"
        )));
    }
    Ok(k)
}

#[cfg(test)]
mod tests {
    use super::{super::spectrum_estimate, *};

    fn chosen(standing: &[f64], rest: (usize, f64)) -> (usize, bool) {
        let choice = choose_count(&spectrum_estimate(standing, rest), 1.0).unwrap();
        (choice.k, choice.is_open)
    }

    #[test]
    fn components_end_at_the_last_sure_gap_before_the_background() {
        // Gaps of 50, 50 and 25 times 2√V.
        assert_eq!(chosen(&[0.3, 0.2, 0.1], (7, 0.05)), (3, false));
        // Nineteen equal directions, and smaller ones after them: 4 and not 23.
        let mut classes = vec![0.2, 0.15, 0.12, 0.09];
        classes.extend([0.02; 19]);
        assert_eq!(chosen(&classes, (8, 0.001)), (4, false));
        // A pair that is told apart from the rest but not within is no background.
        assert_eq!(chosen(&[0.2, 0.2, 0.1], (7, 0.02)), (3, false));
        // No gap of 4, but one of 3 beside one of 1: √(2 ln(2/0.05)) is 2.72.
        assert_eq!(chosen(&[0.058, 0.052], (8, 0.05)), (1, true));
        // Gaps of 2 and 1: the larger one, and open.
        assert_eq!(chosen(&[0.056, 0.052], (8, 0.05)), (1, true));
        assert_eq!(chosen(&[], (8, 0.05)), (0, false));
    }
}
