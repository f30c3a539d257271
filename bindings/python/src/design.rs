//! A requested study: the arguments of `Analyst.create_study`, some of which `LocalDPPCA` has.

use eigenveil_shared::{
    Error, ErrorCode,
    about::{FeatureNotice, StudyNotice, UtcDate},
    api::CreateStudyRequest,
    enrolment::Enrolment,
    estimate::ComponentCount,
    mechanism::{Calibration, MechanismKind},
    optional_word,
    preprocess::{BoundRows, Feature, Weights},
    site_study::SiteTerms,
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
    /// Meanings of the features, for people, in their order.
    feature_notices: Option<Vec<FeatureNotice>>,
    #[serde(default)]
    bound_rows: BoundRows,
    radius: Option<f64>,
    centring: Option<f64>,
    #[serde(default)]
    weights: bool,
    mean_weight: Option<f64>,
    #[serde(default, deserialize_with = "optional_word")]
    mechanism: Option<MechanismKind>,
    #[serde(default, deserialize_with = "word")]
    calibration: Calibration,
    epsilon: f64,
    delta: Option<f64>,
    #[serde(default)]
    k: ComponentCount,
    #[serde(default)]
    draft: bool,
    #[serde(default, deserialize_with = "optional_word")]
    enrolment: Option<Enrolment>,
    sites: Option<SiteTerms>,
    purpose: Option<String>,
    responsible_party: Option<String>,
    contact: Option<String>,
    last_day: Option<UtcDate>,
}

/// The request with these arguments.
pub(crate) fn design(arguments: &str) -> Result<CreateStudyRequest> {
    let arguments: Design = request(arguments)?;
    let invalid = |detail: String| Error::new(ErrorCode::InvalidDimension, detail);
    let dimension = match (
        arguments.dimension,
        arguments.features.as_ref().map(Vec::len),
    ) {
        (Some(p), Some(feature_count)) if p != feature_count => {
            return Err(invalid(format!(
                "dimension is {p}, and there are {feature_count} features"
            ))
            .into());
        }
        (given, feature_count) => given
            .or(feature_count)
            .ok_or_else(|| invalid("give features or dimension".to_owned()))?,
    };
    if let Some(mean) = arguments.mean_weight.filter(|_| !arguments.weights) {
        return Err(Failure::input(format!(
            "mean_weight is {mean}, and there are no weights; leave it out, or give weights"
        )));
    }
    Ok(CreateStudyRequest {
        name: arguments.name,
        dimension,
        features: arguments.features,
        norm: arguments.bound_rows.norm(arguments.radius, 1.0)?,
        centring: arguments.centring,
        weights: arguments.weights.then_some(Weights {
            mean: arguments.mean_weight,
        }),
        mechanism: arguments.mechanism,
        calibration: arguments.calibration,
        epsilon: arguments.epsilon,
        delta: arguments.delta,
        default_k: arguments.k,
        draft: arguments.draft,
        enrolment: arguments.enrolment.unwrap_or(match arguments.sites {
            None => Enrolment::Open,
            Some(_) => Enrolment::Token,
        }),
        about: StudyNotice {
            purpose: arguments.purpose,
            responsible_party: arguments.responsible_party,
            contact: arguments.contact,
            last_day: arguments.last_day,
            features: arguments.feature_notices,
        },
        sites: arguments.sites,
        preparation: None,
    })
}
