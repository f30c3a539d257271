//! The components of an estimate as a table, formatted once for pages, files and the terminal.

use eigenveil_shared::{
    estimate::{ComponentGroup, Estimate, Verdict},
    wording::percent,
};

use crate::number::{at_least, rounded, rounded_error, with_error};

/// A component, or the space of components that cannot be told apart: every direction in it could be one of them, so
/// that nothing is told of its members but their variances.
pub(crate) struct Part {
    /// "component 1", "components 2–3 together".
    pub(crate) name: String,
    /// Verdict on it.
    pub(crate) verdict: Verdict,
    /// Loadings; of a space the length of each feature in it, which no rotation changes.
    pub(crate) loadings: Vec<f64>,
    /// Whether it is a space.
    pub(crate) is_space: bool,
}

/// The components and spaces of an estimate, leading first.
pub(crate) fn parts(estimate: &Estimate) -> impl Iterator<Item = Part> {
    let components = estimate.components.iter().enumerate();
    components.filter_map(move |(j, component)| match estimate.group_of(j) {
        None => Some(Part {
            name: format!("component {}", j + 1),
            verdict: component.verdict,
            loadings: component.loadings.clone(),
            is_space: false,
        }),
        Some(group) => (group.first == j + 1).then(|| Part {
            name: format!("components {} together", group.range()),
            verdict: group.verdict,
            loadings: lengths(estimate, group),
            is_space: true,
        }),
    })
}

/// The length of each feature's unit vector in the space of a group.
fn lengths(estimate: &Estimate, group: &ComponentGroup) -> Vec<f64> {
    let members = estimate.components.iter().take(group.last);
    let members = members.skip(group.first.saturating_sub(1));
    let mut lengths = vec![0.0_f64; estimate.p];
    for member in members {
        for (length, loading) in lengths.iter_mut().zip(&member.loadings) {
            *length = length.hypot(*loading);
        }
    }
    lengths
}

/// A row of the table: a component, or a group of components that cannot be told apart, after its last component.
/// Unknown values are "–".
#[derive(Clone, Debug)]
pub struct ComponentRow {
    /// Number from 1, or the range of a group: "2–4".
    pub component: String,
    /// Verdict relative to the noise floor.
    pub verdict: String,
    /// Share of the participants who, acting together, could have made it from nothing.
    pub could_be_made_by: String,
    /// Variance with its standard error, or the least that it can be.
    pub variance: String,
    /// Share of the total variance.
    pub explained: String,
    /// Expected squared cosine with the true component, with its standard error; of a group that of its space, and
    /// unknown for its members.
    pub alignment: String,
    /// Standard error of the direction, as an angle, which says little beyond 45°; of a group that of its space, and
    /// unknown for its members.
    pub direction: String,
    /// Names of the features with the largest loadings, with signs; of a group those that reach furthest into its
    /// space.
    pub largest_loadings: String,
}

/// The table of an estimate's components, leading first.
pub fn component_rows(estimate: &Estimate) -> impl Iterator<Item = ComponentRow> {
    let names = estimate.feature_names();
    let is_bound = estimate.variances_are_lower_bounds();
    let variance = move |variance: f64, error: Option<f64>| match is_bound {
        true => at_least(variance, error),
        false => with_error(variance, error),
    };
    let components = estimate.components.iter().enumerate();
    components.flat_map(move |(j, component)| {
        let group = estimate.group_of(j);
        let is_single = group.is_none();
        let single = ComponentRow {
            component: (j + 1).to_string(),
            verdict: match group {
                None => component.verdict.in_words().to_owned(),
                Some(group) => format!("{}, as one of {}", group.verdict.in_words(), group.range()),
            },
            could_be_made_by: text_or_dash(estimate.share_that_could_make(component), |share| {
                format!("{} %", rounded_error(100.0 * share, 2))
            }),
            variance: variance(component.variance, component.variance_se),
            explained: share(component.explained_variance_ratio),
            alignment: text_or_dash(component.alignment.filter(|_| is_single), |alignment| {
                with_error(alignment, component.alignment_se)
            }),
            direction: angle(component.direction_se.filter(|_| is_single)),
            largest_loadings: match is_single {
                true => largest_loadings(&component.loadings, &names, true),
                false => absent(),
            },
        };
        let together = group
            .filter(|group| group.last == j + 1)
            .map(|group| ComponentRow {
                component: group.range(),
                verdict: format!("together {}", group.verdict.in_words()),
                could_be_made_by: absent(),
                variance: variance(group.variance, None),
                explained: share(group.explained_variance_ratio),
                alignment: text_or_dash(group.alignment, |alignment| rounded(alignment, 4)),
                direction: angle(group.subspace_se),
                largest_loadings: largest_loadings(&lengths(estimate, group), &names, false),
            });
        std::iter::once(single).chain(together)
    })
}

fn absent() -> String {
    "–".to_owned()
}

fn text_or_dash<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(absent, text)
}

fn share(share: Option<f64>) -> String {
    text_or_dash(share, percent)
}

fn angle(sine: Option<f64>) -> String {
    text_or_dash(sine, |sine| match sine * sine {
        // An error bar is of first order.
        0.5.. => "beyond ±45°".to_owned(),
        _ => format!("±{}°", rounded_error(sine.asin().to_degrees(), 1)),
    })
}

fn largest_loadings(loadings: &[f64], names: &[String], signed: bool) -> String {
    let size = |i: usize| loadings[i].abs();
    let mut order: Vec<usize> = (0..loadings.len()).collect();
    order.sort_by(|&a, &b| size(b).total_cmp(&size(a)));
    let largest = order.into_iter().take(4).filter(|&i| size(i) > 0.0);
    let words = largest.map(|i| {
        let sign = match (signed, loadings[i] < 0.0) {
            (false, _) => "",
            (true, true) => "−",
            (true, false) => "+",
        };
        format!("{sign}{}", names.get(i).map_or("", String::as_str))
    });
    words.collect::<Vec<_>>().join(", ")
}
