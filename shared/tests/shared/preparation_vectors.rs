//! Golden vectors of preparations, and their malformed twins. `tests/vectors/preparation.py`, a second implementation,
//! makes the files.

use eigenveil_shared::{
    ErrorCode::{
        InvalidBudget, InvalidName, InvalidRequest, MalformedParams, MalformedReport,
        PayloadOutOfRange, UnsupportedVersion, WrongFingerprint, WrongPayloadLength,
    },
    codec::{self, ReportFormat},
    mechanism::MechanismKind,
    parameters::Parameters,
    preparation::{ColumnKind, NumberRange, PreparationColumn, PreparationParams},
    privacy::Budget,
    report::{Report, ReportId},
    site_study::SiteStudyParams,
    study::{Fingerprint, StudyDesign, StudyParams},
};

use crate::codec_vectors::{Twins, assert_matches_golden, assert_refused, broken_frames, with};

fn params(within: Option<[f64; 2]>, after: Option<Fingerprint>) -> PreparationParams {
    let (lo, hi) = (100.0, 220.0);
    let height = ColumnKind::Number(NumberRange { lo, hi, within });
    let columns = vec![
        PreparationColumn::new("height", height).may_be_missing(),
        PreparationColumn::new("raucht", ColumnKind::YesNo),
        PreparationColumn::new("größe", ColumnKind::categories(["klein", "groß"])),
    ];
    PreparationParams::freeze(columns, 1.0, after).unwrap()
}

fn first() -> PreparationParams {
    params(None, None)
}

fn report(bytes: [u8; 4]) -> Report {
    let mut random = [0x11; 16];
    random[15] = 6;
    Report {
        id: ReportId::from_parts(0x0193_8000_0000, random),
        fingerprint: first().fingerprint(),
        payload: bytes.to_vec(),
    }
}

/// Every flipped bit is refused or describes other parameters.
fn assert_bits_count(golden: &[u8]) {
    let params = PreparationParams::from_canonical(golden).unwrap();
    for at in 0..golden.len() {
        for bit in 0..8 {
            let flipped = with(golden, at, &[golden[at] ^ (1 << bit)]);
            if let Ok(other) = PreparationParams::from_canonical(&flipped) {
                assert_ne!(other, params, "byte {at} bit {bit}");
                assert_eq!(other.canonical_bytes(), flipped);
            }
        }
    }
}

#[test]
fn parameters_of_a_preparation() {
    let golden = assert_matches_golden("study_params_preparation.hex", &first().canonical_bytes());
    assert_eq!(PreparationParams::from_canonical(&golden).unwrap(), first());
    let mut twins = broken_frames(&golden, MalformedParams);
    let mut add = |name: &str, at: usize, bytes: &[u8], code| {
        twins.push((name.to_owned(), with(&golden, at, bytes), code));
    };
    let number = |value: f64| value.to_le_bytes();
    for version in [1_u8, 2, 3, 5] {
        add("another version", 0, &[version], UnsupportedVersion);
    }
    add("epsilon 17", 2, &number(17.0), InvalidBudget);
    add("epsilon 0", 2, &number(0.0), InvalidBudget);
    add("epsilon NaN", 2, &number(f64::NAN), InvalidBudget);
    add("epsilon below 0.001", 2, &number(0.0005), InvalidBudget);
    add("a tag of 2", 10, &[2], MalformedParams);
    add(
        "2^40 columns",
        11,
        &(1_u64 << 40).to_le_bytes(),
        MalformedParams,
    );
    // Epsilon, round, number of columns; then the first column's name.
    let column = 2 + 8 + 1 + 8;
    add("a name not UTF-8", column + 8, &[0xff], MalformedParams);
    add("a name with a line end", column + 8, b"\n", InvalidName);
    let missing = column + 8 + 6;
    add("missing 2", missing, &[2], MalformedParams);
    let range = missing + 1;
    add("a tag of 2 for the range", range, &[2], MalformedParams);
    add("an empty range", range + 1, &number(220.0), InvalidRequest);
    add(
        "a range turned round",
        range + 1,
        &number(300.0),
        InvalidRequest,
    );
    add(
        "NaN for an end",
        range + 1,
        &number(f64::NAN),
        InvalidRequest,
    );
    add(
        "an infinite end",
        range + 9,
        &number(f64::INFINITY),
        InvalidRequest,
    );
    add("an absurd end", range + 9, &number(1e300), InvalidRequest);
    add(
        "a tag of 2 for the interval",
        range + 17,
        &[2],
        MalformedParams,
    );
    let end = golden.len();
    let category = end - 8 - 5 - 8 - 5 - 8;
    add(
        "one category",
        category,
        &1_u64.to_le_bytes(),
        MalformedParams,
    );
    add("a category with |", end - 5, b"|", InvalidRequest);
    add("a category with a tab", end - 5, b"\t", InvalidName);
    assert_refused(twins, PreparationParams::from_canonical);
    assert_bits_count(&golden);
}

