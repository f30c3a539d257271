//! The tables of the sites of a study, their weights, and their mean.

use std::collections::BTreeMap;

use eigenveil_shared::{
    Error, Result, error,
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    site_study::{SiteStudyParams, SiteWeights},
};

use crate::input::{counts::Counts, moment::NoisyMoment, site_report::SiteSum};

/// Standard deviations of its noise that the count of all rows must exceed: everything is divided by it.
pub(crate) const LEAST_COUNT: f64 = 5.0;

/// A site with its reports: the noise of each is its own, and their rows are different ones.
pub(crate) struct Site<'a> {
    pub(crate) name: &'a str,
    pub(crate) reports: Vec<&'a SiteSum>,
    /// Σm̂ over them.
    pub(crate) rows: f64,
    /// ω, the weight of each of its rows.
    weight: f64,
}

impl Site<'_> {
    /// Draws of noise.
    pub(crate) fn draws(&self) -> f64 {
        self.reports.len() as f64
    }

    /// Adds `factor`·Σxxᵀ over its rows.
    pub(crate) fn add_to(&self, sum: &mut PackedSymmetric, factor: f64) {
        for report in &self.reports {
            for (entry, own) in sum.as_mut_slice().iter_mut().zip(report.sum.as_slice()) {
                *entry += factor * own;
            }
        }
    }

    /// Σxxᵀ over its rows.
    pub(crate) fn sum(&self) -> PackedSymmetric {
        let p = self
            .reports
            .first()
            .map_or(0, |first| first.sum.dimension());
        let mut sum = PackedSymmetric::zeros(p);
        self.add_to(&mut sum, 1.0);
        sum
    }
}

/// All sites of a study.
pub(crate) struct Pool<'a> {
    pub(crate) params: &'a SiteStudyParams,
    /// In the order of their first reports.
    pub(crate) sites: Vec<Site<'a>>,
    /// Σωm̂.
    pub(crate) weight: f64,
}

impl<'a> Pool<'a> {
    /// Puts the reports of each site together, and weighs the sites as the study says.
    ///
    /// # Errors
    /// `estimate-failed` without reports, and where noise hides how many rows there are; `wrong-dimension` for reports of
    /// another study.
    pub(crate) fn new(reports: &'a [SiteSum], params: &'a SiteStudyParams) -> Result<Self> {
        let dimension = params.report_dimension();
        if let Some(wrong) = reports.iter().find(|of| of.sum.dimension() != dimension) {
            return Err(error!(
                WrongDimension,
                "a table's sum has dimension {}; those of this study have {dimension}",
                wrong.sum.dimension()
            ));
        }
        let mut sites: Vec<Site<'a>> = Vec::new();
        let mut places = BTreeMap::new();
        for report in reports {
            let index = *places.entry(report.site.as_str()).or_insert(sites.len());
            if index == sites.len() {
                sites.push(Site {
                    name: &report.site,
                    reports: Vec::new(),
                    rows: 0.0,
                    weight: 1.0,
                });
            }
            sites[index].reports.push(report);
            sites[index].rows += report.rows_noisy;
        }
        if sites.is_empty() {
            return Err(Error::estimate_failed(
                "no site has sent a table yet: there is nothing to estimate from",
            ));
        }
        let mut pool = Self {
            params,
            sites,
            weight: 0.0,
        };
        let (rows, sd) = (pool.rows(), pool.rows_sd());
        // Also false for NaN.
        let counted = rows > LEAST_COUNT * sd;
        if !counted {
            let unit = params.terms().unit();
            return Err(Error::estimate_failed(format!(
                "the tables count {rows:.0} usable {unit} together, and the noise of that count has a standard deviation of {sd:.1}: it must be {LEAST_COUNT} times as much at least, because everything is divided by it; larger tables, or a larger epsilon"
            )));
        }
        pool.weigh();
        Ok(pool)
    }

    fn weigh(&mut self) {
        let weigher = Weigher::new(self.params);
        for site in &mut self.sites {
            site.weight = weigher.weight(site.rows, site.draws());
        }
        self.weight = self.sites.iter().map(|site| site.weight * site.rows).sum();
    }

    /// The noise of one report.
    pub(crate) fn noise(&self) -> NoiseModel {
        self.params.mechanism().noise_model()
    }

