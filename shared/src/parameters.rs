//! The parameters of a study, whether a report is of a single row or of a site's table.

use serde::{Deserialize, Serialize};

use crate::{
    codec,
    error::{Result, error},
    fingerprint::Fingerprint,
    mechanism::{Mechanism, MechanismKind},
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

/// The frozen parameters of a study of either unit. Its JSON is the readable form: the canonical bytes are what is
/// fingerprinted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Parameters {
    /// Each report is of a single row.
    Rows(StudyParams),
    /// Each report is of a site's table.
    Sites(SiteStudyParams),
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

/// Evaluates an expression of the parameters of either unit.
macro_rules! of_either {
    ($parameters:expr, $own:ident => $result:expr) => {
        match $parameters {
            Parameters::Rows($own) => $result,
            Parameters::Sites($own) => $result,
        }
    };
}

impl Parameters {
    /// The parameters these canonical bytes describe, checked as a device must check them.
    ///
    /// # Errors
    /// Those of [`StudyParams::from_canonical`] and [`SiteStudyParams::from_canonical`].
    pub fn from_canonical(bytes: &[u8]) -> Result<Self> {
        match codec::params_version(bytes)? {
            PARAMS_VERSION_SITES => SiteStudyParams::from_canonical(bytes).map(Self::Sites),
            _ => StudyParams::from_canonical(bytes).map(Self::Rows),
        }
    }

    /// The sender of a report.
    pub fn unit(&self) -> StudyUnit {
        match self {
            Self::Rows(_) => StudyUnit::Row,
            Self::Sites(_) => StudyUnit::Site,
        }
    }

    /// The parameters of a study of single rows.
    ///
    /// # Errors
    /// `invalid-request` for a study of sites.
    pub fn rows(&self) -> Result<&StudyParams> {
        match self {
            Self::Rows(params) => Ok(params),
            Self::Sites(_) => Err(error!(
                InvalidRequest,
                "each report of this study is a site's table, but this is for studies of single rows; use a study of single rows"
            )),
        }
    }

    /// The parameters of a study of single rows, owned.
    ///
    /// # Errors
    /// `invalid-request` for a study of sites.
    pub fn into_rows(self) -> Result<StudyParams> {
        match self {
            Self::Rows(params) => Ok(params),
            Self::Sites(_) => self.rows().cloned(),
        }
    }

    /// The parameters of a study of sites.
    ///
    /// # Errors
    /// `invalid-request` for a study of single rows.
    pub fn sites(&self) -> Result<&SiteStudyParams> {
        match self {
            Self::Sites(params) => Ok(params),
            Self::Rows(_) => Err(error!(
                InvalidRequest,
                "each report of this study is of a single row, but this is for studies of sites; use a study of sites"
            )),
        }
    }

    /// The canonical bytes (`docs/protocol.md`).
    pub fn canonical_bytes(&self) -> Vec<u8> {
        of_either!(self, params => params.canonical_bytes())
    }

    /// SHA-256 of the canonical bytes.
    pub fn fingerprint(&self) -> Fingerprint {
        of_either!(self, params => params.fingerprint())
    }

    /// Dimension p of a row.
    pub fn dimension(&self) -> usize {
        of_either!(self, params => params.dimension())
    }

    /// Dimension P of a report: p, or p + 1 with private centring.
    pub fn report_dimension(&self) -> usize {
        of_either!(self, params => params.report_dimension())
    }

    /// The preprocessing constants.
    pub fn preprocessing(&self) -> &Preprocessing {
        of_either!(self, params => params.preprocessing())
    }

    /// The preprocessor of these constants.
    pub fn preprocessor(&self) -> Preprocessor<'_> {
        Preprocessor::from_checked(self.preprocessing())
    }

    /// Feature names, where the study has them.
    pub fn feature_names(&self) -> Option<Vec<String>> {
        of_either!(self, params => params.feature_names())
    }

    /// (ε, δ) claimed for one report.
    pub fn budget(&self) -> Budget {
        of_either!(self, params => params.budget())
    }

    /// The name of the mechanism.
    pub fn mechanism_kind(&self) -> MechanismKind {
        of_either!(self, params => params.mechanism().kind())
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        match self {
            Self::Rows(params) => params.payload_len(),
            Self::Sites(params) => params.mechanism().payload_len(),
        }
    }

    /// Upper bound on what floating point adds to ε of one report.
    pub fn arithmetic_slack(&self) -> f64 {
        match self {
            Self::Rows(params) => params
                .mechanism()
                .arithmetic_slack(params.report_dimension()),
            Self::Sites(params) => params.mechanism().arithmetic_slack(),
        }
    }

    /// Probability that one report changes the odds between the worst two neighbours by more than e^`epsilon`.
    pub fn privacy_loss_tail(&self, epsilon: f64) -> f64 {
        of_either!(self, params => params.mechanism().privacy_loss_tail(epsilon))
    }

    /// The privacy statement.
    pub fn privacy(&self) -> PrivacyStatement {
        match self {
            Self::Rows(params) => PrivacyStatement::new(params),
            Self::Sites(params) => PrivacyStatement::of_site(params),
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
            preprocessing: Preprocessing,
            mechanism: Mechanism,
            budget: Budget,
            #[serde(default)]
            terms: Option<SiteTerms>,
        }
        let Unchecked {
            version,
            preprocessing,
            mechanism,
            budget,
            terms,
        } = Unchecked::deserialize(deserializer)?;
        let read = match (version, terms) {
            (PARAMS_VERSION_SITES, Some(terms)) => {
                SiteStudyParams::from_document(preprocessing, mechanism, budget, terms)
                    .map(Self::Sites)
            }
            (PARAMS_VERSION_SITES, None) => {
                return Err(D::Error::missing_field("terms"));
            }
            (_, Some(_)) => {
                return Err(D::Error::custom(format!(
                    "the study parameters have terms of sites, but layout version {version}"
                )));
            }
            (version, None) => {
                StudyParams::from_document(version, preprocessing, mechanism, budget)
                    .map(Self::Rows)
            }
        };
        read.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::ErrorCode,
        site_study::{SiteStudyDesign, SiteTerms},
        study::StudyDesign,
    };

    fn either() -> [Parameters; 2] {
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
        ]
    }

    #[test]
    fn either_unit_is_read_back_from_bytes_and_from_json() {
        for params in either() {
            let bytes = params.canonical_bytes();
            assert_eq!(Parameters::from_canonical(&bytes).unwrap(), params);
            let json = serde_json::to_string(&params).unwrap();
            assert_eq!(serde_json::from_str::<Parameters>(&json).unwrap(), params);
            assert_eq!(params.rows().is_ok(), params.unit() == StudyUnit::Row);
            assert_eq!(params.sites().is_ok(), params.unit() == StudyUnit::Site);
            let other = match params.unit() {
                StudyUnit::Row => params.sites().err(),
                StudyUnit::Site => params.rows().err(),
            };
            assert_eq!(other.unwrap().code(), ErrorCode::InvalidRequest);
        }
    }

    #[test]
    fn a_document_of_one_unit_is_not_read_as_the_other() {
        let [rows, sites] = either().map(|params| serde_json::to_string(&params).unwrap());
        let read = |json: &str| serde_json::from_str::<Parameters>(json);
        let refused = |json: &str, words: &str| {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        refused(&rows.replace("\"version\":1", "\"version\":3"), "terms");
        refused(&sites.replace("\"version\":3", "\"version\":1"), "terms");
        refused(&sites.replace("\"version\":3", "\"version\":4"), "terms");
        refused(
            &sites.replace("\"max_rows\":1000", "\"max_rows\":0"),
            "the largest table has 0 persons",
        );
        let site = either()[1].clone();
        let sigma = site.sites().unwrap().mechanism().constants()[1];
        let weaker = sites.replace(&format!("{sigma}"), &format!("{}", sigma - 8.0));
        assert_ne!(weaker, sites);
        refused(&weaker, "do not take part");
    }
}
