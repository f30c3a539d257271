//! Golden vectors of the wire (`tests/vectors/*.hex`, commented) and their malformed twins.
//!
//! To regenerate after a deliberate change of layout (which also needs a new version number):
//! `EIGENVEIL_WRITE_VECTORS=1 cargo test -p eigenveil-shared --test shared codec_vectors::`, then comment the
//! bytes again by hand.

use std::path::{Path, PathBuf};

use eigenveil_shared::{
    ErrorCode::{
        self, InvalidBudget, InvalidMechanism, InvalidPreprocessing, MalformedParams,
        MalformedReport, PayloadNotFinite, TokenRequired, UnsupportedVersion, WrongFingerprint,
        WrongPayloadLength,
    },
    codec::{self, ReportFormat},
    enrolment::{Admission, Enrolment, Frame, ParticipantToken, TOKEN_LEN},
    mechanism::{Calibration, MechanismKind, PayloadKind, double_cap},
    preprocess::{Feature, Norm, Weights},
    privacy::Budget,
    report::{Report, ReportId},
    study::{Fingerprint, StudyDesign, StudyParams, from_hex, to_hex},
};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors")
        .join(name)
}

/// The bytes of a commented hex file: everything after `#` is a comment, white space is folded.
fn golden(name: &str, ours: &[u8]) -> Vec<u8> {
    if std::env::var_os("EIGENVEIL_WRITE_VECTORS").is_some() {
        std::fs::write(path(name), to_hex(ours)).unwrap();
    }
    let text = std::fs::read_to_string(path(name)).unwrap();
    let digits: String = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .flat_map(|line| line.chars().filter(|c| !c.is_whitespace()))
        .collect();
    from_hex(&digits).expect("hexadecimal digits")
}

fn params() -> StudyParams {
    StudyParams::freeze(StudyDesign {
        features: Some(vec![
            Feature::new("height", 170.0, 10.0),
            Feature::new("größe", -0.5, 0.25),
        ]),
        norm: Norm::Clip { radius: 2.0 },
        calibration: Calibration::AsPublished,
        ..StudyDesign::new(
            MechanismKind::IsotropicGaussian,
            2,
            Budget::approximate(4.0, 0.5_f64.powi(20)).unwrap(),
        )
    })
    .unwrap()
}

fn format() -> ReportFormat {
    ReportFormat::without_params(Fingerprint([0xab; 32]), PayloadKind::Floats, 12)
}

fn id(last: u8) -> ReportId {
    let mut random = [0x11; 16];
    random[15] = last;
    ReportId::from_parts(0x0193_8000_0000, random)
}

fn payload() -> Vec<u8> {
    [1.0_f32, -2.5, 0.125]
        .iter()
        .flat_map(|v| v.to_le_bytes())
        .collect()
}

fn report() -> Report {
    Report {
        id: id(1),
        fingerprint: format().fingerprint(),
        payload: payload(),
    }
}

/// Asserts that ours are the golden bytes, and returns them.
pub(crate) fn assert_matches_golden(name: &str, ours: &[u8]) -> Vec<u8> {
    let golden = golden(name, ours);
    assert_eq!(to_hex(ours), to_hex(&golden));
    golden
}

/// Two reports of [`format`] in a batch.
fn batch_of(a: &[u8], b: &[u8]) -> Vec<u8> {
    codec::encode_batch(&format(), [(id(1), a), (id(2), b)]).unwrap()
}

pub(crate) type Twins = Vec<(String, Vec<u8>, ErrorCode)>;

/// Every twin is refused with its code.
pub(crate) fn assert_refused<T: std::fmt::Debug>(
    twins: Twins,
    read: impl Fn(&[u8]) -> eigenveil_shared::Result<T>,
) {
    for (name, bytes, code) in twins {
        let error = read(&bytes).expect_err(&name);
        assert_eq!(error.code(), code, "{name}: {error}");
    }
}

#[test]
fn study_parameters() {
    let ours = params().canonical_bytes();
    let golden = assert_matches_golden("study_params.hex", &ours);
    assert_eq!(StudyParams::from_canonical(&golden).unwrap(), params());
}

