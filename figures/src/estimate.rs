//! Which figures an estimate has: from its document to charts, for pages and files.

use eigenveil_estimation::floor::grouped;
use eigenveil_shared::estimate::{Estimate, LambdaPath, SparseOutcome, Verdict};

use crate::{
    AlignmentChart, Axis, LineChart, LineStyle, LoadingRow, LoadingTable, Marker, NoiseFloor,
    Reference, Scree, ScreeComponent, Series, Standing, format_number,
};

/// The scree plot of an estimate with its noise floor; `without_noise` adds the non-private spectrum. Everything is in units
/// of a component's variance, an eigenvalue of `E[xxᵀ]`.
pub fn scree(estimate: &Estimate, without_noise: Option<&[f64]>) -> Scree {
    let of = match estimate.mean {
        Some(_) => " of the covariance",
        None => "",
    };
    let title = format!("Variance by component{of}, {}", estimate.name);
    let of_components = estimate.components.iter();
    let mut variances: Vec<f64> = of_components
        .map(|component| estimate.variance(component).unwrap_or(f64::NAN))
        .collect();
    variances.extend(estimate.variances.iter().skip(variances.len()));
    let mut scree = Scree::new(title, variances);
    scree.subtitle = Some(setting(estimate));
    scree.floor = estimate.floor.variance.map(|floor| NoiseFloor {
        lower: Some(floor.level),
        edge: floor.edge,
        threshold: floor.threshold,
    });
    scree.components = components(estimate);
    scree.reference = without_noise.map(|eigenvalues| Reference {
        name: "without noise (non-private)".to_owned(),
        eigenvalues: eigenvalues.to_vec(),
    });
    scree
}

/// n, mechanism and budget, for the line under a title.
fn setting(estimate: &Estimate) -> String {
    let delta = match estimate.privacy.delta {
        0.0 => "pure".to_owned(),
        delta => format!("δ\u{a0}=\u{a0}{delta:e}"),
    };
    format!(
        "n\u{a0}=\u{a0}{}, {}, ε\u{a0}=\u{a0}{}, {delta}",
        grouped(estimate.n),
        estimate.privacy.mechanism,
        estimate.privacy.epsilon,
    )
}

/// The setting, and which components cannot be told apart.
fn setting_and_groups(estimate: &Estimate) -> String {
    let mut text = setting(estimate);
    for group in &estimate.groups {
        text.push_str(&format!(
            "; {} cannot be told apart, together {}",
            group.range(),
            format_number(group.alignment)
        ));
    }
    text
}

fn components(estimate: &Estimate) -> Vec<ScreeComponent> {
    let of = |component: &eigenveil_shared::estimate::Component| ScreeComponent {
        verdict: match component.verdict {
            Verdict::Above => Standing::Above,
            Verdict::At => Standing::At,
            Verdict::Below => Standing::Below,
        },
        alignment: Some(component.alignment()),
        alignment_error: component.alignment_se(),
        standard_error: component.variance_se,
    };
    estimate.components.iter().map(of).collect()
}

/// How well each component is expected to be recovered.
pub fn alignment(estimate: &Estimate) -> AlignmentChart {
    let title = format!("How far to trust each component, {}", estimate.name);
    let mut chart = AlignmentChart::new(title, components(estimate));
    chart.subtitle = Some(setting_and_groups(estimate));
    chart
}

/// The selected features of a sparse estimate and their loadings.
pub fn loadings(estimate: &Estimate, sparse: &SparseOutcome) -> LoadingTable {
    let names = estimate.feature_names();
    let rows = sparse.support.iter().map(|&row| LoadingRow {
        name: names.get(row).cloned().unwrap_or_default(),
        loadings: estimate
            .components
            .iter()
            .map(|component| component.loadings.get(row).copied().unwrap_or(0.0))
            .collect(),
    });
    let columns = estimate.components.iter().enumerate();
    let columns = columns.map(|(j, c)| format!("component {}, {}", j + 1, c.verdict.as_str()));
    let title = format!(
        "{} of {} features are selected, {}",
        sparse.support.len(),
        estimate.p,
        estimate.name
    );
    let mut table = LoadingTable::new(title, columns, rows);
    let refit = if sparse.refit { ", refitted" } else { "" };
    table.subtitle = Some(format!(
        "λ\u{a0}=\u{a0}{}{refit}, {}",
        format_number(sparse.lambda),
        setting(estimate)
    ));
    table
}

/// Variance captured and rows selected along a path of λ.
pub fn lambda_path(estimate: &Estimate, path: &LambdaPath) -> LineChart {
    // In units of E[xxᵀ]: k directions of a moment without a trace can have a negative sum.
    let missing = estimate.k as f64 * estimate.missing_trace();
    let most = path.most_variance + missing;
    let share = move |captured: f64| match most > 0.0 {
        true => ((captured + missing) / most).clamp(0.0, 1.0),
        false => 0.0,
    };
    let mut chart = LineChart::new(
        format!("What the penalty costs, {}", estimate.name),
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
            "rows selected, of p",
            points().map(|point| (point.lambda, point.support as f64 / estimate.p as f64)),
        ),
        Series::new(
            format!(
                "chosen: λ\u{a0}=\u{a0}{}, nearest to auto",
                format_number(path.chosen)
            ),
            points()
                .filter(|point| point.lambda == path.chosen)
                .flat_map(|point| {
                    let rows = point.support as f64 / estimate.p as f64;
                    [share(point.captured_variance), rows].map(|y| (point.lambda, y))
                }),
        )
        .with_style(LineStyle::None)
        .with_marker(Marker::Ring),
    ];
    chart
}

/// Most features drawn as lines of their own.
const MOST_ROWS: usize = 7;

/// The row norms of the features that load most along a path of λ; `None` where they are not told.
pub fn lambda_rows(estimate: &Estimate, path: &LambdaPath) -> Option<LineChart> {
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
    rows.truncate(MOST_ROWS);
    let names = estimate.feature_names();
    let mut chart = LineChart::new(
        format!("Which features enter when, {}", estimate.name),
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
