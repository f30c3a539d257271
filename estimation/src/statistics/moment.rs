//! The use case: the largest correlations and a regression, of an estimate that has the moment.

use eigenveil_shared::{
    Error, Result, estimate::Estimate, parameters::Parameters, preprocess::Norm, wording::first_few,
};
use serde::{Deserialize, Serialize};

use super::{Around, Coefficient, Correlation, MomentEstimate, Refusal, Regression};

/// Most features named in a message.
const MAX_NAMES_SHOWN: usize = 12;
/// Codes of warnings that say nothing of a moment: how many components stand, and what would show others.
const OF_COMPONENTS: [&str; 3] = [
    "nothing-above-noise",
    "few-above-noise",
    "more-participants",
];

/// Explains what the second moment of rows bounded this way describes; a sentence without the final stop.
pub fn norm_caveat(norm: Norm) -> String {
    match norm {
        Norm::Normalize => "normalize: these numbers describe directions only, not values; every participant counts equally and row lengths are discarded, so that a correlation of the values may lie outside the interval (in one table it is 0.82 where that of the directions is 0.65)".to_owned(),
        Norm::Clip { radius } => format!("clip: rows longer than {radius} count with that length"),
        Norm::Require { radius } => format!("require: rows longer than {radius} count as zero rows"),
    }
}

/// The name of a correlation of rows bounded this way.
pub fn correlation_of(norm: Norm) -> &'static str {
    match norm {
        Norm::Normalize => "correlation of directions",
        Norm::Clip { .. } | Norm::Require { .. } => "correlation",
    }
}

/// A request for statistics of the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MomentRequest {
    /// Feature to predict from those of `on`.
    pub regress: Option<String>,
    /// Features to predict it from.
    #[serde(default)]
    pub on: Vec<String>,
    /// Correlations to give, the largest first.
    pub top: usize,
}

/// Statistics of the moment, in units of the prepared rows. Scripts rely on the keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MomentAnswer {
    /// Reports.
    pub n: u64,
    /// Dimension.
    pub p: usize,
    /// Under normalize: each participant counts the same, and lengths are gone.
    pub directions_only: bool,
    /// Whether second moments are taken around the mean.
    pub around_the_mean: bool,
    /// Pairs of features, but for those of categories of one variable.
    pub pairs: usize,
    /// Pairs without a correlation.
    pub refused: usize,
    /// The largest correlations.
    pub correlations: Vec<NamedCorrelation>,
    /// The regression, if one was asked for.
    pub regression: Option<NamedRegression>,
    /// ε that this costs: 0.
    pub further_epsilon: f64,
    /// Warnings of the estimate.
    pub warnings: Vec<String>,
}

/// The correlation of two features.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedCorrelation {
    /// One.
    pub feature: String,
    /// The other.
    pub with: String,
    /// Its value.
    #[serde(flatten)]
    pub correlation: Correlation,
}

/// A regression, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedRegression {
    /// The feature that is predicted.
    pub feature: String,
    /// Features that it is predicted from.
    pub on: Vec<String>,
    /// One for each of them.
    pub coefficients: Vec<NamedCoefficient>,
    /// Least eigenvalue of the predictors' covariance, before the projection.
    pub least_eigenvalue: Option<f64>,
    /// Its standard error.
    pub least_eigenvalue_standard_error: Option<f64>,
    /// Why there is none.
    pub refused: Option<String>,
}

/// The coefficient of a feature.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedCoefficient {
    /// Its name.
    pub feature: String,
    /// Its value.
    #[serde(flatten)]
    pub coefficient: Coefficient,
}

/// The numbers behind an answer, for tables in files.
#[derive(Debug)]
pub struct MomentTables {
    /// The moment.
    pub moment: MomentEstimate,
    /// The correlation of every pair of features, or why there is none.
    pub correlations: Vec<(usize, usize, Result<Correlation, Refusal>)>,
}