    /// E‖E‖_F² of the noise E of one report.
    pub(crate) fn squared_noise(&self) -> f64 {
        let p = self.params.report_dimension() as f64;
        match self.noise() {
            NoiseModel::Gaussian {
                off_diagonal_sd,
                diagonal_sd,
            } => p * diagonal_sd.powi(2) + p * (p - 1.0) * off_diagonal_sd.powi(2),
            // Reports of tables have no other.
            NoiseModel::DoubleCap { .. } | NoiseModel::Transformed { .. } => f64::INFINITY,
        }
    }

    /// Σm̂.
    pub(crate) fn rows(&self) -> f64 {
        self.sites.iter().map(|site| site.rows).sum()
    }

    /// Standard deviation of the noise in it.
    pub(crate) fn rows_sd(&self) -> f64 {
        let draws: f64 = self.sites.iter().map(Site::draws).sum();
        self.params.mechanism().count_sd() * draws.sqrt()
    }

    /// w, the share of a site in the mean.
    pub(crate) fn share(&self, site: &Site<'_>) -> f64 {
        site.weight * site.rows / self.weight
    }

    /// ω/Σωm̂, the weight of each row of a site in the mean.
    pub(crate) fn weight_of_a_row(&self, site: &Site<'_>) -> f64 {
        site.weight / self.weight
    }

    /// The counts behind the mean.
    pub(crate) fn counts(&self) -> Counts {
        counts_of(self.sites.iter().map(Weighed::of))
    }

    /// The counts behind the mean of all sites but one, whose number is given.
    pub(crate) fn counts_without(&self, left_out: usize) -> Counts {
        let sites = self.sites.iter().enumerate();
        let others = sites.filter(|(j, _)| *j != left_out);
        counts_of(others.map(|(_, site)| Weighed::of(site)))
    }

    /// Σωxxᵀ/Σωm̂ over all rows.
    pub(crate) fn mean(&self) -> PackedSymmetric {
        let mut mean = PackedSymmetric::zeros(self.params.report_dimension());
        for site in &self.sites {
            site.add_to(&mut mean, self.weight_of_a_row(site));
        }
        mean
    }

    /// The mean without one site, from the mean of all.
    pub(crate) fn mean_without(&self, mean: &PackedSymmetric, left_out: usize) -> PackedSymmetric {
        let site = &self.sites[left_out];
        let mut left = mean.clone();
        site.add_to(&mut left, -self.weight_of_a_row(site));
        left.scale(1.0 / (1.0 - self.share(site)));
        left
    }

    /// The moment behind such a mean of tables, without the sampling of their rows.
    pub(crate) fn moment(&self, mean: PackedSymmetric, counts: Counts) -> Result<NoisyMoment> {
        NoisyMoment::of_tables(mean, counts, self.noise(), self.params.preprocessing())
    }
}

/// The weights of rows, as a study chose them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weigher {
    weights: SiteWeights,
    /// s², the noise of one report off the diagonal.
    noise: f64,
    /// φ: the variance that one row adds to an entry of the moment, averaged over the entries of dimension P, at most.
    sampling: f64,
}

impl Weigher {
    pub(crate) fn new(params: &SiteStudyParams) -> Self {
        let p = params.report_dimension() as f64;
        Self {
            weights: params.terms().site_weights,
            noise: params.mechanism().noise_model().off_diagonal_sd().powi(2),
            sampling: 1.0 / (p * (p + 1.0)),
        }
    }

    /// ω, the weight of each row of a site with so many rows in so many reports.
    pub(crate) fn weight(&self, rows: f64, draws: f64) -> f64 {
        let rows = rows.max(0.0);
        match self.weights {
            SiteWeights::Rows => 1.0,
            SiteWeights::Precision => rows / (draws * self.noise + self.sampling * rows),
        }
    }
}

/// A site in a mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighed {
    /// ω.
    pub(crate) weight: f64,
    pub(crate) rows: f64,
    pub(crate) reports: u64,
}

impl Weighed {
    fn of(site: &Site<'_>) -> Self {
        Self {
            weight: site.weight,
            rows: site.rows,
            reports: site.reports.len() as u64,
        }
    }
}

/// The counts behind a mean ΣωR/Σωm: `n_eff = (Σωm)²/Σω²d` for d draws each, rows `(Σωm)²/Σω²m`.
pub(crate) fn counts_of(sites: impl Iterator<Item = Weighed>) -> Counts {
    let (mut weight, mut noise, mut sampling) = (0.0, 0.0, 0.0);
    let mut counts = Counts {
        draws: 0,
        n_eff: 0.0,
        rows: 0.0,
        sites: 0,
    };
    for site in sites {
        let squared = site.weight * site.weight;
        weight += site.weight * site.rows;
        noise += squared * site.reports as f64;
        sampling += squared * site.rows.max(0.0);
        counts.draws += site.reports;
        counts.sites += 1;
    }
    counts.n_eff = weight * weight / noise;
    counts.rows = weight * weight / sampling;
    counts
}

