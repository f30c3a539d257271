//! What a study can show: before its first estimate the smallest components, afterwards the expected error.

use eigenveil_estimation::{
    centring::planned_noise,
    floor::{ExpectedError, Resolution, SpectrumRange, resolution},
    format::{three_digits, with_thousands},
    metrics::max_error,
    planning::{
        DEFAULT_COMPONENTS, RANDOM, UnknownError, assumed_of_pilot, error_curve, is_guess,
        known_error, known_spectrum, spectrum_from_pilot,
    },
};
use eigenveil_figures::{
    Axis, LineChart, LineStyle, Marker, Series, expected_error, number::rounded,
};
use eigenveil_shared::{
    Error, Result,
    estimate::{ComponentCount, Estimate},
    mechanism::NoiseModel,
    study::StudyParams,
};

const POINTS: usize = 41;

/// The expected error by the newest estimate: its own, and that of other numbers of participants.
pub(super) struct Forecast {
    number: u64,
    n: u64,
    p: usize,
    k: usize,
    error: f64,
    range: (f64, f64),
    k_is_open: bool,
    /// The source of the error of other numbers.
    others: Result<(SpectrumRange, NoiseModel), UnknownError>,
    assumed: Option<&'static str>,
}

impl Forecast {
    /// By this estimate, unless it tells no error.
    pub(super) fn by(estimate: &Estimate, number: u64) -> Result<Self, UnknownError> {
        let error = known_error(estimate)?;
        let others = known_spectrum(estimate).and_then(|spectrum| {
            let range = spectrum_from_pilot(estimate, estimate.k, None);
            let range = range.map_err(|_| UnknownError::NoSpectrum)?;
            Ok((range, spectrum.noise))
        });
        Ok(Self {
            number,
            n: estimate.n,
            p: estimate.p,
            k: estimate.k,
            error,
            range: estimate.expected_error_range.unwrap_or((error, error)),
            k_is_open: estimate.k_is_open,
            others,
            assumed: assumed_of_pilot(estimate),
        })
    }

    /// "0.198"; where k is a guess its range, "0.15 to 0.27".
    pub(super) fn error(&self) -> String {
        match self.k_is_open && !is_guess(self.error, self.p, self.k) {
            true => self.range(),
            false => three_digits(self.error),
        }
    }

    fn range(&self) -> String {
        let (low, high) = self.range;
        format!("{} to {}", three_digits(low), three_digits(high))
    }

    /// A caption such as "expected error of 3 components (0.15 to 0.27; at most 2.45)".
    pub(super) fn caption(&self) -> String {
        let components = match self.k {
            1 => "1 component".to_owned(),
            k => format!("{k} components"),
        };
        let max = rounded(max_error(self.p, self.k), 4);
        if is_guess(self.error, self.p, self.k) {
            return format!("expected error of {components}, {RANDOM} (at most {max})");
        }
        match self.k_is_open {
            true => format!(
                "error of {components} (expected {}; at most {max}): k is a guess, and the upper end is the cautious number",
                three_digits(self.error)
            ),
            false => format!(
                "expected error of {components} ({}; at most {max})",
                self.range()
            ),
        }
    }

    /// The figure of a study: the expected error with its range, and the current number of reports.
    pub(super) fn progress(&self, reports: u64) -> Result<LineChart> {
        let others = self.others.as_ref();
        let (spectrum, noise) = others.map_err(|why| Error::invalid_request(why.to_string()))?;
        let range = range_around([reports.max(1_000), self.n, 1_000_000]);
        let curve = error_curve(spectrum, noise, range, POINTS)?;
        let line = |name: &str, style, of: fn(&ExpectedError) -> f64| {
            let points = curve.iter().map(|(n, error)| (*n as f64, of(error)));
            let line = Series::new(name, points).with_style(style);
            line.with_marker(Marker::None)
        };
        let lines = vec![
            line("upper end", LineStyle::Dotted, |error| error.high),
            line("expected", LineStyle::Solid, |error| error.central),
            line("lower end", LineStyle::Dotted, |error| error.low),
            Series::new(
                format!("estimate {}", self.number),
                [(self.n as f64, self.error)],
            )
            .with_style(LineStyle::None)
            .with_marker(Marker::Diamond),
        ];
        let title = "Expected error as reports arrive";
        Ok(expected_error(title, &spectrum.central, range, lines))
    }

