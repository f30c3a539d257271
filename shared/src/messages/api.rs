//! JSON documents of the HTTP interface (`docs/protocol.md`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    about::StudyNotice,
    enrolment::Enrolment,
    error::{Error, ErrorCode, Result},
    estimate::{ComponentCount, Estimate},
    mechanism::{Calibration, MechanismKind, MechanismName},
    parameters::{Parameters, StudyUnit},
    preparation::{PreparationColumn, PreparationParams},
    preprocess::{DEFAULT_CENTRING, Feature, Norm, Weights},
    privacy::PrivacyStatement,
    site_study::{DEFAULT_SITE_MECHANISM, SiteStudyDesign, SiteStudyParams, SiteTerms},
    study::{StudyDesign, StudyParams},
};
pub use crate::{
    enrolment::{REPORT_BATCH_MEDIA_TYPE, REPORT_MEDIA_TYPE},
    sparse::{Lambda, SparseSettings},
};

/// Media type of the export of a study.
pub const STUDY_EXPORT_MEDIA_TYPE: &str = "application/vnd.eigenveil.study-export";
/// Media type of a backup: a SQLite database.
pub const BACKUP_MEDIA_TYPE: &str = "application/vnd.sqlite3";
/// Media type of a problem document (RFC 9457).
pub const PROBLEM_MEDIA_TYPE: &str = "application/problem+json";
/// Prefix of a problem's `type`; the [`ErrorCode`] follows it.
pub const PROBLEM_TYPE_PREFIX: &str = "urn:eigenveil:problem:";

names! {
    pub StudyState { Draft = "draft", Open = "open", Closed = "closed" };
    pub ImportOutcome { Created = "created", Merged = "merged", AlreadyImported = "already-imported" };
    pub ReportOutcome { Accepted = "accepted", Duplicate = "duplicate" };
    pub EstimateState { Running = "running", Done = "done", Failed = "failed", Cancelled = "cancelled" };
}

/// A problem document (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `urn:eigenveil:problem:CODE`.
    #[serde(rename = "type")]
    pub problem_type: String,
    /// The code's title.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// The stable code.
    pub code: ErrorCode,
    /// One sentence that names the value, the limit and the way out.
    pub detail: String,
}

impl Problem {
    /// The document for an error.
    pub fn new(error: &crate::Error) -> Self {
        let code = error.code();
        Self {
            problem_type: format!("{PROBLEM_TYPE_PREFIX}{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: error.detail().to_owned(),
        }
    }
}

/// State of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum StudyState {
    /// Created, not yet taking reports.
    Draft,
    /// Taking reports.
    Open,
    /// No longer taking reports.
    Closed,
}

/// The outcome of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ImportOutcome {
    /// The import created the study.
    Created,
    /// The reports were added to an existing study.
    Merged,
    /// This export was imported before: nothing was changed.
    AlreadyImported,
}

/// Answer to `POST /v1/imports` and `POST /v1/studies/{id}/import`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImportResponse {
    /// The outcome.
    pub outcome: ImportOutcome,
    /// Reports newly counted by this import.
    pub reports: u64,
    /// The study, afterwards.
    pub study: StudyDocument,
}

/// `POST /v1/studies`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateStudyRequest {
    /// Name shown to people.
    pub name: String,
    /// Dimension p of a row; absent in a preparation, whose columns have it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dimension: usize,
    /// Names and public centring and scaling constants of the features; absent: unnamed, used unchanged.
    pub features: Option<Vec<Feature>>,
    /// How a row is brought into the unit ball.
    #[serde(default)]
    pub norm: Norm,
    /// Constant a of private centring, 0.01 to 1; absent: the mean is not estimated. In a study of sites absent is
    /// 0.707, and 0 means that the mean is not estimated.
    pub centring: Option<f64>,
    /// Private participant weights; absent: everyone counts equally. Not in a study of sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Weights>,
    /// The local randomizer; absent: `double-cap`, in a study of sites `discrete-gaussian`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<MechanismKind>,
    /// How its noise is chosen, where there is a choice.
    #[serde(default)]
    pub calibration: Calibration,
    /// Privacy-loss bound ε of one report.
    pub epsilon: f64,
    /// Failure probability δ of one report; absent: 1e-6, or 0 with a pure mechanism.
    pub delta: Option<f64>,
    /// Default number of components of an estimate.
    #[serde(default)]
    pub default_k: ComponentCount,
    /// Leave the study in draft instead of opening it.
    #[serde(default)]
    pub draft: bool,
    /// Who may take part; absent: anybody who knows the study's identifier. A study of sites needs `token`.
    #[serde(default)]
    pub enrolment: Enrolment,
    /// Notice to the people whom the study invites; fixed with the study.
    #[serde(default, skip_serializing_if = "StudyNotice::is_empty")]
    pub about: StudyNotice,
    /// The terms on which a site takes part with a table; absent: each report is of a single row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sites: Option<SiteTerms>,
    /// The questions of a preparation, which finds constants for another study; absent: the study finds components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<PreparationRequest>,
}