/// Version 2: missing cells and weights follow what version 1 has.
#[test]
fn study_parameters_with_missing_cells_and_weights() {
    let features = params().preprocessing().features.clone().unwrap();
    let [height, size] = features.try_into().unwrap();
    let size = Feature {
        section: Some("b".to_owned()),
        ..size.observed(0.75)
    };
    let extended = StudyParams::freeze(StudyDesign {
        features: Some(vec![height.observed(1.0), size]),
        norm: Norm::Clip { radius: 2.0 },
        calibration: Calibration::AsPublished,
        weights: Some(Weights { mean: Some(0.5) }),
        ..StudyDesign::new(MechanismKind::IsotropicGaussian, 2, params().budget())
    })
    .unwrap();
    let golden = assert_matches_golden("study_params_extended.hex", &extended.canonical_bytes());
    assert_eq!(StudyParams::from_canonical(&golden).unwrap(), extended);
    let version_1 = params().canonical_bytes();
    let nothing_more = [&with(&version_1, 0, &[2, 0])[..], &[0; 9]].concat();
    let as_long = with(&version_1, 0, &[2, 0]);
    let mut twins = broken_frames(&golden, MalformedParams);
    for (name, bytes) in [
        ("version 2 as long as version 1", as_long),
        ("version 2 with nothing more", nothing_more),
        ("one share of two", with(&golden, version_1.len(), &[1])),
    ] {
        twins.push((name.to_owned(), bytes, MalformedParams));
    }
    assert_refused(twins, StudyParams::from_canonical);
}

/// A study of double-cap with private centring: reports of dimension 3 for rows of dimension 2.
fn double_cap_params() -> StudyParams {
    StudyParams::freeze(StudyDesign {
        centring: Some(0.5),
        ..StudyDesign::new(MechanismKind::DoubleCap, 2, Budget::pure(4.0).unwrap())
    })
    .unwrap()
}

#[test]
fn study_parameters_of_double_cap() {
    let ours = double_cap_params().canonical_bytes();
    let golden = golden("study_params_double_cap.hex", &ours);
    // The constants are found by a search, which another libm may end an ulp elsewhere: they are read
    // from the bytes.
    let read = StudyParams::from_canonical(&golden).unwrap();
    assert_eq!(read.canonical_bytes(), golden);
    assert_eq!(golden.len(), ours.len());
    let before = ours.len() - 24;
    assert_eq!(to_hex(&ours[..before]), to_hex(&golden[..before]));
    assert_broken_frames_are_refused(&golden);
    assert_altered_are_refused(
        &golden,
        &[
            ("another threshold", 24, 0.5, InvalidMechanism),
            ("NaN for a scale", 8, f64::NAN, InvalidMechanism),
            ("two constants", 32, f64::from_bits(2), MalformedParams),
            ("a delta", 42, 1e-6, InvalidBudget),
            ("epsilon 17", 50, 17.0, InvalidBudget),
            ("epsilon 0", 50, 0.0, InvalidBudget),
            ("centring 2", 58, 2.0, InvalidPreprocessing),
        ],
    );
    let end = golden.len();
    let twins = [
        ("a calibration", end - 33, 1, MalformedParams),
        ("mechanism 9", end - 34, 9, InvalidMechanism),
        ("another dimension", 2, 3, InvalidMechanism),
    ];
    let twins =
        twins.map(|(name, at, byte, code)| (name.to_owned(), with(&golden, at, &[byte]), code));
    assert_refused(twins.into(), StudyParams::from_canonical);
}

fn assert_broken_frames_are_refused(params: &[u8]) {
    assert_refused(
        broken_frames(params, MalformedParams),
        StudyParams::from_canonical,
    );
}

/// Each case overwrites the f64 that starts `before_end` bytes before the end.
fn assert_altered_are_refused(golden: &[u8], cases: &[(&str, usize, f64, ErrorCode)]) {
    let twins = cases.iter().map(|&(name, before_end, number, code)| {
        let at = golden.len() - before_end;
        (
            name.to_owned(),
            with(golden, at, &number.to_le_bytes()),
            code,
        )
    });
    assert_refused(twins.collect(), StudyParams::from_canonical);
}

fn discrete_gaussian_params() -> StudyParams {
    StudyParams::freeze(StudyDesign::new(
        MechanismKind::DiscreteGaussian,
        2,
        Budget::approximate(4.0, 0.5_f64.powi(20)).unwrap(),
    ))
    .unwrap()
}

