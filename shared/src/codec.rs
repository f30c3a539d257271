//! The byte layout of everything that travels or is fingerprinted; the only module that names bincode.
//!
//! bincode 1.3.3 with fixed-width little-endian integers, trailing bytes refused and a size limit
//! derived from the study. `docs/protocol.md` describes the layout byte by byte, and the golden
//! vectors in `shared/tests/shared/codec_vectors.rs` hold it, so that it does not depend on the crate's future.
//! Payloads travel as one contiguous run and are borrowed, never copied, when decoded.

use std::array;

use bincode::Options;
use serde::{Deserialize, Serialize, Serializer};

use crate::{
    error::{Error, ErrorCode, Result, error},
    mechanism::{
        Calibration, Mechanism, MechanismKind, NormBound, Payload, PayloadKind, check_len,
    },
    preprocess::{Feature, Norm, Preprocessing, Weights},
    privacy::Budget,
    report::{Report, ReportId, ValidatedReport},
    study::{
        Fingerprint, PARAMS_VERSION, PARAMS_VERSION_EXTENDED, StudyParams, unsupported_version,
        version_of,
    },
};

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
    let mut bytes = Vec::with_capacity(report_len(report.payload.len()));
    let wire = WireReport {
        version: WIRE_VERSION,
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
    check_wire_version(bytes)?;
    let wire: WireReport<'a> = read(bytes, report_len(study.payload_len))?;
    check_fingerprint(wire.fingerprint.into(), study)?;
    validate(ReportId(wire.id.to_le_bytes()), wire.payload.0, study)
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
    check_wire_version(bytes)?;
    let longest = batch_len(study.payload_len, max_batch(study.payload_len));
    let wire: WireBatch<'a> = read(bytes, longest)?;
    check_fingerprint(wire.fingerprint.into(), study)?;
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

/// The format of a study's reports: fingerprint and payload, computed once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportFormat {
    fingerprint: Fingerprint,
    payload_len: usize,
    payload_kind: PayloadKind,
    norm_bound: Option<NormBound>,
}

impl ReportFormat {
    /// The format of these parameters' reports.
    pub fn new(params: &StudyParams) -> Self {
        Self {
            fingerprint: params.fingerprint(),
            payload_len: params.payload_len(),
            payload_kind: params.mechanism().payload_kind(),
            norm_bound: params.mechanism().norm_bound(params.report_dimension()),
        }
    }

