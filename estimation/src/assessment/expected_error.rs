//! The expected error of a spectrum that is known, in part or as reports show it, with its range
//! (`docs/derivations/eigengap.md`). Estimates, plans, pages and curves all compute from here.

use eigenveil_shared::{
    Error, Result,
    estimate::{SelectionLoss, SpectrumEstimate},
    mechanism::NoiseModel,
};

use super::{
    Spectrum,
    closed_form::{range_of_gap, unit_of_loss},
    observed_spectrum::profile,
    participants_for_error, predict,
};
use crate::metrics::max_error;

/// Factor, either way, for what the closed forms leave out.
const MODEL_ERROR: f64 = 1.1;

/// Where the next component is unseen the gap has two uncertain ends; each moves by √½ of the quantile.
const EACH_OF_TWO: f64 = 1.163;

/// The spectrum of a population: known, in part, or as reports show it, with the gap after component k as small and as
/// large as that allows.
#[derive(Clone, Debug, PartialEq)]
pub struct SpectrumRange {
    /// Known, or as it shows.
    pub central: Spectrum,
    ends: Ends,
    /// Loss by the selection of a sparse estimate.
    selection: Option<SelectionLoss>,
}

#[derive(Clone, Debug, PartialEq)]
enum Ends {
    Known,
    /// The central spectrum has the smallest error, this one the largest, of those with the eigenvalues that are known.
    KnownInPart {
        worst: Spectrum,
    },
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
    /// Root mean square of ‖V̂V̂ᵀ−VVᵀ‖_F over repetitions of the study; with a spectrum known in part the upper end.
    pub central: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end: the cautious one.
    pub high: f64,
}

impl ExpectedError {
    /// An error of which only what the closed forms leave out, and what choosing the features adds, is uncertain.
    pub(super) fn around(central: f64, selection: Option<SelectionLoss>, unit: f64) -> Self {
        let selection = selection.unwrap_or_default();
        Self {
            central: with_selection(central, selection.central, unit),
            low: with_selection(central, selection.low, unit) / MODEL_ERROR,
            high: with_selection(central, selection.high, unit) * MODEL_ERROR,
        }
    }
}

fn with_selection(error: f64, lost: f64, unit: f64) -> f64 {
    (error * error + 2.0 * lost * unit).max(0.0).sqrt()
}

