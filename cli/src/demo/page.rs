//! `report.html`: the demo's result as one self-contained page.

use eigenveil_estimation::floor::grouped;
use eigenveil_figures::{
    self as figures, BarChart, ColourScale, Figure, ImageGrid, LoadingImage, format_number,
};
use eigenveil_shared::{estimate::Estimate, privacy::epsilon_text};
use nalgebra::DMatrix;

use super::DemoResult;
use crate::output;

/// Everything the page shows.
pub(super) struct Page<'a> {
    /// The numbers of the run.
    pub result: &'a DemoResult,
    /// The private estimate.
    pub estimate: &'a Estimate,
    /// The non-private components, p × k, signs fixed.
    pub nonprivate: &'a DMatrix<f64>,
    /// Eigenvalues of the non-private moment, descending.
    pub nonprivate_eigenvalues: &'a [f64],
    /// The rows in the plane of the first two components, as SVG; `None` with fewer.
    pub scatter: Option<&'a str>,
    /// What the rows are, in words.
    pub rows_described: &'a str,
}

/// The page as HTML: no script, no request to anywhere.
pub(super) fn render(page: &Page<'_>) -> String {
    let Page {
        result, estimate, ..
    } = page;
    let ratio = result.captured / result.nonprivate_captured;
    let mut body = String::new();
    body.push_str(&format!(
        "<header><p class=\"eyebrow\">Eigenveil demo</p><h1>{} principal components of rows that never left their owners</h1><p class=\"lead\">{} participants each perturbed their own row under {} (ε&nbsp;=&nbsp;{}, δ&nbsp;=&nbsp;{}) and sent {} bytes over HTTP to a server on this machine. The subspace learned from their noisy sum captures <strong>{:.1}&nbsp;%</strong> of the variance that the non-private one does.</p></header>",
        result.k,
        grouped(result.n),
        escape(result.mechanism.as_str()),
        result.epsilon,
        scientific(result.delta),
        grouped(result.bytes_per_report as u64),
        100.0 * ratio,
    ));
    body.push_str("<section class=\"tiles\">");
    for (value, label) in [
        (
            output::error_text(result.error, result.p, result.k),
            "subspace error ‖V̂V̂ᵀ − VVᵀ‖<sub>F</sub>",
        ),
        (
            format!(
                "{} of {}",
                result.components_above_floor.min(result.k as u64),
                result.k
            ),
            "components above the noise floor",
        ),
        (
            format!("{}/s", grouped(result.reports_per_second.round() as u64)),
            "reports acknowledged, each durable",
        ),
        (
            format!("{} B", grouped(result.payload_bytes as u64)),
            "payload of one report",
        ),
    ] {
        body.push_str(&format!(
            "<div class=\"tile\"><b>{value}</b><span>{label}</span></div>"
        ));
    }
    body.push_str("</section>");

    body.push_str("<section><h2>How much of it is real</h2>");
    body.push_str(&figure(
        &figures::scree(estimate, Some(page.nonprivate_eigenvalues)).to_svg(),
    ));
    if !estimate.components.is_empty() {
        body.push_str(&figure(&figures::alignment(estimate).to_svg()));
    }
    body.push_str(&components_table(estimate));
    for warning in &estimate.warnings {
        body.push_str(&format!("<p class=\"warning\">{}</p>", escape(warning)));
    }
    body.push_str("</section>");

    if let Some(sparse) = &estimate.sparse {
        body.push_str("<section><h2>The selected features</h2>");
        body.push_str(&figure(&figures::loadings(estimate, sparse).to_svg()));
        if let Some(path) = &sparse.path {
            body.push_str(&figure(&figures::lambda_path(estimate, path).to_svg()));
            if let Some(chart) = figures::lambda_rows(estimate, path) {
                body.push_str(&figure(&chart.to_svg()));
            }
        }
        body.push_str("</section>");
    }

    body.push_str("<section><h2>The components, private beside non-private</h2>");
    body.push_str(&components_picture(page));
    body.push_str("</section>");

    if let Some(scatter) = page.scatter {
        body.push_str("<section><h2>The rows by component</h2>");
        body.push_str(&figure(scatter));
        body.push_str("</section>");
    }

    body.push_str(&privacy_section(page));
    document(
        &format!(
            "Eigenveil demo: {} reports at ε = {}",
            grouped(result.n),
            result.epsilon
        ),
        &body,
    )
}

fn components_table(estimate: &Estimate) -> String {
    let mut table = String::from(
        "<table><thead><tr><th scope=\"col\">component</th><th scope=\"col\">variance</th><th scope=\"col\">explained</th><th scope=\"col\">expected alignment cos²</th><th scope=\"col\">verdict</th></tr></thead><tbody>",
    );
    for (index, component) in estimate.components.iter().enumerate() {
        let group = estimate.group_of(index);
        let verdict = group.map_or_else(
            || component.verdict.in_words().to_owned(),
            |group| format!("cannot be told apart from others in {}", group.range()),
        );
        table.push_str(&row(
            &(index + 1).to_string(),
            &estimate
                .variance(component)
                .map_or("—".to_owned(), |value| {
                    with_error(value, component.variance_se)
                }),
            component.explained_variance_ratio,
            component.alignment(),
            &verdict,
        ));
        if let Some(group) = group.filter(|group| group.last == index + 1) {
            table.push_str(&row(
                &group.range(),
                &format_number(group.variance),
                group.explained_variance_ratio,
                group.alignment,
                &format!("together {}", group.verdict.in_words()),
            ));
        }
    }
    table.push_str("</tbody></table>");
    table
}

