//! The expected error on pages: of a study as its reports arrive, and of one being designed.

use eigenveil_estimation::{
    floor::Spectrum,
    format::with_thousands,
    plan::{
        MeanSquaredLength, PlanResult, PlanTarget, error_curve, plan, spectrum_from_eigenvalues,
        spectrum_from_pilot,
    },
};
use eigenveil_figures::{LineChart, LineStyle, Marker, Series, expected_error};
use eigenveil_shared::{
    Result,
    estimate::{ComponentCount, Estimate, Verdict},
    mechanism::NoiseModel,
    study::StudyParams,
};

/// Default share of the variance in the components.
pub(super) const DEFAULT_SHARE: f64 = 0.5;
/// Number of components assumed if the estimate chooses it.
const DEFAULT_COMPONENTS: usize = 3;
/// Points of a line.
const POINTS: usize = 41;

/// Number of components to plan for.
fn component_count(rank: ComponentCount, p: usize) -> usize {
    match rank {
        ComponentCount::Fixed(k) => k,
        ComponentCount::Auto => DEFAULT_COMPONENTS.min(p.saturating_sub(1)),
    }
}

/// The known or assumed spectrum of a population, with the noise of a report.
pub(super) struct Forecast {
    spectrum: Spectrum,
    noise: NoiseModel,
    source: String,
}

impl Forecast {
    /// Assumes that the components share this part of the variance equally, and the other directions share the rest.
    pub(super) fn assumed(params: &StudyParams, rank: ComponentCount, share: f64) -> Result<Self> {
        let p = params.dimension();
        let k = component_count(rank, p);
        let spectrum = spectrum_from_eigenvalues(
            p,
            k,
            &vec![share / k.max(1) as f64; k],
            MeanSquaredLength::UnitRows,
        )?;
        let components = if k == 1 {
            "one component holds".into()
        } else {
            format!("{k} components hold")
        };
        Ok(Self {
            spectrum,
            noise: params.noise_model(),
            source: format!(
                "assumed: {components} {} % of the variance, in equal parts",
                (share * 1_000.0).round() / 10.0
            ),
        })
    }

    /// The forecast of a study without an estimate; `None` if no error can be predicted, as when all components are
    /// requested.
    pub(super) fn for_study(params: &StudyParams, rank: ComponentCount) -> Option<Self> {
        let p = params.dimension();
        // With a share of k/p they would be no larger than the others.
        let equal_share = component_count(rank, p) as f64 / p as f64;
        let share = DEFAULT_SHARE.max(equal_share + (1.0 - equal_share) / 4.0);
        Self::assumed(params, rank, share).ok()
    }

    /// The spectrum measured by an estimate: its components above the noise floor.
    pub(super) fn measured(estimate: &Estimate, number: u64) -> Option<Self> {
        let above = estimate
            .components
            .iter()
            .take_while(|component| component.verdict == Verdict::Above)
            .count();
        Some(Self {
            spectrum: spectrum_from_pilot(estimate, above, MeanSquaredLength::Unknown).ok()?,
            noise: estimate.params.noise_model(),
            source: format!(
                "measured: plain PCA with the spectrum of estimate {number}, of which {above} components stand above the noise"
            ),
        })
    }

    /// Where the spectrum comes from.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Number of components.
    pub(super) fn rank(&self) -> usize {
        self.spectrum.rank()
    }

    /// The prediction for this number of participants.
    pub(super) fn with_participants(&self, n: u64) -> Option<PlanResult> {
        plan(
            &self.spectrum,
            &self.noise,
            PlanTarget::Participants(n.max(1)),
        )
        .ok()
    }

    /// The number of participants that an error requires.
    pub(super) fn participants_for(&self, error: f64) -> Option<PlanResult> {
        plan(&self.spectrum, &self.noise, PlanTarget::Error(error)).ok()
    }

