//! The frozen, fingerprinted parameters of a study: everything a device needs and nothing about the server.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use crate::fingerprint::{Fingerprint, from_hex, to_hex};
use crate::{
    codec,
    error::{Error, Result, error},
    mechanism::{Calibration, Mechanism, MechanismKind, NoiseModel},
    preparation::PARAMS_VERSION_PREPARATION,
    preprocess::{Feature, Norm, Preprocessing, Preprocessor, Weights},
    privacy::Budget,
    site_study::PARAMS_VERSION_SITES,
};

/// Version of the canonical layout of [`StudyParams`].
pub const PARAMS_VERSION: u16 = 1;
/// Layout version of studies with missing cells or weights; a device that does not know them must refuse.
pub const PARAMS_VERSION_EXTENDED: u16 = 2;

/// The decisions about a study; [`StudyParams::freeze`] derives the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyDesign {
    /// Dimension p of a row, 2 to 65,536 with `double-cap` and to 4,096 with the others (one less with
    /// private centring).
    pub dimension: usize,
    /// Names and public constants of the features.
    pub features: Option<Vec<Feature>>,
    /// How a row is brought into the unit ball.
    pub norm: Norm,
    /// Constant a of private centring; `None`: the mean is not estimated.
    pub centring: Option<f64>,
    /// Per-participant weights; `None`: everyone counts equally.
    pub weights: Option<Weights>,
    /// The local randomizer.
    pub mechanism: MechanismKind,
    /// How its noise is chosen.
    pub calibration: Calibration,
    /// (ε, δ) of one report; δ = 0 for a pure mechanism ([`MechanismKind::budget`]).
    pub budget: Budget,
}

impl StudyDesign {
    /// The default: unnamed features, used unchanged; each row divided by its length; no private centring;
    /// analytic noise.
    pub fn new(mechanism: MechanismKind, dimension: usize, budget: Budget) -> Self {
        Self {
            dimension,
            features: None,
            norm: Norm::Normalize,
            centring: None,
            weights: None,
            mechanism,
            calibration: Calibration::Analytic,
            budget,
        }
    }
}

/// The frozen parameters of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct StudyParams {
    version: u16,
    preprocessing: Preprocessing,
    mechanism: Mechanism,
    budget: Budget,
}

impl StudyParams {
    /// Derives the mechanism's constants and freezes everything.
    ///
    /// # Errors
    /// `invalid-dimension`, `invalid-budget`, `invalid-preprocessing`, `invalid-name`.
    pub fn freeze(design: StudyDesign) -> Result<Self> {
        let preprocessing = Preprocessing {
            dimension: design.dimension,
            features: design.features,
            norm: design.norm,
            centring: design.centring,
            weights: design.weights,
        };
        let mechanism = Mechanism::derive(
            design.mechanism,
            design.calibration,
            preprocessing.report_dimension(),
            design.budget,
        )?;
        Self::new_checked(preprocessing, mechanism, design.budget)
    }

    /// Checks every constant, including the noise.
    pub(crate) fn new_checked(
        preprocessing: Preprocessing,
        mechanism: Mechanism,
        budget: Budget,
    ) -> Result<Self> {
        if preprocessing.dimension < 2 {
            return Err(error!(
                InvalidDimension,
                "the dimension is {}; a row has at least 2 values", preprocessing.dimension
            ));
        }
        mechanism.check(preprocessing.report_dimension(), budget)?;
        preprocessing.check()?;
        check_missing_cells(&preprocessing, mechanism.kind())?;
        check_weights(&preprocessing, mechanism.kind())?;
        Ok(Self {
            version: version_of(&preprocessing),
            preprocessing,
            mechanism,
            budget,
        })
    }

    /// The parameters that a JSON document has, checked.
    pub(crate) fn from_document(
        version: u16,
        preprocessing: Preprocessing,
        mechanism: Mechanism,
        budget: Budget,
    ) -> Result<Self> {
        if version != version_of(&preprocessing) {
            return Err(unsupported_version(version));
        }
        Self::new_checked(preprocessing, mechanism, budget)
    }

    /// The parameters these canonical bytes describe, checked as a device must check them.
    ///
    /// # Errors
    /// `malformed-params`, `unsupported-version`, and every error of [`StudyParams::freeze`];
    /// `invalid-mechanism` when the noise is less than the budget needs.
    pub fn from_canonical(bytes: &[u8]) -> Result<Self> {
        codec::decode_params(bytes)
    }

    /// The canonical bytes (`docs/protocol.md`).
    pub fn canonical_bytes(&self) -> Vec<u8> {
        codec::encode_params(self)
    }

