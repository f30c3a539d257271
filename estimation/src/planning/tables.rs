//! Plans for rows that are divided among sites, each of which reports its table once.

use eigenveil_shared::{Result, mechanism::NoiseModel, site_study::SiteStudyParams};

use super::target::{PlanResult, PlanTarget, check_target};
use crate::{
    assessment::{ExpectedError, Participants, SpectrumRange, predict},
    format::people,
    input::centring::planned_noise_of_tables,
    sites::{
        pool::{Weighed, Weigher, counts_of},
        sampling::fourth_moment,
    },
};

/// More rows than this are never enough.
const MAX_ROWS: u64 = 1_000_000_000_000_000_000;

/// Rows divided among sites in these shares, with the noise of each table and the sampling of the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Tables {
    shares: Vec<f64>,
    weigher: Weigher,
    /// Noise of one report in the moment or covariance.
    noise: NoiseModel,
    /// p, and the rows' total variance.
    rows: (usize, f64),
    /// E‖z‖⁴/(E‖z‖²)² of the rows around their mean.
    fourth: f64,
}

impl Tables {
    /// For a study of rows with this total variance and this length of their mean, and for sites with tables of these
    /// sizes, or in the same proportions.
    ///
    /// # Errors
    /// `invalid-request` for a total variance and a mean that no prepared rows have.
    pub fn new(
        params: &SiteStudyParams,
        sizes: &[u64],
        (total_variance, mean_length): (f64, f64),
    ) -> Result<Self> {
        let preprocessing = params.preprocessing();
        let p = preprocessing.dimension;
        let sum: f64 = sizes.iter().map(|&size| size as f64).sum();
        // The mean is taken to lie across the components.
        let along = mean_length * mean_length * total_variance / p as f64;
        let mean = match preprocessing.centring {
            Some(_) => (mean_length * mean_length, along),
            None => (0.0, 0.0),
        };
        Ok(Self {
            shares: sizes.iter().map(|&size| size as f64 / sum).collect(),
            weigher: Weigher::new(params),
            noise: planned_noise_of_tables(params, total_variance, mean_length)?,
            rows: (p, total_variance),
            fourth: fourth_moment(total_variance, mean, preprocessing.norm),
        })
    }

    /// Sites.
    pub fn sites(&self) -> u64 {
        self.shares.len() as u64
    }

    /// The noise of one report of one row each, sampling included, and of how many their mean has as much, with so many
    /// rows at all sites together.
    pub fn noise_of(&self, rows: u64) -> (NoiseModel, f64) {
        let counts = counts_of(self.shares.iter().map(|share| {
            let site_rows = share * rows as f64;
            Weighed {
                weight: self.weigher.weight(site_rows, 1.0),
                rows: site_rows,
                reports: 1,
            }
        }));
        let per_row = counts.n_eff / counts.rows;
        let noise = self.noise.with_sampling(self.rows, self.fourth, per_row);
        (noise, counts.n_eff)
    }

    /// The error to expect with so many rows.
    ///
    /// # Errors
    /// Those of [`SpectrumRange::error`].
    pub fn error(&self, spectrum: &SpectrumRange, rows: u64) -> Result<ExpectedError> {
        let (noise, n_eff) = self.noise_of(rows);
        spectrum.error(&noise, n_eff)
    }

    /// Plans for a target in a population of this spectrum: as [`meet`](super::meet), with the rows of all sites in the
    /// place of participants.
    ///
    /// # Errors
    /// As there.
    pub fn meet(&self, spectrum: &SpectrumRange, target: PlanTarget) -> Result<PlanResult> {
        let at = |rows: u64, needed: Option<Participants>| {
            let (noise, n_eff) = self.noise_of(rows);
            let prediction = predict(&spectrum.central, &noise, n_eff)?;
            let above = prediction.components.iter().filter(|c| c.above_threshold);
            Ok(PlanResult {
                n: Some(rows),
                participants: needed,
                error: Some(spectrum.error(&noise, n_eff)?),
                components_above: Some(above.count()),
                reason: None,
            })
        };
        let target = match target {
            PlanTarget::Participants(rows) => return at(rows, None),
            PlanTarget::Error(target) => target,
        };
        let (p, k) = (spectrum.central.dimension(), spectrum.central.rank());
        check_target(target, p, k)?;
        let fewest = |end: fn(&ExpectedError) -> f64| self.fewest(spectrum, target, end);
        let needed = Participants {
            central: fewest(|error| error.central)?,
            low: fewest(|error| error.low)?,
            high: fewest(|error| error.high)?,
        };
        if let Some(rows) = needed.high {
            return at(rows, Some(needed));
        }
        let next = k + 1;
        Ok(PlanResult {
            n: None,
            participants: Some(needed),
            error: None,
            components_above: None,
            reason: Some(match needed.low {
                Some(low) => format!(
                    "{} rows at least; it is not known whether any number is enough, because components {k} and {next} may be equal",
                    people(low)
                ),
                None => format!(
                    "no number of rows up to 10^18 is enough: component {k} does not stand out from the directions after it"
                ),
            }),
        })
    }