    /// Why the error of other numbers of participants is not known; `None` if it is.
    pub(super) fn without_curve(&self) -> Option<UnknownError> {
        self.others.as_ref().err().copied()
    }

    pub(super) fn with_participants(&self, n: u64) -> Option<ExpectedError> {
        let (spectrum, noise) = self.others.as_ref().ok()?;
        spectrum.error(noise, n.max(1) as f64).ok()
    }

    /// The source of the curve, as a sentence.
    pub(super) fn source(&self) -> String {
        let source = format!(
            "By the spectrum of estimate {}, from {} reports.",
            self.number,
            with_thousands(self.n)
        );
        match self.assumed {
            Some(assumed) => format!("{source} {assumed}"),
            None => source,
        }
    }
}

/// The outlook of a study whose participants' spectrum is not known.
pub(super) struct Outlook {
    noise: NoiseModel,
    p: usize,
    k: usize,
    epsilon: f64,
}

impl Outlook {
    /// For a study that asks for so many components; `None` if it asks for all.
    pub(super) fn of(params: &StudyParams, k: ComponentCount) -> Option<Self> {
        let p = params.dimension();
        let k = match k {
            ComponentCount::Fixed(k) => k,
            ComponentCount::Auto => DEFAULT_COMPONENTS.min(p.saturating_sub(1)),
        };
        // The least noise there is with private centring: rows of mean zero.
        let noise = planned_noise(params, 1.0, 0.0).ok()?;
        (k > 0 && k < p).then(|| Self {
            noise,
            p,
            k,
            epsilon: params.budget().epsilon(),
        })
    }

    pub(super) fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The sizes for this number of participants.
    pub(super) fn with_participants(&self, n: u64) -> Option<Resolution> {
        resolution(&self.noise, (self.p, 1.0), n.max(1) as f64, self.k).ok()
    }

    /// The outlook as a paragraph.
    pub(super) fn sentences(&self, n: u64) -> Option<String> {
        let outlook = self.with_participants(n)?;
        let people = format!(
            "With {} participants and ε = {}",
            with_thousands(n),
            self.epsilon
        );
        let average = points(outlook.average);
        let features = with_thousands(self.p as u64);
        let text = if let Some(visible) = outlook.visible {
            let apart = match outlook.separable {
                Some(gap) => format!(
                    "are told apart if their shares differ by {} points",
                    points(gap)
                ),
                None => "cannot be told apart".to_owned(),
            };
            format!(
                "{people}, a direction in {features} features can show if it has {} points more of the variance than an average one ({average} %), and nearly always does if it has twice as many; components {} and {} {apart}.",
                points(visible),
                self.k,
                self.k + 1
            )
        } else {
            format!("{people}, no direction in {features} features can show.")
        };
        Some(format!(
            "{text} How large the error is depends on the participants' own spectrum: the first estimate tells."
        ))
    }
}

