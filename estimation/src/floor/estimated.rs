//! The population's spectrum as the noisy one shows it, and what follows: the expected error, its range, and where the
//! components end (`docs/derivations/eigengap.md`). Estimates, plans, pages and curves all compute from here.

use eigenveil_shared::{
    Error, Result,
    estimate::{SelectionLoss, SpectrumEstimate},
    mechanism::NoiseModel,
};

use super::{
    Eigenvalues, Floor, Spectrum,
    eigengap::range_of_gap,
    participants_for_error, predict,
    selection::{NORMAL_95, unit_of_loss},
    spiked_model::NoiseProfile,
};
use crate::metrics::max_error;

/// What the closed forms leave out, either way, as a factor; and where the features were chosen, too.
const MODEL_ERROR: f64 = 1.1;
const MODEL_ERROR_OF_SELECTION: f64 = 1.2;

/// Where the next component is unseen the gap has two uncertain ends; each moves by √½ of the quantile.
const EACH_OF_TWO: f64 = 1.163;

/// A boundary with a gap of this many 2√V is sure: so large a gap is rarely an accident of choosing the largest.
pub const SURE_GAP: f64 = 4.0;

/// A noisy moment, or its part on the rows of a sparse estimate, with the floor it was judged by.
pub(super) struct NoisySpectrum<'a> {
    pub(super) floor: &'a Floor,
    /// What an eigenvalue must exceed to stand, also within the rows of a sparse estimate.
    pub(super) threshold: f64,
    pub(super) eigenvalues: Eigenvalues<'a>,
    /// What each lacks of an eigenvalue of `E[xxᵀ]`; `None` if `E‖x‖²` is not known.
    pub(super) missing: Option<f64>,
    pub(super) noise: &'a NoiseModel,
    pub(super) n_eff: f64,
    /// `m_v²/a²` of the leading eigenvectors; shorter, or empty, where it is not known or 0.
    pub(super) excess: &'a [f64],
}