#[test]
fn study_parameters_of_discrete_gaussian() {
    let params = discrete_gaussian_params();
    let ours = params.canonical_bytes();
    let golden = assert_matches_golden("study_params_discrete_gaussian.hex", &ours);
    assert_eq!(StudyParams::from_canonical(&golden).unwrap(), params);
    let json = serde_json::to_string(&params).unwrap();
    assert_eq!(serde_json::from_str::<StudyParams>(&json).unwrap(), params);
    assert_broken_frames_are_refused(&golden);
    let end = golden.len();
    let sigma = f64::from_le_bytes(golden[end - 8..].try_into().unwrap());
    assert_altered_are_refused(
        &golden,
        &[
            ("less noise", 8, (0.5 * sigma).round(), InvalidMechanism),
            ("below 2^10", 8, 1_023.0, MalformedParams),
            ("half a step", 8, sigma + 0.5, MalformedParams),
            ("NaN", 8, f64::NAN, MalformedParams),
            ("a negative grid", 16, -1.0, MalformedParams),
            ("a grid too fine", 16, 60.0, MalformedParams),
            ("no delta", 34, 0.0, InvalidBudget),
        ],
    );
    // A budget among the smallest numbers.
    let small = with(&golden, end - 42, &f64::MIN_POSITIVE.to_le_bytes());
    assert_altered_are_refused(&small, &[("tiny delta", 34, 2.8e-315, InvalidBudget)]);
}

#[test]
fn integers_beyond_the_bound_are_refused() {
    let params = discrete_gaussian_params();
    // The norm test is stricter at small dimensions; this is about the range of each number.
    let form = params.mechanism().payload_kind();
    let format = ReportFormat::without_params(params.fingerprint(), form, params.payload_len());
    let PayloadKind::Integers { bound } = form else {
        panic!("{form:?}")
    };
    let encode = |entries: [i32; 3]| {
        codec::encode_report(&Report {
            id: id(4),
            fingerprint: format.fingerprint(),
            payload: entries.iter().flat_map(|v| v.to_le_bytes()).collect(),
        })
    };
    assert!(codec::decode_report(&encode([bound, -bound, 0]), &format).is_ok());
    for bad in [bound + 1, -bound - 1, i32::MAX, i32::MIN] {
        for at in 0..3 {
            let mut entries = [0; 3];
            entries[at] = bad;
            let error = codec::decode_report(&encode(entries), &format).unwrap_err();
            assert_eq!(error.code(), ErrorCode::PayloadOutOfRange);
        }
    }
}

#[test]
fn one_report_of_double_cap() {
    let format = ReportFormat::without_params(Fingerprint([0xab; 32]), PayloadKind::Seed, 16);
    let seed: Vec<u8> = (0..16).collect();
    let report = Report {
        id: id(3),
        fingerprint: format.fingerprint(),
        payload: seed.clone(),
    };
    let ours = codec::encode_report(&report);
    let golden = assert_matches_golden("report_double_cap.hex", &ours);
    assert_eq!(golden.len(), 74);
    let read = codec::decode_report(&golden, &format).unwrap();
    assert_eq!(read.payload().as_bytes(), seed);
    assert_refused(broken_frames(&golden, MalformedReport), |bytes| {
        codec::decode_report(bytes, &format).map(drop)
    });
    for payload in [vec![0; 15], vec![0; 17], vec![]] {
        let report = report.clone();
        let other = codec::encode_report(&Report { payload, ..report });
        let code = codec::decode_report(&other, &format).unwrap_err().code();
        assert!(matches!(code, WrongPayloadLength | MalformedReport));
    }
    // Every seed is a report: there is nothing in it to be wrong.
    let extreme = with(&golden, 58, &[0xff; 16]);
    assert!(codec::decode_report(&extreme, &format).is_ok());
}

/// `double_cap_seeds.json` was computed by another implementation (`double_cap_seeds.py`).
#[test]
fn seeds_expand_to_the_published_directions() {
    let text = std::fs::read_to_string(path("double_cap_seeds.json")).unwrap();
    let vectors: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(vectors.len(), 4);
    for vector in vectors {
        let seed = from_hex(vector["seed"].as_str().unwrap()).unwrap();
        let seed: double_cap::Seed = seed.try_into().unwrap();
        let direction = vector["direction"].as_array().unwrap();
        let mut z = vec![0.0; direction.len()];
        let length = double_cap::expand(&seed, &mut z).sqrt();
        for (z, wanted) in z.iter().zip(direction) {
            let (found, wanted) = (z / length, wanted.as_f64().unwrap());
            assert!((found - wanted).abs() < 1e-14, "{found} {wanted}");
        }
    }
}

#[test]
fn one_report() {
    let ours = codec::encode_report(&report());
    let golden = assert_matches_golden("report.hex", &ours);
    assert_eq!(golden.len(), codec::report_len(12));
    let decoded = codec::decode_report(&golden, &format()).unwrap();
    assert_eq!(decoded.id(), id(1));
    assert_eq!(decoded.payload().as_bytes(), payload());
}