    /// SHA-256 of the canonical bytes.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint(Sha256::digest(self.canonical_bytes()).into())
    }

    /// Dimension p of a row.
    pub fn dimension(&self) -> usize {
        self.preprocessing.dimension
    }

    /// Dimension of a report: p, or p + 1 with private centring.
    pub fn report_dimension(&self) -> usize {
        self.preprocessing.report_dimension()
    }

    /// The preprocessing constants.
    pub fn preprocessing(&self) -> &Preprocessing {
        &self.preprocessing
    }

    /// The preprocessor of these constants.
    pub fn preprocessor(&self) -> Preprocessor<'_> {
        Preprocessor::from_checked(&self.preprocessing)
    }

    /// The mechanism with its constants.
    pub fn mechanism(&self) -> &Mechanism {
        &self.mechanism
    }

    /// The noise of one decoded report, with what the preprocessing says of the rows: under
    /// [`Norm::Normalize`] their squared norm is 1, with private centring too (`(1 + a²)/(1 + a²)`).
    /// Zero rows are the exception; no bound or floor depends on the difference. With weights it is their mean, where
    /// that is public.
    ///
    /// ```
    /// use eigenveil_shared::{
    ///     mechanism::{Calibration, MechanismKind}, preprocess::Norm, privacy::Budget,
    ///     study::{StudyDesign, StudyParams},
    /// };
    /// let design = |norm| StudyDesign { norm, ..StudyDesign::new(MechanismKind::DoubleCap, 64, Budget::pure(4.0).expect("a budget")) };
    /// let normalised = StudyParams::freeze(design(Norm::Normalize))?;
    /// assert_eq!(normalised.noise_model().mean_squared_norm(0.0), Some(1.0));
    /// let clipped = StudyParams::freeze(design(Norm::Clip { radius: 1.0 }))?;
    /// assert_eq!(clipped.noise_model().mean_squared_norm(0.0), None);
    /// # Ok::<(), eigenveil_shared::Error>(())
    /// ```
    pub fn noise_model(&self) -> NoiseModel {
        let known = match self.preprocessing.norm {
            Norm::Normalize => self.preprocessing.weights.map_or(Some(1.0), |own| own.mean),
            Norm::Clip { .. } | Norm::Require { .. } => None,
        };
        self.mechanism.noise_model().with_mean_squared_norm(known)
    }

    /// (ε, δ) claimed for one report.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        self.mechanism.payload_len(self.report_dimension())
    }

    /// Feature names, where the study has them.
    pub fn feature_names(&self) -> Option<Vec<String>> {
        let features = self.preprocessing.features.as_ref()?;
        let names = features.iter().map(|feature| feature.name.clone());
        Some(names.collect())
    }
}

impl<'de> Deserialize<'de> for StudyParams {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Unchecked {
            version: u16,
            preprocessing: Preprocessing,
            mechanism: Mechanism,
            budget: Budget,
        }
        let unchecked = Unchecked::deserialize(deserializer)?;
        Self::from_document(
            unchecked.version,
            unchecked.preprocessing,
            unchecked.mechanism,
            unchecked.budget,
        )
        .map_err(D::Error::custom)
    }
}

pub(crate) fn version_of(preprocessing: &Preprocessing) -> u16 {
    match preprocessing.allows_missing_cells() || preprocessing.weights.is_some() {
        false => PARAMS_VERSION,
        true => PARAMS_VERSION_EXTENDED,
    }
}

/// Dividing by the observed shares needs the diagonal of the moment. Reports of `double-cap` have no trace; `normalize`
/// fixes it, and private centring shows it.
fn check_missing_cells(preprocessing: &Preprocessing, mechanism: MechanismKind) -> Result<()> {
    let mean_weight = preprocessing
        .weights
        .map_or(Some(1.0), |weights| weights.mean);
    let fixes_trace = preprocessing.norm == Norm::Normalize && mean_weight.is_some();
    let shows_trace = mechanism.shows_trace() || fixes_trace || preprocessing.centring.is_some();
    if shows_trace || !preprocessing.allows_missing_cells() {
        return Ok(());
    }
    Err(error!(
        InvalidPreprocessing,
        "the features have observed shares, but reports of {mechanism} show the mean squared length of rows only with private centring, which correcting for missing cells needs: use that, or normalize the rows (and give the mean weight, with weights), or another mechanism"
    ))
}

/// Private centring divides by the mean weight. Where rows have different lengths, `double-cap` reports cannot
/// distinguish the two.
fn check_weights(preprocessing: &Preprocessing, mechanism: MechanismKind) -> Result<()> {
    let measured = mechanism.shows_trace() || preprocessing.norm == Norm::Normalize;
    if measured || preprocessing.centring.is_none() || preprocessing.weights.is_none() {
        return Ok(());
    }
    Err(error!(
        InvalidPreprocessing,
        "private centring of rows that are clipped or must lie in a ball does not work with weights and {mechanism}: normalize the rows, or use another mechanism"
    ))
}

