//! A study as it is asked for: the arguments of `Analyst.create_study`, some of which `LocalDPPCA` has.

use eigenveil_shared::{
    Error, ErrorCode,
    about::{About, UtcDate},
    api::CreateStudyRequest,
    enrolment::Enrolment,
    estimate::ComponentCount,
    mechanism::{Calibration, MechanismKind},
    preprocess::{BoundRows, Feature, Weights},
    word,
};
use serde::Deserialize;

use crate::{
    error::{Failure, Result},
    use_case::request,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Design {
    #[serde(default)]
    name: String,
    dimension: Option<usize>,
    features: Option<Vec<Feature>>,
    #[serde(default)]
    bound_rows: BoundRows,
    radius: Option<f64>,
    centring: Option<f64>,
    #[serde(default)]
    weights: bool,
    mean_weight: Option<f64>,
    #[serde(default, deserialize_with = "word")]
    mechanism: MechanismKind,
    #[serde(default, deserialize_with = "word")]
    calibration: Calibration,
    epsilon: f64,
    delta: Option<f64>,
    #[serde(default)]
    k: ComponentCount,
    #[serde(default)]
    draft: bool,
    #[serde(default, deserialize_with = "word")]
    enrolment: Enrolment,
    purpose: Option<String>,
    responsible_party: Option<String>,
    contact: Option<String>,
    last_day: Option<UtcDate>,
}

/// The request that these arguments make.
pub(crate) fn design(arguments: &str) -> Result<CreateStudyRequest> {
    let asked: Design = request(arguments)?;
    let invalid = |sentence: String| Error::new(ErrorCode::InvalidDimension, sentence);
    let dimension = match (asked.dimension, asked.features.as_ref().map(Vec::len)) {
        (Some(p), Some(found)) if p != found => {
            return Err(
                invalid(format!("dimension is {p}, and there are {found} features")).into(),
            );
        }
        (given, found) => given
            .or(found)
            .ok_or_else(|| invalid("give features or dimension".to_owned()))?,
    };
    if let Some(mean) = asked.mean_weight.filter(|_| !asked.weights) {
        return Err(Failure::input(format!(
            "mean_weight is {mean}, and there are no weights; leave it out, or give weights"
        )));
    }
    Ok(CreateStudyRequest {
        name: asked.name,
        dimension,
        features: asked.features,
        norm: asked.bound_rows.norm(asked.radius, 1.0)?,
        centring: asked.centring,
        weights: asked.weights.then_some(Weights {
            mean: asked.mean_weight,
        }),
        mechanism: asked.mechanism,
        calibration: asked.calibration,
        epsilon: asked.epsilon,
        delta: asked.delta,
        default_k: asked.k,
        draft: asked.draft,
        enrolment: asked.enrolment,
        about: About {
            purpose: asked.purpose,
            responsible_party: asked.responsible_party,
            contact: asked.contact,
            last_day: asked.last_day,
        },
    })
}
