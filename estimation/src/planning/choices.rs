//! The effect of `normalize`, `clip` and private centring on a study of rows like these.

use std::{fmt, num::NonZeroU64};

use eigenveil_shared::{
    Result,
    mechanism::MechanismKind,
    preprocess::{
        DEFAULT_CENTRING, DOMINANT_MEAN_SHARE, Feature, Norm, Preprocessing, dominant_column_share,
    },
    study::{StudyDesign, StudyParams},
    word,
    wording::percent,
};
use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

use super::{
    columns::rounded,
    target::{PlanTarget, meet, reject},
};
use crate::{
    Cancel, Table,
    centring::planned_noise,
    floor::{Spectrum, SpectrumRange},
    linalg::{GramSum, packed_to_dense, symmetric_eigen},
};

/// Quantiles of the rows' lengths that are tried as radius of `clip`.
const QUANTILES: [f64; 3] = [0.5, 0.9, 1.0];

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

pub(super) fn choices(
    table: Table<'_>,
    features: &[Feature],
    request: &PrepareRequest,
    progress: &mut dyn FnMut(u64, u64),
    cancel: Cancel<'_>,
) -> Result<Vec<Choice>> {
    let budget = request.mechanism.budget(request.epsilon, request.delta)?;
    let p = table.columns;
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
    let mut ways = Vec::new();
    for (prepared, features) in [(false, named.as_slice()), (true, features)] {
        let radii = radii(table, features).into_iter();
        let norms =
            std::iter::once(Norm::Normalize).chain(radii.map(|radius| Norm::Clip { radius }));
        ways.extend(norms.map(|norm| (prepared, features, norm)));
    }
    let centrings = [None, Some(DEFAULT_CENTRING)];
    let total = (ways.len() * centrings.len()) as u64;
    progress(0, total);
    let mut all = Vec::new();
    for (prepared, features, norm) in ways {
        let rows = prepared_rows(table, features, norm)?;
        for centring in centrings {
            let params = StudyParams::freeze(StudyDesign {
                features: Some(features.to_vec()),
                norm,
                centring,
                ..StudyDesign::new(request.mechanism, p, budget)
            })?;
            let choice = choice(&rows, &params, features, prepared, request, cancel)?;
            all.push(Choice {
                error_se: jackknife(&rows, |rest| {
                    Ok(self::choice(rest, &params, features, prepared, request, cancel)?.error)
                }),
                ..choice
            });
            // A jackknife that was stopped is not one of rows without a statistic.
            cancel.check()?;
            progress(all.len() as u64, total);
        }
    }
    Ok(all)
}

/// The jackknife's standard error of a statistic of few rows: √((n − 1)/n·Σ(tᵢ − t̄)²), tᵢ without row i (Efron & Stein
/// 1981, The jackknife estimate of variance). None for many rows, and where a part of them has no statistic.
fn jackknife(rows: &[Vec<f64>], statistic: impl Fn(&[Vec<f64>]) -> Result<f64>) -> Option<f64> {
    let n = rows.len();
    if !(3..=MAX_FEW_ROWS).contains(&n) {
        return None;
    }
    let without = (0..n).map(|left_out| {
        let mut rest = rows.to_vec();
        rest.remove(left_out);
        statistic(&rest).ok()
    });
    let without = without.collect::<Option<Vec<f64>>>()?;
    let mean = without.iter().sum::<f64>() / n as f64;
    let squares: f64 = without.iter().map(|t| (t - mean).powi(2)).sum();
    Some(((n as f64 - 1.0) / n as f64 * squares).sqrt())
}

/// Distinct quantiles of the lengths of rows prepared with these constants.
fn radii(table: Table<'_>, features: &[Feature]) -> Vec<f64> {
    let lengths = (0..table.len).map(|index| {
        let row = (table.row)(index);
        let entries = row.values().iter().zip(features);
        let squares = entries.map(|(x, f)| ((x - f.center) / f.scale).powi(2));
        squares.sum::<f64>().sqrt()
    });
    let mut lengths: Vec<f64> = lengths.collect();
    lengths.sort_by(f64::total_cmp);
    let place = |q: f64| ((lengths.len() - 1) as f64 * q).round() as usize;
    let radii = QUANTILES.iter().map(|&q| rounded(lengths[place(q)]));
    let mut radii: Vec<f64> = radii.filter(|radius| *radius > 0.0).collect();
    radii.dedup();
    radii
}

fn prepared_rows(table: Table<'_>, features: &[Feature], norm: Norm) -> Result<Vec<Vec<f64>>> {
    let preprocessing = Preprocessing {
        features: Some(features.to_vec()),
        ..Preprocessing::new(table.columns, norm)
    };
    let preprocessor = preprocessing.preprocessor()?;
    let prepared = (0..table.len).map(|index| {
        let row = preprocessor.prepare_features_nth(index, &(table.row)(index))?;
        Ok(row.as_slice().to_vec())
    });
    prepared.collect()
}

fn choice(
    rows: &[Vec<f64>],
    params: &StudyParams,
    features: &[Feature],
    prepared: bool,
    request: &PrepareRequest,
    cancel: Cancel<'_>,
) -> Result<Choice> {
    let p = features.len();
    let centring = params.preprocessing().centring;
    let Moments {
        squared_mean,
        values,
        along,
        first,
    } = moments(rows, p, centring.is_some(), cancel)?;
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
    let noise = planned_noise(params, spectrum.total(), squared_mean.sqrt())?;
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
        let name = &features[column].name;
        Some(format!("{} of it is {name:?}", percent(weight)))
    } else {
        None
    };
    Ok(Choice {
        uses_centers_and_scales: prepared,
        norm: params.preprocessing().norm,
        centring,
        k: request.k,
        error: planned.error.map_or(f64::INFINITY, |error| error.central),
        error_se: None,
        components_above_floor: planned.components_above.unwrap_or(0),
        squared_mean_over_squared_length: mean_share,
        warning,
    })
}