/// The questions of a preparation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PreparationRequest {
    /// The columns, 1 to 65,535.
    pub columns: Vec<PreparationColumn>,
    /// In a second round, the fingerprint of the first one; nobody who took part in that takes part in this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl CreateStudyRequest {
    /// A request for a preparation with these questions, open to everybody, without a notice.
    pub fn of_preparation(name: &str, epsilon: f64, preparation: PreparationRequest) -> Self {
        Self {
            name: name.to_owned(),
            dimension: 0,
            features: None,
            norm: Norm::default(),
            centring: None,
            weights: None,
            mechanism: None,
            calibration: Calibration::default(),
            epsilon,
            delta: None,
            default_k: ComponentCount::default(),
            draft: false,
            enrolment: Enrolment::default(),
            about: StudyNotice::default(),
            sites: None,
            preparation: Some(preparation),
        }
    }

    /// The mechanism of the study.
    pub fn mechanism(&self) -> MechanismKind {
        let default = match self.sites {
            None => MechanismKind::default(),
            Some(_) => DEFAULT_SITE_MECHANISM,
        };
        self.mechanism.unwrap_or(default)
    }

    /// The parameters that a server freezes for this request.
    ///
    /// # Errors
    /// Those of [`StudyParams::freeze`], [`SiteStudyParams::freeze`] and [`PreparationParams::freeze`], and of the
    /// budget; `invalid-request` for a study of sites with `weights` or the published noise, and for a preparation with
    /// constants.
    pub fn params(&self) -> Result<Parameters> {
        if let Some(preparation) = &self.preparation {
            return self.preparation_params(preparation).map(Into::into);
        }
        let mechanism = self.mechanism();
        let budget = mechanism.budget(self.epsilon, self.delta)?;
        let Some(terms) = self.sites else {
            return Ok(StudyParams::freeze(StudyDesign {
                features: self.features.clone(),
                norm: self.norm,
                centring: self.centring,
                weights: self.weights,
                calibration: self.calibration,
                ..StudyDesign::new(mechanism, self.dimension, budget)
            })?
            .into());
        };
        let unused = [
            ("weights", self.weights.is_some()),
            ("calibration", self.calibration != Calibration::Analytic),
        ];
        Error::reject_if_given(&unused, "the study is one of sites")?;
        Ok(SiteStudyParams::freeze(SiteStudyDesign {
            features: self.features.clone(),
            norm: self.norm,
            centring: match self.centring {
                None => Some(DEFAULT_CENTRING),
                given => given.filter(|a| *a != 0.0),
            },
            mechanism,
            ..SiteStudyDesign::new(self.dimension, budget, terms)
        })?
        .into())
    }

    fn preparation_params(&self, preparation: &PreparationRequest) -> Result<PreparationParams> {
        let unused = [
            ("dimension", self.dimension != 0),
            ("features", self.features.is_some()),
            ("norm", self.norm != Norm::default()),
            ("centring", self.centring.is_some()),
            ("weights", self.weights.is_some()),
            ("mechanism", self.mechanism.is_some()),
            ("calibration", self.calibration != Calibration::Analytic),
            ("delta", self.delta.is_some_and(|delta| delta != 0.0)),
            ("sites", self.sites.is_some()),
        ];
        Error::reject_if_given(&unused, "the study is a preparation")?;
        let after = preparation.after.as_deref().map(str::parse).transpose()?;
        PreparationParams::freeze(preparation.columns.clone(), self.epsilon, after)
    }
}

