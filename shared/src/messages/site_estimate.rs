//! What the document of an estimate has of a study of sites alone (`docs/derivations/sites.md`, "The estimate").

use serde::{Deserialize, Serialize};

use crate::{
    site_study::SiteWeights,
    wording::{MAX_NAMED, first_few},
};

/// Fewest sites whose spread tells how sites like these differ.
pub const MIN_SITES_OF_SPREAD: usize = 3;
/// Fewest sites of which a robust estimate can leave some out.
pub const MIN_SITES_OF_ROBUST: usize = 5;
/// Fewest sites that count equally (1/Σw²) whose spread tells how sites like these differ.
pub const MIN_EQUAL_SITES: f64 = 2.0;

/// Counts, errors by target, comparison and lines of the sites behind an estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SitesEstimate {
    /// Usable rows of all tables (persons, where persons are protected), noise included.
    pub rows: f64,
    /// Standard deviation of the noise in `rows`.
    pub rows_sd: f64,
    /// Reports of one row each whose mean has as much noise.
    pub n_eff: f64,
    /// Rows of the same weight whose mean has as much sampling; `rows` where each row counts the same.
    pub rows_eff: f64,
    /// How sites are weighed.
    pub weights: SiteWeights,
    /// Largest share of a site in the estimate.
    pub largest_share: f64,
    /// Sites of equal shares whose differences would weigh as much, 1/Σw².
    pub sites_eff: f64,
    /// Expected error against the components of these very rows, by the noise alone; `null` where
    /// `expected_error`, which is against those of the populations that they are from, is `null`.
    pub error_of_rows: Option<f64>,
    /// Expected error against the components of sites like these, by how far the components move without each of them;
    /// `null` with fewer than three sites, or where 1/Σw² is below 2, and where `movement` of the sites is `null`.
    pub error_of_sites: Option<f64>,
    /// One for each component.
    pub intervals: Vec<VarianceIntervals>,
    /// Whether the sites are alike; `null` with fewer than two sites whose counts are above 0.
    pub comparison: Option<SiteComparison>,
    /// The estimate in which no site counts for more than alike sites would; `null` with fewer than five sites, and
    /// where `movement` of the sites is `null`.
    pub robust: Option<RobustEstimate>,
    /// The sites, in the order of their first reports.
    pub sites: Vec<SiteLine>,
}

/// Intervals of 95 % for the variance of a component, by target; `null` of a component inside the noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VarianceIntervals {
    /// Interval for these very rows: noise alone.
    pub rows: Option<(f64, f64)>,
    /// Interval for the populations that these rows are from: noise, and the most that sampling can add.
    pub populations: Option<(f64, f64)>,
    /// Interval for sites like these, by the jackknife over the sites; `null` where `error_of_sites` is.
    pub sites: Option<(f64, f64)>,
}

/// How a site compares with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SiteVerdict {
    /// Noise and sampling explain its difference.
    Alike,
    /// They do not explain the difference of its means.
    OtherMeans,
    /// They do not explain the difference of its second moments around the means of the others.
    OtherMoments,
}

names! {
    pub SiteVerdict { Alike = "alike", OtherMeans = "other-means", OtherMoments = "other-moments" };
}

impl SiteVerdict {
    /// The verdict for people.
    pub fn in_words(self) -> &'static str {
        match self {
            SiteVerdict::Alike => "alike",
            SiteVerdict::OtherMeans => "other means",
            SiteVerdict::OtherMoments => "other spread",
        }
    }
}

/// The comparison of each site with the others that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteComparison {
    /// Sites compared: those whose counts are above 0.
    pub sites: usize,
    /// Sites that differ, those included of which nobody can tell which one does.
    pub differing: usize,
    /// Probability that any site is said to differ where all are alike.
    pub false_alarm_rate: f64,
}

/// A difference between a site and the others, in units of the prepared rows; of moments in their squares.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteDifference {
    /// Length of the difference (Frobenius norm of moments), without what noise and sampling add on average.
    pub size: f64,
    /// Interval of 95 % for it.
    pub interval: (f64, f64),
    /// Difference, and difference along one feature: the larger of both in units of its limit. Above 1 the site differs.
    pub excess: f64,
    /// Number of the feature in which it differs most, from 0.
    pub feature: usize,
    /// Difference along that feature: of its mean, or of its variance.
    pub along_feature: f64,
    /// Standard error of that.
    pub along_feature_se: f64,
}