/// Participants that an expected error needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participants {
    /// With the spectrum as it shows; `None` if no number is enough.
    pub central: Option<u64>,
    /// Fewer cannot be enough.
    pub low: Option<u64>,
    /// A number that is enough; `None` if perhaps no number is.
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

    /// A spectrum of which some eigenvalues are known: the others are between those of `best` and of `worst`. The range
    /// of its errors is of that alone.
    pub fn known_in_part(best: Spectrum, worst: Spectrum) -> Self {
        let ends = match best == worst {
            true => Ends::Known,
            false => Ends::KnownInPart { worst },
        };
        Self {
            central: best,
            ends,
            selection: None,
        }
    }

    /// Whether errors have no range.
    pub fn is_known(&self) -> bool {
        self.ends == Ends::Known
    }

    /// The spectrum of a study with the noise of `n_eff` reports, for its first `k` components and the gap after them.
    pub fn of(spectrum: &SpectrumEstimate, n_eff: f64, k: usize) -> Result<Self> {
        let count = spectrum.standing.len();
        let (central, ends) = if k > count {
            beyond_standing(spectrum, k)?
        } else {
            let width = spectrum.rest_half_width;
            let central = assemble(spectrum, &spectrum.standing, width, count, k)?;
            let ends = ends_of_gap(spectrum, n_eff, k, &central)?;
            (central, ends)
        };
        Ok(Self {
            central,
            ends,
            selection: spectrum.selection,
        })
    }

    /// The error of `n_eff` reports with this noise. If component k does not stand, its upper end is the largest error
    /// there is.
    pub fn error(&self, noise: &NoiseModel, n_eff: f64) -> Result<ExpectedError> {
        // What was not selected may have all of the components.
        let most = match self.selection {
            None => max_error(self.central.dimension(), self.central.rank()),
            Some(_) => (2.0 * self.central.rank() as f64).sqrt(),
        };
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
            Ends::KnownInPart { worst } => {
                let worst = at(worst, 0.0)?.max(central);
                return Ok(ExpectedError {
                    central: worst,
                    low: central,
                    high: worst,
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
            low: low / MODEL_ERROR,
            high: (high * MODEL_ERROR).min(most),
        })
    }

    /// The participants that an expected error of `target` needs: those for which an end of [`error`](Self::error) is
    /// at most `target`.
    pub fn participants(&self, noise: &NoiseModel, target: f64) -> Result<Participants> {
        let selection = self.selection.unwrap_or_default();
        let needed = |spectrum: &Spectrum, target: f64, lost: f64| {
            participants_for_error(spectrum, noise, target, lost)
        };
        let central = needed(&self.central, target, selection.central)?;
        let (low, high) = match &self.ends {
            Ends::Known => (central, central),
            Ends::KnownInPart { worst } => (central, needed(worst, target, 0.0)?),
            Ends::Unseen { largest } => {
                (needed(largest, target * MODEL_ERROR, selection.low)?, None)
            }
            Ends::Gap { smallest, largest } => (
                needed(largest, target * MODEL_ERROR, selection.low)?,
                needed(smallest, target / MODEL_ERROR, selection.high)?,
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

/// More components than stand: as far as they show, as if they were real; and as large as noise may have hidden.
fn beyond_standing(spectrum: &SpectrumEstimate, k: usize) -> Result<(Spectrum, Ends)> {
    let wanted = k - spectrum.standing.len();
    let with = |others: Vec<f64>, half_width: f64| {
        let standing = [&spectrum.standing[..], &others].concat();
        assemble(spectrum, &standing, half_width, k, k)
    };
    let doubtful = spectrum.doubtful.iter().copied().take(wanted).collect();
    let last = spectrum.standing.last().copied().unwrap_or(f64::INFINITY);
    let limit = spectrum.unseen_limit.min(last);
    let central = with(doubtful, spectrum.rest_half_width)?;
    let largest = with(vec![limit; wanted], 0.0)?;
    Ok((central, Ends::Unseen { largest }))
}

/// The smallest and the largest gap after a component k that stands.
fn ends_of_gap(
    spectrum: &SpectrumEstimate,
    n_eff: f64,
    k: usize,
    central: &Spectrum,
) -> Result<Ends> {
    let (count, half_width) = (spectrum.standing.len(), spectrum.rest_half_width);
    let profile = profile(spectrum, n_eff)?;
    let excess = |j: usize| spectrum.excess_along_mean.get(j).copied().unwrap_or(0.0);
    let variance = |a: f64, b: f64, i: usize, j: usize| {
        profile.variance(a, b) + profile.along_mean * (excess(i) + excess(j))
    };
    let last = spectrum.standing[k - 1];
    let Some(&next) = spectrum.standing.get(k) else {
        let shift = EACH_OF_TWO * (2.0 * variance(last, last, k - 1, k - 1)).sqrt();
        let moved = |to: f64| {
            let mut standing = spectrum.standing.clone();
            standing[k - 1] = to;
            standing.sort_by(|a, b| b.total_cmp(a));
            standing
        };
        let (mut low, mut next) = (last - shift, spectrum.unseen_limit);
        if low < next {
            (low, next) = (0.5 * (low + next), 0.5 * (low + next));
        }
        let mut with_next = moved(low.max(0.0));
        with_next.push(next.max(0.0));
        with_next[k..].sort_by(|a, b| b.total_cmp(a));
        return Ok(Ends::Gap {
            smallest: assemble(spectrum, &with_next, half_width, count + 1, k)?,
            largest: assemble(spectrum, &moved(last + shift), 0.0, count, k)?,
        });
    };
    let unit = 2.0 * variance(last, next, k - 1, k).sqrt();
    let seen = match unit > 0.0 {
        true => (last - next) / unit,
        false => f64::INFINITY,
    };
    if !seen.is_finite() {
        return Ok(Ends::Gap {
            smallest: central.clone(),
            largest: central.clone(),
        });
    }
    let middle = 0.5 * (last + next);
    let apart = |nu: f64| {
        let mut standing = spectrum.standing.clone();
        standing[k - 1] = middle + 0.5 * unit * nu;
        standing[k] = (middle - 0.5 * unit * nu).max(0.0);
        standing[..k].sort_by(|a, b| b.total_cmp(a));
        standing[k..].sort_by(|a, b| b.total_cmp(a));
        assemble(spectrum, &standing, half_width, count, k)
    };
    Ok(Ends::Gap {
        smallest: apart(range_of_gap(seen).0)?,
        // An accidentally tiny gap is no evidence that there is none.
        largest: apart(range_of_gap(seen.max(1.0)).1)?,
    })
}

/// Standing eigenvalues over the ramp of the others. `standing` may have more than the estimate has: they are taken
/// from the others.
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
        let node = 1.0 - 2.0 * i as f64 / steps;
        (spectrum.rest_mean + half_width * node).min(last)
    }));
    let assembled = Spectrum::with_distinct(&all, distinct, k)?;
    if spectrum.excess_along_mean.is_empty() {
        return Ok(assembled);
    }
    let mut excess = spectrum.excess_along_mean.clone();
    excess.resize(p, 0.0);
    assembled.with_excess_along_mean(excess)
}

#[cfg(test)]
mod tests {
    use super::{super::spectrum_estimate, *};

    #[test]
    fn a_range_is_as_wide_as_its_gap_is_uncertain() {
        let noise = NoiseModel::gaussian(1e-3);
        let error = |standing: &[f64], k, n| {
            let range = SpectrumRange::of(&spectrum_estimate(standing, (8, 0.02)), 1.0, k).unwrap();
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
        let range =
            SpectrumRange::of(&spectrum_estimate(&[0.102, 0.1], (8, 0.02)), 1.0, 1).unwrap();
        let people = range.participants(&noise, 0.3).unwrap();
        assert!(
            people.high.is_none() && people.central > people.low,
            "{people:?}"
        );
        // What does not stand may have any error.
        let unseen = error(&[0.1], 2, 1.0);
        assert_eq!(unseen.high, 2.0);
        assert!(SpectrumRange::of(&spectrum_estimate(&[0.1], (8, 0.02)), 1.0, 9).is_err());
    }
}
