//! The analyst's document.

use eigenveil_shared::{
    Error, Result,
    estimate::{ComponentCount, Estimate},
    parameters::Parameters,
    privacy::delta_above,
    study::StudyParams,
};

use super::warning::Warning;
use crate::{assessment::probable_mean_warning, components::ComponentsReport};

const VERSION: u32 = 2;

/// The reports that an estimate is of.
pub(crate) struct Reported {
    pub(crate) params: Parameters,
    /// Reports.
    pub(crate) n: u64,
    /// Reports left out of them because another one has their seed.
    pub(crate) repeated: u64,
    /// The most that exchanging one for another can move the moment.
    pub(crate) influence: f64,
    /// How many participants, rows or persons are protected, and the word for them: δ must be far below one over the
    /// number.
    pub(crate) protected: (u64, &'static str),
}

impl Reported {
    /// Describes `n` reports of one row each.
    pub(crate) fn of_rows(params: &StudyParams, n: u64, repeated: u64) -> Self {
        let influence = params
            .mechanism()
            .report_influence(params.report_dimension());
        Self {
            params: params.clone().into(),
            n,
            repeated,
            influence: influence / n as f64,
            protected: (n, "participants"),
        }
    }
}

/// The document for these components, without the mean, the feasibility check, the sites and the time; `first` are the
/// warnings that put the others in doubt.
pub(crate) fn document(
    reported: Reported,
    (name, requested_k): (&str, ComponentCount),
    findings: ComponentsReport,
    first: Vec<Warning>,
) -> Estimate {
    let Reported {
        params,
        n,
        repeated,
        influence,
        protected: (protected, whom),
    } = reported;
    let ComponentsReport {
        vectors,
        spectrum,
        floor_report,
        sparse,
        k_is_open,
        k_shares,
        bucket_agreement,
    } = findings;
    let constants = params.preprocessing().ok();
    let mean = constants.and_then(|constants| probable_mean_warning(constants, &floor_report));
    // Beside the mean the others are small, and advice to ask for more people would be wrong.
    let outlook = floor_report.outlook.filter(|_| mean.is_none());
    let delta = params.budget().delta();
    let warnings: Vec<Warning> = (repeated > 0)
        .then_some(Warning::RepeatedSeeds { repeated, n })
        .into_iter()
        .chain(first)
        .chain(mean)
        .chain(floor_report.warnings)
        .chain(outlook.map(Warning::MoreParticipants))
        .chain(
            delta_above(delta, protected, whom).map(|_| Warning::LargeDelta {
                delta,
                n: protected,
                whom,
            }),
        )
        .collect();
    Estimate {
        version: VERSION,
        name: name.to_owned(),
        fingerprint: params.fingerprint().to_string(),
        n,
        duplicate_seeds: repeated,
        p: vectors.nrows(),
        k: floor_report.components.len(),
        requested_k,
        components: floor_report.components,
        groups: floor_report.groups,
        mean: None,
        mean_standard_error: None,
        mean_report: None,
        variances: floor_report.variances,
        eigenvalues: spectrum,
        total_variance: floor_report.total_variance,
        floor: floor_report.floor,
        spectrum: floor_report.spectrum,
        k_is_open,
        k_shares,
        expected_error: floor_report.expected_error,
        expected_error_range: floor_report.expected_error_range,
        influence,
        sparse,
        bucket_agreement,
        feasibility: None,
        sites: None,
        privacy: params.privacy(),
        params,
        warning_codes: warnings
            .iter()
            .map(|warning| warning.code().to_owned())
            .collect(),
        warnings: warnings.iter().map(ToString::to_string).collect(),
        seconds: 0.0,
    }
}

/// The document as JSON that reads back as it is.
///
/// # Errors
/// `estimate-failed` where a number is not finite: JSON has neither NaN nor infinity.
pub fn to_json(estimate: &Estimate) -> Result<String> {
    let is_whole =
        |json: &String| serde_json::from_str(json).is_ok_and(|read: Estimate| read == *estimate);
    let json = serde_json::to_string(estimate).ok().filter(is_whole);
    json.ok_or_else(|| {
        Error::estimate_failed(
            "the estimate holds a number that is not finite; a report with enormous numbers may be in the sums",
        )
    })
}
