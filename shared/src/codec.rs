//! The byte layout of everything that travels or is fingerprinted; the only module that names bincode.
//!
//! bincode 1.3.3 with fixed-width little-endian integers, trailing bytes refused and a size limit
//! derived from the study. `docs/protocol.md` describes the layout byte by byte, and the golden
//! vectors in `shared/tests/shared/codec_vectors.rs` hold it, so that it does not depend on the crate's future.
//! Payloads travel as one contiguous run and are borrowed, never copied, when decoded.

mod preparation;
mod sites;

use std::{array, sync::Arc};

use bincode::Options;
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    error::{Error, ErrorCode, Result, error},
    mechanism::{
        Calibration, Mechanism, MechanismKind, NormBound, Payload, PayloadKind, check_len,
        randomised_response::{ANSWER_LEN, Answer, Question},
    },
    preparation::PreparationParams,
    preprocess::{Feature, Norm, Preprocessing, Weights},
    privacy::Budget,
    report::{Report, ReportId, ValidatedReport},
    study::{
        Fingerprint, PARAMS_VERSION, PARAMS_VERSION_EXTENDED, StudyParams, unsupported_version,
        version_of,
    },
};

pub(crate) use preparation::{decode_preparation_params, encode_preparation_params};
pub use sites::{
    SITE_WIRE_VERSION, SiteReportFormat, ValidatedSiteReport, decode_site_report,
    encode_site_report,
};
pub(crate) use sites::{decode_site_params, encode_site_params};

/// Version of the report and batch layouts.
pub const WIRE_VERSION: u16 = 1;

/// Most reports in one batch, whatever their size.
pub const MAX_BATCH_REPORTS: usize = 65_536;
/// Largest batch body in bytes, unless a single report is larger.
pub const MAX_BATCH_BYTES: usize = 8 << 20;
/// Largest canonical parameters accepted: 65,536 named features.
const MAX_PARAMS_BYTES: u64 = 32 << 20;

/// Version, fingerprint, identifier, payload length.
const REPORT_ENVELOPE: usize = 2 + 32 + 16 + 8;
/// Version, fingerprint, payload length, length of the run.
const BATCH_ENVELOPE: usize = 2 + 32 + 8 + 8;

fn options() -> impl Options {
    bincode::DefaultOptions::new()
        .with_fixint_encoding()
        .with_little_endian()
        .reject_trailing_bytes()
}

/// A contiguous run of bytes: length as u64, then the bytes, borrowed when read.
#[derive(Deserialize)]
struct ByteRun<'a>(#[serde(borrow)] &'a [u8]);

impl Serialize for ByteRun<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// A fingerprint in two words: byte by byte it would cost a server more than the rest of a report.
#[derive(Serialize, Deserialize)]
struct Halves([u128; 2]);

impl From<Fingerprint> for Halves {
    fn from(Fingerprint(bytes): Fingerprint) -> Self {
        let (halves, _) = bytes.as_chunks();
        Self(array::from_fn(|i| u128::from_le_bytes(halves[i])))
    }
}

impl From<Halves> for Fingerprint {
    fn from(Halves(words): Halves) -> Self {
        let mut bytes = [0; 32];
        for (half, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *half = word.to_le_bytes();
        }
        Self(bytes)
    }
}

#[derive(Serialize, Deserialize)]
struct WireReport<'a> {
    version: u16,
    fingerprint: Halves,
    id: u128,
    #[serde(borrow)]
    payload: ByteRun<'a>,
}

#[derive(Serialize, Deserialize)]
struct WireBatch<'a> {
    version: u16,
    fingerprint: Halves,
    payload_len: u64,
    #[serde(borrow)]
    run: ByteRun<'a>,
}

#[derive(Serialize, Deserialize)]
struct WireParams {
    version: u16,
    dimension: u32,
    norm: u8,
    radius: f64,
    /// Name, center and scale of each.
    features: Option<Vec<(String, f64, f64)>>,
    centring: Option<f64>,
    epsilon: f64,
    delta: f64,
    mechanism: u8,
    calibration: u8,
    constants: Vec<f64>,
}