/// One study, as anybody may see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StudyDocument {
    /// Identifier, 32 hexadecimal digits.
    pub id: String,
    /// Name shown to people.
    pub name: String,
    /// Draft, open or closed.
    pub state: StudyState,
    /// SHA-256 of the canonical bytes, lower-case hex.
    pub fingerprint: String,
    /// The canonical bytes of the parameters, lower-case hex: what a device must use.
    pub canonical_params: String,
    /// The parameters in readable form; not bit-exact, because a JSON parser may change a float by one ulp.
    pub params: Parameters,
    /// Distinct reports durably accepted.
    pub reports_accepted: u64,
    /// Number of components when a request names none.
    pub default_k: ComponentCount,
    /// Size limit of a report body in bytes.
    pub report_bytes: usize,
    /// Most reports in one batch; 1 in a study of sites, which has no batches.
    pub max_batch_reports: usize,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at_ms: u64,
    /// The promise to each participant.
    pub privacy: PrivacyStatement,
    /// Who may take part.
    #[serde(default)]
    pub enrolment: Enrolment,
    /// The notice to the people it invites.
    #[serde(default)]
    pub about: StudyNotice,
}

/// One study in a list: the fields whose size does not depend on the study. `GET /v1/studies/{id}` has the rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StudySummary {
    /// Identifier, 32 hexadecimal digits.
    pub id: String,
    /// Name shown to people.
    pub name: String,
    /// Draft, open or closed.
    pub state: StudyState,
    /// SHA-256 of the canonical bytes, lower-case hex.
    pub fingerprint: String,
    /// Dimension p of a row.
    pub dimension: usize,
    /// The sender of a report.
    #[serde(default)]
    pub unit: StudyUnit,
    /// The local randomizer.
    pub mechanism: MechanismName,
    /// Claimed ε of one report.
    pub epsilon: f64,
    /// Claimed δ of one report.
    pub delta: f64,
    /// Distinct reports durably accepted.
    pub reports_accepted: u64,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at_ms: u64,
    /// Who may take part.
    #[serde(default)]
    pub enrolment: Enrolment,
}

impl From<&StudyDocument> for StudySummary {
    fn from(study: &StudyDocument) -> Self {
        Self {
            id: study.id.clone(),
            name: study.name.clone(),
            state: study.state,
            fingerprint: study.fingerprint.clone(),
            dimension: study.params.dimension(),
            unit: study.params.unit(),
            mechanism: study.privacy.mechanism,
            epsilon: study.privacy.epsilon,
            delta: study.privacy.delta,
            reports_accepted: study.reports_accepted,
            created_at_ms: study.created_at_ms,
            enrolment: study.enrolment,
        }
    }
}

/// One page of `GET /v1/studies`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StudyList {
    /// Oldest first.
    pub studies: Vec<StudySummary>,
    /// Value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// `POST /v1/studies/{id}/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct IssueTokensRequest {
    /// How many, 1 to 100,000; absent in a study of sites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<usize>,
    /// In a study of sites the site of each token, 1 to 1,000 tokens. A site may have several: each is for one report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<NewSiteToken>,
}

/// The site for which a token is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewSiteToken {
    /// Name of the site, one line of at most 200 bytes: it is stored with the site's report.
    pub site: String,
    /// Most rows (persons, where persons are protected) that the operator believes the site to have; absent: as many
    /// as the study allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u64>,
}

/// The token of a site, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SiteToken {
    /// Name of the site.
    pub site: String,
    /// Most rows (persons, where persons are protected) of the report that it is for.
    pub max_rows: u64,
    /// Whether it was used.
    pub spent: bool,
}

/// `POST /v1/studies/{id}/tokens/lookup`: the site of a token, for whoever has it. `Debug` does not show the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LookUpTokenRequest {
    /// 64 hexadecimal digits.
    pub token: String,
}

impl fmt::Debug for LookUpTokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LookUpTokenRequest(…)")
    }
}

/// One-time participant tokens, shown in this answer only. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IssueTokensResponse {
    /// 64 hexadecimal digits each.
    pub tokens: Vec<String>,
}

impl fmt::Debug for IssueTokensResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IssueTokensResponse({} of them)", self.tokens.len())
    }
}

