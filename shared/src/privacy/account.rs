//! The privacy cost of one report, or of several studies together.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::accountant::Guarantee;
use crate::{
    error::{Error, Result, error},
    mechanism::{Calibration, DEFAULT_DELTA, Mechanism, MechanismKind},
    optional_word,
};

/// Dimension of a report when nobody says.
const DEFAULT_P: usize = 40;

/// The reports of one participant: those of a mechanism (`epsilon`), or any Gaussian releases (`sigma` and
/// `sensitivity`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccountRequest {
    /// The mechanism; `double-cap` without.
    #[serde(deserialize_with = "optional_word")]
    pub mechanism: Option<MechanismKind>,
    /// How its noise is chosen, where there is a choice.
    #[serde(deserialize_with = "optional_word")]
    pub calibration: Option<Calibration>,
    /// Dimension of a report, on which only the noise of `discrete-gaussian` depends; 40 without.
    pub p: Option<usize>,
    /// ε claimed for one report.
    pub epsilon: Option<f64>,
    /// Noise scale σ of a Gaussian release.
    pub sigma: Option<f64>,
    /// L2 sensitivity of that release.
    pub sensitivity: Option<f64>,
    /// δ at which ε is computed, which is also the claimed one; 1e-6 without.
    pub delta: Option<f64>,
    /// Studies with one report each; 1 without.
    pub studies: Option<NonZeroU32>,
}

/// The cost of these reports; every number is rounded up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccountAnswer {
    /// The mechanism, unless the release is any Gaussian one.
    pub mechanism: Option<MechanismKind>,
    /// Calibration of its noise, if it has several.
    pub calibration: Option<Calibration>,
    /// ε claimed for one report.
    pub epsilon: Option<f64>,
    /// δ of the numbers below; 0 for a pure mechanism.
    pub delta: f64,
    /// ε that holds for one report at this δ.
    pub true_epsilon: Option<f64>,
    /// δ that holds for one report at the claimed ε.
    pub true_delta: Option<f64>,
    /// Studies.
    pub studies: u32,
    /// ε of all of them together.
    pub composed_epsilon: Option<f64>,
    /// The composed ε at δ = 0, if there is one.
    pub composed_pure_epsilon: Option<f64>,
    /// ε for studies whose number and parameters are chosen adaptively within the same total: equal to
    /// `composed_epsilon`.
    pub filter_epsilon: Option<f64>,
    /// The sum of the reports' ε: what a ledger counts.
    pub sum_epsilon: Option<f64>,
    /// The sum of their δ.
    pub sum_delta: f64,
}

/// Adds up the privacy cost of these reports.
///
/// ```
/// use eigenveil_shared::privacy::{AccountRequest, account};
/// let request = AccountRequest { epsilon: Some(4.0), ..AccountRequest::default() };
/// assert_eq!(account(&request)?.delta, 0.0);
/// # Ok::<(), eigenveil_shared::Error>(())
/// ```
///
/// # Errors
/// `invalid-request` without a budget, or with two; `invalid-budget` and `invalid-mechanism` for one that is out of
/// range.
pub fn account(request: &AccountRequest) -> Result<AccountAnswer> {
    let (spec, guarantee) = report(request)?;
    let pure = matches!(guarantee, Guarantee::Pure(_));
    let delta = match pure {
        true => 0.0,
        false => request.delta.unwrap_or(DEFAULT_DELTA),
    };
    if !(pure || (delta > 0.0 && delta < 1.0)) {
        return Err(error!(
            InvalidBudget,
            "`delta` is {delta}; it must lie between 0 and 1, such as 1e-6"
        )
        .with_field("delta"));
    }
    let (true_epsilon, true_delta) = match &spec {
        Some((spec, epsilon)) => (spec.true_epsilon(delta), Some(spec.true_delta(*epsilon))),
        None => (guarantee.epsilon(delta), None),
    };
    let studies = request.studies.map_or(1, NonZeroU32::get);
    let composed = match studies {
        1 => true_epsilon,
        several => guarantee.times(several)?.epsilon(delta),
    };
    let sum = |each: f64| each * f64::from(studies);
    Ok(AccountAnswer {
        mechanism: spec.as_ref().map(|(spec, _)| spec.kind()),
        calibration: spec.as_ref().and_then(|(spec, _)| spec.calibration()),
        epsilon: request.epsilon,
        delta,
        true_epsilon,
        true_delta,
        studies,
        composed_epsilon: composed,
        composed_pure_epsilon: composed.filter(|_| pure),
        filter_epsilon: composed,
        sum_epsilon: true_epsilon.map(|each| sum(each).next_up()),
        sum_delta: sum(delta).min(1.0),
    })
}

/// The guarantee of one report, and its mechanism with the claimed ε if there is one.
fn report(request: &AccountRequest) -> Result<(Option<(Mechanism, f64)>, Guarantee)> {
    match (request.epsilon, request.sigma, request.sensitivity) {
        (Some(epsilon), None, None) => {
            let kind = request.mechanism.unwrap_or_default();
            let unused = request.p.is_some() && kind != MechanismKind::DiscreteGaussian;
            let why = format!("the noise of {kind} does not depend on it");
            Error::reject_if_given(&[("p", unused)], &why)?;
            let budget = kind.budget(epsilon, request.delta)?;
            let calibration = kind.calibration(request.calibration)?;
            let spec =
                Mechanism::derive(kind, calibration, request.p.unwrap_or(DEFAULT_P), budget)?;
            let guarantee = spec.guarantee()?;
            Ok((Some((spec, epsilon)), guarantee))
        }
        (None, Some(sigma), Some(sensitivity)) => {
            let of_a_mechanism = [
                ("mechanism", request.mechanism.is_some()),
                ("calibration", request.calibration.is_some()),
                ("p", request.p.is_some()),
            ];
            Error::reject_if_given(&of_a_mechanism, "`sigma` is the noise")?;
            Ok((None, Guarantee::gaussian(sigma, sensitivity)?))
        }
        _ => Err(
            Error::invalid_request("give `epsilon`, or `sigma` and `sensitivity`")
                .with_field("epsilon"),
        ),
    }
}