impl WireParams {
    fn without_mechanism(version: u16, preprocessing: &Preprocessing, budget: Budget) -> Self {
        let (norm, radius) = match preprocessing.norm {
            Norm::Normalize => (0, 0.0),
            Norm::Clip { radius } => (1, radius),
            Norm::Require { radius } => (2, radius),
        };
        Self {
            version,
            #[expect(
                clippy::cast_possible_truncation,
                reason = "checked to be at most 65,536"
            )]
            dimension: preprocessing.dimension as u32,
            norm,
            radius,
            features: preprocessing.features.as_ref().map(|features| {
                let features = features.iter();
                features
                    .map(|f| (f.name.clone(), f.center, f.scale))
                    .collect()
            }),
            centring: preprocessing.centring,
            epsilon: budget.epsilon(),
            delta: budget.delta(),
            mechanism: 0,
            calibration: 0,
            constants: Vec::new(),
        }
    }

    /// The preprocessing without missing cells and weights, and the mechanism without its constants.
    fn read(&mut self) -> Result<(Preprocessing, MechanismKind, Calibration)> {
        let norm = match (self.norm, self.radius) {
            (0, 0.0) => Norm::Normalize,
            (1, radius) => Norm::Clip { radius },
            (2, radius) => Norm::Require { radius },
            (tag, radius) => {
                return Err(malformed_params(format!(
                    "unknown norm {tag} with radius {radius}"
                )));
            }
        };
        let kind = MechanismKind::from_number(self.mechanism).ok_or_else(|| {
            error!(
                InvalidMechanism,
                "the study uses mechanism number {}, which this program does not know: update it",
                self.mechanism
            )
        })?;
        let calibration = match self.calibration {
            0 => Calibration::Analytic,
            1 => Calibration::AsPublished,
            tag => return Err(malformed_params(format!("unknown calibration {tag}"))),
        };
        let preprocessing = Preprocessing {
            dimension: self.dimension as usize,
            features: self.features.take().map(|features| {
                let features = features.into_iter();
                features
                    .map(|(name, center, scale)| Feature::new(name, center, scale))
                    .collect()
            }),
            norm,
            centring: self.centring,
            weights: None,
        };
        Ok((preprocessing, kind, calibration))
    }

    /// The mechanism of reports of this dimension, unchecked.
    fn read_mechanism(
        &self,
        kind: MechanismKind,
        calibration: Calibration,
        report_dimension: usize,
    ) -> Result<Mechanism> {
        Mechanism::from_constants(
            kind,
            calibration,
            report_dimension,
            self.epsilon,
            &self.constants,
        )
        .ok_or_else(|| {
            malformed_params(format!(
                "{} constants do not fit {kind}",
                self.constants.len()
            ))
        })
    }
}

/// The fields after [`WireParams`] in version 2.
#[derive(Serialize, Deserialize)]
struct WireExtension {
    /// Share and section of each feature; empty where cells may not be missing.
    observed: Vec<(f64, Option<String>)>,
    /// The mean weight, if it is known, in a study with weights.
    weights: Option<Option<f64>>,
}

/// Bytes of one encoded report with a payload of this length.
pub const fn report_len(payload_len: usize) -> usize {
    REPORT_ENVELOPE + payload_len
}

/// Bytes of an encoded batch of `count` reports with payloads of this length.
pub const fn batch_len(payload_len: usize, count: usize) -> usize {
    BATCH_ENVELOPE + count * (16 + payload_len)
}

/// Most reports of this payload length that one batch may hold: at least one.
pub fn max_batch(payload_len: usize) -> usize {
    ((MAX_BATCH_BYTES - BATCH_ENVELOPE) / (16 + payload_len)).clamp(1, MAX_BATCH_REPORTS)
}

/// Encodes one report.
pub fn encode_report(report: &Report) -> Vec<u8> {
    encode_envelope(WIRE_VERSION, report)
}

