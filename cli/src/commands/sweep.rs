//! The chart of a sweep: error over one quantity, a line for each combination of the others.

use eigenveil_estimation::format::with_thousands;
use eigenveil_figures::{Axis, LineChart, LineStyle, Marker, Series};

use eigenveil_shared::mechanism::{Calibration, MechanismKind};
use serde::Serialize;

use crate::output;

/// A quantity of a sweep: its name, and its value in a setting.
type Quantity = (&'static str, fn(&SimulateAnswer) -> f64);

const QUANTITIES: [Quantity; 5] = [
    ("participants n", |row| row.n as f64),
    ("ε", |row| row.epsilon),
    ("features p", |row| row.p as f64),
    ("components k", |row| row.k as f64),
    ("rows s", |row| row.s.map_or(0.0, |s| s as f64)),
];

/// "n = 100,000" with non-breaking spaces.
fn equals(name: &str, value: f64) -> String {
    let letter = name.rsplit(' ').next().unwrap_or(name);
    let text = if value >= 1000.0 && value.fract() == 0.0 {
        with_thousands(value as u64)
    } else {
        value.to_string()
    };
    format!("{letter}\u{a0}=\u{a0}{text}")
}

/// Error ± standard deviation and the predicted error, over the quantity with the most values.
pub(super) fn chart(rows: &[SimulateAnswer], title: Option<&str>, sparse: bool) -> LineChart {
    let values = |of: fn(&SimulateAnswer) -> f64| {
        let mut values: Vec<f64> = rows.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        values
    };
    // The first of the longest: max_by_key takes the last.
    let (x_name, x) = QUANTITIES
        .into_iter()
        .rev()
        .max_by_key(|(_, of)| values(*of).len())
        .unwrap_or(QUANTITIES[0]);
    let several = |of: fn(&SimulateAnswer) -> f64| values(of).len() > 1;
    let mut others = QUANTITIES.to_vec();
    others.retain(|(name, of)| *name != x_name && several(*of));
    let name_of = |row: &SimulateAnswer| {
        let parts = others.iter().map(|(name, of)| equals(name, of(row)));
        parts.collect::<Vec<_>>().join(", ")
    };
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        let name = name_of(row);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut series = Vec::new();
    for name in &names {
        let of: Vec<&SimulateAnswer> = rows.iter().filter(|row| name_of(row) == *name).collect();
        let points = |y: fn(&SimulateAnswer) -> Option<f64>| -> Vec<(f64, f64)> {
            let points = of.iter().filter_map(|row| Some((x(row), y(row)?)));
            points.collect()
        };
        let labelled = |what: &str| match name.as_str() {
            "" => what.to_owned(),
            name => format!("{what}, {name}"),
        };
        let measured = match name.as_str() {
            _ if sparse => labelled("sparse"),
            "" => "measured".to_owned(),
            name => name.to_owned(),
        };
        let place = series.len();
        series.push(
            Series::new(measured, points(|row| Some(row.error_mean)))
                .with_error_bars(of.iter().map(|row| row.error_sd).collect::<Vec<_>>()),
        );
        if sparse {
            series.push(
                Series::new(labelled("plain PCA"), points(|row| Some(row.pca_error)))
                    .with_style(LineStyle::Dashed)
                    .with_colour_of(place),
            );
        } else {
            series.push(
                Series::new(
                    labelled("predicted"),
                    points(|row| row.error_predicted_from_truth),
                )
                .with_style(LineStyle::Dotted)
                .with_colour_of(place)
                .with_marker(Marker::None),
            );
        }
    }
    let x_values = values(x);
    let decades = x_values.last().unwrap_or(&1.0) / x_values.first().unwrap_or(&1.0) >= 8.0;
    let x_axis = match decades {
        true if x_name == "participants n" => Axis::log(x_name),
        true => Axis::log(x_name).ticks(x_values),
        false => Axis::linear(x_name).ticks(x_values),
    };
    let subtitle = rows.first().map(|row| {
        let fixed = QUANTITIES
            .iter()
            .filter(|(name, of)| values(*of).len() == 1 && (*name != "rows s" || row.s.is_some()));
        let fixed: Vec<String> = fixed.map(|(name, of)| equals(name, of(row))).collect();
        format!(
            "{}, {}, {}; mean ± s.d. of {} runs",
            output::mechanism_text(row.mechanism, row.calibration),
            fixed.join(", "),
            match row.delta {
                0.0 => "pure".to_owned(),
                delta => format!("δ\u{a0}=\u{a0}{delta:e}"),
            },
            row.repeats
        )
    });
    let highest = rows.iter().flat_map(|row| {
        let predicted = row.error_predicted_from_truth.unwrap_or(0.0);
        [row.error_mean + row.error_sd, row.pca_error, predicted]
    });
    let highest = highest.fold(0.0, f64::max);
    // The error of an orthogonal subspace, if every setting has the same k; far above all errors it would only squeeze
    // the chart.
    let nothing_in_common = match values(|row| row.k as f64)[..] {
        [k] => Some((2.0 * k).sqrt()).filter(|&y| y <= 1.5 * highest),
        _ => None,
    };
    let top = 1.05 * nothing_in_common.unwrap_or(highest).max(highest);
    let mut chart = LineChart::new(
        title.unwrap_or("Subspace error"),
        x_axis,
        // From zero, so that differences look as large as they are.
        Axis::linear("error ‖V̂V̂ᵀ − VVᵀ‖F").between(0.0, top),
    );
    chart.subtitle = subtitle;
    chart.series = series;
    let level = nothing_in_common.map(|y| ("nothing in common".to_owned(), y));
    chart.reference_lines.extend(level);
    chart
}

/// The JSON answer; scripts rely on its keys.
#[derive(Serialize)]
pub(super) struct SimulateAnswer {
    pub(super) mechanism: MechanismKind,
    pub(super) calibration: Option<Calibration>,
    pub(super) epsilon: f64,
    pub(super) delta: f64,
    pub(super) true_epsilon: Option<f64>,
    #[serde(skip)]
    pub(super) claim_holds: bool,
    pub(super) n: u64,
    pub(super) p: usize,
    pub(super) k: usize,
    pub(super) s: Option<usize>,
    pub(super) centring: Option<f64>,
    pub(super) noise: &'static str,
    pub(super) error_mean: f64,
    pub(super) error_sd: f64,
    pub(super) error_predicted_from_truth: Option<f64>,
    pub(super) nonprivate_error: f64,
    pub(super) support_f1: Option<f64>,
    pub(super) seconds: f64,
    pub(super) repeats: usize,
    pub(super) error_predicted_from_data: f64,
    pub(super) pca_error: f64,
    pub(super) support_precision: Option<f64>,
    pub(super) support_recall: Option<f64>,
    pub(super) components_above_floor: f64,
    pub(super) converged: usize,
    pub(super) seed: u64,
}