/// One site's part in an estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SiteLine {
    /// Its name.
    pub site: String,
    /// Reports that it sent, each with noise of its own.
    pub reports: u64,
    /// Its usable rows (persons, where persons are protected), noise included.
    pub rows: f64,
    /// Its share w in the estimate; below 0 where noise hides how few rows it has.
    pub share: f64,
    /// How it compares with the others; `null` where it is not compared: of a single site, and where its count is not
    /// above 0, as noise then hides whether it has rows.
    pub verdict: Option<SiteVerdict>,
    /// Whether it is one of several of which nobody can tell which one differs: the others are alike without any one.
    pub one_of_several: bool,
    /// Its means beside theirs; `null` without private centring, and where it has no rows that show.
    pub means: Option<SiteDifference>,
    /// Its second moments beside theirs; `null` of a site that differs in its means.
    pub moments: Option<SiteDifference>,
    /// By how much the components move without it, ‖V̂V̂ᵀ − V̂₋ⱼV̂₋ⱼᵀ‖_F; `null` of a single site, without components,
    /// above p = 2,000 (from p = 300 above k = 32), and for sparse components without `refit`.
    pub movement: Option<f64>,
    /// Their movement if it is like the others; `null` where `movement` or `spectrum` is.
    pub expected_movement: Option<f64>,
    /// Factor by which the robust estimate multiplies the weight of its rows: 1 where it is no further from the others
    /// than noise and sampling explain; `null` where there is no robust estimate.
    pub robust_factor: Option<f64>,
}

/// The components of the moment in which no site counts for more than alike sites would.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RobustEstimate {
    /// Loadings of each component, p numbers.
    pub loadings: Vec<Vec<f64>>,
    /// Raw eigenvalues, noise included.
    pub eigenvalues: Vec<f64>,
    /// ‖V̂V̂ᵀ − V̂ᵣV̂ᵣᵀ‖_F: how far it is from the estimate.
    pub distance: f64,
}

impl SitesEstimate {
    /// Share of the sites that, acting together, could have added a component that moves the moment by `size` along one
    /// direction: within the test of a report each adds its rows and `reach` for each report, weighed as they are. At
    /// most 1.
    pub(super) fn share_that_could_add(&self, size: f64, reach: f64) -> Option<f64> {
        let most = |line: &SiteLine| {
            let added = reach * line.reports as f64 / line.rows.max(1.0);
            line.share.max(0.0) * (1.0 + added)
        };
        let mut adds: Vec<f64> = self.sites.iter().map(most).collect();
        adds.sort_by(|a, b| b.total_cmp(a));
        let mut sum = 0.0;
        let enough = adds.iter().position(|add| {
            sum += add;
            sum >= size
        });
        let sites = enough.map_or(adds.len(), |last| last + 1);
        (size.is_finite() && !adds.is_empty()).then(|| sites as f64 / adds.len() as f64)
    }

    /// Whether the sizes of its parts agree with the p and k of the estimate.
    pub(super) fn is_consistent(&self, p: usize, k: usize) -> bool {
        let lines = self.sites.iter();
        let features = lines.flat_map(|line| [line.means, line.moments]).flatten();
        let loadings = self.robust.iter().flat_map(|robust| &robust.loadings);
        self.intervals.len() == k
            && features.map(|found| found.feature).all(|at| at < p)
            && loadings.map(Vec::len).all(|length| length == p)
    }

    /// Whether the spread between these sites tells how sites like these differ.
    pub fn shows_spread(&self) -> bool {
        self.sites.len() >= MIN_SITES_OF_SPREAD && self.sites_eff >= MIN_EQUAL_SITES
    }

    /// Its reports, each with a noise of its own.
    pub fn reports(&self) -> u64 {
        self.sites.iter().map(|line| line.reports).sum()
    }