    /// A format without parameters and norm test: for golden vectors and benchmarks.
    #[doc(hidden)]
    pub fn without_params(fingerprint: Fingerprint, payload_kind: PayloadKind, len: usize) -> Self {
        Self {
            fingerprint,
            payload_len: len,
            payload_kind,
            norm_bound: None,
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

    /// The kind of the payload.
    pub fn payload_kind(&self) -> PayloadKind {
        self.payload_kind
    }

    /// Validates a payload. Nothing else turns bytes into a value that can be added to a sum.
    ///
    /// # Errors
    /// `wrong-payload-length`, `payload-not-finite`, `payload-out-of-range`, `implausible-report`.
    pub fn payload<B: AsRef<[u8]>>(&self, bytes: B) -> Result<Payload<B>> {
        let payload = self.payload_kind.read(bytes, self.payload_len)?;
        if let Some(bound) = &self.norm_bound {
            bound.check(&payload)?;
        }
        Ok(payload)
    }
}

/// The canonical bytes of study parameters.
pub(crate) fn encode_params(params: &StudyParams) -> Vec<u8> {
    let preprocessing = params.preprocessing();
    let (norm, radius) = match preprocessing.norm {
        Norm::Normalize => (0, 0.0),
        Norm::Clip { radius } => (1, radius),
        Norm::Require { radius } => (2, radius),
    };
    let mut bytes = Vec::new();
    write(
        &mut bytes,
        &WireParams {
            version: version_of(preprocessing),
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
            epsilon: params.budget().epsilon(),
            delta: params.budget().delta(),
            mechanism: params.mechanism().kind().number(),
            calibration: match params.mechanism().calibration() {
                None | Some(Calibration::Analytic) => 0,
                Some(Calibration::AsPublished) => 1,
            },
            constants: params.mechanism().constants(),
        },
    );
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
    let unreadable =
        |error| malformed_params(format!("the study parameters cannot be read: {error}"));
    let options = || options().with_limit(MAX_PARAMS_BYTES);
    let (wire, extension): (WireParams, Option<WireExtension>) =
        match first_version(bytes, malformed_params)? {
            PARAMS_VERSION => (options().deserialize(bytes).map_err(unreadable)?, None),
            PARAMS_VERSION_EXTENDED => {
                let (wire, extension) = options().deserialize(bytes).map_err(unreadable)?;
                (wire, Some(extension))
            }
            version => return Err(unsupported_version(version)),
        };
    let norm = match (wire.norm, wire.radius) {
        (0, 0.0) => Norm::Normalize,
        (1, radius) => Norm::Clip { radius },
        (2, radius) => Norm::Require { radius },
        (tag, radius) => {
            return Err(malformed_params(format!(
                "unknown norm {tag} with radius {radius}"
            )));
        }
    };
    let kind = MechanismKind::from_number(wire.mechanism).ok_or_else(|| {
        error!(
            InvalidMechanism,
            "the study uses mechanism number {}, which this program does not know: update it",
            wire.mechanism
        )
    })?;
    let calibration = match wire.calibration {
        0 => Calibration::Analytic,
        1 => Calibration::AsPublished,
        tag => return Err(malformed_params(format!("unknown calibration {tag}"))),
    };
    let mut features: Option<Vec<Feature>> = wire.features.map(|features| {
        let features = features.into_iter();
        features
            .map(|(name, center, scale)| Feature::new(name, center, scale))
            .collect()
    });
    let weights = extension.as_ref().and_then(|extension| extension.weights);
    let observed = extension.map_or_else(Vec::new, |extension| extension.observed);
    // A number of shares that does not fit is refused with what is not canonical.
    for (feature, observed) in features.iter_mut().flatten().zip(observed) {
        (feature.observed, feature.section) = (Some(observed.0), observed.1);
    }
    let preprocessing = Preprocessing {
        dimension: wire.dimension as usize,
        features,
        norm,
        centring: wire.centring,
        weights: weights.map(|mean| Weights { mean }),
    };
    let mechanism = Mechanism::from_constants(
        kind,
        calibration,
        preprocessing.report_dimension(),
        wire.epsilon,
        &wire.constants,
    )
    .ok_or_else(|| {
        malformed_params(format!(
            "{} constants do not fit {kind}",
            wire.constants.len()
        ))
    })?;
    let params = StudyParams::new_checked(
        preprocessing,
        mechanism,
        Budget::new(wire.epsilon, wire.delta)?,
    )?;
    // Each set of parameters has exactly one encoding; −0.0 would be a second encoding of 0.
    if encode_params(&params) != bytes {
        return Err(malformed_params(
            "the study parameters are not in canonical form".to_owned(),
        ));
    }
    Ok(params)
}

fn validate<'a>(
    id: ReportId,
    payload: &'a [u8],
    study: &ReportFormat,
) -> Result<ValidatedReport<'a>> {
    if !id.is_well_formed() {
        return Err(malformed(format!(
            "the report identifier {id} is not in UUIDv7 layout"
        )));
    }
    Ok(ValidatedReport::new(id, study.payload(payload)?))
}

fn check_fingerprint(fingerprint: Fingerprint, study: &ReportFormat) -> Result<()> {
    if fingerprint == study.fingerprint {
        return Ok(());
    }
    Err(error!(
        WrongFingerprint,
        "the report was made for study parameters {} but this study's are {}; fetch the study again",
        fingerprint,
        study.fingerprint
    ))
}

fn check_wire_version(bytes: &[u8]) -> Result<()> {
    match first_version(bytes, malformed)? {
        WIRE_VERSION => Ok(()),
        version => Err(error!(
            UnsupportedVersion,
            "the report has wire version {version}, but this program knows version {WIRE_VERSION}: update the older of the two"
        )),
    }
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
