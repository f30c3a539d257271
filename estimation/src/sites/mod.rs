//! The estimate of a study of sites (`docs/derivations/sites.md`, "The estimate").
//!
//! The components come from the estimators of single rows, from the mean of the tables with the noise of as many rows as
//! they amount to, and with the sampling of their rows. What only sites have is beside them: errors by target, the
//! comparison of the sites, the components without each, and a robust estimate.

mod comparison;
mod left_out;
pub(crate) mod pool;
pub(crate) mod sampling;
mod targets;

use std::time::Instant;

use eigenveil_shared::{
    Error, Result,
    api::{Lambda, SparseSettings},
    estimate::Estimate,
    mechanism::NoiseModel,
    packed::PackedSymmetric,
    site_estimate::{MIN_SITES_OF_ROBUST, SiteComparison, SiteLine, SiteVerdict, SitesEstimate},
    site_study::SiteStudyParams,
};

use self::{
    comparison::{Comparison, FALSE_ALARM_RATE, compare},
    left_out::{Again, LeftOut, left_out, robust},
    pool::{Pool, Site},
    sampling::with_sampling,
    targets::{Predicted, error_of_sites, intervals},
};
use crate::{
    assessment::table_bars,
    cancel::Cancel,
    components::ComponentsReport,
    dense::principal_components,
    input::{counts::Counts, moment::NoisyMoment, site_report::SiteSum},
    metrics::max_error,
    pipeline::Request,
    report::{
        document::{Reported, document},
        warning::Warning,
    },
    sparse::sparse_components,
};

/// Estimates the principal subspace of a study of sites: the document that an analyst gets. Works on
/// [`Threads::current`](crate::linalg::Threads::current) threads.
///
/// `cancel` is checked before and after the components, and after every iteration of the sparse solver.
///
/// # Errors
/// `estimate-failed` when cancelled, without reports, and where the noise hides how many rows they have;
/// `invalid-request` for a k or a setting out of range, and those of [`check_site_settings`].
pub fn estimate_sites(
    reports: &[SiteSum],
    params: &SiteStudyParams,
    request: &Request<'_>,
    cancel: Cancel<'_>,
) -> Result<Estimate> {
    let started = Instant::now();
    cancel.check()?;
    request.sparse.map_or(Ok(()), check_site_settings)?;
    let pool = Pool::new(reports, params)?;
    let pooled = Found::new(&pool)?;
    let setting = setting_in_words(params, pool.sites.len());
    let findings = match request.sparse {
        None => principal_components(&pooled.moment, request.k, &setting)?,
        Some(settings) => sparse_components(&pooled.moment, request.k, settings, &setting, cancel)?,
    };
    cancel.check()?;
    let sites = pooled.sites(&findings)?;
    cancel.check()?;
    let reported = Reported {
        params: params.clone().into(),
        n: pooled.moment.n(),
        repeated: 0,
        influence: influence(&pool),
        protected: (pool.rows().round() as u64, protected(params)),
    };
    let first = differing(&sites).into_iter().collect();
    let mut estimate = document(reported, (request.name, request.k), findings, first);
    estimate.sites = Some(sites);
    if let Some(mean) = pooled.moment.estimated_mean() {
        estimate.mean = Some(mean.values().to_vec());
        estimate.mean_standard_error = Some(mean.standard_error());
    }
    let report = request.moment.then(|| pooled.moment.mean_report());
    estimate.mean_report = report.map(|report| report.as_slice().to_vec());
    estimate.seconds = started.elapsed().as_secs_f64();
    Ok(estimate)
}

/// Whether tables of sites can be estimated with these settings.
///
/// # Errors
/// `invalid-request` for cross-validation, which takes buckets of reports that are alike.
pub fn check_site_settings(settings: &SparseSettings) -> Result<()> {
    if settings.lambda != Lambda::CrossValidated {
        return Ok(());
    }
    Err(Error::invalid_request(
        "`lambda` cv compares buckets of reports that are alike, and sites are not: in a study of sites use auto, path or a number",
    )
    .with_field("lambda"))
}

