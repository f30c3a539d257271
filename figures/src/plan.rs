//! The figures of a plan.

use eigenveil_estimation::{
    floor::Spectrum,
    format::with_thousands,
    metrics::max_error,
    planning::{ErrorPlan, PlanAnswer, PlanSetting, SizePlan, evenly_spaced},
};
use eigenveil_shared::{
    Result,
    mechanism::{Calibration, MechanismKind},
};

use crate::{Axis, LineChart, LineStyle, Marker, Series};

const POINTS: usize = 49;

/// The expected error against the number of participants, for a population with this spectrum.
pub fn expected_error(
    title: &str,
    spectrum: &Spectrum,
    (from, to): (u64, u64),
    lines: Vec<Series>,
) -> LineChart {
    let largest = max_error(spectrum.dimension(), spectrum.rank());
    let mut chart = LineChart::new(
        title,
        Axis::log("participants n").between(from as f64, to as f64),
        // The axis starts at zero, so that differences are not exaggerated.
        Axis::linear("expected error ‖V̂V̂ᵀ − VVᵀ‖F").between(0.0, 1.05 * largest),
    );
    chart.series = lines;
    chart.reference_lines = vec![("nothing in common".to_owned(), largest)];
    chart
}

/// The chart of a plan, with a line for each mechanism and ε: the expected error against n, or the smallest component
/// that n participants can show.
///
/// # Errors
/// Those of [`plan`](eigenveil_estimation::planning::plan()) at other numbers of participants.
pub fn plan_chart(plan: &PlanAnswer) -> Result<LineChart> {
    match plan {
        PlanAnswer::Errors(plan) => errors(plan),
        PlanAnswer::Sizes(plan) => smallest_components(plan),
    }
}

