//! Golden vectors of studies of sites, and their malformed twins. `tests/vectors/table.py`, a second implementation,
//! makes the files.

use eigenveil_shared::{
    ErrorCode::{
        InvalidBudget, InvalidDimension, InvalidMechanism, InvalidRequest, MalformedParams,
        MalformedReport, PayloadOutOfRange, UnsupportedVersion, WrongFingerprint,
        WrongPayloadLength,
    },
    codec::{self, ReportFormat, SiteReportFormat},
    mechanism::{Calibration, MechanismKind},
    preprocess::Norm,
    privacy::Budget,
    report::{Report, ReportId},
    site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms, SiteWeights},
    study::{StudyDesign, StudyParams},
};

use crate::codec_vectors::{Twins, assert_matches_golden, assert_refused, broken_frames, with};

fn params() -> SiteStudyParams {
    let terms = SiteTerms {
        min_rows: 50,
        rows_per_person: Some(20),
        site_weights: SiteWeights::Precision,
        ..SiteTerms::new(100_000)
    };
    let budget = Budget::approximate(4.0, 0.5_f64.powi(20)).unwrap();
    SiteStudyParams::freeze(SiteStudyDesign {
        norm: Norm::Clip { radius: 2.0 },
        centring: Some(0.5),
        ..SiteStudyDesign::new(2, budget, terms)
    })
    .unwrap()
}

/// A study of single rows with as much in common as there can be.
fn study_of_rows() -> StudyParams {
    StudyParams::freeze(StudyDesign {
        norm: Norm::Clip { radius: 2.0 },
        centring: Some(0.5),
        ..StudyDesign::new(MechanismKind::DiscreteGaussian, 2, params().budget())
    })
    .unwrap()
}

/// The numbers of `site_report.hex`: the triangle of dimension 3 and the count.
fn report() -> Report {
    let (bits, sigma) = (12, 6_931);
    let bound = (100_000 << bits) + 16 * sigma + 1;
    let numbers: [i64; 7] = [777 << bits, -2, 3 << 25, bound, -bound, 0, 640 << bits];
    let mut random = [0x11; 16];
    random[15] = 5;
    Report {
        id: ReportId::from_parts(0x0193_8000_0000, random),
        fingerprint: params().fingerprint(),
        payload: numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
    }
}

#[test]
fn parameters_of_a_study_of_sites() {
    let golden = assert_matches_golden("study_params_sites.hex", &params().canonical_bytes());
    assert_eq!(SiteStudyParams::from_canonical(&golden).unwrap(), params());
    let mut twins = broken_frames(&golden, MalformedParams);
    let end = golden.len();
    let mut add = |name: &str, before_end: usize, bytes: &[u8], code| {
        let twin = with(&golden, end - before_end, bytes);
        twins.push((name.to_owned(), twin, code));
    };
    let number = |value: f64| value.to_le_bytes();
    add("version 1", end, &[1, 0], UnsupportedVersion);
    add("version 2", end, &[2, 0], UnsupportedVersion);
    add("unknown weights", 1, &[2], MalformedParams);
    add("no rows of a person", 3, &[0, 0], InvalidRequest);
    add(
        "1,001 rows of a person",
        3,
        &1_001_u16.to_le_bytes(),
        InvalidRequest,
    );
    add("a tag of 2", 4, &[2], MalformedParams);
    add("no rows at most", 12, &[0; 8], InvalidRequest);
    add("too many rows", 12, &u64::MAX.to_le_bytes(), InvalidRequest);
    add("no rows at least", 20, &[0; 8], InvalidRequest);
    add(
        "more at least than at most",
        20,
        &100_001_u64.to_le_bytes(),
        InvalidRequest,
    );
    // Constants of the noise, then what is before them.
    add("less noise", 28, &number(6_924.0), InvalidMechanism);
    add("half a step", 28, &number(6_931.5), MalformedParams);
    add("NaN", 28, &number(f64::NAN), MalformedParams);
    add("a coarser grid", 36, &number(9.0), InvalidMechanism);
    add("one constant", 44, &1_u64.to_le_bytes(), MalformedParams);
    add("a calibration", 45, &[1], MalformedParams);
    add("double-cap", 46, &[3], MalformedParams);
    add("mechanism 9", 46, &[9], InvalidMechanism);
    add("no delta", 54, &number(0.0), InvalidBudget);
    add("epsilon 17", 62, &number(17.0), InvalidBudget);
    add("another dimension", end - 2, &[3], InvalidMechanism);
    add(
        "a dimension of 2^32 - 1",
        end - 2,
        &[0xff; 4],
        InvalidDimension,
    );
    assert_refused(twins, SiteStudyParams::from_canonical);
    // Every flipped bit is refused or describes other parameters.
    for at in 0..end {
        for bit in 0..8 {
            let flipped = with(&golden, at, &[golden[at] ^ (1 << bit)]);
            if let Ok(other) = SiteStudyParams::from_canonical(&flipped) {
                assert_ne!(other, params(), "byte {at} bit {bit}");
                assert_eq!(other.canonical_bytes(), flipped);
            }
        }
    }
}