fn encode_envelope(version: u16, report: &Report) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(report_len(report.payload.len()));
    let wire = WireReport {
        version,
        fingerprint: report.fingerprint.into(),
        id: u128::from_le_bytes(report.id.0),
        payload: ByteRun(&report.payload),
    };
    write(&mut bytes, &wire);
    bytes
}

/// Decodes and validates one report for the study it claims.
///
/// # Errors
/// `malformed-report`, `unsupported-version`, `wrong-fingerprint`, `wrong-payload-length`,
/// `payload-not-finite`, `payload-out-of-range`, `implausible-report`. Nothing is allocated, whatever a length prefix says.
pub fn decode_report<'a>(bytes: &'a [u8], study: &ReportFormat) -> Result<ValidatedReport<'a>> {
    let (id, payload) = decode_envelope(bytes, WIRE_VERSION, study.fingerprint, study.payload_len)?;
    validate(id, payload, study)
}

/// Identifier and payload of a report of this wire version and study, with a payload of at most this length.
fn decode_envelope(
    bytes: &[u8],
    version: u16,
    fingerprint: Fingerprint,
    payload_len: usize,
) -> Result<(ReportId, &[u8])> {
    check_wire_version(bytes, version)?;
    let wire: WireReport<'_> = read(bytes, report_len(payload_len))?;
    check_fingerprint(wire.fingerprint.into(), fingerprint)?;
    Ok((ReportId(wire.id.to_le_bytes()), wire.payload.0))
}

/// Encodes a batch of `(identifier, payload)` pairs for one study.
///
/// # Errors
/// `wrong-payload-length` when a payload has another length than the study's.
pub fn encode_batch<'a>(
    study: &ReportFormat,
    reports: impl IntoIterator<Item = (ReportId, &'a [u8])>,
) -> Result<Vec<u8>> {
    let mut run = Vec::new();
    for (id, payload) in reports {
        check_len(payload.len(), study.payload_len)?;
        run.extend_from_slice(&id.0);
        run.extend_from_slice(payload);
    }
    let mut bytes = Vec::with_capacity(BATCH_ENVELOPE + run.len());
    let wire = WireBatch {
        version: WIRE_VERSION,
        fingerprint: study.fingerprint.into(),
        payload_len: study.payload_len as u64,
        run: ByteRun(&run),
    };
    write(&mut bytes, &wire);
    Ok(bytes)
}

/// Decodes a batch: an outer error when the frame is wrong, an inner one per report.
///
/// # Errors
/// `malformed-report`, `unsupported-version`, `wrong-fingerprint`, `wrong-payload-length` for the
/// frame; `malformed-report`, `payload-not-finite`, `payload-out-of-range` and `implausible-report` for a report.
pub fn decode_batch<'a>(
    bytes: &'a [u8],
    study: &ReportFormat,
) -> Result<Vec<Result<ValidatedReport<'a>>>> {
    check_wire_version(bytes, WIRE_VERSION)?;
    let longest = batch_len(study.payload_len, max_batch(study.payload_len));
    let wire: WireBatch<'a> = read(bytes, longest)?;
    check_fingerprint(wire.fingerprint.into(), study.fingerprint)?;
    let len = usize::try_from(wire.payload_len).unwrap_or(usize::MAX);
    check_len(len, study.payload_len)?;
    let stride = 16 + study.payload_len;
    if wire.run.0.is_empty() || !wire.run.0.len().is_multiple_of(stride) {
        return Err(malformed(format!(
            "the batch holds {} bytes, which is not one or more reports of {stride}",
            wire.run.0.len()
        )));
    }
    let report = |chunk: &'a [u8]| match chunk.split_first_chunk() {
        Some((id, payload)) => validate(ReportId(*id), payload, study),
        None => Err(malformed("a report has no identifier".to_owned())),
    };
    Ok(wire.run.0.chunks_exact(stride).map(report).collect())
}

/// The format of a study's reports of single rows: fingerprint and payload, computed once.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportFormat {
    fingerprint: Fingerprint,
    payload_len: usize,
    content: ContentFormat,
}

#[derive(Clone, Debug, PartialEq)]
enum ContentFormat {
    Moment {
        kind: PayloadKind,
        norm_bound: Option<NormBound>,
    },
    /// Answers to a preparation's questions.
    Answers(Arc<[Question]>),
}

