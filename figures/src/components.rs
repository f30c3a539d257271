//! The components of an estimate as a table, formatted once for pages, files and the terminal.

use eigenveil_shared::{
    estimate::{Component, Estimate},
    wording::percent,
};

use crate::number::{rounded, rounded_error, with_error};

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
    /// Variance with its standard error.
    pub variance: String,
    /// Share of the total variance.
    pub explained: String,
    /// Expected squared cosine with the true component, with its standard error.
    pub alignment: String,
    /// Standard error of the direction, as an angle.
    pub direction: String,
    /// Names of the features with the largest loadings, with signs.
    pub largest_loadings: String,
}

/// The table of an estimate's components, leading first.
pub fn component_rows(estimate: &Estimate) -> impl Iterator<Item = ComponentRow> {
    let names = estimate.feature_names();
    let components = estimate.components.iter().enumerate();
    components.flat_map(move |(j, component)| {
        let group = estimate.group_of(j);
        let variance = component.variance;
        let single = ComponentRow {
            component: (j + 1).to_string(),
            verdict: match group {
                None => component.verdict.in_words().to_owned(),
                Some(group) => format!("{}, as one of {}", group.verdict.in_words(), group.range()),
            },
            could_be_made_by: text_or_dash(estimate.share_that_could_make(component), |share| {
                format!("{} %", rounded_error(100.0 * share, 2))
            }),
            variance: with_error(variance, component.variance_se),
            explained: share(component.explained_variance_ratio),
            alignment: text_or_dash(component.alignment, |alignment| {
                with_error(alignment, component.alignment_se())
            }),
            direction: match group {
                None => angle(component.direction_se),
                Some(group) => angle(group.subspace_se),
            },
            // Single directions of a group are arbitrary.
            largest_loadings: match group {
                None => largest_loadings(component, &names),
                Some(_) => absent(),
            },
        };
        let together = group
            .filter(|group| group.last == j + 1)
            .map(|group| ComponentRow {
                component: group.range(),
                verdict: format!("together {}", group.verdict.in_words()),
                could_be_made_by: absent(),
                variance: rounded(group.variance, 4),
                explained: share(group.explained_variance_ratio),
                alignment: text_or_dash(group.alignment, |alignment| rounded(alignment, 4)),
                direction: angle(group.subspace_se),
                largest_loadings: absent(),
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
    text_or_dash(sine, |sine| {
        format!("±{}°", rounded_error(sine.asin().to_degrees(), 1))
    })
}

fn largest_loadings(component: &Component, names: &[String]) -> String {
    let size = |i: usize| component.loadings[i].abs();
    let mut order: Vec<usize> = (0..component.loadings.len()).collect();
    order.sort_by(|&a, &b| size(b).total_cmp(&size(a)));
    let largest = order.into_iter().take(4).filter(|&i| size(i) > 0.0);
    let words = largest.map(|i| {
        let sign = if component.loadings[i] < 0.0 {
            '−'
        } else {
            '+'
        };
        format!("{sign}{}", names.get(i).map_or("", String::as_str))
    });
    words.collect::<Vec<_>>().join(", ")
}