fn row(number: &str, variance: &str, share: Option<f64>, alignment: f64, verdict: &str) -> String {
    let share = share.map_or("—".to_owned(), |share| {
        format!("{:.1}&nbsp;%", 100.0 * share)
    });
    format!(
        "<tr><th scope=\"row\">{number}</th><td>{variance}</td><td>{share}</td><td>{alignment:.3}</td><td>{verdict}</td></tr>"
    )
}

/// A number with its standard error, where there is one.
fn with_error(value: f64, error: Option<f64>) -> String {
    match error {
        Some(error) => format!("{} ± {}", format_number(value), format_number(error)),
        None => format_number(value),
    }
}

/// Square pictures where p is a square, bars of the largest loadings otherwise.
fn components_picture(page: &Page<'_>) -> String {
    let estimate = page.estimate;
    let side = estimate.p.isqrt();
    let shown = estimate.k.min(8);
    if side * side == estimate.p && (2..=64).contains(&side) {
        let image = |title: String, index: usize, loadings: &[f64]| {
            LoadingImage::new(
                title,
                format!("component {}", index + 1),
                (side, side),
                loadings,
            )
        };
        let (mut private, mut open) = (Vec::new(), Vec::new());
        for (index, component) in estimate.components.iter().take(shown).enumerate() {
            let reference: Vec<f64> = page.nonprivate.column(index).iter().copied().collect();
            let trust = format!("alignment {:.2}", component.alignment());
            let eigenvalue = format!(
                "eigenvalue {}",
                format_number(page.nonprivate_eigenvalues[index])
            );
            let (Ok(ours), Ok(theirs)) = (
                image(trust, index, &component.loadings),
                image(eigenvalue, index, &reference),
            ) else {
                continue;
            };
            private.push(ours.facing(&theirs));
            open.push(theirs);
        }
        let mut grid = ImageGrid::new("Loadings of the leading components")
            .with_row("private", private)
            .with_row("non-private", open);
        grid.scale = ColourScale::Each;
        return figure(&grid.to_svg());
    }
    let names = estimate.study.feature_names();
    let mut html = String::new();
    for (index, component) in estimate.components.iter().take(shown).enumerate() {
        let bars = component
            .loadings
            .iter()
            .enumerate()
            .map(|(feature, &loading)| {
                let name = match &names {
                    Some(names) => names[feature].clone(),
                    None => format!("feature {}", feature + 1),
                };
                (name, loading)
            });
        let title = format!("Component {}, {}", index + 1, component.verdict.in_words());
        html.push_str(&figure(&BarChart::new(title, "loading", bars).to_svg()));
    }
    html
}

/// A picture that keeps its size on a narrow screen and scrolls there.
fn figure(svg: &str) -> String {
    format!("<div class=\"figure\">{svg}</div>")
}

fn privacy_section(page: &Page<'_>) -> String {
    let privacy = &page.estimate.privacy;
    let mut html = format!(
        "<section><h2>What was promised to each participant</h2><p>{}</p><table class=\"facts\"><tbody>",
        escape(&privacy.sentence)
    );
    let truth = match privacy.true_epsilon {
        Some(epsilon) if privacy.delta == 0.0 => format!("ε = {}, δ = 0", epsilon_text(epsilon, 6)),
        Some(epsilon) => format!(
            "ε = {} at δ = {}",
            epsilon_text(epsilon, 4),
            scientific(privacy.delta)
        ),
        None => "none".to_owned(),
    };
    for (name, value) in [
        (
            "mechanism",
            output::mechanism_text(privacy.mechanism, privacy.calibration),
        ),
        ("neighbours", privacy.neighbours.clone()),
        (
            "claimed",
            if privacy.delta == 0.0 {
                format!("ε = {}, pure: δ = 0", privacy.epsilon)
            } else {
                format!("ε = {}, δ = {}", privacy.epsilon, scientific(privacy.delta))
            },
        ),
        ("what really holds", truth),
        (
            "one report",
            format!(
                "{} bytes of payload, {} with identifier, fingerprint and envelope",
                grouped(privacy.payload_bytes as u64),
                grouped(privacy.bytes_per_report as u64)
            ),
        ),
        ("rows", page.rows_described.to_owned()),
        ("study fingerprint", page.estimate.fingerprint.clone()),
    ]
    .into_iter()
    .chain(output::centring_text(page.estimate).map(|text| ("private centring", text)))
    {
        html.push_str(&format!(
            "<tr><th scope=\"row\">{name}</th><td>{}</td></tr>",
            escape(&value)
        ));
    }
    html.push_str("</tbody></table>");
    for caution in &privacy.cautions {
        html.push_str(&format!("<p class=\"note\">{}</p>", escape(caution)));
    }
    html.push_str("</section>");
    html
}

fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n",
        escape(title)
    )
}

const STYLE: &str = include_str!("page.css");

/// Text for HTML.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// 1e-6 as 10⁻⁶ where it is a power of ten.
fn scientific(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:e}");
    match text.split_once('e') {
        Some(("1", exponent)) => {
            let raised: String = exponent
                .chars()
                .map(|c| match c {
                    '-' => '⁻',
                    digit => digit
                        .to_digit(10)
                        .and_then(|d| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(d as usize))
                        .unwrap_or(digit),
                })
                .collect();
            format!("10{raised}")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(scientific(1e-6), "10⁻⁶");
        assert_eq!(scientific(2.5e-5), "2.5e-5");
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
