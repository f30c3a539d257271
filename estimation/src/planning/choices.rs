//! The effect of `normalize`, `clip` and private centring on a study of rows like these.

use std::{fmt, num::NonZeroU64};

use eigenveil_shared::{
    Result,
    mechanism::MechanismKind,
    preprocess::{
        DEFAULT_CENTRING, DOMINANT_MEAN_SHARE, Feature, Norm, Preprocessing, dominant_column_share,
    },
    privacy::Budget,
    study::{StudyDesign, StudyParams},
    word,
    wording::percent,
};
use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};

use super::{
    columns::rounded,
    correlations::{CorrelationOutlook, outlook},
    moments::{Moments, moments},
    sample::{PublicRows, Sample},
    target::{PlanTarget, meet, reject},
};
use crate::{
    Cancel,
    centring::planned_noise,
    floor::{Spectrum, SpectrumRange},
};

/// Quantiles of the rows' lengths that are tried as radius of `clip`.
const QUANTILES: [f64; 3] = [0.5, 0.9, 1.0];
/// Largest number of eigenvalues that are given.
const MAX_EIGENVALUES: usize = 100;
/// Their smallest difference is the inverse of this: a plan takes them as those of rows in the unit ball to 1e-6.
const ROUNDING: f64 = 1e7;

/// The study that public rows are prepared for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrepareRequest {
    /// Components wanted.
    pub k: usize,
    /// Participants expected.
    pub n: NonZeroU64,
    /// ε of one report.
    pub epsilon: f64,
    /// The mechanism.
    #[serde(default, deserialize_with = "word")]
    pub mechanism: MechanismKind,
    /// δ of one report; the mechanism's default without.
    pub delta: Option<f64>,
}

/// One way to prepare rows and the error to expect; shown as that way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Whether the centers and scales are used.
    pub uses_centers_and_scales: bool,
    /// How rows are brought into the unit ball.
    pub norm: Norm,
    /// Constant of private centring.
    pub centring: Option<f64>,
    /// Features.
    pub p: usize,
    /// Components.
    pub k: usize,
    /// Expected ‖V̂V̂ᵀ−VVᵀ‖_F, V of rows prepared this way.
    pub error: f64,
    /// Standard error of `error` over few public rows (jackknife).
    pub error_se: Option<f64>,
    /// Components expected above the noise floor, of k.
    pub components_above_floor: usize,
    /// `‖E x‖²/E‖x‖²` of the prepared rows; what centring removes.
    pub squared_mean_over_squared_length: f64,
    /// Set if the first component is mostly one column or the mean.
    pub warning: Option<String>,
    /// The spectrum for a plan with the same figures: the leading eigenvalues of `E[xxᵀ]`, or with private centring of the
    /// covariance, rounded down; all p of few.
    pub spectrum: Vec<f64>,
    /// E‖x‖² of the prepared rows.
    pub mean_squared_length: f64,
    /// ‖E x‖ of the prepared rows.
    pub mean_length: f64,
    /// The correlations to expect; `null` where the reports show none, where cells are missing and for many features.
    pub correlations: Option<CorrelationOutlook>,
}

impl Choice {
    /// Whether it uses the centers and scales and its first component is neither the mean nor one column.
    pub(super) fn is_candidate(&self) -> bool {
        self.uses_centers_and_scales && self.warning.is_none()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = match self.uses_centers_and_scales {
            true => "prepared",
            false => "as they are",
        };
        let norm = match self.norm {
            Norm::Normalize => "normalize".to_owned(),
            Norm::Clip { radius } => format!("clip at {radius}"),
            Norm::Require { radius } => format!("require {radius}"),
        };
        let centring = self.centring.map_or("", |_| ", centring");
        f.pad(&format!("{before}, {norm}{centring}"))
    }
}

/// One way to prepare rows.
struct Way<'a> {
    uses_centers_and_scales: bool,
    features: &'a [Feature],
    norm: Norm,
    centring: Option<f64>,
}

