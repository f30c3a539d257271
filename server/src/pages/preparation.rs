//! For people whom a preparation invites: the questions, one of which is answered.

use eigenveil_estimation::format::with_thousands;
use eigenveil_shared::{about::StudyNotice, preparation::PreparationParams};
use maud::{Markup, html};

/// Lists of columns longer than this are collapsed.
const MAX_UNFOLDED_COLUMNS: usize = 40;

/// The columns, with what is stated about each, and what they mean.
pub(super) fn questions(params: &PreparationParams, about: &StudyNotice) -> Markup {
    let columns = params.columns();
    html! {
        @if columns.len() <= MAX_UNFOLDED_COLUMNS { (table(params, about)) } @else {
            details {
                summary { "All " (with_thousands(columns.len() as u64)) " columns" }
                (table(params, about))
            }
        }
        p .muted { "Your device draws one of these columns before it looks at your data, and of a number column one of its pairs of values. It then answers one question: is your number below both values, between them, or not below either? Or: which of the words is it? With some probability it gives an answer that was drawn instead of yours. Nobody can see which it did." }
        @if columns.iter().any(|column| column.may_be_missing) {
            p .muted { "Where a value may be missing, “missing” is an answer like the others. Elsewhere a device without a value gives an answer that was drawn." }
        }
    }
}

fn table(params: &PreparationParams, about: &StudyNotice) -> Markup {
    let described = about.features.is_some();
    let mut next_feature = 0;
    let rows = params.columns().iter().map(|column| {
        let feature = next_feature;
        next_feature += column.feature_names().len();
        (column, about.feature(feature))
    });
    html! {
        div .scroll tabindex="0" role="region" aria-label="Columns" {
            table #features {
                caption { "Columns" }
                thead { tr { th scope="col" { "Column" } @if described { th scope="col" { "Meaning" } } th scope="col" { "Answers" } } }
                tbody { @for (column, meaning) in rows {
                    tr {
                        th scope="row" { (column.name) }
                        @if described { td .text { @if let Some(meaning) = meaning { (meaning) } } }
                        td .text { (column) }
                    }
                } }
            }
        }
    }
}
