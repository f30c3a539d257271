//! `index.html`: the demo's result as one self-contained page.

use eigenveil_estimation::format::with_thousands;
use eigenveil_figures::{
    Biplot, Figure, ImageGrid, LoadingImage, component_rows, estimate_figures, loading_bars,
    number::compact,
};
use eigenveil_shared::{
    estimate::Estimate,
    privacy::{format_delta, format_epsilon},
};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use nalgebra::DMatrix;

use super::DemoResult;
use crate::output;

const STYLE: &str = include_str!("page.css");

/// Width of the figures on a narrow screen, in pixels, as in the style sheet.
const NARROW: f64 = 342.0;
const MAX_CHARTS: usize = 8;

pub(super) struct Page<'a> {
    /// The numbers of the run.
    pub result: &'a DemoResult,
    /// The private estimate.
    pub estimate: &'a Estimate,
    /// The non-private components, p × k, signs fixed.
    pub nonprivate: &'a DMatrix<f64>,
    /// Eigenvalues of the non-private second-moment matrix, descending.
    pub nonprivate_eigenvalues: &'a [f64],
    /// The rows in the plane of the first two components; `None` if there are fewer components.
    pub scatter: Option<&'a Biplot>,
    /// Description of the rows.
    pub rows_described: &'a str,
}

/// The page as HTML, without scripts and without requests to other hosts.
pub(super) fn render(page: &Page<'_>) -> String {
    let Page {
        result, estimate, ..
    } = page;
    // The scree plot has the alignments below it.
    let figures = estimate_figures(estimate, Some(page.nonprivate_eigenvalues));
    let figures = figures
        .into_iter()
        .filter(|shown| shown.file != "alignment.svg");
    let (scree, feature_figures): (Vec<_>, Vec<_>) =
        figures.partition(|figure| figure.file == "scree.svg");
    let title = format!(
        "Eigenveil demo: {} reports at ε = {}",
        with_thousands(result.n),
        result.epsilon
    );
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main {
                header {
                    p .eyebrow { "Eigenveil demo" }
                    h1 { (result.k) " principal components of rows that never left their owners" }
                    p .lead {
                        (with_thousands(result.n)) " participants each perturbed their own row under " (result.mechanism.as_str())
                        " (ε\u{a0}=\u{a0}" (result.epsilon) ", δ\u{a0}=\u{a0}" (format_delta(result.delta)) ") and sent "
                        (with_thousands(result.report_bytes as u64)) " bytes over HTTP to a server on this machine. The subspace learned from their noisy sum captures "
                        strong { (format!("{:.1}\u{a0}%", 100.0 * result.captured / result.nonprivate_captured)) }
                        " of the variance that the non-private one does."
                    }
                }
                section .tiles { (number_tiles(result)) }
                section {
                    h2 { "How much of it is real" }
                    @for shown in scree { (figure(&*shown.figure)) }
                    (components_table(estimate))
                    @for warning in &estimate.warnings { p .warning { (warning) } }
                }
                @if !feature_figures.is_empty() {
                    section {
                        h2 { "The selected features" }
                        @for shown in feature_figures { (figure(&*shown.figure)) }
                    }
                }
                section {
                    h2 { "The components, private and non-private" }
                    @match images(page) {
                        Some(images) => {
                            @let narrow = ImageGrid { cell: NARROW / (estimate.k.min(MAX_CHARTS) as f64 + 2.0), ..images.clone() };
                            (drawn_twice(&images.to_svg(), &narrow.to_svg()))
                        }
                        None => { @for chart in loading_bars(estimate).take(MAX_CHARTS) { (figure(&chart)) } }
                    }
                }
                @if let Some(scatter) = page.scatter {
                    section {
                        h2 { "The rows by component" }
                        (drawn_twice(&scatter.to_svg(), &scatter.to_svg_of_width(NARROW)))
                    }
                }
                (privacy_section(page))
            } }
        }
    };
    markup.into_string()
}

fn number_tiles(result: &DemoResult) -> Markup {
    let above = result.components_above_floor.min(result.k as u64);
    let rate = with_thousands(result.reports_per_second.round() as u64);
    html! {
        @for (value, label) in [
            (
                output::error_text(result.error, result.p, result.k),
                html! { "subspace error ‖V̂V̂ᵀ − VVᵀ‖" sub { "F" } },
            ),
            (
                format!("{above} of {}", result.k),
                html! { "components above the noise floor" },
            ),
            (
                format!("{rate}/s"),
                html! { "reports acknowledged, each durable" },
            ),
            (
                format!("{} B", with_thousands(result.payload_bytes as u64)),
                html! { "payload of one report" },
            ),
        ] {
            div .tile { b { (value) } span { (label) } }
        }
    }
}