impl NoisySpectrum<'_> {
    pub(super) fn estimate(&self) -> Result<SpectrumEstimate> {
        let Eigenvalues {
            leading: values,
            trace,
            dimension: p,
            ..
        } = self.eigenvalues;
        let floor = self.floor;
        // Without the total the bulk counts as zero, its minimum.
        let level = self.missing.map_or(0.0, |missing| floor.centre + missing);
        let variance = |value: f64, excess: f64| {
            let spike = floor.judge_along(value, excess).spike;
            (level + spike.map_or(0.0, |spike| spike.theta)).max(0.0)
        };
        let excess = |j: usize| self.excess.get(j).copied().unwrap_or(0.0);
        let exceed = |limit: f64| {
            values
                .iter()
                .take_while(|&&value| value > limit)
                .count()
                .min(p - 1)
        };
        let count = exceed(self.threshold);
        let doubtful = count..exceed(floor.edge).max(count);
        let own = |j: usize| (variance(values[j], excess(j)), excess(j));
        let mut standing: Vec<(f64, f64)> = (0..count).map(own).collect();
        standing.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut doubtful: Vec<(f64, f64)> = doubtful.map(own).collect();
        let sum: f64 = standing.iter().map(|(value, _)| value).sum();
        let total = self.missing.map(|missing| trace + missing * p as f64);
        // Noise can push the sum above the total. With private centring the total is the less accurate of the two.
        let exact = !matches!(self.noise, NoiseModel::Transformed { .. });
        if let Some(total) = total.filter(|total| exact && *total > 0.0 && sum > *total) {
            standing
                .iter_mut()
                .for_each(|(value, _)| *value *= total / sum);
        }
        // A component that barely stands may come out smaller than one that does not.
        let last = standing.last().map_or(f64::INFINITY, |(value, _)| *value);
        doubtful
            .iter_mut()
            .for_each(|(value, _)| *value = value.min(last));
        doubtful.sort_by(|a, b| b.0.total_cmp(&a.0));
        let sum: f64 = standing.iter().map(|(value, _)| value).sum();
        let directions = (p - count) as f64;
        let mean = total.map_or(0.0, |total| ((total - sum) / directions).max(0.0));
        // At the edge itself nothing shows: the limit from above.
        let edge = floor.edge + 1e-6 * (floor.threshold - floor.edge);
        let next = values.get(count).map_or(edge, |next| next.max(edge));
        let unseen = variance(next, excess(count));
        let total = total.unwrap_or(sum);
        let norm = self.noise.mean_squared_norm(total).unwrap_or(total);
        let profile = NoiseProfile::new(self.noise, p, self.n_eff, norm)?;
        let deviation = |value: f64, excess: f64| {
            (2.0 * (profile.variance(value, value) + 2.0 * profile.along_mean * excess)).sqrt()
        };
        let mut spectrum = SpectrumEstimate {
            excess_along_mean: match self.excess.is_empty() {
                true => Vec::new(),
                false => standing
                    .iter()
                    .chain(&doubtful)
                    .map(|(_, excess)| *excess)
                    .collect(),
            },
            standing: standing.into_iter().map(|(value, _)| value).collect(),
            doubtful: doubtful.into_iter().map(|(value, _)| value).collect(),
            rest_count: p - count,
            rest_mean: mean,
            rest_half_width: 0.0,
            unseen,
            unseen_limit: variance(
                next + NORMAL_95 * deviation(unseen, excess(count)),
                excess(count),
            ),
            noise: *self.noise,
            selection: None,
        };
        spectrum.rest_half_width = self.half_width(&spectrum, &profile, level);
        Ok(spectrum)
    }

    /// Half of the width over which the unseen eigenvalues are spread, from the energy that noise does not explain.
    fn half_width(&self, spectrum: &SpectrumEstimate, profile: &NoiseProfile, level: f64) -> f64 {
        let Eigenvalues { trace, squares, .. } = self.eigenvalues;
        let (Some(missing), Some(squares), true) = (self.missing, squares, spectrum.rest_count > 1)
        else {
            return 0.0;
        };
        let p = self.eigenvalues.dimension as f64;
        let (m, mean) = (spectrum.rest_count as f64, spectrum.rest_mean);
        let energy = squares + missing * (2.0 * trace + missing * p);
        let sums = |power: i32| {
            let standing = spectrum.standing.iter().map(|value| value.powi(power));
            standing.sum::<f64>() + m * mean.powi(power)
        };
        let (sum, squares) = (sums(1), sums(2));
        let standing_squares = squares - m * mean * mean;
        // Σᵢⱼ V(λᵢ,λⱼ)(1+δᵢⱼ), and what centring adds along the mean, whose squared components add up to its length.
        let noise = profile.constant * p * (p + 1.0)
            + 2.0 * profile.linear * sum * (p + 1.0)
            + profile.bilinear * (sum * sum + squares)
            + profile.along_mean * profile.mean_ratio.powi(2) * 2.0 * (p + 1.0);
        let spread = ((energy - noise - standing_squares) / m - mean * mean).max(0.0);
        let half = (3.0 * spread * (m - 1.0) / (m + 1.0)).sqrt();
        let last = spectrum.standing.last().copied().unwrap_or(f64::INFINITY);
        half.min(mean)
            .min(last - mean)
            .min(level + self.floor.noise.bulk_radius - mean)
            .max(0.0)
    }
}

/// The gap after component `i` (from 1) in units of 2√V, as `n_eff` reports show it: below 2.45 equal eigenvalues could be
/// behind it.
pub fn gap_after(spectrum: &SpectrumEstimate, n_eff: f64, i: usize) -> Result<f64> {
    let own = spectrum.standing[i - 1];
    let next = spectrum.standing.get(i).copied();
    let next = next.unwrap_or_else(|| own.min(spectrum.unseen.max(top_of_rest(spectrum))));
    let excess = |j: usize| spectrum.excess_along_mean.get(j).copied().unwrap_or(0.0);
    Ok(profile(spectrum, n_eff)?.gap(own, next, excess(i - 1) + excess(i)))
}