pub(crate) fn unsupported_version(version: u16) -> Error {
    if version == PARAMS_VERSION_SITES {
        return error!(
            UnsupportedVersion,
            "the study parameters have layout version {version}, of a study of sites, whose reports are tables; a report of a single row does not belong to it"
        );
    }
    if version == PARAMS_VERSION_PREPARATION {
        return error!(
            UnsupportedVersion,
            "the study parameters have layout version {version}, of a preparation, whose reports are answers; a report of a whole row does not belong to it"
        );
    }
    error!(
        UnsupportedVersion,
        "the study parameters have layout version {version}, which does not fit them; this program knows {PARAMS_VERSION}, and {PARAMS_VERSION_EXTENDED} with missing cells or weights: update it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn design() -> StudyDesign {
        StudyDesign {
            norm: Norm::Clip { radius: 2.0 },
            ..StudyDesign::new(
                MechanismKind::SymmetricGaussian,
                3,
                Budget::approximate(1.0, 1e-6).unwrap(),
            )
        }
    }

    #[test]
    fn json_round_trip_is_checked() {
        let params = StudyParams::freeze(design()).unwrap();
        let json = serde_json::to_string(&params).unwrap();
        assert_eq!(serde_json::from_str::<StudyParams>(&json).unwrap(), params);
        // Less noise than claimed is refused wherever parameters come in.
        let sigma = params.mechanism().gaussian_noise().unwrap().sigma();
        let weaker = json.replace(&sigma.to_string(), &(sigma * 0.999).to_string());
        assert_ne!(weaker, json);
        let read = |json: &str| serde_json::from_str::<StudyParams>(json);
        let error = read(&weaker).unwrap_err().to_string();
        assert!(error.contains("do not take part"), "{error}");
        assert!(read(&json.replace("\"version\":1", "\"version\":2")).is_err());
    }

    /// Constants that a server could hand out, by both ways in which parameters reach a device.
    #[test]
    fn constants_beyond_the_bounds_are_refused_wherever_they_come_in() {
        let (center, scale, radius) = (3.125, 7.25, 5.5);
        let feature = |name: &str| Feature::new(name, center, scale);
        let params = StudyParams::freeze(StudyDesign {
            features: Some(vec![feature("a"), feature("b"), feature("c")]),
            norm: Norm::Clip { radius },
            ..design()
        })
        .unwrap();
        let bytes = params.canonical_bytes();
        let json = serde_json::to_string(&params).unwrap();
        let edge = 2.0_f64.powi(100);
        for (old, new, allowed) in [
            (scale, edge, true),
            (scale, edge.next_up(), false),
            // Within the range, but the center is too far off.
            (scale, edge.recip(), false),
            (center, (-2.0_f64.powi(32) * scale).next_down(), false),
            (radius, edge.recip().next_down(), false),
        ] {
            let mut bytes = bytes.clone();
            for at in 0..bytes.len() - 8 {
                if bytes[at..at + 8] == f64::to_le_bytes(old) {
                    bytes[at..at + 8].copy_from_slice(&f64::to_le_bytes(new));
                }
            }
            let read = StudyParams::from_canonical(&bytes);
            let json = json.replace(&format!(":{old}"), &format!(":{new:e}"));
            let parsed = serde_json::from_str::<StudyParams>(&json);
            if allowed {
                assert_eq!(read.unwrap(), parsed.unwrap());
            } else {
                let error = read.unwrap_err();
                assert_eq!(error.code(), ErrorCode::InvalidPreprocessing, "{new:e}");
                let parsed = parsed.unwrap_err().to_string();
                assert!(parsed.contains("invalid-preprocessing"), "{parsed}");
            }
        }
    }

    /// Where floating point could add more than a hundredth to ε, no f64 noise can satisfy the claimed ε.
    #[test]
    fn budgets_below_rounding_error_are_rejected() {
        for mechanism in [
            MechanismKind::SymmetricGaussian,
            MechanismKind::IsotropicGaussian,
        ] {
            let freeze = |dimension, epsilon| {
                StudyParams::freeze(StudyDesign {
                    dimension,
                    norm: Norm::Normalize,
                    mechanism,
                    budget: Budget::approximate(epsilon, 1e-6).unwrap(),
                    ..design()
                })
            };
            let slack = |dimension| {
                let params = freeze(dimension, 1.0).unwrap();
                params.mechanism().arithmetic_slack(dimension)
            };
            assert!(slack(40) < 2e-8 && slack(400) < 2e-6 && slack(4_096) < 3e-4);
            let error = freeze(4_096, 0.5 * 100.0 * slack(4_096) / 3.0).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidBudget);
            assert!(error.detail().contains("discrete-gaussian"), "{error}");
            assert!(freeze(4_096, 0.1).is_ok() && freeze(2, 1e-6).is_ok());
        }
    }

    #[test]
    fn every_field_moves_the_fingerprint() {
        let features = || Some(["a", "b", "c"].map(|a| Feature::new(a, 0.0, 1.0)).into());
        let observed = |shares: [f64; 3], section: Option<&str>| {
            let features = ["a", "b", "c"].into_iter().zip(shares);
            let feature = |(name, share)| Feature {
                section: section.map(str::to_owned),
                ..Feature::new(name, 0.0, 1.0).observed(share)
            };
            Some(features.map(feature).collect::<Vec<_>>())
        };
        let weights = |mean| Some(Weights { mean });
        let changes: [&dyn Fn(&mut StudyDesign); 18] = [
            &|_| {},
            &|design| design.dimension = 4,
            &|design| design.features = features(),
            &|design| design.norm = Norm::Clip { radius: 2.5 },
            &|design| design.norm = Norm::Normalize,
            &|design| design.norm = Norm::Require { radius: 2.0 },
            &|design| design.mechanism = MechanismKind::IsotropicGaussian,
            &|design| design.calibration = Calibration::AsPublished,
            &|design| design.centring = Some(0.5),
            &|design| design.centring = Some(1.0),
            &|design| {
                design.mechanism = MechanismKind::DoubleCap;
                design.budget = Budget::pure(1.0).unwrap();
            },
            &|design| design.budget = Budget::approximate(1.5, 1e-6).unwrap(),
            &|design| design.budget = Budget::approximate(1.0, 1e-7).unwrap(),
            &|design| design.features = observed([1.0, 1.0, 1.0], None),
            &|design| design.features = observed([0.9, 0.9, 0.9], None),
            &|design| design.features = observed([0.9, 0.9, 0.9], Some("part")),
            &|design| design.weights = weights(None),
            &|design| design.weights = weights(Some(0.5)),
        ];
        let fingerprints = changes.map(|change| {
            let mut design = design();
            change(&mut design);
            let params = StudyParams::freeze(design).unwrap();
            let read = StudyParams::from_canonical(&params.canonical_bytes()).unwrap();
            assert_eq!(read, params);
            let json = serde_json::to_string(&params).unwrap();
            assert_eq!(serde_json::from_str::<StudyParams>(&json).unwrap(), params);
            params.fingerprint().0
        });
        assert_eq!(std::collections::HashSet::from(fingerprints).len(), 18);
    }

    #[test]
    fn wrong_parameters_are_refused() {
        use ErrorCode::{InvalidBudget, InvalidDimension, InvalidMechanism, InvalidPreprocessing};
        use MechanismKind::{DoubleCap, SymmetricGaussian};
        let pure = |epsilon| Budget::pure(epsilon).unwrap();
        let usual = design().budget;
        let large = Budget::approximate(16.1, 1e-6).unwrap();
        for (mechanism, dimension, budget, centring, code) in [
            (SymmetricGaussian, 0, usual, None, InvalidDimension),
            (SymmetricGaussian, 1, usual, None, InvalidDimension),
            (SymmetricGaussian, 4_097, usual, None, InvalidDimension),
            (SymmetricGaussian, 4_096, usual, Some(0.7), InvalidDimension),
            (SymmetricGaussian, 3, pure(1.0), None, InvalidBudget),
            (SymmetricGaussian, 3, large, None, InvalidBudget),
            (DoubleCap, 3, usual, None, InvalidBudget),
            (DoubleCap, 3, pure(16.1), None, InvalidBudget),
            (DoubleCap, 65_536, pure(1.0), Some(0.7), InvalidDimension),
        ] {
            let design = StudyDesign {
                centring,
                ..StudyDesign::new(mechanism, dimension, budget)
            };
            assert_eq!(StudyParams::freeze(design).unwrap_err().code(), code);
        }
        let no_radius = StudyDesign {
            norm: Norm::Clip { radius: 0.0 },
            ..design()
        };
        let no_choice = StudyDesign {
            calibration: Calibration::AsPublished,
            ..StudyDesign::new(DoubleCap, 3, pure(1.0))
        };
        for (design, code) in [
            (no_radius, InvalidPreprocessing),
            (no_choice, InvalidMechanism),
        ] {
            assert_eq!(StudyParams::freeze(design).unwrap_err().code(), code);
        }
    }

    #[test]
    fn hex_round_trip() {
        assert_eq!(to_hex(&[0, 255, 16]), "00ff10");
        assert_eq!(from_hex("00fF10"), Some(vec![0, 255, 16]));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
        assert_eq!(from_hex("é0"), None);
    }
}