#[cfg(test)]
pub(crate) mod tests {
    use eigenveil_shared::{
        privacy::Budget,
        site_study::{SiteStudyDesign, SiteTerms},
    };

    use super::*;

    /// A study of rows of length one in so many dimensions, at ε = 1 and δ = 1e-7.
    pub(crate) fn study(p: usize, centring: Option<f64>, weights: SiteWeights) -> SiteStudyParams {
        let terms = SiteTerms {
            site_weights: weights,
            ..SiteTerms::new(1 << 20)
        };
        let budget = Budget::approximate(1.0, 1e-7).unwrap();
        SiteStudyParams::freeze(SiteStudyDesign {
            centring,
            ..SiteStudyDesign::new(p, budget, terms)
        })
        .unwrap()
    }

    fn table(site: &str, rows: f64, along: &[f64]) -> SiteSum {
        let mut sum = PackedSymmetric::zeros(along.len());
        sum.add_outer(along, rows);
        SiteSum {
            site: site.to_owned(),
            rows_noisy: rows,
            sum,
        }
    }

    /// By hand: N = 1,000, of which a has 600 in two reports.
    #[test]
    fn counts_are_those_of_draws_rows_and_sites() {
        let params = study(2, None, SiteWeights::Rows);
        let reports = [
            table("a", 500.0, &[1.0, 0.0]),
            table("b", 400.0, &[0.0, 1.0]),
            table("a", 100.0, &[0.0, 1.0]),
        ];
        let pool = Pool::new(&reports, &params).unwrap();
        let counts = pool.counts();
        assert_eq!((counts.draws, counts.sites), (3, 2));
        assert!((counts.n_eff - 1e6 / 3.0).abs() < 1e-6 && (counts.rows - 1e3).abs() < 1e-9);
        assert_eq!(pool.mean().as_slice(), [0.5, 0.0, 0.5]);
        let shares: Vec<f64> = pool.sites.iter().map(|site| pool.share(site)).collect();
        assert_eq!(shares, [0.6, 0.4]);
        let without = pool.counts_without(0);
        assert_eq!((without.draws, without.sites), (1, 1));
        assert!((without.n_eff - 1.6e5).abs() < 1e-6 && (without.rows - 400.0).abs() < 1e-9);
        let left = pool.mean_without(&pool.mean(), 0);
        assert!((left.get(1, 1) - 1.0).abs() < 1e-12 && left.get(0, 0).abs() < 1e-12);
        let few = [table("a", 20.0, &[1.0, 0.0])];
        let error = Pool::new(&few, &params).err().unwrap();
        assert!(error.detail().contains("count 20 usable rows"), "{error}");
        assert!(Pool::new(&[], &params).is_err());
        assert!(Pool::new(&[table("a", 900.0, &[1.0; 3])], &params).is_err());
    }

    /// 100 sites with sizes as 1/rank, N = 100,000, P = 40: the largest has 54 % (`docs/derivations/sites.md`).
    #[test]
    fn precision_weighs_tables_by_what_their_noise_leaves() {
        let params = study(40, None, SiteWeights::Precision);
        let ranks = 1..=100;
        let all: f64 = ranks.clone().map(|rank| 1.0 / f64::from(rank)).sum();
        let along = [&[1.0][..], &[0.0; 39]].concat();
        let reports: Vec<SiteSum> = ranks
            .map(|rank| table(&rank.to_string(), 1e5 / all / f64::from(rank), &along))
            .collect();
        let pool = Pool::new(&reports, &params).unwrap();
        let largest = pool.share(&pool.sites[0]);
        assert!((largest - 0.544).abs() < 0.003, "{largest}");
        let squares = pool.sites.iter().map(|site| pool.share(site).powi(2));
        assert!((1.0 / squares.sum::<f64>() - 3.0).abs() < 0.05);
        // Neither noise nor sampling is as small as with equal weights for one of them alone.
        let counts = pool.counts();
        assert!(counts.n_eff > 1e8 && counts.rows < 1e5, "{counts:?}");
    }
}