/// The gap between two eigenvalues in units of 2√V, at the noise of `n_eff` such reports.
pub fn gap_between(
    spectrum: &SpectrumEstimate,
    n_eff: f64,
    (one, other): (f64, f64),
) -> Result<f64> {
    Ok(profile(spectrum, n_eff)?.gap(one, other, 0.0))
}

fn profile(spectrum: &SpectrumEstimate, n_eff: f64) -> Result<NoiseProfile> {
    let p = spectrum.standing.len() + spectrum.rest_count;
    let sum =
        spectrum.standing.iter().sum::<f64>() + spectrum.rest_count as f64 * spectrum.rest_mean;
    let norm = spectrum.noise.mean_squared_norm(sum).unwrap_or(sum);
    NoiseProfile::new(&spectrum.noise, p, n_eff, norm)
}

fn top_of_rest(spectrum: &SpectrumEstimate) -> f64 {
    spectrum.rest_mean + spectrum.rest_half_width
}

/// The spectrum of a population: known, or as reports show it, with the gap after component k as small and as large as
/// noise allows.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectrumRange {
    /// Known, or as it shows.
    pub central: Spectrum,
    ends: Ends,
    /// Of a sparse estimate.
    selection: Option<SelectionLoss>,
}

#[derive(Clone, Debug, PartialEq)]
enum Ends {
    Known,
    /// Component k does not stand above the noise: any error is possible, down to that of this spectrum.
    Unseen {
        largest: Spectrum,
    },
    Gap {
        smallest: Spectrum,
        largest: Spectrum,
    },
}

/// An expected error with a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExpectedError {
    /// Root mean square of ‖V̂V̂ᵀ−VVᵀ‖_F over repetitions of the study.
    pub central: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end: the cautious one.
    pub high: f64,
}

impl ExpectedError {
    /// An error of which only what the closed forms leave out, and what choosing the features adds, is uncertain.
    pub(super) fn around(central: f64, selection: Option<SelectionLoss>, unit: f64) -> Self {
        let factor = model_error(selection);
        let selection = selection.unwrap_or_default();
        Self {
            central: with_selection(central, selection.central, unit),
            low: with_selection(central, selection.low, unit) / factor,
            high: with_selection(central, selection.high, unit) * factor,
        }
    }
}

fn model_error(selection: Option<SelectionLoss>) -> f64 {
    selection.map_or(MODEL_ERROR, |_| MODEL_ERROR_OF_SELECTION)
}

fn with_selection(error: f64, lost: f64, unit: f64) -> f64 {
    // Shrunk loadings may have lost less than refitted ones.
    (error * error + 2.0 * lost * unit).max(0.0).sqrt()
}

/// Participants that an expected error needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participants {
    /// With the spectrum as it shows; `None` if no number is enough.
    pub central: Option<u64>,
    /// Fewer cannot be enough.
    pub low: Option<u64>,
    /// As many are enough; `None` if perhaps no number is.
    pub high: Option<u64>,
}

impl SpectrumRange {
    /// A spectrum that is known: its errors have no range.
    pub fn known(spectrum: Spectrum) -> Self {
        Self {
            central: spectrum,
            ends: Ends::Known,
            selection: None,
        }
    }

