//! The figures of an estimate, for pages and files.

use eigenveil_estimation::{format::with_thousands, sample};
use eigenveil_shared::estimate::{Component, Estimate, LambdaPath, SparseOutcome};

use crate::{
    AlignmentChart, Axis, BarChart, Figure, LineChart, LineStyle, LoadingTable, Marker, Scree,
    ScreeComponent, Series,
    components::{Part, parts},
    correlations::map_of,
    figure::titled,
    number::compact,
};

/// Largest number of features whose correlations are computed for a figure: a tenth of a second.
const MAX_CORRELATED_FEATURES: usize = 200;

/// A figure of an estimate.
pub struct EstimateFigure {
    /// File name.
    pub file: &'static str,
    /// Alternative text.
    pub what: &'static str,
    /// The figure and its numbers.
    pub figure: Box<dyn Figure>,
}

/// The figures of an estimate in display order. The first, the scree plot, also shows `without_noise`, the non-private
/// spectrum. Titles omit the name if the estimate has none.
pub fn estimate_figures(estimate: &Estimate, without_noise: Option<&[f64]>) -> Vec<EstimateFigure> {
    let mut figures = Vec::new();
    let mut add = |file, what, figure: Box<dyn Figure>| {
        figures.push(EstimateFigure { file, what, figure });
    };
    add(
        "scree.svg",
        "Variance of each component, with error bars, against the noise floor.",
        Box::new(scree(estimate, without_noise)),
    );
    if estimate.expected_error.is_some() {
        add(
            "alignment.svg",
            "How well each component is expected to be recovered.",
            Box::new(alignment(estimate)),
        );
    }
    let correlations = (estimate.p <= MAX_CORRELATED_FEATURES).then(|| map_of(estimate));
    if let Some(map) = correlations.flatten() {
        add(
            "correlations.svg",
            "Correlations of pairs of features, and how sure they are.",
            Box::new(map),
        );
    }
    let Some(sparse) = &estimate.sparse else {
        return figures;
    };
    if !sparse.support.is_empty() && !estimate.components.is_empty() {
        add(
            "loadings.svg",
            "The selected features and their loadings.",
            Box::new(loadings(estimate, sparse)),
        );
    }
    if let Some(path) = &sparse.path {
        add(
            "lambda_path.svg",
            "Variance captured and features selected along the path of λ.",
            Box::new(lambda_path(estimate, path)),
        );
        if let Some(chart) = lambda_rows(estimate, path) {
            add(
                "lambda_rows.svg",
                "Which features enter when along the path of λ.",
                Box::new(chart),
            );
        }
    }
    figures
}

/// The largest loadings of each component, by name; of components that cannot be told apart the features that reach
/// furthest into their space.
pub fn loading_bars(estimate: &Estimate) -> impl Iterator<Item = BarChart> {
    let names = estimate.feature_names();
    parts(estimate).map(move |part| {
        let bars = names.iter().cloned().zip(part.loadings);
        let (what, label) = match part.is_space {
            true => ("largest features", "length of the feature in their space"),
            false => ("largest loadings", "loading"),
        };
        let name = part.name.replacen('c', "C", 1);
        BarChart::new(format!("{name}: {what}"), label, bars)
    })
}

/// The scree plot, in units of variances: eigenvalues of `E[xxᵀ]`.
fn scree(estimate: &Estimate, without_noise: Option<&[f64]>) -> Scree {
    let centre = match estimate.mean {
        Some(_) => " of the covariance",
        None => "",
    };
    let title = titled(&format!("Variance by component{centre}"), estimate);
    let of_components = estimate.components.iter();
    let mut variances: Vec<f64> = of_components.map(|component| component.variance).collect();
    variances.extend(estimate.variances.iter().skip(variances.len()));
    let mut scree = Scree::new(title, variances);
    scree.subtitle = Some(setting(estimate));
    scree.floor = estimate.floor.variance;
    scree.lower_bounds = estimate.variances_are_lower_bounds();
    let k = estimate.k;
    scree.ends = estimate.k_shares.map_or(Vec::new(), |shares| {
        let fewer = (k.saturating_sub(1), shares.one_fewer);
        vec![fewer, (k, shares.same), (k + 1, shares.one_more)]
    });
    scree.components = components(estimate);
    scree.without_noise = without_noise.map(<[f64]>::to_vec);
    scree
}

/// Subtitle: n, or rows and sites, mechanism and budget.
fn setting(estimate: &Estimate) -> String {
    let delta = match estimate.privacy.delta {
        0.0 => "pure".to_owned(),
        delta => format!("δ\u{a0}=\u{a0}{delta:e}"),
    };
    let size = match &estimate.sites {
        None => format!("n\u{a0}=\u{a0}{}", with_thousands(estimate.n)),
        Some(_) => sample(estimate),
    };
    format!(
        "{size}, {}, ε\u{a0}=\u{a0}{}, {delta}",
        estimate.privacy.mechanism, estimate.privacy.epsilon,
    )
}

/// Subtitle with the setting and the groups of indistinguishable components.
fn setting_and_groups(estimate: &Estimate) -> String {
    let mut text = setting(estimate);
    for group in &estimate.groups {
        text.push_str(&format!("; {} cannot be told apart", group.range()));
        if let Some(alignment) = group.alignment {
            text.push_str(&format!(", together {}", compact(alignment)));
        }
    }
    text
}