impl Way<'_> {
    /// The study that prepares rows so.
    fn params(&self, mechanism: MechanismKind, budget: Budget) -> Result<StudyParams> {
        StudyParams::freeze(StudyDesign {
            features: Some(self.features.to_vec()),
            norm: self.norm,
            centring: self.centring,
            ..StudyDesign::new(mechanism, self.features.len(), budget)
        })
    }
}

/// Every way to prepare the rows with these features, or with their names alone, and what a study would get; `values`
/// are the correlations of the values.
pub(super) fn choices(
    rows: &PublicRows<'_>,
    (features, values): (&[Feature], Option<&DMatrix<f64>>),
    request: &PrepareRequest,
    progress: &mut dyn FnMut(u64, u64),
    cancel: Cancel<'_>,
) -> Result<Vec<Choice>> {
    let budget = request.mechanism.budget(request.epsilon, request.delta)?;
    let p = features.len();
    if !(1..p).contains(&request.k) {
        return reject(format!(
            "`k` is {}; it must be between 1 and p − 1 = {}",
            request.k,
            p.saturating_sub(1)
        ));
    }
    let named = features.iter().map(|feature| Feature {
        center: 0.0,
        scale: 1.0,
        ..feature.clone()
    });
    let named: Vec<Feature> = named.collect();
    let ways = ways(rows, [named.as_slice(), features]);
    let total = ways.len() as u64;
    progress(0, total);
    let mut all: Vec<Choice> = Vec::new();
    let mut last: Option<(Norm, bool, Sample)> = None;
    for (done, way) in (1..).zip(&ways) {
        // With missing cells some ways are no study: the reports would not show what they are divided by.
        let params = match way.params(request.mechanism, budget) {
            Err(_) if features[0].observed.is_some() && way.norm != Norm::Normalize => continue,
            params => params?,
        };
        let key = (way.norm, way.uses_centers_and_scales);
        let sample = match last.take() {
            Some((norm, prepared, sample)) if (norm, prepared) == key => sample,
            _ => rows.prepared(&Preprocessing {
                features: Some(way.features.to_vec()),
                ..Preprocessing::new(p, way.norm)
            })?,
        };
        let choice = choice(&sample, &params, way, request, cancel)?;
        let correlations = match values {
            Some(values) => outlook(&sample, &params, values, request.n.get())?,
            None => None,
        };
        all.push(Choice {
            error_se: jackknife(&sample, |rest| {
                Ok(self::choice(rest, &params, way, request, cancel)?.error)
            }),
            correlations,
            ..choice
        });
        // A jackknife that was stopped is not one of rows without a statistic.
        cancel.check()?;
        last = Some((way.norm, way.uses_centers_and_scales, sample));
        progress(done, total);
    }
    Ok(all)
}