/// A study's bytes are read by the one reader that they belong to, whatever their version says.
#[test]
fn rows_and_sites_do_not_take_each_other_for_themselves() {
    let (sites, rows) = (
        params().canonical_bytes(),
        study_of_rows().canonical_bytes(),
    );
    let twins: Twins = vec![("sites".to_owned(), sites.clone(), UnsupportedVersion)];
    assert_refused(twins, StudyParams::from_canonical);
    let twins: Twins = vec![
        ("rows".to_owned(), rows.clone(), UnsupportedVersion),
        (
            "rows as sites".to_owned(),
            with(&rows, 0, &[3, 0]),
            MalformedParams,
        ),
    ];
    assert_refused(twins, SiteStudyParams::from_canonical);
    for version in [1, 2] {
        let error = StudyParams::from_canonical(&with(&sites, 0, &[version, 0])).unwrap_err();
        assert_eq!(error.code(), MalformedParams, "{version}");
    }
    let format = ReportFormat::new(&study_of_rows());
    let sites = SiteReportFormat::new(&params());
    let of_site = codec::encode_site_report(&report());
    let error = codec::decode_report(&of_site, &format).unwrap_err();
    assert_eq!(error.code(), UnsupportedVersion);
    assert!(error.detail().contains("a site's table"), "{error}");
    let of_row = codec::encode_report(&report());
    let error = codec::decode_site_report(&of_row, &sites).unwrap_err();
    assert_eq!(error.code(), UnsupportedVersion);
    assert!(error.detail().contains("single row"), "{error}");
}

#[test]
fn one_report_of_a_site() {
    let ours = codec::encode_site_report(&report());
    let golden = assert_matches_golden("site_report.hex", &ours);
    let format = SiteReportFormat::new(&params());
    assert_eq!(golden.len(), codec::report_len(format.payload_len()));
    let read = codec::decode_site_report(&golden, &format).unwrap();
    assert_eq!(read.id(), report().id);
    assert_eq!(read.payload().as_bytes(), report().payload);
    let table = params().mechanism().decode(&read.payload());
    assert_eq!(table.rows, 640.0);
    // a = 20, s = 2²⁰ − ⌈√60/2⌉ − 1.
    let scale = (f64::from(1 << 20) / f64::from((1 << 20) - 5)).powi(2);
    let (diagonal, off_diagonal) = (table.moment.get(0, 0), table.moment.get(0, 2));
    assert!((diagonal / (777.0 * scale) - 1.0).abs() < 1e-15);
    let expected = f64::from(3 << 13) * scale * 0.5_f64.sqrt();
    assert!((off_diagonal / expected - 1.0).abs() < 1e-15);

    let mut twins = broken_frames(&golden, MalformedReport);
    let mut add = |name: &str, at: usize, bytes: &[u8], code| {
        twins.push((name.to_owned(), with(&golden, at, bytes), code));
    };
    add("version 1", 0, &[1, 0], UnsupportedVersion);
    add("another study", 2, &[golden[2] ^ 1], WrongFingerprint);
    add("not UUIDv7", 34 + 6, &[0x40], MalformedReport);
    for length in [0_u64, 48, 55, 57, 1 << 40, u64::MAX] {
        add("another length", 50, &length.to_le_bytes(), MalformedReport);
    }
    let bound = (100_000_i64 << 12) + 16 * 6_931 + 1;
    for beyond in [bound + 1, -bound - 1, i64::MAX, i64::MIN] {
        for entry in 0..7 {
            add(
                "beyond",
                58 + 8 * entry,
                &beyond.to_le_bytes(),
                PayloadOutOfRange,
            );
        }
    }
    assert_refused(twins, |bytes| {
        codec::decode_site_report(bytes, &format).map(drop)
    });
    for length in [0, 12, 48, 64] {
        let payload = vec![0; length];
        let error = format.payload(&payload).unwrap_err();
        assert_eq!(error.code(), WrongPayloadLength);
        let other = codec::encode_site_report(&Report {
            payload,
            ..report()
        });
        let code = codec::decode_site_report(&other, &format)
            .unwrap_err()
            .code();
        assert!(
            matches!(code, WrongPayloadLength | MalformedReport),
            "{length}"
        );
    }
}

/// The published noise is for rerunning a paper about single rows.
#[test]
fn tables_have_analytic_noise() {
    let isotropic = SiteStudyParams::freeze(SiteStudyDesign {
        mechanism: MechanismKind::IsotropicGaussian,
        ..SiteStudyDesign::new(2, params().budget(), SiteTerms::new(100))
    })
    .unwrap();
    let bytes = isotropic.canonical_bytes();
    let published = StudyParams::freeze(StudyDesign {
        calibration: Calibration::AsPublished,
        ..StudyDesign::new(MechanismKind::IsotropicGaussian, 2, params().budget())
    })
    .unwrap();
    let sigma = published.mechanism().gaussian_noise().unwrap().sigma();
    // Terms without a cap of rows of a person have 18 bytes.
    let end = bytes.len();
    let twin = with(&bytes, end - 18 - 8, &sigma.to_le_bytes());
    let twin = with(&twin, end - 18 - 17, &[1]);
    let error = SiteStudyParams::from_canonical(&twin).unwrap_err();
    assert_eq!(error.code(), InvalidMechanism);
    assert!(error.detail().contains("as-published"), "{error}");
}