/// A share as points of a hundred: "1.3".
fn points(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// A cell of a table: what shows, in points; a dash where nothing can.
pub(super) fn visible_points(found: &Resolution) -> String {
    found.visible.map_or_else(|| "–".to_owned(), points)
}

/// Lines of several designs, around this number of participants.
pub(super) fn compare(outlooks: &[Outlook], n: u64) -> Option<LineChart> {
    let (from, to) = range_around([n]);
    let styles = [LineStyle::Dashed, LineStyle::Solid, LineStyle::Dotted];
    let ratio = (to as f64 / from as f64).powf(1.0 / (POINTS - 1) as f64);
    let line = |(outlook, style): (&Outlook, LineStyle)| {
        let places = (0..POINTS).map(|i| from as f64 * ratio.powi(i as i32));
        let rows = places.filter_map(|n| {
            let found = outlook.with_participants(n.round() as u64)?;
            Some((n, 100.0 * found.visible?))
        });
        Series::new(format!("ε = {}", outlook.epsilon), rows)
            .with_style(style)
            .with_marker(Marker::None)
    };
    let mut chart = LineChart::new(
        "The smallest direction that shows",
        Axis::log("participants n").between(from as f64, to as f64),
        Axis::log("points of the variance above average"),
    );
    chart.series = outlooks
        .iter()
        .zip(styles.into_iter().cycle())
        .map(line)
        .collect();
    chart.series.retain(|line| !line.points.is_empty());
    (!chart.series.is_empty()).then_some(chart)
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
    use eigenveil_shared::{
        estimate::SpectrumEstimate, mechanism::MechanismKind, privacy::Budget, study::StudyDesign,
    };

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

    /// Three components that all stand: where the rows' lengths are unknown, that is the reason, and nothing else.
    #[test]
    fn a_forecast_without_a_curve_says_why() {
        let text = include_str!("../../../figures/tests/samples/estimate.json");
        let mut estimate: Estimate = serde_json::from_str(text).unwrap();
        estimate.sparse = None;
        estimate.components.truncate(3);
        estimate.k = 3;
        estimate.spectrum = Some(SpectrumEstimate {
            standing: vec![0.55, 0.23, 0.2],
            doubtful: Vec::new(),
            excess_along_mean: Vec::new(),
            rest_count: 3,
            rest_mean: 0.005,
            rest_half_width: 0.0,
            unseen: 0.006,
            unseen_limit: 0.01,
            noise: estimate.params.rows().unwrap().noise_model(),
            selection: None,
        });
        let forecast = |estimate: &Estimate| Forecast::by(estimate, 1).ok().unwrap();
        assert_eq!(forecast(&estimate).without_curve(), None);
        assert!(forecast(&estimate).progress(2_000).is_ok());
        estimate.total_variance = None;
        let clipped = forecast(&estimate);
        assert_eq!(clipped.without_curve(), Some(UnknownError::UnknownLengths));
        let refused = clipped.progress(2_000).unwrap_err();
        assert!(
            refused.detail().contains("mean squared length"),
            "{refused}"
        );
        estimate.expected_error = None;
        let shrunk = Forecast::by(&estimate, 1).err();
        assert_eq!(shrunk, Some(UnknownError::NotRefitted));
    }

    #[test]
    fn every_study_has_an_outlook_unless_all_components_are_requested() {
        for p in [2, 3, 5, 40] {
            for k in 1..=p {
                let outlook = Outlook::of(&params(p), ComponentCount::Fixed(k));
                assert_eq!(outlook.is_some(), k < p, "p = {p}, k = {k}");
            }
            let outlook = Outlook::of(&params(p), ComponentCount::Auto).unwrap();
            let visible = |n| outlook.with_participants(n).unwrap().visible.unwrap_or(1.0);
            assert!(visible(1_000_000) < visible(1_000));
            assert!(compare(&[outlook], 5_000).is_some());
        }
        let wines = Outlook::of(&params(13), ComponentCount::Auto).unwrap();
        let paragraph = wines.sentences(20_000).unwrap();
        assert!(paragraph.starts_with("With 20,000 participants and ε = 4, a direction in 13 features can show if it has 1.3 points more of the variance than an average one (7.7 %), and nearly always does if it has twice as many; components 3 and 4 are told apart if their shares differ by 1.5 points."), "{paragraph}");
        assert!(
            wines
                .sentences(3)
                .unwrap()
                .contains("no direction in 13 features can show")
        );
    }
}