/// The norms with radii that these rows suggest, with and without private centring, for the features as they come and
/// for the prepared ones.
fn ways<'a>(rows: &PublicRows<'_>, [named, prepared]: [&'a [Feature]; 2]) -> Vec<Way<'a>> {
    let mut ways = Vec::new();
    for (uses_centers_and_scales, features) in [(false, named), (true, prepared)] {
        let clips = radii(rows, features).into_iter();
        let clips = clips.map(|radius| Norm::Clip { radius });
        for norm in std::iter::once(Norm::Normalize).chain(clips) {
            ways.extend([None, Some(DEFAULT_CENTRING)].map(|centring| Way {
                uses_centers_and_scales,
                features,
                norm,
                centring,
            }));
        }
    }
    ways
}

/// The jackknife's standard error of a statistic of few people's rows: √((n − 1)/n·Σ(tᵢ − t̄)²), tᵢ without person i
/// (Efron & Stein 1981, The jackknife estimate of variance). None for many people, and where a part of them has no
/// statistic.
fn jackknife(sample: &Sample, statistic: impl Fn(&Sample) -> Result<f64>) -> Option<f64> {
    let n = sample.people();
    if !(3..=MAX_FEW_ROWS).contains(&n) {
        return None;
    }
    let without = (0..n).map(|left_out| statistic(&sample.without(left_out)).ok());
    let without = without.collect::<Option<Vec<f64>>>()?;
    let mean = without.iter().sum::<f64>() / n as f64;
    let squares: f64 = without.iter().map(|t| (t - mean).powi(2)).sum();
    Some(((n as f64 - 1.0) / n as f64 * squares).sqrt())
}

/// Distinct quantiles of the lengths of rows prepared with these constants.
fn radii(rows: &PublicRows<'_>, features: &[Feature]) -> Vec<f64> {
    let lengths = rows.lengths(features);
    let total: f64 = lengths.iter().map(|(_, weight)| weight).sum();
    // The first length up to which rows with this share of all are as long or shorter.
    let quantile = |share: f64| {
        let mut below = 0.0;
        let mut lengths = lengths.iter().filter(|(_, weight)| {
            below += weight;
            below >= share * total * (1.0 - 1e-9)
        });
        lengths.next().map_or(0.0, |(length, _)| *length)
    };
    let radii = QUANTILES.iter().map(|&share| rounded(quantile(share)));
    let mut radii: Vec<f64> = radii.filter(|radius| *radius > 0.0).collect();
    radii.dedup();
    radii
}

fn choice(
    sample: &Sample,
    params: &StudyParams,
    way: &Way<'_>,
    request: &PrepareRequest,
    cancel: Cancel<'_>,
) -> Result<Choice> {
    let p = params.dimension();
    let centring = params.preprocessing().centring;
    let Moments {
        squared_mean,
        values,
        along,
        first,
    } = moments(sample, params, cancel)?;
    let mut spectrum = Spectrum::from_eigenvalues(&values, request.k)?;
    let mut total = spectrum.total();
    if let Some(a) = centring {
        let excess = along.iter().map(|m| (m / a).powi(2));
        spectrum = spectrum.with_excess_along_mean(excess.collect())?;
        total += squared_mean;
    }
    let mean_share = match total > 0.0 {
        true => squared_mean / total,
        false => 0.0,
    };
    // Dividing by what missing cells took may give a little more than rows in the unit ball have.
    let mean_length = squared_mean.min(1.0).sqrt();
    let most = 1.0 - centring.map_or(0.0, |_| mean_length * mean_length);
    let noise = planned_noise(params, spectrum.total().min(most), mean_length)?;
    let target = PlanTarget::Participants(request.n.get());
    let planned = meet(&SpectrumRange::known(spectrum), &noise, target)?;
    let weights = first.iter().map(|x| x * x).enumerate();
    let (column, weight) = weights
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .unwrap_or_default();
    let along = along[0].powi(2);
    let warning = if centring.is_none() && along > DOMINANT_MEAN_SHARE * values[0] {
        let share = percent(along / values[0]);
        Some(format!("the mean ({share} of its variance)"))
    } else if weight > dominant_column_share(p) {
        let name = &way.features[column].name;
        Some(format!("{} of it is {name:?}", percent(weight)))
    } else {
        None
    };
    // Rounded down, all of them add up to no more than the total.
    let down = |x: f64| (x * ROUNDING).floor() / ROUNDING;
    let leading = values.iter().take(MAX_EIGENVALUES);
    Ok(Choice {
        uses_centers_and_scales: way.uses_centers_and_scales,
        norm: way.norm,
        centring,
        p,
        k: request.k,
        error: planned.error.map_or(f64::INFINITY, |error| error.central),
        error_se: None,
        components_above_floor: planned.components_above.unwrap_or(0),
        squared_mean_over_squared_length: mean_share,
        warning,
        spectrum: leading.map(|&value| down(value)).collect(),
        mean_squared_length: ((total * ROUNDING).ceil() / ROUNDING).min(1.0),
        mean_length: down(mean_length),
        correlations: None,
    })
}

/// Up to this many people are called few: a center is then known to a fifth of its scale, or worse.
pub(super) const MAX_FEW_ROWS: usize = 25;