#[test]
fn a_batch() {
    let b = [0_u8; 12];
    let ours = batch_of(&payload(), &b);
    let golden = assert_matches_golden("batch.hex", &ours);
    assert_eq!(golden.len(), codec::batch_len(12, 2));
    let decoded = codec::decode_batch(&golden, &format()).unwrap();
    let ids: Vec<_> = decoded.iter().map(|r| r.as_ref().unwrap().id()).collect();
    assert_eq!(ids, [id(1), id(2)]);
    assert_eq!(decoded[1].as_ref().unwrap().payload().as_bytes(), b);
}

fn token(first: u8) -> ParticipantToken {
    ParticipantToken::from_bytes(std::array::from_fn(|at| first + at as u8))
}

#[test]
fn one_report_with_its_token() {
    let one = Frame::new(Enrolment::Token, false);
    let with = Admission::Token(token(0xc0));
    let ours = one
        .write(&[&with], codec::encode_report(&report()))
        .unwrap();
    let golden = assert_matches_golden("enrolled_report.hex", &ours);
    let read = |bytes: &[u8]| {
        let (admissions, report) = one.split(bytes)?;
        codec::decode_report(report, &format()).map(|report| (admissions.get(0), report.id()))
    };
    assert_eq!(read(&golden).unwrap(), (with, id(1)));
    let error = one.write(&[&Admission::Open], vec![1]).unwrap_err();
    assert_eq!(error.code(), TokenRequired);
    // Any 32 bytes are a valid token; the rest must be a report.
    let (before, after) = golden.split_at(TOKEN_LEN);
    assert_refused(broken_frames(after, MalformedReport), |twin| {
        read(&[before, twin].concat())
    });
    for length in 0..TOKEN_LEN {
        let error = read(&golden[..length]).unwrap_err();
        assert_eq!(error.code(), MalformedReport);
    }
}

#[test]
fn a_batch_with_its_tokens() {
    let batch = batch_of(&payload(), &[0; 12]);
    let tokens = [token(0xc0), token(0xe0)].map(Admission::Token);
    let many = Frame::new(Enrolment::Token, true);
    let ours = many.write(&tokens.each_ref(), batch.clone()).unwrap();
    let golden = assert_matches_golden("enrolled_batch.hex", &ours);
    assert_eq!(golden.len(), 8 + 2 * TOKEN_LEN + batch.len());
    let read = |bytes: &[u8]| {
        let (admissions, batch) = many.split(bytes)?;
        let reports = codec::decode_batch(batch, &format())?;
        let read: Vec<_> = (0..admissions.len()).map(|at| admissions.get(at)).collect();
        Ok::<_, eigenveil_shared::Error>((read, reports.len()))
    };
    assert_eq!(read(&golden).unwrap(), (tokens.to_vec(), 2));
    for length in 0..golden.len() {
        let error = read(&golden[..length]).unwrap_err();
        assert_eq!(error.code(), MalformedReport, "cut to {length}");
    }
    // A wrong token count shifts the start of the batch.
    for count in [0_u64, 1, 3, 5, 1 << 58, 1 << 59, u64::MAX] {
        let other = with(&golden, 0, &count.to_le_bytes());
        assert!(read(&other).is_err(), "{count}");
    }
}

/// Every single-byte truncation and extension of `bytes`, and those with a changed version.
pub(crate) fn broken_frames(bytes: &[u8], malformed: ErrorCode) -> Twins {
    let mut twins = Vec::new();
    for len in 0..bytes.len() {
        twins.push((format!("cut to {len}"), bytes[..len].to_vec(), malformed));
    }
    let long = [bytes, &[0]].concat();
    twins.push(("one byte more".into(), long, malformed));
    for version in [0_u16, 5, 0x0100, 0xffff] {
        let other = with(bytes, 0, &version.to_le_bytes());
        twins.push((format!("version {version}"), other, UnsupportedVersion));
    }
    twins
}