/// `GET /v1/studies/{id}/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenCounts {
    /// Participant tokens made.
    pub issued: u64,
    /// Tokens already used.
    pub spent: u64,
    /// In a study of sites the token of each, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteToken>,
}

/// `POST /v1/tokens`: a token with which estimates, and nothing else, can be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateAnalystTokenRequest {
    /// Who gets it; shown to the operator.
    pub name: String,
    /// Identifier of the only study whose estimates the token can read; absent: all studies.
    pub study: Option<String>,
}

/// An analyst's token, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnalystTokenInfo {
    /// Identifier of the token, 16 hexadecimal digits; not a secret.
    pub id: String,
    /// Who has it.
    pub name: String,
    /// Identifier of the only study whose estimates the token can read; `null`: all studies.
    pub study: Option<String>,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at_ms: u64,
}

/// `GET /v1/tokens`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AnalystTokenList {
    /// All analysts' tokens, oldest first.
    pub tokens: Vec<AnalystTokenInfo>,
}

/// Answer to `POST /v1/tokens`. `Debug` does not show the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateAnalystTokenResponse {
    /// The token's stored metadata.
    #[serde(flatten)]
    pub analyst: AnalystTokenInfo,
    /// Text of the token, shown in this answer only.
    pub token: String,
}

impl fmt::Debug for CreateAnalystTokenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CreateAnalystTokenResponse({:?})", self.analyst)
    }
}

/// Answer to `POST /v1/operator-token`. `Debug` does not show the token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotateOperatorTokenResponse {
    /// The new operator token, also written to the data directory.
    pub token: String,
}

impl fmt::Debug for RotateOperatorTokenResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RotateOperatorTokenResponse(…)")
    }
}

/// The outcome of one report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ReportOutcome {
    /// Durably stored and counted now.
    Accepted,
    /// Already stored; not counted again.
    Duplicate,
}

/// Answer to one report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReportResponse {
    /// The outcome.
    pub outcome: ReportOutcome,
}

/// Answer to a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BatchResponse {
    /// Reports stored and counted now.
    pub accepted: u64,
    /// Reports that were stored before.
    pub duplicates: u64,
    /// Reports refused, with their position in the batch. Those not named were accepted or duplicates.
    pub refused: Vec<RefusedReport>,
}

/// One refused report of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RefusedReport {
    /// Position in the batch, from 0.
    pub index: u32,
    /// Stable code.
    pub code: ErrorCode,
    /// One sentence.
    pub detail: String,
}

/// `GET /v1/studies/{id}/answers`: how often each answer to a preparation was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PreparationAnswers {
    /// The first round; of a second round both, the first one first.
    pub rounds: Vec<RoundAnswers>,
}

/// The answers of one round of a preparation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RoundAnswers {
    /// Identifier of the study.
    pub study: String,
    /// The canonical bytes of its parameters, lower-case hex.
    pub canonical_params: String,
    /// A count for each answer: of each column, of each of its combs.
    pub counts: Vec<u64>,
}

/// `POST /v1/studies/{id}/estimates`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct EstimateRequest {
    /// Components wanted; absent: the study's default.
    pub k: Option<ComponentCount>,
    /// Row-sparse estimate; absent: PCA.
    pub sparse: Option<SparseSettings>,
    /// Whether to include the mean report, from which the moment, correlations and regressions are derived; allowed for
    /// at most [`MAX_MOMENT_DIMENSION`] features.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moment: bool,
}

/// Maximum number of features for which an estimate may include the mean report (half a million numbers).
pub const MAX_MOMENT_DIMENSION: usize = 1_000;

/// State of an estimate job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EstimateState {
    /// Waiting its turn or being computed.
    Running,
    /// Finished; the result is available.
    Done,
    /// Could not be made; `problem` says why.
    Failed,
    /// Cancelled by the operator.
    Cancelled,
}

/// One estimate job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EstimateJob {
    /// Number of the estimate within its study, from 1.
    pub number: u64,
    /// Identifier of the study.
    pub study: String,
    /// Running, done, failed or cancelled.
    pub state: EstimateState,
    /// The request.
    pub request: EstimateRequest,
    /// The estimate, when done.
    pub estimate: Option<Estimate>,
    /// Why it failed, when it did.
    pub problem: Option<Problem>,
    /// Milliseconds since 1970-01-01 UTC.
    pub created_at_ms: u64,
}
