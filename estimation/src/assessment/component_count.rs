//! Where the components end (`docs/derivations/eigengap.md`).

use std::f64::consts::SQRT_2;

use eigenveil_shared::{
    Error, Result,
    estimate::{ComponentCount, CountShares, SpectrumEstimate},
    mechanism::NoiseModel,
};
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Distribution, StandardNormal};

use super::{
    Eigenvalues, Floor,
    observed_spectrum::{NoisySpectrum, profile},
};

/// A boundary with a gap of this many 2√V is sure: so large a gap is rarely an accident of choosing the largest.
pub const SURE_GAP: f64 = 4.0;

/// Studies drawn for the shares of their counts, and the seed: a share is good to 1.6 %.
const STUDIES: u32 = 1_000;
const SEED: u64 = 1;

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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ChosenCount {
    /// The components, 0 if nothing stands above the floor.
    pub(crate) k: usize,
    /// Whether no gap is large enough to be sure where they end.
    pub(crate) is_open: bool,
    /// How firm k is; `None` if it was fixed, or nothing stands.
    pub(crate) shares: Option<CountShares>,
}

fn choose_count(spectrum: &SpectrumEstimate, n_eff: f64) -> Result<ChosenCount> {
    let count = spectrum.standing.len();
    let p = count + spectrum.rest_count;
    let gaps: Vec<f64> = (1..=count)
        .map(|i| gap_after(spectrum, n_eff, i))
        .collect::<Result<_>>()?;
    let (k, is_open) = end_of(&gaps, p);
    Ok(ChosenCount {
        k,
        is_open,
        shares: (k > 0).then(|| shares(&gaps, p, k)),
    })
}

/// The shares of studies of the same people that choose k − 1, k and k + 1 components.
///
/// A gap that shows is the length of a vector: the true gap, and two standard normals. Another study has normals of its
/// own, so that what this one tells of its gap R' is R' = |(R + √2·z₁, √2·z₂)|. Gaps are taken as independent.
fn shares(gaps: &[f64], p: usize, k: usize) -> CountShares {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut studies = [0_u32; 3];
    let mut others = gaps.to_vec();
    for _ in 0..STUDIES {
        for (other, gap) in others.iter_mut().zip(gaps) {
            let mut normal = || -> f64 { StandardNormal.sample(&mut rng) };
            let (along, across) = (normal(), normal());
            *other = (gap + SQRT_2 * along).hypot(SQRT_2 * across);
        }
        let offset = (end_of(&others, p).0 + 1).checked_sub(k);
        if let Some(studies) = offset.and_then(|offset| studies.get_mut(offset)) {
            *studies += 1;
        }
    }
    let [one_fewer, same, one_more] = studies.map(|n| f64::from(n) / f64::from(STUDIES));
    CountShares {
        one_fewer,
        same,
        one_more,
    }
}

/// Where the components end (`k = auto`), by the gap after each of p that stands: at the last gap that is sure, before
/// the background; where none is, at the last that is likely, or else at the largest. Returns k, 0 without gaps, and
/// whether no gap is sure.
fn end_of(gaps: &[f64], p: usize) -> (usize, bool) {
    let count = gaps.len();
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
        return (k, !is_sure);
    }
    let largest = (1..=count).max_by(|&a, &b| gaps[a - 1].total_cmp(&gaps[b - 1]));
    (largest.unwrap_or(0), largest.is_some())
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
            shares: None,
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

    /// Two gaps, the first enormous: another study chooses 2 where its second gap is 4 or more. By the law of Rice, from
    /// scipy: `rice.sf(4/√2, R/√2)`. 1,000 draws are good to 1.6 %.
    #[test]
    fn shares_are_those_of_another_study() {
        for (gap, k, wider) in [
            (3.0, 1, 0.309_4),
            (4.0, 2, 0.571_7),
            (5.0, 2, 0.807_2),
            (7.0, 2, 0.987_9),
        ] {
            let CountShares {
                one_fewer,
                same,
                one_more,
            } = shares(&[100.0, gap], 10, k);
            let (found, rest, none) = match k {
                1 => (one_more, same, one_fewer),
                _ => (same, one_fewer, one_more),
            };
            assert!((found - wider).abs() < 0.06, "{gap}: {found}");
            assert!((found + rest - 1.0).abs() < 1e-12 && none == 0.0, "{gap}");
        }
        assert_eq!(
            choose_count(&spectrum_estimate(&[], (8, 0.05)), 1.0)
                .unwrap()
                .shares,
            None
        );
    }
}