pub(crate) fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn malformed_reports_are_refused_with_the_right_code() {
    let good = codec::encode_report(&report());
    let mut twins = broken_frames(&good, MalformedReport);
    let mut add = |name: String, at, bytes: &[u8], code| {
        twins.push((name, with(&good, at, bytes), code));
    };
    for length in [0_u64, 8, 11, 13, 1 << 40, u64::MAX] {
        let name = format!("length prefix {length}");
        add(name, 50, &length.to_le_bytes(), MalformedReport);
    }
    add("another study".into(), 2, &[0xac], WrongFingerprint);
    add("not UUIDv7".into(), 34 + 6, &[0x40], MalformedReport);
    let signalling = f32::from_bits(0x7f80_0001);
    let infinite = f32::INFINITY;
    for bad in [f32::NAN, -f32::NAN, infinite, -infinite, signalling] {
        for entry in 0..3 {
            let name = format!("{bad} at {entry}");
            add(name, 58 + 4 * entry, &bad.to_le_bytes(), PayloadNotFinite);
        }
    }
    // A well-framed report of another mechanism or dimension.
    let shorter = codec::encode_report(&Report {
        payload: vec![0; 8],
        ..report()
    });
    twins.push(("shorter payload".into(), shorter, WrongPayloadLength));
    assert_refused(twins, |bytes| {
        codec::decode_report(bytes, &format()).map(drop)
    });
    // The largest finite number is not an error.
    let extreme = with(&good, 58, &f32::MAX.to_le_bytes());
    assert!(codec::decode_report(&extreme, &format()).is_ok());
}

#[test]
fn malformed_batches_are_refused_with_the_right_code() {
    let good = batch_of(&payload(), &payload());
    let mut twins = broken_frames(&good, MalformedReport);
    let mut add = |name: String, at, bytes: &[u8], code| {
        twins.push((name, with(&good, at, bytes), code));
    };
    add("another study".into(), 33, &[0], WrongFingerprint);
    for length in [0_u64, 11, 28, u64::MAX] {
        let name = format!("payload length {length}");
        add(name, 34, &length.to_le_bytes(), WrongPayloadLength);
        let name = format!("run of {length}");
        add(name, 42, &length.to_le_bytes(), MalformedReport);
    }
    let empty = codec::encode_batch(&format(), []).unwrap();
    twins.push(("empty".into(), empty, MalformedReport));
    assert_refused(twins, |bytes| {
        codec::decode_batch(bytes, &format()).map(drop)
    });
    // One bad report does not spoil the other.
    let half = with(&good, codec::batch_len(12, 0) + 16, &f32::NAN.to_le_bytes());
    let decoded = codec::decode_batch(&half, &format()).unwrap();
    assert_eq!(decoded[0].as_ref().unwrap_err().code(), PayloadNotFinite);
    assert_eq!(decoded[1].as_ref().unwrap().id(), id(2));
    let wrong = codec::encode_batch(&format(), [(id(1), [0_u8; 8].as_slice())]).unwrap_err();
    assert_eq!(wrong.code(), WrongPayloadLength);
}

#[test]
fn malformed_parameters_are_refused() {
    let good = params().canonical_bytes();
    assert_broken_frames_are_refused(&good);
    // Every flipped bit is refused or describes other parameters: there is one spelling of each.
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut flipped = good.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(other) = StudyParams::from_canonical(&flipped) {
                assert_ne!(other, params(), "byte {at} bit {bit}");
                assert_eq!(other.canonical_bytes(), flipped);
            }
        }
    }
    // A device refuses a study whose noise is less than its budget needs.
    let sigma = params().mechanism().gaussian_noise().unwrap().sigma();
    let mut windows = good.windows(8);
    let at = windows.position(|w| w == sigma.to_le_bytes()).unwrap();
    let weaker = with(&good, at, &(sigma * 0.999).to_le_bytes());
    let error = StudyParams::from_canonical(&weaker).unwrap_err();
    assert_eq!(error.code(), InvalidMechanism);
}

mod random_bytes {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_panic_and_never_validate(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(codec::decode_report(&bytes, &format()).is_err());
            prop_assert!(codec::decode_batch(&bytes, &format()).is_err());
            prop_assert!(StudyParams::from_canonical(&bytes).is_err());
        }

        #[test]
        fn reports_round_trip(entries in proptest::collection::vec(-1e30_f32..1e30, 3), random in any::<[u8; 16]>(), ms in 0_u64..1 << 48) {
            let report = Report {
                id: ReportId::from_parts(ms, random),
                fingerprint: format().fingerprint(),
                payload: entries.iter().flat_map(|v| v.to_le_bytes()).collect(),
            };
            let bytes = codec::encode_report(&report);
            let decoded = codec::decode_report(&bytes, &format()).unwrap();
            prop_assert_eq!(decoded.id(), report.id);
            let payload = decoded.payload();
            prop_assert_eq!(payload.as_bytes(), report.payload.as_slice());
        }
    }
}