    /// The fewest rows for which this end of the error is at most `target`: it falls with them.
    fn fewest(
        &self,
        spectrum: &SpectrumRange,
        target: f64,
        end: fn(&ExpectedError) -> f64,
    ) -> Result<Option<u64>> {
        let enough = |rows: u64| {
            Ok::<_, eigenveil_shared::Error>(end(&self.error(spectrum, rows)?) <= target)
        };
        let (mut low, mut high) = (0, self.sites());
        while !enough(high)? {
            (low, high) = (high, 2 * high);
            if high > MAX_ROWS {
                return Ok(None);
            }
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if enough(middle)? {
                high = middle;
            } else {
                low = middle;
            }
        }
        Ok(Some(high))
    }
}

#[cfg(test)]
mod tests {
    use eigenveil_shared::{
        privacy::Budget,
        site_study::{SiteStudyDesign, SiteTerms, SiteWeights},
    };

    use super::*;
    use crate::planning::spectrum_from_eigenvalues;

    /// The population of `docs/derivations/sites.md`: p = 40, five components over a flat bulk, N(0, I + 20VVᵀ) with
    /// rows brought to length one.
    fn spectrum() -> SpectrumRange {
        let all = [&[0.1391; 5][..], &[0.008_70; 35]].concat();
        spectrum_from_eigenvalues(40, 5, &all, Some(1.0)).unwrap()
    }

    fn tables(sizes: &[u64], epsilon: f64, weights: SiteWeights) -> Tables {
        let budget = Budget::approximate(epsilon, 1e-7).unwrap();
        let terms = SiteTerms {
            site_weights: weights,
            ..SiteTerms::new(100_000)
        };
        let params = SiteStudyParams::freeze(SiteStudyDesign {
            centring: None,
            ..SiteStudyDesign::new(40, budget, terms)
        });
        Tables::new(&params.unwrap(), sizes, (1.0, 0.0)).unwrap()
    }

    /// Errors that a numpy program measured which shares nothing with this one (`docs/derivations/sites.md`, "The table"),
    /// within a tenth.
    #[test]
    fn planned_errors_are_those_of_the_table() {
        let by_rank: Vec<u64> = {
            let all: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
            (1..=100)
                .map(|rank| (1e5 / all / f64::from(rank)).round() as u64)
                .collect()
        };
        let even = |sites: u64| vec![100_000 / sites; sites as usize];
        use SiteWeights::{Precision, Rows};
        for (sizes, epsilon, weights, measured) in [
            (even(1), 0.25, Rows, 0.030),
            (even(1), 1.0, Rows, 0.016),
            (even(10), 0.25, Rows, 0.081),
            (even(10), 1.0, Rows, 0.026),
            (even(10), 4.0, Rows, 0.016),
            (even(100), 0.25, Rows, 0.248),
            (even(100), 1.0, Rows, 0.069),
            (even(100), 4.0, Rows, 0.024),
            (even(1_000), 1.0, Rows, 0.215),
            (even(1_000), 4.0, Rows, 0.060),
            (by_rank.clone(), 0.25, Rows, 0.250),
            (by_rank.clone(), 0.25, Precision, 0.106),
            (by_rank.clone(), 1.0, Precision, 0.035),
            (by_rank, 4.0, Precision, 0.020),
        ] {
            let error = tables(&sizes, epsilon, weights).error(&spectrum(), 100_000);
            let ratio = error.unwrap().central / measured;
            assert!(
                (ratio - 1.0).abs() < 0.1,
                "{} {epsilon}: {ratio}",
                sizes.len()
            );
        }
    }

    #[test]
    fn rows_for_a_target_are_those_with_which_it_is_met() {
        let ten = tables(&[9, 6, 3], 1.0, SiteWeights::Rows);
        assert_eq!(ten.sites(), 3);
        let planned = ten.meet(&spectrum(), PlanTarget::Error(0.1)).unwrap();
        let rows = planned.n.unwrap();
        let error = |rows| ten.error(&spectrum(), rows).unwrap().high;
        assert!(error(rows) <= 0.1 && error(rows - 1) > 0.1, "{planned:?}");
        let back = ten
            .meet(&spectrum(), PlanTarget::Participants(rows))
            .unwrap();
        assert_eq!(back.error, planned.error);
        assert_eq!(planned.components_above, Some(5));
        assert!(ten.meet(&spectrum(), PlanTarget::Error(4.0)).is_err());
        assert!(ten.meet(&spectrum(), PlanTarget::Participants(0)).is_err());
    }
}
