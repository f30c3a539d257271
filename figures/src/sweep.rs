//! The chart of a sweep: error over one quantity, a line for each combination of the others.

use eigenveil_estimation::{format::with_thousands, simulate::SimulateAnswer};
use eigenveil_shared::wording::mechanism_text;

use crate::{Axis, LineChart, LineStyle, Marker, Series};

/// A quantity of a sweep: its name, and its value in a setting.
type Quantity = (&'static str, fn(&SimulateAnswer) -> f64);

const QUANTITIES: [Quantity; 6] = [
    ("participants n", |row| row.n as f64),
    ("ε", |row| row.epsilon),
    ("features p", |row| row.p as f64),
    ("components k", |row| row.k as f64),
    ("rows s", |row| row.s.map_or(0.0, |s| s as f64)),
    ("sites S", |row| row.sites.map_or(0.0, |sites| sites as f64)),
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

/// The distinct values of a quantity, ascending.
fn values(rows: &[SimulateAnswer], quantity: fn(&SimulateAnswer) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = rows.iter().map(quantity).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Error ± standard deviation and the predicted error, over the quantity with the most values.
pub fn sweep_chart(rows: &[SimulateAnswer], title: Option<&str>, sparse: bool) -> LineChart {
    // The first of the longest: max_by_key takes the last.
    let (x_name, x) = QUANTITIES
        .into_iter()
        .rev()
        .max_by_key(|(_, quantity)| values(rows, *quantity).len())
        .unwrap_or(QUANTITIES[0]);
    let mut others = QUANTITIES.to_vec();
    others.retain(|(name, quantity)| *name != x_name && values(rows, *quantity).len() > 1);
    let mut lines: Vec<(String, Vec<&SimulateAnswer>)> = Vec::new();
    for row in rows {
        let parts = others
            .iter()
            .map(|(name, quantity)| equals(name, quantity(row)));
        let name = parts.collect::<Vec<_>>().join(", ");
        match lines.iter_mut().find(|(line, _)| *line == name) {
            Some((_, points)) => points.push(row),
            None => lines.push((name, vec![row])),
        }
    }
    let x_values = values(rows, x);
    let decades = x_values.last().unwrap_or(&1.0) / x_values.first().unwrap_or(&1.0) >= 8.0;
    let x_axis = match decades {
        true if x_name == "participants n" => Axis::log(x_name),
        true => Axis::log(x_name).ticks(x_values),
        false => Axis::linear(x_name).ticks(x_values),
    };
    let highest = rows.iter().flat_map(|row| {
        let predicted = row.error_predicted_from_truth.unwrap_or(0.0);
        let top = row.error_mean + row.error_sd.unwrap_or(0.0);
        [top, row.pca_error, predicted]
    });
    let highest = highest.fold(0.0, f64::max);
    // The error of an orthogonal subspace, if every setting has the same k; far above all errors it would only squeeze
    // the chart.
    let nothing_in_common = match values(rows, |row| row.k as f64)[..] {
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
    chart.subtitle = rows.first().map(|row| subtitle(rows, row));
    for (name, line) in &lines {
        let colour = chart.series.len();
        chart
            .series
            .extend(pair_of_series(name, line, x, sparse, colour));
    }
    let level = nothing_in_common.map(|y| ("nothing in common".to_owned(), y));
    chart.reference_lines.extend(level);
    chart
}

/// The measured errors of a line, and those to compare them with, in the colour of this number.
fn pair_of_series(
    name: &str,
    line: &[&SimulateAnswer],
    x: fn(&SimulateAnswer) -> f64,
    sparse: bool,
    colour: usize,
) -> [Series; 2] {
    let points = |y: fn(&SimulateAnswer) -> Option<f64>| -> Vec<(f64, f64)> {
        let points = line.iter().filter_map(|row| Some((x(row), y(row)?)));
        points.collect()
    };
    let labelled = |label: &str| match name {
        "" => label.to_owned(),
        name => format!("{label}, {name}"),
    };
    let measured = match name {
        _ if sparse => labelled("sparse"),
        "" => "measured".to_owned(),
        name => name.to_owned(),
    };
    let bars = line.iter().map(|row| row.error_sd.unwrap_or(0.0));
    let measured = Series::new(measured, points(|row| Some(row.error_mean))).with_error_bars(bars);
    let compared = match sparse {
        true => Series::new(labelled("plain PCA"), points(|row| Some(row.pca_error)))
            .with_style(LineStyle::Dashed),
        false => Series::new(
            labelled("predicted"),
            points(|row| row.error_predicted_from_truth),
        )
        .with_style(LineStyle::Dotted)
        .with_marker(Marker::None),
    };
    [measured, compared.with_colour_of(colour)]
}

/// The mechanism, and what all rows have in common with the first.
fn subtitle(rows: &[SimulateAnswer], first: &SimulateAnswer) -> String {
    let fixed = QUANTITIES.iter().filter(|(name, quantity)| {
        let has_one = match *name {
            "rows s" => first.s.is_some(),
            "sites S" => first.sites.is_some(),
            _ => true,
        };
        has_one && values(rows, *quantity).len() == 1
    });
    let fixed: Vec<String> = fixed
        .map(|(name, quantity)| equals(name, quantity(first)))
        .collect();
    let delta = match first.delta {
        0.0 => "pure".to_owned(),
        delta => format!("δ\u{a0}=\u{a0}{delta:e}"),
    };
    let runs = match first.repeats {
        1 => "one run".to_owned(),
        several => format!("mean ± s.d. of {several} runs"),
    };
    format!(
        "{}, {}, {delta}; {runs}",
        mechanism_text(first.mechanism, first.calibration),
        fixed.join(", ")
    )
}