/// The moment behind these reports, with the sampling of their rows in its noise, and the noise without.
pub(crate) fn moments_of_sites(
    reports: &[SiteSum],
    params: &SiteStudyParams,
) -> Result<(NoisyMoment, NoiseModel)> {
    let pool = Pool::new(reports, params)?;
    let pooled = Found::new(&pool)?;
    Ok((pooled.moment, pooled.noise))
}

/// The privacy setting in words, for the warnings.
pub(crate) fn setting_in_words(params: &SiteStudyParams, sites: usize) -> String {
    let epsilon = params.budget().epsilon();
    match sites {
        1 => format!("ε = {epsilon} at 1 site"),
        many => format!("ε = {epsilon} at {many} sites"),
    }
}

fn protected(params: &SiteStudyParams) -> &'static str {
    match params.terms().rows_per_person {
        None => "rows of all tables",
        Some(_) => "persons of all tables",
    }
}

/// The most that exchanging one of these reports for another of the same size can move the moment: the test of a report
/// leaves its eigenvalues from −q to its rows and q.
fn influence(pool: &Pool<'_>) -> f64 {
    let reach = -pool.params.mechanism().least_eigenvalue();
    let of_site = |site: &Site<'_>| {
        let largest = site.reports.iter().map(|report| report.rows_noisy);
        pool.weight_of_a_row(site) * (largest.fold(0.0, f64::max) + 2.0 * reach)
    };
    pool.sites.iter().map(of_site).fold(0.0, f64::max)
}

/// A warning of sites that are not like the others.
fn differing(sites: &SitesEstimate) -> Option<Warning> {
    let named = |is_named: &dyn Fn(&SiteLine) -> bool| -> Vec<String> {
        let lines = sites.sites.iter().filter(|line| is_named(line));
        lines.map(|line| line.site.clone()).collect()
    };
    let means = named(&|line| line.verdict == Some(SiteVerdict::OtherMeans));
    let moments = named(&|line| line.verdict == Some(SiteVerdict::OtherMoments));
    (!means.is_empty() || !moments.is_empty()).then_some(Warning::SitesDiffer {
        means,
        moments,
        undecided: named(&|line| line.one_of_several),
        of: sites.sites.len(),
    })
}

/// The tables together.
struct Found<'a> {
    pool: &'a Pool<'a>,
    mean: PackedSymmetric,
    /// The moment behind it, with the sampling of the rows in its noise.
    moment: NoisyMoment,
    /// Its noise alone.
    noise: NoiseModel,
    /// E‖z‖⁴/(E‖z‖²)² of the rows around their mean.
    fourth: f64,
}

/// The components without each site; an inner `None` where too little is left.
type EachLeftOut = Option<Vec<Option<LeftOut>>>;

impl<'a> Found<'a> {
    fn new(pool: &'a Pool<'a>) -> Result<Self> {
        let mean = pool.mean();
        let moment = pool.moment(mean.clone(), pool.counts())?;
        let noise = *moment.noise();
        let (moment, fourth) = with_sampling(moment, pool.params.preprocessing().norm);
        Ok(Self {
            pool,
            mean,
            moment,
            noise,
            fourth,
        })
    }

    fn sites(&self, findings: &ComponentsReport) -> Result<SitesEstimate> {
        let pool = self.pool;
        let selected = findings.sparse.as_ref();
        let again = match selected {
            Some(sparse) if !sparse.refit => None,
            Some(sparse) => Again::of(&findings.vectors, Some(sparse.support.as_slice())),
            None => Again::of(&findings.vectors, None),
        };
        let several = again.as_ref().filter(|_| pool.sites.len() > 1);
        let left_out: EachLeftOut = several
            .map(|again| left_out(pool, &self.mean, again))
            .transpose()?;
        let robust = again
            .as_ref()
            .filter(|_| pool.sites.len() >= MIN_SITES_OF_ROBUST)
            .map(|again| robust(pool, again))
            .transpose()?;
        let (robust, factors) = robust.unzip();
        let comparison = compare(pool);
        let shares: Vec<f64> = pool.sites.iter().map(|site| pool.share(site)).collect();
        let counts = self.moment.counts();
        let mut sites = SitesEstimate {
            rows: pool.rows(),
            rows_sd: pool.rows_sd(),
            n_eff: counts.n_eff,
            rows_eff: counts.rows,
            weights: pool.params.terms().site_weights,
            largest_share: shares.iter().copied().fold(0.0, f64::max),
            sites_eff: 1.0 / shares.iter().map(|share| share * share).sum::<f64>(),
            error_of_rows: self
                .predicted(findings)
                .map(|predicted| predicted.of_noise())
                .transpose()?,
            error_of_sites: None,
            intervals: Vec::new(),
            comparison: comparison.as_ref().map(summary),
            robust,
            sites: self.lines(
                findings,
                comparison.as_ref(),
                left_out.as_deref(),
                factors.as_deref(),
            )?,
        };
        let without = left_out.as_ref().filter(|_| sites.shows_spread());
        let without = without.and_then(|left| with_shares(&shares, left));
        let (p, k) = findings.vectors.shape();
        sites.error_of_sites = without.as_ref().map(|own| error_of_sites(own, (p, k)));
        let components = &findings.floor_report.components;
        let values: Vec<f64> = components.iter().map(|own| own.eigenvalue).collect();
        let bars = table_bars(&self.moment, &findings.vectors, &values);
        sites.intervals = intervals(components, &bars, without.as_deref());
        Ok(sites)
    }