    /// What a study with the noise of `n_eff` reports says of its first `k` components and the gap after them.
    pub fn of(spectrum: &SpectrumEstimate, n_eff: f64, k: usize) -> Result<Self> {
        let count = spectrum.standing.len();
        let whole = |standing: &[f64], half_width: f64, distinct: usize| {
            assemble(spectrum, standing, half_width, distinct.max(k), k)
        };
        if k > count {
            // As far as they show, as if they were real; and as large as noise may have hidden.
            let wanted = k - count;
            let with = |others: Vec<f64>, half_width: f64| {
                whole(&[&spectrum.standing[..], &others].concat(), half_width, k)
            };
            let doubtful = spectrum.doubtful.iter().copied().take(wanted).collect();
            let last = spectrum.standing.last().copied().unwrap_or(f64::INFINITY);
            let limit = spectrum.unseen_limit.min(last);
            return Ok(Self {
                central: with(doubtful, spectrum.rest_half_width)?,
                ends: Ends::Unseen {
                    largest: with(vec![limit; wanted], 0.0)?,
                },
                selection: spectrum.selection,
            });
        }
        let central = whole(&spectrum.standing, spectrum.rest_half_width, count)?;
        let profile = profile(spectrum, n_eff)?;
        let excess = |j: usize| spectrum.excess_along_mean.get(j).copied().unwrap_or(0.0);
        let variance = |a: f64, b: f64, i: usize, j: usize| {
            profile.variance(a, b) + profile.along_mean * (excess(i) + excess(j))
        };
        let own = spectrum.standing[k - 1];
        let (smallest, largest) = match spectrum.standing.get(k) {
            Some(&next) => {
                let unit = 2.0 * variance(own, next, k - 1, k).sqrt();
                let middle = 0.5 * (own + next);
                let apart = |nu: f64| {
                    let mut standing = spectrum.standing.clone();
                    standing[k - 1] = middle + 0.5 * unit * nu;
                    standing[k] = (middle - 0.5 * unit * nu).max(0.0);
                    standing[..k].sort_by(|a, b| b.total_cmp(a));
                    standing[k..].sort_by(|a, b| b.total_cmp(a));
                    whole(&standing, spectrum.rest_half_width, count)
                };
                let seen = if unit > 0.0 {
                    (own - next) / unit
                } else {
                    f64::INFINITY
                };
                if seen.is_finite() {
                    // An accidentally tiny gap is no evidence that there is none.
                    (
                        apart(range_of_gap(seen).0)?,
                        apart(range_of_gap(seen.max(1.0)).1)?,
                    )
                } else {
                    (central.clone(), central.clone())
                }
            }
            None => {
                let shift = EACH_OF_TWO * (2.0 * variance(own, own, k - 1, k - 1)).sqrt();
                let moved = |to: f64| {
                    let mut standing = spectrum.standing.clone();
                    standing[k - 1] = to;
                    standing.sort_by(|a, b| b.total_cmp(a));
                    standing
                };
                let (mut low, mut next) = (own - shift, spectrum.unseen_limit);
                if low < next {
                    (low, next) = (0.5 * (low + next), 0.5 * (low + next));
                }
                let mut with_next = moved(low.max(0.0));
                with_next.push(next.max(0.0));
                with_next[k..].sort_by(|a, b| b.total_cmp(a));
                let smallest = whole(&with_next, spectrum.rest_half_width, count + 1)?;
                (smallest, whole(&moved(own + shift), 0.0, count)?)
            }
        };
        Ok(Self {
            central,
            ends: Ends::Gap { smallest, largest },
            selection: spectrum.selection,
        })
    }

    /// The error of `n_eff` reports with this noise. If component k does not stand, its upper end is the largest error there
    /// is.
    pub fn error(&self, noise: &NoiseModel, n_eff: f64) -> Result<ExpectedError> {
        // What was not selected may have all of the components.
        let most = match self.selection {
            None => max_error(self.central.dimension(), self.central.rank()),
            Some(_) => (2.0 * self.central.rank() as f64).sqrt(),
        };
        let factor = model_error(self.selection);
        let selection = self.selection.unwrap_or_default();
        let unit = unit_of_loss(noise, n_eff);
        let at = |spectrum: &Spectrum, lost: f64| {
            let within = predict(spectrum, noise, n_eff)?.expected_error;
            Ok::<_, Error>(with_selection(within, lost, unit).min(most))
        };
        let central = at(&self.central, selection.central)?;
        let (low, high) = match &self.ends {
            Ends::Known => {
                return Ok(ExpectedError {
                    central,
                    low: central,
                    high: central,
                });
            }
            Ends::Unseen { largest } => (at(largest, selection.low)?.min(central), most),
            Ends::Gap { smallest, largest } => (
                at(largest, selection.low)?.min(central),
                at(smallest, selection.high)?.max(central),
            ),
        };
        Ok(ExpectedError {
            central,
            low: low / factor,
            high: (high * factor).min(most),
        })
    }

