//! The sites behind an estimate in sentences, one wording for all surfaces.

use eigenveil_shared::{
    estimate::Estimate,
    parameters::Parameters,
    site_estimate::SitesEstimate,
    site_study::SiteWeights,
    wording::{percent, plural},
};

use super::format::{round_up, three_digits, with_thousands};

/// The sample of an estimate in words: "50,000 reports", "1,797 rows of 3 sites".
pub fn sample(estimate: &Estimate) -> String {
    let (Parameters::Sites(params), Some(sites)) = (&estimate.params, &estimate.sites) else {
        return format!(
            "{} {}",
            with_thousands(estimate.n),
            plural(estimate.n, "report")
        );
    };
    format!(
        "{} {} of {}",
        with_thousands(whole(sites.rows)),
        params.terms().unit(),
        counted(sites.sites.len())
    )
}

/// Counts, errors by target, comparison, robust estimate, and what so few sites do not tell; empty where each report is
/// of one row.
pub fn sites_in_sentences(estimate: &Estimate) -> Vec<String> {
    let Some(sites) = &estimate.sites else {
        return Vec::new();
    };
    let noise = with_thousands(round_up(whole(sites.n_eff), 3));
    let mut sentences = vec![format!(
        "{} (their count ± {} of noise) have the noise of {noise} reports of one row each.",
        sample(estimate),
        three_digits(sites.rows_sd)
    )];
    sentences.extend(weights(sites));
    sentences.extend(errors(estimate, sites));
    let undecided = sites.sites.iter().filter(|line| line.one_of_several);
    let undecided = undecided.count();
    sentences.extend(sites.comparison.map(|found| match (found.differing, undecided) {
        (0, _) => "The sites are alike, as far as noise and sampling let anybody see.".to_owned(),
        (differing, 0) => format!(
            "{differing} of {} sites {} not like the others.",
            found.sites,
            if differing == 1 { "is" } else { "are" }
        ),
        (differing, open) => format!(
            "{differing} of {} sites stand out: of {open} of them nobody can tell which one differs, as the others are alike without any one of them.",
            found.sites
        ),
    }));
    sentences.extend(sites.robust.as_ref().map(|robust| {
        format!(
            "The robust estimate, in which no site counts for more than alike sites would, is {} away.",
            three_digits(robust.distance)
        )
    }));
    sentences.extend(sites.missing_in_sentences());
    sentences
}

fn weights(sites: &SitesEstimate) -> Option<String> {
    let by = match sites.weights {
        SiteWeights::Rows => "rows",
        SiteWeights::Precision => "precision",
    };
    (sites.sites.len() > 1).then(|| {
        format!(
            "Weighed by {by}, the largest site has {} of the estimate: together they count like {:.1} equal ones.",
            percent(sites.largest_share),
            sites.sites_eff
        )
    })
}

fn errors(estimate: &Estimate, sites: &SitesEstimate) -> Option<String> {
    let targets = [
        (sites.error_of_rows, "these very rows"),
        (
            estimate.expected_error,
            "the populations that they are from",
        ),
        (sites.error_of_sites, "sites like these"),
    ];
    let known = targets
        .into_iter()
        .filter_map(|(error, target)| Some(format!("{} for {target}", three_digits(error?))));
    let known: Vec<String> = known.collect();
    let any = estimate.k > 0 && !known.is_empty();
    any.then(|| format!("Expected error of the components: {}.", known.join(", ")))
}

fn counted(sites: usize) -> String {
    match sites {
        1 => "1 site".to_owned(),
        many => format!("{many} sites"),
    }
}

fn whole(count: f64) -> u64 {
    count.max(0.0).round() as u64
}
