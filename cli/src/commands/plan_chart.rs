//! The charts of a plan: expected error against n, or what so many can show, a line for each mechanism and ε.

use eigenveil_estimation::{
    floor::{SpectrumRange, resolution},
    format::with_thousands,
    plan::{error_curve, evenly_spaced},
};
use eigenveil_figures::{Axis, LineChart, LineStyle, Marker, Series, expected_error};
use eigenveil_shared::{
    mechanism::{Calibration, MechanismKind, NoiseModel},
    study::StudyParams,
};

use crate::error::Result;

const POINTS: usize = 49;

pub(super) struct Setting {
    pub(super) mechanism: MechanismKind,
    pub(super) calibration: Calibration,
    pub(super) epsilon: f64,
    pub(super) params: StudyParams,
}

/// What a line is of, and its noise.
pub(super) type Line = (Setting, NoiseModel);

/// The decades around the planned n.
pub(super) fn decades(participants: impl IntoIterator<Item = u64>) -> (u64, u64) {
    let (mut least, mut most) = (u64::MAX, 0);
    for n in participants {
        (least, most) = (least.min(n), most.max(n));
    }
    if most == 0 {
        (least, most) = (1_000, 1_000_000);
    }
    let decade = |n: f64| 10_f64.powf(n);
    let from = decade((least as f64 / 3.0).log10().floor().max(0.0)) as u64;
    let to = decade((most as f64 * 3.0).log10().ceil().min(18.0)) as u64;
    (from, to)
}

/// The expected error of each setting over a range of n.
pub(super) fn errors(
    lines: &[Line],
    spectrum: &SpectrumRange,
    range: (u64, u64),
    target: Option<f64>,
) -> Result<LineChart> {
    let (p, k) = (spectrum.central.dimension(), spectrum.central.rank());
    let series = series(lines, |noise| {
        let curve = error_curve(spectrum, noise, range, POINTS)?.into_iter();
        Ok(curve.map(|(n, error)| (n as f64, error.central)).collect())
    })?;
    let mut chart = expected_error("How many users?", &spectrum.central, range, series);
    chart.subtitle = Some(subtitle(lines, p, Some(k)));
    let target = target.map(|y| ("target".to_owned(), y));
    chart.reference_lines.extend(target);
    Ok(chart)
}

/// The smallest component that shows in reports of each setting over a range of n; k does not matter to it.
pub(super) fn smallest_components(
    lines: &[Line],
    p: usize,
    range: (u64, u64),
) -> Result<LineChart> {
    let series = series(lines, |noise| {
        let mut points = Vec::new();
        for n in evenly_spaced(range, POINTS)? {
            let visible = resolution(noise, p, n, 1)?.visible;
            points.extend(visible.map(|visible| (n as f64, 100.0 * visible)));
        }
        Ok(points)
    })?;
    let (from, to) = range;
    let mut chart = LineChart::new(
        "How small a component shows?",
        Axis::log("participants n").between(from as f64, to as f64),
        Axis::log("% of the variance above an average direction's"),
    );
    chart.subtitle = Some(subtitle(lines, p, None));
    chart.series = series;
    Ok(chart)
}

fn series(
    lines: &[Line],
    points: impl Fn(&NoiseModel) -> Result<Vec<(f64, f64)>>,
) -> Result<Vec<Series>> {
    let several = several_epsilons(lines);
    let mut series = Vec::new();
    for (setting, noise) in lines {
        let mut name = setting.mechanism.to_string();
        if setting.calibration == Calibration::AsPublished {
            name.push_str(", as published");
        }
        if several {
            name.push_str(&format!(", ε\u{a0}=\u{a0}{}", setting.epsilon));
        }
        // --epsilon may name one twice.
        if series.iter().any(|line: &Series| line.name == name) {
            continue;
        }
        let style = match (setting.mechanism, setting.calibration) {
            // It is nearly on the isotropic line, and both must be visible.
            (MechanismKind::DiscreteGaussian, _) => LineStyle::Dotted,
            (_, Calibration::AsPublished) => LineStyle::Dashed,
            _ => LineStyle::Solid,
        };
        series.push(
            Series::new(name, points(noise)?)
                .with_style(style)
                .with_marker(Marker::None),
        );
    }
    Ok(series)
}

fn subtitle(lines: &[Line], p: usize, k: Option<usize>) -> String {
    let mut subtitle = format!("p\u{a0}=\u{a0}{}", with_thousands(p as u64));
    if let Some(k) = k {
        subtitle.push_str(&format!(", k\u{a0}=\u{a0}{k}"));
    }
    if !several_epsilons(lines)
        && let Some((setting, _)) = lines.first()
    {
        subtitle.push_str(&format!(", ε\u{a0}=\u{a0}{}", setting.epsilon));
    }
    let delta = largest_delta(lines);
    if delta > 0.0 {
        subtitle.push_str(&format!(", δ\u{a0}=\u{a0}{delta:e} where there is one"));
    }
    subtitle
}

pub(super) fn largest_delta(lines: &[Line]) -> f64 {
    let deltas = lines
        .iter()
        .map(|(setting, _)| setting.params.budget().delta());
    deltas.fold(0.0, f64::max)
}

fn several_epsilons(lines: &[Line]) -> bool {
    let mut epsilons = lines.iter().map(|(setting, _)| setting.epsilon);
    let first = epsilons.next();
    epsilons.any(|epsilon| Some(epsilon) != first)
}