    /// The participants that an expected error of `target` needs: those for which an end of [`error`](Self::error) is
    /// at most `target`.
    pub fn participants(&self, noise: &NoiseModel, target: f64) -> Result<Participants> {
        let factor = model_error(self.selection);
        let selection = self.selection.unwrap_or_default();
        let of = |spectrum: &Spectrum, target: f64, lost: f64| {
            participants_for_error(spectrum, noise, target, lost)
        };
        let central = of(&self.central, target, selection.central)?;
        let (low, high) = match &self.ends {
            Ends::Known => (central, central),
            Ends::Unseen { largest } => (of(largest, target * factor, selection.low)?, None),
            Ends::Gap { smallest, largest } => (
                of(largest, target * factor, selection.low)?,
                of(smallest, target / factor, selection.high)?,
            ),
        };
        // `None` is more than any number.
        let never = |n: Option<u64>| n.unwrap_or(u64::MAX);
        let number = |n: u64| (n < u64::MAX).then_some(n);
        Ok(Participants {
            low: number(never(low).min(never(central))),
            central,
            high: number(never(high).max(never(central))),
        })
    }
}

/// Standing eigenvalues over the ramp of the others. `standing` may have more than the estimate has: they are taken from
/// the others.
fn assemble(
    spectrum: &SpectrumEstimate,
    standing: &[f64],
    half_width: f64,
    distinct: usize,
    k: usize,
) -> Result<Spectrum> {
    let p = spectrum.standing.len() + spectrum.rest_count;
    let rest = p - standing.len();
    let steps = rest.saturating_sub(1).max(1) as f64;
    // Values moved by the ends of the range may come below the ramp.
    let last = standing.last().copied().unwrap_or(f64::INFINITY);
    let mut all = standing.to_vec();
    all.extend((0..rest).map(|i| {
        let place = 1.0 - 2.0 * i as f64 / steps;
        (spectrum.rest_mean + half_width * place).min(last)
    }));
    let assembled = Spectrum::with_distinct(&all, distinct, k)?;
    if spectrum.excess_along_mean.is_empty() {
        return Ok(assembled);
    }
    let mut excess = spectrum.excess_along_mean.clone();
    excess.resize(p, 0.0);
    assembled.with_excess_along_mean(excess)
}

/// How many components there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenCount {
    /// The components, 0 if nothing stands above the floor.
    pub k: usize,
    /// Whether no gap is large enough to be sure where they end.
    pub is_open: bool,
}