impl ReportFormat {
    /// The format of these parameters' reports.
    pub fn new(params: &StudyParams) -> Self {
        Self {
            fingerprint: params.fingerprint(),
            payload_len: params.payload_len(),
            content: ContentFormat::Moment {
                kind: params.mechanism().payload_kind(),
                norm_bound: params.mechanism().norm_bound(params.report_dimension()),
            },
        }
    }

    /// The format of a preparation's reports.
    pub fn of_preparation(params: &PreparationParams) -> Self {
        Self {
            fingerprint: params.fingerprint(),
            payload_len: ANSWER_LEN,
            content: ContentFormat::Answers(params.mechanism().shared_questions()),
        }
    }

    /// A format without parameters and norm test: for golden vectors and benchmarks.
    #[doc(hidden)]
    pub fn without_params(fingerprint: Fingerprint, kind: PayloadKind, len: usize) -> Self {
        Self {
            fingerprint,
            payload_len: len,
            content: ContentFormat::Moment {
                kind,
                norm_bound: None,
            },
        }
    }

    /// Fingerprint of the study's parameters.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Bytes of one payload.
    pub fn payload_len(&self) -> usize {
        self.payload_len
    }

    /// The kind of the payload; `None` for answers of a preparation.
    pub fn payload_kind(&self) -> Option<PayloadKind> {
        match self.content {
            ContentFormat::Moment { kind, .. } => Some(kind),
            ContentFormat::Answers(_) => None,
        }
    }

    /// Validates a payload. Nothing else turns bytes into a value that can be added to a sum.
    ///
    /// # Errors
    /// `wrong-payload-length`, `payload-not-finite`, `payload-out-of-range`, `implausible-report`.
    pub fn payload<B: AsRef<[u8]>>(&self, bytes: B) -> Result<Payload<B>> {
        match &self.content {
            ContentFormat::Moment { kind, norm_bound } => {
                let payload = kind.read(bytes, self.payload_len)?;
                if let Some(bound) = norm_bound {
                    bound.check(&payload)?;
                }
                Ok(payload)
            }
            ContentFormat::Answers(questions) => {
                Ok(Payload::Answer(Answer::read(bytes.as_ref(), questions)?))
            }
        }
    }
}

/// The version of the layout of canonical bytes.
pub(crate) fn params_version(bytes: &[u8]) -> Result<u16> {
    first_version(bytes, malformed_params)
}

/// The canonical bytes of study parameters.
pub(crate) fn encode_params(params: &StudyParams) -> Vec<u8> {
    let (preprocessing, mechanism) = (params.preprocessing(), params.mechanism());
    let wire = WireParams {
        mechanism: mechanism.kind().number(),
        calibration: match mechanism.calibration() {
            None | Some(Calibration::Analytic) => 0,
            Some(Calibration::AsPublished) => 1,
        },
        constants: mechanism.constants(),
        ..WireParams::without_mechanism(version_of(preprocessing), preprocessing, params.budget())
    };
    let mut bytes = Vec::new();
    write(&mut bytes, &wire);
    if version_of(preprocessing) == PARAMS_VERSION_EXTENDED {
        let features = preprocessing.features.iter().flatten();
        let observed = features.filter_map(|f| Some((f.observed?, f.section.clone())));
        let extension = WireExtension {
            observed: observed.collect(),
            weights: preprocessing.weights.map(|weights| weights.mean),
        };
        write(&mut bytes, &extension);
    }
    bytes
}