/// The eigenvectors of the second moment of rows, around their mean or around 0.
struct Moments {
    /// Squared length of the mean.
    squared_mean: f64,
    /// The p eigenvalues, descending.
    values: Vec<f64>,
    /// The mean's coordinate along each eigenvector.
    along: Vec<f64>,
    /// The first eigenvector.
    first: DVector<f64>,
}

fn moments(rows: &[Vec<f64>], p: usize, around_mean: bool, cancel: Cancel<'_>) -> Result<Moments> {
    let weight = 1.0 / rows.len() as f64;
    let mut mean = DVector::<f64>::zeros(p);
    for row in rows {
        mean += weight * DVector::from_column_slice(row);
    }
    // The moment is the sum of yyᵀ over these vectors. The mean is removed before rows are multiplied: a large one would
    // leave nothing but rounding of the rest.
    let centred = rows
        .iter()
        .map(|row| weight.sqrt() * (DVector::from_column_slice(row) - &mean));
    let vectors = centred.chain((!around_mean).then(|| mean.clone()));
    let count = rows.len() + usize::from(!around_mean);
    let squared_mean = mean.norm_squared();
    if count >= p {
        let mut sum = GramSum::<f64>::new(p);
        for vector in vectors {
            cancel.check()?;
            sum.add(vector.as_slice(), 1.0);
        }
        let eigen = symmetric_eigen(&packed_to_dense(&sum.finish()))?;
        return Ok(Moments {
            squared_mean,
            // Rounding can leave a zero slightly negative.
            values: eigen.values.iter().map(|x| x.max(0.0)).collect(),
            along: eigen.vectors.tr_mul(&mean).as_slice().to_vec(),
            first: eigen.vectors.column(0).into_owned(),
        });
    }
    // The products of fewer vectors than columns, yᵢ·yⱼ, have the same eigenvalues, and p² numbers are never there.
    let table = DMatrix::from_columns(&vectors.collect::<Vec<_>>()).transpose();
    let mut sum = GramSum::<f64>::new(count);
    for column in 0..p {
        cancel.check()?;
        sum.add(table.column(column).as_slice(), 1.0);
    }
    let eigen = symmetric_eigen(&packed_to_dense(&sum.finish()))?;
    let rounding = eigen.values[0] * count as f64 * f64::EPSILON;
    let rank = eigen
        .values
        .iter()
        .filter(|value| **value > rounding)
        .count();
    let projected = &table * &mean;
    let (mut values, mut along) = (vec![0.0; p], vec![0.0; p]);
    for (j, &value) in eigen.values.iter().take(rank).enumerate() {
        values[j] = value;
        along[j] = eigen.vectors.column(j).dot(&projected) / value.sqrt();
    }
    // All of the other eigenvalues are 0; the rest of the mean lies along one of their eigenvectors.
    let rest = squared_mean - along.iter().map(|m| m * m).sum::<f64>();
    along[rank] = rest.max(0.0).sqrt();
    let length = values[0].sqrt().max(f64::MIN_POSITIVE);
    Ok(Moments {
        squared_mean,
        values,
        along,
        first: table.tr_mul(&eigen.vectors.column(0)) / length,
    })
}

/// Up to this many public rows are called few: a center is then known to a fifth of its scale, or worse.
pub(super) const MAX_FEW_ROWS: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row twice is the same population, whose p × p moment is decomposed.
    #[test]
    fn few_rows_have_the_moments_of_their_copies() {
        let (n, p) = (7, 12);
        let entry = |i: usize, j: usize| ((i * 31 + j * 17 + i * i * j) % 13) as f64 / 13.0 - 0.3;
        let row = |i: usize| (0..p).map(|j| entry(i, j)).collect::<Vec<_>>();
        let few: Vec<Vec<f64>> = (0..n).map(row).collect();
        let many = [few.clone(), few.clone()].concat();
        for around_mean in [false, true] {
            let few = moments(&few, p, around_mean, Cancel::NEVER).unwrap();
            let many = moments(&many, p, around_mean, Cancel::NEVER).unwrap();
            let rank = if around_mean { n - 1 } else { n };
            assert_eq!((few.values.len(), few.along.len()), (p, p));
            assert!(few.values[rank - 1] > 1e-6 && few.values[rank..].iter().all(|x| *x == 0.0));
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-10, "{a} {b}");
            close(few.squared_mean, many.squared_mean);
            close(few.first.dot(&many.first).abs(), 1.0);
            let pairs = |of: &Moments| -> Vec<(f64, f64)> {
                let along = of.along.iter().map(|m| m.abs());
                of.values.iter().copied().zip(along).take(rank).collect()
            };
            for (few, many) in pairs(&few).into_iter().zip(pairs(&many)) {
                close(few.0, many.0);
                close(few.1, many.1);
            }
            let rest = |along: &[f64]| along[rank..].iter().map(|m| m * m).sum::<f64>();
            close(rest(&few.along), rest(&many.along));
        }
    }
}
