//! The parameters of a study of any kind: of rows, of tables of sites, or a preparation.

use serde::{Deserialize, Serialize};

use crate::{
    codec,
    error::{Result, error},
    fingerprint::Fingerprint,
    mechanism::{Mechanism, MechanismName, randomised_response::ANSWER_LEN},
    preparation::{PARAMS_VERSION_PREPARATION, PreparationColumn, PreparationParams},
    preprocess::{Preprocessing, Preprocessor},
    privacy::{Budget, PrivacyStatement},
    site_study::{PARAMS_VERSION_SITES, SiteStudyParams, SiteTerms},
    study::StudyParams,
};

/// The sender of one report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum StudyUnit {
    /// A participant, with a single row.
    #[default]
    Row,
    /// A site, with a table of many rows.
    Site,
}

names! {
    pub StudyUnit { Row = "row", Site = "site" };
}

/// The frozen parameters of a study of any kind. Its JSON is the readable form: the canonical bytes are what is
/// fingerprinted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Parameters {
    /// Each report is of a single row.
    Rows(StudyParams),
    /// Each report is of a site's table.
    Sites(SiteStudyParams),
    /// Each report is the answer to a question about one column of a row.
    Preparation(PreparationParams),
}

impl From<StudyParams> for Parameters {
    fn from(params: StudyParams) -> Self {
        Self::Rows(params)
    }
}

impl From<SiteStudyParams> for Parameters {
    fn from(params: SiteStudyParams) -> Self {
        Self::Sites(params)
    }
}

impl From<PreparationParams> for Parameters {
    fn from(params: PreparationParams) -> Self {
        Self::Preparation(params)
    }
}

/// Evaluates an expression of the parameters of any kind.
macro_rules! of_any {
    ($parameters:expr, $own:ident => $result:expr) => {
        match $parameters {
            Parameters::Rows($own) => $result,
            Parameters::Sites($own) => $result,
            Parameters::Preparation($own) => $result,
        }
    };
}

impl Parameters {
    /// The parameters these canonical bytes describe, checked as a device must check them.
    ///
    /// # Errors
    /// Those of [`StudyParams::from_canonical`], [`SiteStudyParams::from_canonical`] and
    /// [`PreparationParams::from_canonical`].
    pub fn from_canonical(bytes: &[u8]) -> Result<Self> {
        match codec::params_version(bytes)? {
            PARAMS_VERSION_SITES => SiteStudyParams::from_canonical(bytes).map(Self::Sites),
            PARAMS_VERSION_PREPARATION => {
                PreparationParams::from_canonical(bytes).map(Self::Preparation)
            }
            _ => StudyParams::from_canonical(bytes).map(Self::Rows),
        }
    }

    /// The sender of a report.
    pub fn unit(&self) -> StudyUnit {
        match self {
            Self::Rows(_) | Self::Preparation(_) => StudyUnit::Row,
            Self::Sites(_) => StudyUnit::Site,
        }
    }

    /// The parameters of a study of single rows that is no preparation.
    ///
    /// # Errors
    /// `invalid-request` for a study of another kind.
    pub fn rows(&self) -> Result<&StudyParams> {
        match self {
            Self::Rows(params) => Ok(params),
            Self::Sites(_) => Err(error!(
                InvalidRequest,
                "each report of this study is a site's table, but this is for studies of single rows; use a study of single rows"
            )),
            Self::Preparation(_) => Err(error!(
                InvalidRequest,
                "this study is a preparation, which finds centers and scales and no components; use the study that is made with them"
            )),
        }
    }

    /// The parameters of a study of single rows, owned.
    ///
    /// # Errors
    /// `invalid-request` for a study of another kind.
    pub fn into_rows(self) -> Result<StudyParams> {
        match self {
            Self::Rows(params) => Ok(params),
            Self::Sites(_) | Self::Preparation(_) => self.rows().cloned(),
        }
    }

    /// The parameters of a study of sites.
    ///
    /// # Errors
    /// `invalid-request` for a study of single rows.
    pub fn sites(&self) -> Result<&SiteStudyParams> {
        match self {
            Self::Sites(params) => Ok(params),
            Self::Rows(_) | Self::Preparation(_) => Err(error!(
                InvalidRequest,
                "each report of this study is of a single row, but this is for studies of sites; use a study of sites"
            )),
        }
    }

    /// The parameters of a preparation.
    ///
    /// # Errors
    /// `invalid-request` for a study of another kind.
    pub fn preparation(&self) -> Result<&PreparationParams> {
        match self {
            Self::Preparation(params) => Ok(params),
            Self::Rows(_) | Self::Sites(_) => Err(error!(
                InvalidRequest,
                "this study is no preparation, so it finds no centers and scales; use a preparation"
            )),
        }
    }