/// Reads canonical bytes; the result has been checked as a device must.
pub(crate) fn decode_params(bytes: &[u8]) -> Result<StudyParams> {
    let (mut wire, extension): (WireParams, Option<WireExtension>) = match params_version(bytes)? {
        PARAMS_VERSION => (read_params(bytes)?, None),
        PARAMS_VERSION_EXTENDED => {
            let (wire, extension) = read_params(bytes)?;
            (wire, Some(extension))
        }
        version => return Err(unsupported_version(version)),
    };
    let (mut preprocessing, kind, calibration) = wire.read()?;
    let weights = extension.as_ref().and_then(|extension| extension.weights);
    preprocessing.weights = weights.map(|mean| Weights { mean });
    let observed = extension.map_or_else(Vec::new, |extension| extension.observed);
    // A number of shares that does not fit is refused with what is not canonical.
    let features = preprocessing.features.iter_mut().flatten();
    for (feature, observed) in features.zip(observed) {
        (feature.observed, feature.section) = (Some(observed.0), observed.1);
    }
    let mechanism = wire.read_mechanism(kind, calibration, preprocessing.report_dimension())?;
    let params = StudyParams::new_checked(
        preprocessing,
        mechanism,
        Budget::new(wire.epsilon, wire.delta)?,
    )?;
    check_canonical(bytes, &encode_params(&params))?;
    Ok(params)
}

fn read_params<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    let read = options().with_limit(MAX_PARAMS_BYTES).deserialize(bytes);
    read.map_err(|error| malformed_params(format!("the study parameters cannot be read: {error}")))
}

/// Each set of parameters has exactly one encoding; −0.0 would be a second encoding of 0.
fn check_canonical(bytes: &[u8], encoded: &[u8]) -> Result<()> {
    if encoded == bytes {
        return Ok(());
    }
    Err(malformed_params(
        "the study parameters are not in canonical form".to_owned(),
    ))
}

fn validate<'a>(
    id: ReportId,
    payload: &'a [u8],
    study: &ReportFormat,
) -> Result<ValidatedReport<'a>> {
    check_id(id)?;
    Ok(ValidatedReport::new(id, study.payload(payload)?))
}

fn check_id(id: ReportId) -> Result<()> {
    if id.is_well_formed() {
        return Ok(());
    }
    Err(malformed(format!(
        "the report identifier {id} is not in UUIDv7 layout"
    )))
}

fn check_fingerprint(fingerprint: Fingerprint, study: Fingerprint) -> Result<()> {
    if fingerprint == study {
        return Ok(());
    }
    Err(error!(
        WrongFingerprint,
        "the report was made for study parameters {fingerprint} but this study's are {study}; fetch the study again"
    ))
}

fn check_wire_version(bytes: &[u8], expected: u16) -> Result<()> {
    let refused = match first_version(bytes, malformed)? {
        version if version == expected => return Ok(()),
        SITE_WIRE_VERSION => {
            "the report is a site's table (wire version 2), but this study takes reports of single rows (version 1)".to_owned()
        }
        WIRE_VERSION => {
            "the report is that of a single row (wire version 1), but this study takes tables of sites (version 2)".to_owned()
        }
        version => format!(
            "the report has wire version {version}, but this program knows version {expected} of this study's reports: update the older of the two"
        ),
    };
    Err(Error::new(ErrorCode::UnsupportedVersion, refused))
}

fn first_version(bytes: &[u8], malformed: fn(String) -> Error) -> Result<u16> {
    match bytes {
        [low, high, ..] => Ok(u16::from_le_bytes([*low, *high])),
        _ => Err(malformed(format!(
            "{} bytes are too few to hold a version",
            bytes.len()
        ))),
    }
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8], limit: usize) -> Result<T> {
    options().with_limit(limit as u64).deserialize(bytes).map_err(|error| {
        malformed(format!(
            "{} bytes do not hold what they announce ({error}); the limit here is {limit} bytes",
            bytes.len()
        ))
    })
}

fn write<T: Serialize>(bytes: &mut Vec<u8>, value: &T) {
    // Writing plain numbers and byte runs to memory has no way to fail.
    #[expect(
        clippy::expect_used,
        reason = "infallible: a Vec takes any write and lengths are known"
    )]
    options()
        .serialize_into(bytes, value)
        .expect("encoding to memory");
}

fn malformed_params(detail: String) -> Error {
    Error::new(ErrorCode::MalformedParams, detail)
}

fn malformed(detail: String) -> Error {
    Error::new(ErrorCode::MalformedReport, detail)
}