    /// The figure of a study: the expected error, and the current number of reports.
    pub(super) fn progress(&self, reports: u64) -> Result<LineChart> {
        let range = range_around([reports.max(1_000), 1_000_000]);
        let mut lines = vec![self.line("expected", range)?];
        if reports > 0
            && let Some(error) = self
                .with_participants(reports)
                .and_then(|planned| planned.error)
        {
            let name = format!("now: {} reports", with_thousands(reports));
            lines.push(
                Series::new(name, [(reports as f64, error)])
                    .with_style(LineStyle::None)
                    .with_marker(Marker::Diamond),
            );
        }
        let title = "Expected error as reports arrive";
        let mut chart = expected_error(title, &self.spectrum, range, lines);
        chart.subtitle = Some(self.source.clone());
        Ok(chart)
    }

    /// A line over this range of participants.
    fn line(&self, name: impl Into<String>, range: (u64, u64)) -> Result<Series> {
        let curve = error_curve(&self.spectrum, &self.noise, range, POINTS)?;
        let points = curve.into_iter().map(|(n, error)| (n as f64, error));
        Ok(Series::new(name, points).with_marker(Marker::None))
    }
}

/// Lines of several designs for one population, around this number of participants.
pub(super) fn compare(forecasts: &[(String, Forecast)], n: u64) -> Result<Option<LineChart>> {
    let Some((_, first)) = forecasts.first() else {
        return Ok(None);
    };
    let range = range_around([n]);
    let styles = [LineStyle::Dashed, LineStyle::Solid, LineStyle::Dotted];
    let lines: Vec<Series> = forecasts
        .iter()
        .zip(styles.into_iter().cycle())
        .map(|((name, forecast), style)| Ok(forecast.line(name.clone(), range)?.with_style(style)))
        .collect::<Result<_>>()?;
    let mut chart = expected_error(
        "Expected error by participants",
        &first.spectrum,
        range,
        lines,
    );
    chart.subtitle = Some(first.source.clone());
    Ok(Some(chart))
}

/// Whole decades around these numbers: at least one on each side.
fn range_around(numbers: impl IntoIterator<Item = u64> + Clone) -> (u64, u64) {
    let min = numbers.clone().into_iter().min().unwrap_or(1).max(1);
    let max = numbers.into_iter().max().unwrap_or(1).min(10_u64.pow(17));
    let from = 10_u64.pow(min.ilog10().saturating_sub(1));
    (from, 10_u64.pow(max.ilog10() + 2))
}

#[cfg(test)]
mod tests {
    use eigenveil_figures::Figure;
    use eigenveil_shared::{mechanism::MechanismKind, privacy::Budget, study::StudyDesign};

    use super::*;

    fn params(dimension: usize) -> StudyParams {
        StudyParams::freeze(StudyDesign::new(
            MechanismKind::DoubleCap,
            dimension,
            Budget::pure(4.0).unwrap(),
        ))
        .unwrap()
    }

    #[test]
    fn ranges_include_their_numbers() {
        assert_eq!(range_around([50_000]), (1_000, 1_000_000));
        assert_eq!(range_around([1]), (1, 100));
        assert_eq!(range_around([1_000, 1_000_000]), (100, 100_000_000));
        range_around([u64::MAX]);
    }

    #[test]
    fn every_study_has_a_forecast_unless_all_components_are_requested() {
        for p in [2, 3, 5, 40] {
            for k in 1..=p {
                let forecast = Forecast::for_study(&params(p), ComponentCount::Fixed(k));
                assert_eq!(forecast.is_some(), k < p, "p = {p}, k = {k}");
            }
            let forecast = Forecast::for_study(&params(p), ComponentCount::Auto).unwrap();
            let error = |n| forecast.with_participants(n).unwrap().error.unwrap();
            assert!(error(1_000_000) < error(1_000));
            assert!(
                forecast
                    .progress(5_000)
                    .unwrap()
                    .to_svg()
                    .contains("now: 5,000 reports")
            );
        }
    }
}