    /// The fingerprint of the first round of the preparation that it is a round of; `None` for a study of another kind.
    pub fn first_round(&self) -> Option<Fingerprint> {
        self.preparation().ok().map(PreparationParams::first_round)
    }

    /// The canonical bytes (`docs/protocol.md`).
    pub fn canonical_bytes(&self) -> Vec<u8> {
        of_any!(self, params => params.canonical_bytes())
    }

    /// SHA-256 of the canonical bytes.
    pub fn fingerprint(&self) -> Fingerprint {
        of_any!(self, params => params.fingerprint())
    }

    /// Dimension p of a row.
    pub fn dimension(&self) -> usize {
        of_any!(self, params => params.dimension())
    }

    /// Dimension of the triangle in which a server adds up reports: P, which is p, or p + 1 with private centring; in a
    /// preparation that of the smallest triangle with room for all counts.
    pub fn sum_dimension(&self) -> usize {
        match self {
            Self::Rows(params) => params.report_dimension(),
            Self::Sites(params) => params.report_dimension(),
            Self::Preparation(params) => params.sum_dimension(),
        }
    }

    /// The preprocessing constants.
    ///
    /// # Errors
    /// `invalid-request` for a preparation, which has none.
    pub fn preprocessing(&self) -> Result<&Preprocessing> {
        match self {
            Self::Sites(params) => Ok(params.preprocessing()),
            Self::Rows(_) | Self::Preparation(_) => self.rows().map(StudyParams::preprocessing),
        }
    }

