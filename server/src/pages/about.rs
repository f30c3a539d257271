//! What a study tells participants: who asks for what, until when, and everything that is done with a row.

use eigenveil_estimation::format::with_thousands;
use eigenveil_shared::{
    about::StudyNotice,
    enrolment::Enrolment,
    estimate::ComponentCount,
    preprocess::{Feature, Norm, Preprocessing},
    site_study::SiteWeights,
};
use eigenveil_store::Study;
use maud::{Markup, html};

use super::{layout, preparation};

/// Feature lists longer than this are collapsed.
const MAX_UNFOLDED_FEATURES: usize = 40;

/// Purpose, responsible party, contact and last day, in the operator's words.
pub(super) fn people(study: &Study) -> Markup {
    let about = study.about();
    let not_stated = html! { span .muted { "not stated" } };
    let stated = |text: &Option<String>| match text {
        Some(text) => html! { (text) },
        None => not_stated.clone(),
    };
    html! {
        dl .pairs #about {
            dt { "Purpose" } dd { (stated(&about.purpose)) }
            dt { "Responsible" } dd { (stated(&about.responsible_party)) }
            dt { "Contact" } dd {
                @match (&about.contact, about.contact_link()) {
                    (Some(contact), Some(link)) => { a href=(link) rel="noreferrer" { (contact) } },
                    (contact, _) => { (stated(contact)) }
                }
            }
            dt { "Last day" } dd {
                @match about.last_day {
                    Some(day) => { (day) " (UTC); no report is accepted after it" }
                    None => { (not_stated) ": reports are accepted until the study is closed" }
                }
            }
            dt { "Created" } dd { (layout::format_time(study.created_at_ms())) }
        }
    }
}

pub(super) fn parameters(study: &Study) -> Markup {
    let (params, privacy) = (study.params(), study.privacy());
    html! {
        dl .pairs #parameters {
            dt { "Features p" } dd { (with_thousands(params.dimension() as u64)) }
            @if params.preparation().is_err() {
                dt { "Components k" } dd {
                    @match study.default_k() {
                        ComponentCount::Auto => "those before the last gap that noise does not explain",
                        ComponentCount::Fixed(k) => (k),
                    }
                }
            }
            dt { "Mechanism" } dd { (privacy.mechanism) @if let Some(calibration) = privacy.calibration { ", calibration " (calibration) } }
            dt { "ε" } dd { (privacy.epsilon) }
            dt { "δ" } dd { @if privacy.delta == 0.0 { "0 (pure)" } @else { (format!("{:e}", privacy.delta)) } }
            @if let Ok(constants) = params.preprocessing() { (preprocessing(constants)) }
            @if let Ok(params) = params.preparation() {
                dt { "Round" } dd {
                    @match params.after() {
                        Some(first) => { "second, for other people than those of the first, whose fingerprint is " code { (first) } }
                        None => "first",
                    }
                }
            }
            @if let Ok(sites) = params.sites() {
                @let (terms, unit) = (sites.terms(), sites.terms().unit());
                dt { "Tables" } dd {
                    (with_thousands(terms.min_rows)) " to " (with_thousands(terms.max_rows)) " " (unit)
                    @if let Some(cap) = terms.rows_per_person { "; of a person the first " (cap) " rows count" }
                }
                dt { "Sites count" } dd {
                    @match terms.site_weights {
                        SiteWeights::Rows => { "by the number of their " (unit) }
                        SiteWeights::Precision => { "by how precise their reports are" }
                    }
                }
            }
            dt { "One report" } dd { (with_thousands(privacy.report_bytes as u64)) " bytes" }
            dt { "Who may take part" } dd {
                @match study.enrolment() {
                    Enrolment::Open => "anybody who knows the study's address",
                    Enrolment::Token if study.has_sites() => "sites, each with a one-time token that has its name",
                    Enrolment::Token => "anybody with a one-time token",
                }
            }
            dt { "Identifier" } dd { code { (study.id()) } }
            dt { "Fingerprint" } dd { code { (study.fingerprint()) } }
        }
    }
}

fn preprocessing(constants: &Preprocessing) -> Markup {
    let norm = match constants.norm {
        Norm::Normalize => "normalize: divided by its length".to_owned(),
        Norm::Clip { radius } => {
            format!("clip: shortened to length {radius} if it is longer, then divided by {radius}")
        }
        Norm::Require { radius } => {
            format!("require: divided by {radius}; a row longer than that is sent as the zero row")
        }
    };
    html! {
        dt { "Norm of each row" } dd { (norm) }
        dt { "Private centring" } dd {
            @match constants.centring {
                Some(constant) => { "yes, with constant " (constant) ": the mean is estimated from the reports and removed" }
                None => "none",
            }
        }
        @if let Some(weights) = constants.weights {
            dt { "Weights" } dd {
                "each participant counts by a weight of its own, protected with the row"
                @if let Some(mean) = weights.mean { "; their mean is " (mean) }
            }
        }
    }
}

/// Lists the features of a row, with what they mean and their public constants.
pub(super) fn features(study: &Study) -> Markup {
    let about = study.about();
    if let Ok(params) = study.params().preparation() {
        return preparation::questions(params, about);
    }
    let constants = study.params().preprocessing().ok();
    match constants.and_then(|constants| constants.features.as_deref()) {
        None => html! {
            p #features { "A row is " (with_thousands(study.params().dimension() as u64)) " numbers. This study does not name them and uses them as they are: no center is subtracted and nothing is scaled. Ask the contact which numbers are meant." }
        },
        Some(features) if features.len() <= MAX_UNFOLDED_FEATURES => table(features, about),
        Some(features) => html! {
            details {
                summary { "All " (with_thousands(features.len() as u64)) " features" }
                (table(features, about))
            }
        },
    }
}

fn table(features: &[Feature], about: &StudyNotice) -> Markup {
    let observed = features.iter().any(|feature| feature.observed.is_some());
    let described = about.features.is_some();
    html! {
        div .scroll tabindex="0" role="region" aria-label="Features" {
            table #features {
                caption { "Features" }
                thead { tr { th scope="col" { "Feature" } @if described { th scope="col" { "Meaning" } } th scope="col" { "Center" } th scope="col" { "Scale" } @if observed { th scope="col" { "Observed" } th scope="col" { "Section" } } } }
                tbody { @for (at, feature) in features.iter().enumerate() {
                    tr {
                        th scope="row" { (feature.name) }
                        @if described { td .text { @if let Some(meaning) = about.feature(at) { (meaning) } } }
                        td { (feature.center) }
                        td { (feature.scale) }
                        @if let Some(share) = feature.observed {
                            td { (share) }
                            td { (feature.section.as_deref().unwrap_or("–")) }
                        }
                    }
                } }
            }
        }
        @if described {
            p .muted { "What a feature means is in the words of the people who run the study: the fingerprint covers names, centers and scales, not these words." }
        }
        @if features.iter().any(|feature| feature.name.contains('=')) {
            p #categories .muted { "Features that are alike before = are one question, and a table has one column for it, with the answers as text: the feature of your answer is 1, the others are 0. One with two answers, such as sex=m|f, is 1 for the first and 0 for the second." }
        }
        p .muted { "Each value x becomes (x − center) / scale. These constants are public and the same for everybody." }
        @if observed {
            p .muted { "A value that you do not have counts as its center, and which values you have is protected like the values. The observed share is the share of people expected to have the value; values of a section are expected to be missing together." }
        }
    }
}