fn components_table(estimate: &Estimate) -> Markup {
    let heads = [
        "component",
        "verdict",
        "variance",
        "explained",
        "expected alignment cos²",
    ];
    html! {
        table #components {
            thead { tr { @for head in heads { th scope="col" { (head) } } } }
            tbody {
                @for row in component_rows(estimate) {
                    tr {
                        th scope="row" data-head=(heads[0]) { (row.component) }
                        td data-head=(heads[1]) { (row.verdict) }
                        td data-head=(heads[2]) { (row.variance) }
                        td data-head=(heads[3]) { (row.explained) }
                        td data-head=(heads[4]) { (row.alignment) }
                    }
                }
            }
        }
    }
}

/// The components as square images, if p is a square.
fn images(page: &Page<'_>) -> Option<ImageGrid> {
    let estimate = page.estimate;
    let side = estimate.p.isqrt();
    if side * side != estimate.p || !(2..=64).contains(&side) {
        return None;
    }
    let (mut private, mut open) = (Vec::new(), Vec::new());
    for (index, component) in estimate.components.iter().take(MAX_CHARTS).enumerate() {
        let reference: Vec<f64> = page.nonprivate.column(index).iter().copied().collect();
        let trust = match (estimate.group_of(index), component.alignment) {
            (Some(group), _) => format!("one of {}", group.range()),
            (None, Some(alignment)) => format!("alignment {alignment:.2}"),
            (None, None) => String::new(),
        };
        let eigenvalue = page.nonprivate_eigenvalues[index];
        let eigenvalue = format!("eigenvalue {}", compact(eigenvalue));
        let label = format!("component {}", index + 1);
        let image = |title: String, loadings: &[f64]| {
            LoadingImage::new(title, label.clone(), (side, side), loadings)
        };
        let nonprivate_image = image(eigenvalue, &reference)?;
        private.push(image(trust, &component.loadings)?.with_sign_of(&nonprivate_image));
        open.push(nonprivate_image);
    }
    let grid = ImageGrid::new("Loadings of the leading components");
    Some(
        grid.with_row("private", private)
            .with_row("non-private", open),
    )
}

fn figure(figure: &dyn Figure) -> Markup {
    drawn_twice(&figure.to_svg(), &figure.to_svg_of_width(NARROW))
}

/// A figure drawn for wide screens and for narrow ones, of which the style sheet shows one.
fn drawn_twice(wide: &str, narrow: &str) -> Markup {
    html! {
        div .figure .wide { (PreEscaped(wide)) }
        div .figure .narrow { (PreEscaped(narrow)) }
    }
}

fn privacy_section(page: &Page<'_>) -> Markup {
    let privacy = &page.estimate.privacy;
    let delta = format_delta(privacy.delta);
    let truth = match privacy.true_epsilon {
        Some(epsilon) if privacy.delta == 0.0 => {
            format!("ε = {}, δ = 0", format_epsilon(epsilon, 6))
        }
        Some(epsilon) => format!("ε = {} at δ = {delta}", format_epsilon(epsilon, 6)),
        None => "none".to_owned(),
    };
    let claimed = match privacy.delta {
        0.0 => format!("ε = {}, pure: δ = 0", privacy.epsilon),
        _ => format!("ε = {}, δ = {delta}", privacy.epsilon),
    };
    let facts = [
        (
            "mechanism",
            output::mechanism_text(privacy.mechanism, privacy.calibration),
        ),
        ("neighbours", privacy.neighbours.clone()),
        ("claimed", claimed),
        ("true epsilon", truth),
        (
            "one report",
            format!(
                "{} bytes of payload, {} with identifier, fingerprint and envelope",
                with_thousands(privacy.payload_bytes as u64),
                with_thousands(privacy.report_bytes as u64)
            ),
        ),
        ("rows", page.rows_described.to_owned()),
        ("study fingerprint", page.estimate.fingerprint.clone()),
    ];
    let centring = output::centring_text(page.estimate).map(|text| ("private centring", text));
    html! {
        section {
            h2 { "What was promised to each participant" }
            p { (privacy.sentence) }
            table .facts { tbody {
                @for (name, value) in facts.into_iter().chain(centring) {
                    tr { th scope="row" { (name) } td { (value) } }
                }
            } }
            @for warning in &privacy.warnings { p .note { (warning) } }
        }
    }
}