#[test]
fn parameters_of_a_second_round() {
    let second = params(Some([150.0, 180.0]), Some(first().fingerprint()));
    let golden = assert_matches_golden("study_params_second_round.hex", &second.canonical_bytes());
    assert_eq!(PreparationParams::from_canonical(&golden).unwrap(), second);
    let interval = 2 + 8 + 33 + 8 + 8 + 6 + 1 + 17 + 1;
    let number = |value: f64| value.to_le_bytes();
    let mut twins: Twins = Vec::new();
    for (at, value) in [
        (interval, 99.0),
        (interval, 180.0),
        (interval, 179.5),
        (interval + 8, 221.0),
    ] {
        let twin = with(&golden, at, &number(value));
        twins.push((format!("{value}"), twin, InvalidRequest));
    }
    assert_refused(twins, PreparationParams::from_canonical);
    assert_bits_count(&golden);
}

/// A study's bytes are read by the one reader that they belong to, whatever their version says.
#[test]
fn kinds_of_studies_do_not_take_each_other_for_themselves() {
    let rows = StudyDesign::new(MechanismKind::DoubleCap, 2, Budget::pure(1.0).unwrap());
    let rows = StudyParams::freeze(rows).unwrap();
    let preparation = first().canonical_bytes();
    let one = |bytes: &[u8]| {
        vec![(
            "another kind".to_owned(),
            bytes.to_vec(),
            UnsupportedVersion,
        )]
    };
    assert_refused(one(&preparation), StudyParams::from_canonical);
    assert_refused(one(&preparation), SiteStudyParams::from_canonical);
    assert_refused(
        one(&rows.canonical_bytes()),
        PreparationParams::from_canonical,
    );
    for version in [1, 2, 3] {
        let error = Parameters::from_canonical(&with(&preparation, 0, &[version, 0])).unwrap_err();
        assert_eq!(error.code(), MalformedParams, "{version}");
    }
    let error = StudyParams::from_canonical(&preparation).unwrap_err();
    assert!(error.detail().contains("of a preparation"), "{error}");
    // Nor do their reports: a seed of 16 bytes is too long, an answer of 4 has another fingerprint.
    let format = ReportFormat::of_preparation(&first());
    let seed = Report {
        payload: vec![0; 16],
        ..report([0; 4])
    };
    let error = codec::decode_report(&codec::encode_report(&seed), &format).unwrap_err();
    assert_eq!(error.code(), WrongPayloadLength);
    let answer = codec::encode_report(&report([0; 4]));
    let error = codec::decode_report(&answer, &ReportFormat::new(&rows)).unwrap_err();
    assert_eq!(error.code(), WrongFingerprint);
}

#[test]
fn one_report_of_a_preparation() {
    let ours = codec::encode_report(&report([2, 0, 0, 2]));
    let golden = assert_matches_golden("report_preparation.hex", &ours);
    let format = ReportFormat::of_preparation(&first());
    assert_eq!(
        (golden.len(), format.payload_len()),
        (codec::report_len(4), 4)
    );
    let read = codec::decode_report(&golden, &format).unwrap();
    assert_eq!(read.payload().as_bytes(), [2, 0, 0, 2]);
    let payload = 2 + 32 + 16 + 8;
    // Three columns: 12 combs of 4 answers, 1 of 2, 1 of 3.
    for (good, bytes) in [
        (true, [0, 0, 11, 3]),
        (false, [0, 0, 12, 0]),
        (false, [0, 0, 0, 4]),
        (true, [1, 0, 0, 1]),
        (false, [1, 0, 1, 0]),
        (false, [1, 0, 0, 2]),
        (false, [2, 0, 0, 3]),
        (false, [3, 0, 0, 0]),
        (false, [0, 1, 0, 0]),
        (false, [255; 4]),
    ] {
        let report = with(&golden, payload, &bytes);
        let read = codec::decode_report(&report, &format);
        match good {
            true => assert_eq!(read.unwrap().payload().as_bytes(), bytes),
            false => assert_eq!(read.unwrap_err().code(), PayloadOutOfRange, "{bytes:?}"),
        }
    }
    let mut twins = broken_frames(&golden, MalformedReport);
    twins.push((
        "a site's table".to_owned(),
        with(&golden, 0, &[2, 0]),
        UnsupportedVersion,
    ));
    assert_refused(twins, |bytes| {
        codec::decode_report(bytes, &format).map(drop)
    });
    for length in [0, 3, 5] {
        let error = format.payload(vec![0; length]).unwrap_err();
        assert_eq!(error.code(), WrongPayloadLength);
    }
    // A batch has them one behind the other, and one that is out of range does not spoil another.
    let reports: [[u8; 4]; 2] = [[0, 0, 0, 1], [9, 0, 0, 0]];
    let pairs = reports.map(|bytes| (report(bytes).id, bytes));
    let pairs = pairs.each_ref().map(|(id, bytes)| (*id, &bytes[..]));
    let batch = codec::encode_batch(&format, pairs).unwrap();
    let read = codec::decode_batch(&batch, &format).unwrap();
    assert!(read[0].is_ok());
    assert_eq!(read[1].as_ref().unwrap_err().code(), PayloadOutOfRange);
}