/// Statistics of the moment of this estimate.
///
/// # Errors
/// Those of [`MomentEstimate::of_document`] and [`MomentRequest::check`].
pub fn moment(
    request: &MomentRequest,
    estimate: &Estimate,
) -> Result<(MomentAnswer, MomentTables)> {
    let names = estimate.feature_names();
    let places = request.places(&names)?;
    let moment = MomentEstimate::of_document(estimate)?;
    let correlations: Vec<_> = moment.correlations().collect();
    let known = correlations.iter();
    let mut known: Vec<(usize, usize, Correlation)> = known
        .filter_map(|&(i, j, found)| Some((i, j, found.ok()?)))
        .collect();
    let refused = correlations.len() - known.len();
    known.sort_by(|(.., a), (.., b)| b.value.abs().total_cmp(&a.value.abs()));
    let largest = known.iter().take(request.top);
    let largest = largest.map(|&(i, j, correlation)| NamedCorrelation {
        feature: names[i].clone(),
        with: names[j].clone(),
        correlation,
    });
    let answer = MomentAnswer {
        n: estimate.n,
        p: estimate.p,
        directions_only: matches!(estimate.params.preprocessing()?.norm, Norm::Normalize),
        around_the_mean: moment.around() == Around::EstimatedMean,
        pairs: correlations.len(),
        refused,
        correlations: largest.collect(),
        regression: places.map(|(y, on)| regression(&moment, &names, y, &on)),
        further_epsilon: 0.0,
        warnings: estimate
            .warnings
            .iter()
            .enumerate()
            .filter(|(at, _)| {
                let code = estimate.warning_codes.get(*at);
                !code.is_some_and(|code| OF_COMPONENTS.contains(&code.as_str()))
            })
            .map(|(_, warning)| warning.clone())
            .collect(),
    };
    let tables = MomentTables {
        moment,
        correlations,
    };
    Ok((answer, tables))
}

impl MomentRequest {
    /// Checks what can be checked without an estimate of this study.
    ///
    /// # Errors
    /// Those of [`MomentEstimate::check_preprocessing`]; `invalid-request` for features that the study does not have, and
    /// for those that no regression has.
    pub fn check(&self, params: &Parameters) -> Result<()> {
        MomentEstimate::check_preprocessing(params.preprocessing()?)?;
        let numbered = || (1..=params.dimension()).map(|i| format!("x{i}")).collect();
        let names = params.feature_names().unwrap_or_else(numbered);
        self.places(&names).map(drop)
    }

    /// Features by their places: the one to predict, and those to predict it from.
    fn places(&self, names: &[String]) -> Result<Option<(usize, Vec<usize>)>> {
        match &self.regress {
            None if self.on.is_empty() => Ok(None),
            y => places(names, y.as_deref(), &self.on).map(Some),
        }
    }
}

fn places(names: &[String], y: Option<&str>, on: &[String]) -> Result<(usize, Vec<usize>)> {
    let wrong = |detail: String| Err(Error::invalid_request(detail));
    let (Some(y), [_, ..]) = (y, on) else {
        return wrong("`regress` and `on` need each other; give both or neither".to_owned());
    };
    let position = |field: &str, name: &str| {
        let known = names.iter().position(|known| known == name);
        known.ok_or_else(|| {
            Error::invalid_request(format!(
                "`{field}`: the study has no feature {name:?}; it has {}",
                first_few(names.iter().cloned(), MAX_NAMES_SHOWN, |more| format!(
                    " and {more} more"
                ))
            ))
        })
    };
    let y = position("regress", y)?;
    let mut places = Vec::with_capacity(on.len());
    for name in on {
        let x = position("on", name)?;
        if x == y {
            return wrong(format!(
                "`on` {name} is the feature that `regress` predicts; leave it out"
            ));
        }
        if places.contains(&x) {
            return wrong(format!("`on` names {name} twice; name it once"));
        }
        places.push(x);
    }
    Ok((y, places))
}

/// The regression of the feature `y` on those of `on`, by their names.
///
/// # Errors
/// Those of [`moment()`]; `estimate-failed` for a regression that is refused.
pub fn regress(estimate: &Estimate, y: &str, on: &[String]) -> Result<Regression> {
    let names = estimate.feature_names();
    let (y, on) = places(&names, Some(y), on)?;
    let regression = MomentEstimate::of_document(estimate)?.regression(y, &on);
    regression.map_err(|refusal| Error::estimate_failed(refusal.in_words(&names)))
}

fn regression(
    moment: &MomentEstimate,
    names: &[String],
    y: usize,
    on: &[usize],
) -> NamedRegression {
    let regression = moment.regression(y, on);
    let coefficients = regression
        .iter()
        .flat_map(|regression| &regression.coefficients);
    let coefficients = coefficients.map(|&coefficient| NamedCoefficient {
        feature: names[coefficient.feature].clone(),
        coefficient,
    });
    NamedRegression {
        feature: names[y].clone(),
        on: on.iter().map(|&x| names[x].clone()).collect(),
        coefficients: coefficients.collect(),
        least_eigenvalue: regression
            .as_ref()
            .ok()
            .map(|regression| regression.least_eigenvalue),
        least_eigenvalue_standard_error: (regression.as_ref().ok())
            .map(|regression| regression.least_eigenvalue_standard_error),
        refused: regression.err().map(|refusal| refusal.in_words(names)),
    }
}