fn components(estimate: &Estimate) -> Vec<ScreeComponent> {
    let components = estimate.components.iter().enumerate();
    let scree_component = |(j, component): (usize, &Component)| {
        let (alignment, alignment_error, span) = match estimate.group_of(j) {
            None => (component.alignment, component.alignment_se, 1),
            Some(group) if group.first == j + 1 => {
                (group.alignment, None, group.last - group.first + 1)
            }
            Some(_) => (None, None, 1),
        };
        ScreeComponent {
            verdict: component.verdict,
            alignment: alignment.unwrap_or(f64::NAN),
            alignment_error,
            span,
            variance_error: estimate.variance_error(component),
        }
    };
    components.map(scree_component).collect()
}

fn alignment(estimate: &Estimate) -> AlignmentChart {
    let title = titled("How far to trust each component", estimate);
    let mut chart = AlignmentChart::new(title, components(estimate));
    chart.subtitle = Some(setting_and_groups(estimate));
    chart
}

fn loadings(estimate: &Estimate, sparse: &SparseOutcome) -> LoadingTable {
    let names = estimate.feature_names();
    let parts: Vec<Part> = parts(estimate).collect();
    let rows = sparse.support.iter().map(|&row| {
        let of_row = parts.iter();
        let of_row = of_row.map(|part| part.loadings.get(row).copied().unwrap_or(0.0));
        (
            names.get(row).cloned().unwrap_or_default(),
            of_row.collect(),
        )
    });
    let columns = parts.iter();
    let columns = columns.map(|part| format!("{}, {}", part.name, part.verdict.as_str()));
    let title = format!(
        "{} of {} features are selected",
        sparse.support.len(),
        estimate.p
    );
    let mut table = LoadingTable::new(titled(&title, estimate), columns, rows);
    let shrunk = if sparse.refit { "" } else { ", not refitted" };
    table.subtitle = Some(format!(
        "λ\u{a0}=\u{a0}{}{shrunk}, {}",
        compact(sparse.lambda),
        setting(estimate)
    ));
    table
}

fn lambda_path(estimate: &Estimate, path: &LambdaPath) -> LineChart {
    // In units of E[xxᵀ]: in the traceless matrix k directions can have a negative sum.
    let missing = estimate.k as f64 * estimate.missing_trace_per_direction();
    let most = path.max_captured_variance + missing;
    let share = move |captured: f64| match most > 0.0 {
        true => ((captured + missing) / most).clamp(0.0, 1.0),
        false => 0.0,
    };
    let mut chart = LineChart::new(
        titled("What the penalty costs", estimate),
        Axis::log("Penalty λ"),
        Axis::linear("Share"),
    );
    chart.subtitle = Some(setting(estimate));
    let points = || path.points.iter();
    chart.series = vec![
        Series::new(
            "variance captured, of that of PCA",
            points().map(|point| (point.lambda, share(point.captured_variance))),
        ),
        Series::new(
            "features selected, of p",
            points().map(|point| (point.lambda, point.support_size as f64 / estimate.p as f64)),
        ),
        Series::new(
            format!(
                "chosen: λ\u{a0}=\u{a0}{}, nearest to auto",
                compact(path.lambda_chosen)
            ),
            points()
                .filter(|point| point.lambda == path.lambda_chosen)
                .flat_map(|point| {
                    let rows = point.support_size as f64 / estimate.p as f64;
                    [share(point.captured_variance), rows].map(|y| (point.lambda, y))
                }),
        )
        .with_style(LineStyle::None)
        .with_marker(Marker::Ring),
    ];
    chart
}

/// Maximum number of features drawn as separate lines.
const MAX_ROWS: usize = 7;

/// The row norms of the features that load most along a path of λ; `None` if they are not reported.
fn lambda_rows(estimate: &Estimate, path: &LambdaPath) -> Option<LineChart> {
    let norms: Vec<(f64, &Vec<f64>)> = path
        .points
        .iter()
        .map(|point| Some((point.lambda, point.row_norms.as_ref()?)))
        .collect::<Option<_>>()?;
    let largest = |row: usize| {
        let of_row = norms.iter().filter_map(|(_, norms)| norms.get(row));
        of_row.fold(0.0_f64, |most, norm| most.max(*norm))
    };
    let mut rows: Vec<usize> = (0..estimate.p).collect();
    rows.sort_by(|&a, &b| largest(b).total_cmp(&largest(a)));
    rows.truncate(MAX_ROWS);
    let names = estimate.feature_names();
    let mut chart = LineChart::new(
        titled("Which features enter when", estimate),
        Axis::log("Penalty λ"),
        Axis::linear("Norm of the feature's loadings"),
    );
    chart.subtitle = Some(setting(estimate));
    chart.series = rows
        .into_iter()
        .map(|row| {
            let points = norms
                .iter()
                .filter_map(|(lambda, norms)| Some((*lambda, *norms.get(row)?)));
            Series::new(names[row].clone(), points)
        })
        .collect();
    Some(chart)
}