    /// Predictor of the errors of these components; `None` where there is no error to speak of.
    fn predicted<'f>(&self, findings: &'f ComponentsReport) -> Option<Predicted<'f>> {
        let report = &findings.floor_report;
        let spectrum = report.spectrum.as_ref()?;
        let (p, k) = findings.vectors.shape();
        let known = report.expected_error.is_some() && k > 0 && max_error(p, k) > 0.0;
        let dimension = spectrum.standing.len() + spectrum.rest_count;
        (known && k < dimension).then(|| Predicted {
            spectrum,
            noise: self.noise,
            n_eff: self.moment.n_eff(),
            rows: (self.moment.dimension(), self.moment.mean().trace().max(0.0)),
            fourth: self.fourth,
            k,
        })
    }

    fn lines(
        &self,
        findings: &ComponentsReport,
        comparison: Option<&Comparison>,
        left_out: Option<&[Option<LeftOut>]>,
        factors: Option<&[f64]>,
    ) -> Result<Vec<SiteLine>> {
        let (pool, predicted) = (self.pool, self.predicted(findings));
        let line = |j: usize| -> Result<SiteLine> {
            let site = &pool.sites[j];
            let movement = left_out.and_then(|all| Some(all[j].as_ref()?.movement));
            let site_counts = Counts {
                draws: site.reports.len() as u64,
                n_eff: site.rows * site.rows / site.draws(),
                rows: site.rows,
                sites: 1,
            };
            let expected = predicted
                .as_ref()
                .filter(|_| movement.is_some() && site.rows > 0.0)
                .map(|by| by.movement(pool.share(site), site_counts, pool.counts_without(j)))
                .transpose()?;
            Ok(SiteLine {
                site: site.name.to_owned(),
                reports: site_counts.draws,
                rows: site.rows,
                share: pool.share(site),
                verdict: comparison.and_then(|found| found.verdicts[j]),
                one_of_several: comparison.is_some_and(|found| found.one_of_several[j]),
                means: comparison.and_then(|found| found.means[j]),
                moments: comparison.and_then(|found| found.moments[j]),
                movement,
                expected_movement: expected,
                robust_factor: factors.map(|all| all[j]),
            })
        };
        (0..pool.sites.len()).map(line).collect()
    }
}

fn summary(found: &Comparison) -> SiteComparison {
    let compared = || found.verdicts.iter().flatten();
    SiteComparison {
        sites: compared().count(),
        differing: compared().filter(|own| **own != SiteVerdict::Alike).count(),
        false_alarm_rate: FALSE_ALARM_RATE,
    }
}

/// The estimates without each site that has a share, and the shares; `None` if one is missing.
fn with_shares<'l>(
    shares: &[f64],
    left_out: &'l [Option<LeftOut>],
) -> Option<Vec<(f64, &'l LeftOut)>> {
    let counted = shares
        .iter()
        .zip(left_out)
        .filter(|(share, _)| **share > 0.0);
    counted
        .map(|(share, left)| Some((*share, left.as_ref()?)))
        .collect()
}