/// The decades around the planned n.
fn decades(participants: impl IntoIterator<Item = u64>) -> (u64, u64) {
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
fn errors(plan: &ErrorPlan) -> Result<LineChart> {
    let spectrum = &plan.spectrum;
    let (p, k) = (spectrum.central.dimension(), spectrum.central.rank());
    let rows = plan.rows.iter();
    let range = decades(rows.flat_map(|row| [row.n, row.n_at_least]).flatten());
    let settings: Vec<_> = plan.rows.iter().map(|row| &row.setting).collect();
    let has_range = !spectrum.is_known();
    let series = series(&settings, |name, setting| {
        let places = evenly_spaced(range, POINTS)?.into_iter();
        let curve = places.map(|n| Ok((n, setting.error(spectrum, n)?)));
        let curve = curve.collect::<Result<Vec<_>>>()?;
        // The end by which the plan counts: the line crosses the target where the plan says.
        let cautious = curve.iter().map(|(n, error)| (*n as f64, error.high));
        let line = Series::new(name, cautious);
        let ends = curve.iter().map(|(_, error)| (error.low, error.high));
        Ok(match has_range {
            true => line.with_ranges(ends),
            false => line,
        })
    })?;
    let title = match has_sites(&settings) {
        true => "One row each, sites, or a curator?",
        false => "How many users?",
    };
    let mut chart = expected_error(title, &spectrum.central, range, series);
    chart.x = numbers(&settings, range);
    let mut subtitle = subtitle(&settings, p, Some(k));
    if has_range {
        subtitle.push_str("; lines: the cautious end, by which the plan counts; shaded: the range");
    }
    chart.subtitle = Some(subtitle);
    let target = plan.target_error.map(|y| ("target".to_owned(), y));
    chart.reference_lines.extend(target);
    Ok(chart)
}

/// The smallest visible component for each setting over a range of n; it does not depend on k.
fn smallest_components(plan: &SizePlan) -> Result<LineChart> {
    let range = decades(plan.rows.iter().map(|row| row.n));
    let settings: Vec<_> = plan.rows.iter().map(|row| &row.setting).collect();
    let series = series(&settings, |name, setting| {
        let mut points = Vec::new();
        for n in evenly_spaced(range, POINTS)? {
            let resolved = setting.resolution((plan.p, plan.total_variance), n, 1)?;
            let visible = resolved.visible;
            points.extend(visible.map(|visible| (n as f64, 100.0 * visible)));
        }
        Ok(Series::new(name, points))
    })?;
    let mut chart = LineChart::new(
        "How small a component shows?",
        numbers(&settings, range),
        Axis::log("% of the variance above an average direction's"),
    );
    chart.subtitle = Some(subtitle(&settings, plan.p, None));
    chart.series = series;
    Ok(chart)
}

fn series(
    settings: &[&PlanSetting],
    line: impl Fn(String, &PlanSetting) -> Result<Series>,
) -> Result<Vec<Series>> {
    let several = several_epsilons(settings);
    let has_sites = has_sites(settings);
    let mut series = Vec::new();
    for setting in settings {
        let is_published = setting.calibration == Some(Calibration::AsPublished);
        let mut name = match setting.sites {
            None if has_sites => format!("one row each, {}", setting.mechanism),
            None => setting.mechanism.to_string(),
            Some(1) => format!("a curator, {}", setting.mechanism),
            Some(sites) => format!("{} sites, {}", with_thousands(sites), setting.mechanism),
        };
        if is_published {
            name.push_str(", as published");
        }
        if several {
            name.push_str(&format!(", ε\u{a0}=\u{a0}{}", setting.epsilon));
        }
        // The setting has a row for each n, but one line.
        if series.iter().any(|line: &Series| line.name == name) {
            continue;
        }
        let style = match setting.mechanism {
            _ if setting.sites == Some(1) => LineStyle::Dotted,
            _ if setting.sites.is_some() => LineStyle::Solid,
            _ if has_sites => LineStyle::Dashed,
            // This line nearly coincides with the isotropic one, and both must be visible.
            MechanismKind::DiscreteGaussian => LineStyle::Dotted,
            _ if is_published => LineStyle::Dashed,
            _ => LineStyle::Solid,
        };
        let line = line(name, setting)?;
        series.push(line.with_style(style).with_marker(Marker::None));
    }
    Ok(series)
}

fn subtitle(settings: &[&PlanSetting], p: usize, k: Option<usize>) -> String {
    let mut subtitle = format!("p\u{a0}=\u{a0}{}", with_thousands(p as u64));
    if let Some(k) = k {
        subtitle.push_str(&format!(", k\u{a0}=\u{a0}{k}"));
    }
    if !several_epsilons(settings)
        && let Some(setting) = settings.first()
    {
        subtitle.push_str(&format!(", ε\u{a0}=\u{a0}{}", setting.epsilon));
    }
    let deltas = settings.iter().map(|setting| setting.delta);
    let delta = deltas.fold(0.0, f64::max);
    if delta > 0.0 {
        subtitle.push_str(&format!(", δ\u{a0}=\u{a0}{delta:e} where there is one"));
    }
    subtitle
}

/// Whether the plan is of tables of sites, too.
fn has_sites(settings: &[&PlanSetting]) -> bool {
    settings.iter().any(|setting| setting.sites.is_some())
}

/// The numbers that a plan goes over.
fn numbers(settings: &[&PlanSetting], (from, to): (u64, u64)) -> Axis {
    let label = match has_sites(settings) {
        true => "rows of all together",
        false => "participants n",
    };
    Axis::log(label).between(from as f64, to as f64)
}

fn several_epsilons(settings: &[&PlanSetting]) -> bool {
    let mut epsilons = settings.iter().map(|setting| setting.epsilon);
    let first = epsilons.next();
    epsilons.any(|epsilon| Some(epsilon) != first)
}

#[cfg(test)]
mod tests {
    use eigenveil_estimation::{Cancel, planning::plan};

    use super::*;
    use crate::Figure as _;

    /// The line crosses the target where the plan says, between two points of it, and the lower end where it says that
    /// fewer cannot be enough.
    #[test]
    fn the_chart_counts_as_the_plan_does() {
        let request = serde_json::json!({
            "p": 40, "k": 2, "spectrum": [0.3, 0.2, 0.05], "epsilon": [4.0], "target_error": 0.3,
            "mechanism": ["double-cap"],
        });
        let request = serde_json::from_value(request).unwrap();
        let (answer, _) = plan(&request, None, Cancel::NEVER).unwrap();
        let PlanAnswer::Errors(planned) = &answer else {
            panic!("{answer:?}");
        };
        let row = &planned.rows[0];
        let chart = plan_chart(&answer).unwrap();
        let line = &chart.series[0];
        let crosses = |of: &dyn Fn(usize) -> f64, n: Option<u64>| {
            let n = n.unwrap() as f64;
            let after = (0..line.points.len()).find(|&i| of(i) <= 0.3).unwrap();
            line.points[after - 1].0 < n && n <= line.points[after].0
        };
        let ends = line.ranges.as_ref().unwrap();
        assert!(crosses(&|i| line.points[i].1, row.n), "{row:?} {line:?}");
        assert!(crosses(&|i| ends[i].0, row.n_at_least), "{row:?} {line:?}");
        let table = chart.to_table();
        assert_eq!(table.headers.len(), 5);
        assert!(table.rows.iter().all(|row| row.len() == 5));
    }
}