    /// The preprocessor of these constants.
    ///
    /// # Errors
    /// Those of [`preprocessing`](Self::preprocessing).
    pub fn preprocessor(&self) -> Result<Preprocessor<'_>> {
        self.preprocessing().map(Preprocessor::from_checked)
    }

    /// Feature names, where the study has them.
    pub fn feature_names(&self) -> Option<Vec<String>> {
        match self {
            Self::Rows(params) => params.feature_names(),
            Self::Sites(params) => params.feature_names(),
            Self::Preparation(params) => Some(params.feature_names()),
        }
    }

    /// Number of features that have names.
    pub fn named_features(&self) -> usize {
        match self.preprocessing() {
            Ok(preprocessing) => preprocessing.features.as_ref().map_or(0, Vec::len),
            Err(_) => self.dimension(),
        }
    }

    /// (ε, δ) claimed for one report.
    pub fn budget(&self) -> Budget {
        of_any!(self, params => params.budget())
    }

    /// The name of the mechanism.
    pub fn mechanism_name(&self) -> MechanismName {
        match self {
            Self::Rows(params) => params.mechanism().kind().into(),
            Self::Sites(params) => params.mechanism().kind().into(),
            Self::Preparation(_) => MechanismName::RANDOMISED_RESPONSE,
        }
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        match self {
            Self::Rows(params) => params.payload_len(),
            Self::Sites(params) => params.mechanism().payload_len(),
            Self::Preparation(_) => ANSWER_LEN,
        }
    }

    /// Upper bound on what floating point adds to ε of one report.
    pub fn arithmetic_slack(&self) -> f64 {
        match self {
            Self::Rows(params) => params
                .mechanism()
                .arithmetic_slack(params.report_dimension()),
            Self::Sites(params) => params.mechanism().arithmetic_slack(),
            Self::Preparation(_) => 0.0,
        }
    }

    /// Probability that one report changes the odds between the worst two neighbours by more than e^`epsilon`.
    pub fn privacy_loss_tail(&self, epsilon: f64) -> f64 {
        match self {
            Self::Rows(params) => params.mechanism().privacy_loss_tail(epsilon),
            Self::Sites(params) => params.mechanism().privacy_loss_tail(epsilon),
            Self::Preparation(params) if epsilon >= params.budget().epsilon() => 0.0,
            Self::Preparation(_) => 1.0,
        }
    }

    /// The privacy statement.
    pub fn privacy(&self) -> PrivacyStatement {
        match self {
            Self::Rows(params) => PrivacyStatement::new(params),
            Self::Sites(params) => PrivacyStatement::of_site(params),
            Self::Preparation(params) => PrivacyStatement::of_preparation(params),
        }
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Unchecked {
            version: u16,
            budget: Budget,
            #[serde(default)]
            preprocessing: Option<Preprocessing>,
            #[serde(default)]
            mechanism: Option<Mechanism>,
            #[serde(default)]
            terms: Option<SiteTerms>,
            #[serde(default)]
            columns: Option<Vec<PreparationColumn>>,
            #[serde(default)]
            after: Option<String>,
        }
        let read = Unchecked::deserialize(deserializer)?;
        let (version, budget) = (read.version, read.budget);
        let unexpected = match version {
            PARAMS_VERSION_PREPARATION => [
                ("preprocessing", read.preprocessing.is_some()),
                ("mechanism", read.mechanism.is_some()),
                ("terms of sites", read.terms.is_some()),
            ],
            _ => [
                (
                    "terms of sites",
                    read.terms.is_some() && version != PARAMS_VERSION_SITES,
                ),
                ("columns", read.columns.is_some()),
                ("a first round", read.after.is_some()),
            ],
        };
        if let Some((what, _)) = unexpected.iter().find(|(_, is_there)| *is_there) {
            return Err(D::Error::custom(format!(
                "the study parameters have {what}, but layout version {version}"
            )));
        }
        if version == PARAMS_VERSION_PREPARATION {
            let columns = read.columns.ok_or(D::Error::missing_field("columns"))?;
            return PreparationParams::from_document(columns, budget, read.after.as_deref())
                .map(Self::Preparation)
                .map_err(D::Error::custom);
        }
        let preprocessing = read.preprocessing;
        let preprocessing = preprocessing.ok_or(D::Error::missing_field("preprocessing"))?;
        let mechanism = read.mechanism.ok_or(D::Error::missing_field("mechanism"))?;
        let params = match read.terms {
            Some(terms) => SiteStudyParams::from_document(preprocessing, mechanism, budget, terms)
                .map(Self::Sites),
            None if version == PARAMS_VERSION_SITES => {
                return Err(D::Error::missing_field("terms"));
            }
            None => StudyParams::from_document(version, preprocessing, mechanism, budget)
                .map(Self::Rows),
        };
        params.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::ErrorCode,
        mechanism::MechanismKind,
        preparation::ColumnKind,
        site_study::{SiteStudyDesign, SiteTerms},
        study::StudyDesign,
    };

    fn each() -> [Parameters; 3] {
        let budget = Budget::approximate(1.0, 1e-6).unwrap();
        let terms = SiteTerms {
            rows_per_person: Some(3),
            ..SiteTerms::new(1_000)
        };
        let rows = StudyDesign::new(MechanismKind::DiscreteGaussian, 3, budget);
        [
            StudyParams::freeze(rows).unwrap().into(),
            SiteStudyParams::freeze(SiteStudyDesign::new(3, budget, terms))
                .unwrap()
                .into(),
            PreparationParams::freeze(
                vec![
                    PreparationColumn::new("x", ColumnKind::number(0.0, 8.0)).may_be_missing(),
                    PreparationColumn::new("y", ColumnKind::categories(["a", "b"])),
                    PreparationColumn::new("z", ColumnKind::YesNo),
                ],
                1.0,
                None,
            )
            .unwrap()
            .into(),
        ]
    }

    #[test]
    fn each_kind_is_read_back_from_bytes_and_from_json() {
        for params in each() {
            let bytes = params.canonical_bytes();
            assert_eq!(Parameters::from_canonical(&bytes).unwrap(), params);
            let json = serde_json::to_string(&params).unwrap();
            assert_eq!(serde_json::from_str::<Parameters>(&json).unwrap(), params);
            let is_of = [
                params.rows().map(drop),
                params.sites().map(drop),
                params.preparation().map(drop),
            ];
            assert_eq!(is_of.iter().filter(|read| read.is_ok()).count(), 1);
            for error in is_of.into_iter().filter_map(Result::err) {
                assert_eq!(error.code(), ErrorCode::InvalidRequest);
            }
            assert_eq!(params.rows().is_ok(), params.clone().into_rows().is_ok());
            assert_eq!(
                params.preprocessing().is_ok(),
                params.preparation().is_err()
            );
        }
    }

    #[test]
    fn a_document_of_one_kind_is_not_read_as_another() {
        let [rows, sites, prepares] = each().map(|params| serde_json::to_string(&params).unwrap());
        let read = |json: &str| serde_json::from_str::<Parameters>(json);
        let refused = |json: &str, words: &str| {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(&rows.replace("\"version\":1", "\"version\":3"), "terms");
        refused(&sites.replace("\"version\":3", "\"version\":1"), "terms");
        refused(
            &sites.replace("\"version\":3", "\"version\":4"),
            "preprocessing",
        );
        refused(
            &prepares.replace("\"version\":4", "\"version\":1"),
            "columns",
        );
        refused(
            &prepares.replace("\"version\":4", "\"version\":3"),
            "columns",
        );
        refused(
            &prepares.replace("\"lo\":0.0", "\"lo\":9.0"),
            "must be smaller",
        );
        refused(
            &prepares.replace("\"delta\":0.0", "\"delta\":1e-6"),
            "always 0",
        );
        refused(
            &sites.replace("\"max_rows\":1000", "\"max_rows\":0"),
            "the largest table has 0 persons",
        );
        let site = each()[1].clone();
        let sigma = site.sites().unwrap().mechanism().constants()[1];
        let weaker = sites.replace(&format!("{sigma}"), &format!("{}", sigma - 8.0));
        assert_ne!(weaker, sites);
        refused(&weaker, "do not take part");
    }
}
