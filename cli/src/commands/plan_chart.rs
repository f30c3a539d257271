//! The chart of a plan: expected error against n, a line for each mechanism and ε.

use eigenveil_estimation::{floor::SpectrumRange, format::with_thousands, plan::error_curve};
use eigenveil_figures::{LineChart, LineStyle, Marker, Series, expected_error};
use eigenveil_shared::mechanism::{Calibration, MechanismKind, NoiseModel};
use serde::Serialize;

use crate::error::Result;

const POINTS: usize = 49;

/// Lines over the decades around the planned n.
pub(super) fn chart(
    rows: &[PlanRow],
    spectrum: &SpectrumRange,
    target: Option<f64>,
) -> Result<LineChart> {
    let (p, k) = (spectrum.central.dimension(), spectrum.central.rank());
    let answers = || rows.iter().filter_map(|row| row.n);
    let (least, most) = (
        answers().min().unwrap_or(1_000),
        answers().max().unwrap_or(1_000_000),
    );
    let decade = |n: f64| 10_f64.powf(n);
    let from = decade((least as f64 / 3.0).log10().floor().max(0.0)) as u64;
    let to = decade((most as f64 * 3.0).log10().ceil().min(18.0)) as u64;
    let several = rows.iter().any(|row| row.epsilon != rows[0].epsilon);
    let mut series: Vec<Series> = Vec::new();
    for row in rows {
        let mut name = row.mechanism.to_string();
        if row.calibration == Some(Calibration::AsPublished) {
            name.push_str(", as published");
        }
        if several {
            name.push_str(&format!(", ε\u{a0}=\u{a0}{}", row.epsilon));
        }
        // Several n of one setting lie on one line.
        if series.iter().any(|line| line.name == name) {
            continue;
        }
        let curve = error_curve(spectrum, &row.noise, (from, to), POINTS)?;
        let style = match (row.mechanism, row.calibration) {
            // It is nearly on the isotropic line, and both must be visible.
            (MechanismKind::DiscreteGaussian, _) => LineStyle::Dotted,
            (_, Some(Calibration::AsPublished)) => LineStyle::Dashed,
            _ => LineStyle::Solid,
        };
        series.push(
            Series::new(
                name,
                curve
                    .into_iter()
                    .map(|(n, error)| (n as f64, error.central)),
            )
            .with_style(style)
            .with_marker(Marker::None),
        );
    }
    let mut chart = expected_error("How many users?", &spectrum.central, (from, to), series);
    let mut subtitle = format!(
        "p\u{a0}=\u{a0}{}, k\u{a0}=\u{a0}{k}",
        with_thousands(p as u64)
    );
    if !several && let Some(row) = rows.first() {
        subtitle.push_str(&format!(", ε\u{a0}=\u{a0}{}", row.epsilon));
    }
    let delta = rows.iter().map(|row| row.delta).fold(0.0, f64::max);
    if delta > 0.0 {
        subtitle.push_str(&format!(", δ\u{a0}=\u{a0}{delta:e} where there is one"));
    }
    chart.subtitle = Some(subtitle);
    let target = target.map(|y| ("target".to_owned(), y));
    chart.reference_lines.extend(target);
    Ok(chart)
}

/// One row of the plan; scripts rely on its keys.
#[derive(Serialize)]
pub(super) struct PlanRow {
    pub(super) mechanism: MechanismKind,
    pub(super) epsilon: f64,
    pub(super) delta: f64,
    /// Enough participants, by the cautious end of a pilot's range; `null` where perhaps no number is.
    pub(super) n: Option<u64>,
    /// Fewer cannot be enough; with a pilot and a target error only.
    pub(super) n_at_least: Option<u64>,
    /// Expected error with `n` participants, and its range with a pilot.
    pub(super) error: Option<f64>,
    pub(super) error_range: Option<(f64, f64)>,
    pub(super) report_bytes: usize,
    pub(super) calibration: Option<Calibration>,
    pub(super) true_epsilon: Option<f64>,
    pub(super) claim_holds: bool,
    pub(super) components_above_floor: Option<usize>,
    pub(super) reason: Option<String>,
    /// Expected attempts of one report on its device; double-cap only.
    pub(super) expected_attempts: Option<f64>,
    #[serde(skip)]
    pub(super) noise: NoiseModel,
}