    /// Findings that this many sites are too few for, and why; sentences for people.
    pub fn missing_in_sentences(&self) -> Vec<String> {
        let sites = self.sites.len();
        let mut missing = Vec::new();
        if self.comparison.is_none() {
            missing.push("One site alone has nothing to be compared with: whether sites are alike takes two of them, with counts above 0.".to_owned());
        }
        let without_rows = self.sites.iter().filter(|line| line.rows <= 0.0);
        let without_rows: Vec<String> = without_rows.map(|line| line.site.clone()).collect();
        if !without_rows.is_empty() {
            let named = first_few(without_rows.into_iter(), MAX_NAMED, |more| {
                format!(" and {more} more")
            });
            missing.push(format!("Not compared: {named}. Noise hides whether there are any rows; by how much the components move without them shows what the report does."));
        }
        if sites < MIN_SITES_OF_SPREAD {
            missing.push(format!("How much sites like these differ is not known: the spread between sites takes {MIN_SITES_OF_SPREAD} of them, and there {}.", are(sites)));
        } else if !self.shows_spread() {
            missing.push(format!("How much sites like these differ is not known: one site has {:.0} % of the weight, so that they count like {:.1} equal ones, and the spread takes {MIN_EQUAL_SITES}.", 100.0 * self.largest_share, self.sites_eff));
        }
        if sites < MIN_SITES_OF_ROBUST {
            missing.push(format!("There is no robust estimate: a site that does not belong stands out among {MIN_SITES_OF_ROBUST} or more, and there {}.", are(sites)));
        }
        missing
    }
}

fn are(sites: usize) -> String {
    match sites {
        1 => "is 1".to_owned(),
        many => format!("are {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(rows: &[f64]) -> SitesEstimate {
        let all: f64 = rows.iter().sum();
        let shares = || rows.iter().map(|own| own / all);
        let line = |(number, own): (usize, &f64)| SiteLine {
            site: format!("site {number}"),
            reports: 1,
            rows: *own,
            share: own / all,
            verdict: None,
            one_of_several: false,
            means: None,
            moments: None,
            movement: None,
            expected_movement: None,
            robust_factor: None,
        };
        SitesEstimate {
            rows: all,
            rows_sd: 10.0,
            n_eff: all * all / rows.len() as f64,
            rows_eff: all,
            weights: SiteWeights::Rows,
            largest_share: shares().fold(0.0, f64::max),
            sites_eff: 1.0 / shares().map(|share| share * share).sum::<f64>(),
            error_of_rows: None,
            error_of_sites: None,
            intervals: Vec::new(),
            comparison: (rows.len() > 1).then_some(SiteComparison {
                sites: rows.len(),
                differing: 0,
                false_alarm_rate: 1e-3,
            }),
            robust: None,
            sites: rows.iter().enumerate().map(line).collect(),
        }
    }

    /// The largest sites first: 0.5 and 0.3 of the rows, and 100 in a direction that they have no rows in.
    #[test]
    fn sites_act_together_the_largest_first() {
        let three = sites(&[2_000.0, 5_000.0, 3_000.0]);
        let third = 1.0 / 3.0;
        for (size, share) in [
            (0.4, third),
            (0.505, third),
            (0.55, 2.0 * third),
            (0.99, 1.0),
            (9.0, 1.0),
        ] {
            assert_eq!(
                three.share_that_could_add(size, 100.0),
                Some(share),
                "{size}"
            );
        }
        assert_eq!(three.share_that_could_add(f64::NAN, 100.0), None);
        assert_eq!(sites(&[]).share_that_could_add(0.1, 100.0), None);
    }

    #[test]
    fn what_is_missing_is_said_with_its_reason() {
        let missing = |rows: &[f64]| sites(rows).missing_in_sentences().join(" ");
        assert!(
            missing(&[9.0]).contains("there is 1."),
            "{}",
            missing(&[9.0])
        );
        assert!(missing(&[9.0, 9.0]).contains("there are 2."));
        let uneven = missing(&[900.0, 50.0, 50.0]);
        assert!(uneven.contains("90 % of the weight"), "{uneven}");
        assert_eq!(missing(&[9.0; 5]), "");
        let hidden = missing(&[9.0, 9.0, 9.0, 9.0, 0.0]);
        assert!(hidden.contains("Not compared: site 4."), "{hidden}");
    }
}