/// Where the components end (`k = auto`): at the last gap that is sure, before the background; where none is, at the last
/// that is likely, or else at the largest.
pub fn choose_count(spectrum: &SpectrumEstimate, n_eff: f64) -> Result<ChosenCount> {
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

/// [`choose_count`] for a noisy moment with these eigenvalues.
pub fn count_components(
    eigenvalues: &Eigenvalues<'_>,
    noise: &NoiseModel,
    n_eff: f64,
    excess_along_mean: &[f64],
) -> Result<ChosenCount> {
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
        excess: excess_along_mean,
    };
    choose_count(&spectrum.estimate()?, n_eff)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise of variance V = 1e-6 at n = 1: a gap of 2e-3 is one of 2√V.
    fn estimate(standing: &[f64], rest: (usize, f64)) -> SpectrumEstimate {
        SpectrumEstimate {
            standing: standing.to_vec(),
            doubtful: Vec::new(),
            excess_along_mean: Vec::new(),
            rest_count: rest.0,
            rest_mean: rest.1,
            rest_half_width: 0.0,
            unseen: rest.1,
            unseen_limit: rest.1 + 0.002,
            noise: NoiseModel::gaussian(1e-3),
            selection: None,
        }
    }

    fn chosen(standing: &[f64], rest: (usize, f64)) -> (usize, bool) {
        let found = choose_count(&estimate(standing, rest), 1.0).unwrap();
        (found.k, found.is_open)
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

    #[test]
    fn a_range_is_as_wide_as_its_gap_is_uncertain() {
        let noise = NoiseModel::gaussian(1e-3);
        let error = |standing: &[f64], k, n| {
            let range = SpectrumRange::of(&estimate(standing, (8, 0.02)), 1.0, k).unwrap();
            range.error(&noise, n).unwrap()
        };
        // A clear gap: nothing but the closed forms' own 10 %.
        let clear = error(&[0.4, 0.1], 1, 1.0);
        assert!((clear.high / clear.central - 1.1).abs() < 0.01, "{clear:?}");
        assert!((clear.central / clear.low - 1.1).abs() < 0.01, "{clear:?}");
        // A gap of 3: between 1 and 5.
        let near = error(&[0.106, 0.1], 1, 16.0);
        assert!(
            near.high > 2.0 * near.central && near.low < 0.9 * near.central,
            "{near:?}"
        );
        // A gap of 1 may be none: no number of participants is enough for certain, but some are needed.
        let range = SpectrumRange::of(&estimate(&[0.102, 0.1], (8, 0.02)), 1.0, 1).unwrap();
        let people = range.participants(&noise, 0.3).unwrap();
        assert!(
            people.high.is_none() && people.central > people.low,
            "{people:?}"
        );
        // What does not stand may have any error.
        let unseen = error(&[0.1], 2, 1.0);
        assert_eq!(unseen.high, 2.0);
        assert!(SpectrumRange::of(&estimate(&[0.1], (8, 0.02)), 1.0, 9).is_err());
    }

    /// The spread of the unseen eigenvalues is found from the energy of the noisy matrix, here the expected one.
    #[test]
    fn the_unseen_spread_comes_from_the_energy() {
        let (p, n_eff, sd) = (40_usize, 1e3, 0.5);
        let ramp: Vec<f64> = (0..39)
            .map(|i| 0.02 * (1.0 - f64::from(i) / 38.0))
            .collect();
        let trace = 0.5 + ramp.iter().sum::<f64>();
        let variance = sd * sd / n_eff;
        let squares =
            0.25 + ramp.iter().map(|x| x * x).sum::<f64>() + variance * (p * (p + 1)) as f64;
        let noise = NoiseModel::gaussian(sd);
        // The component where it shows, λ + r²/θ, and one eigenvalue of the bulk.
        let leading = [0.5 + 39.0 * variance / 0.49, 0.05];
        let eigenvalues = Eigenvalues {
            leading: &leading,
            trace,
            squares: Some(squares),
            dimension: p,
        };
        let floor = Floor::from_leading(&eigenvalues, &noise, n_eff).unwrap();
        let spectrum = NoisySpectrum {
            floor: &floor,
            threshold: floor.threshold,
            eigenvalues,
            missing: Some(0.0),
            noise: &noise,
            n_eff,
            excess: &[],
        };
        let found = spectrum.estimate().unwrap();
        assert_eq!((found.standing.len(), found.rest_count), (1, 39));
        assert!((found.rest_mean / 0.01 - 1.0).abs() < 0.05, "{found:?}");
        // The component's own debiasing moves the energy a little.
        assert!(
            (found.rest_half_width / 0.01 - 1.0).abs() < 0.2,
            "{found:?}"
        );
    }
}
