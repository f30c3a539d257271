//! Any bytes as a report or a batch: refused or understood, and what is understood encodes to the same bytes.
#![no_main]

use std::sync::LazyLock;

use eigenveil_shared::{
    codec::{self, ReportFormat, SiteReportFormat},
    mechanism::MechanismKind,
    preparation::{ColumnKind, PreparationColumn, PreparationParams},
    privacy::Budget,
    report::Report,
    site_study::{SiteStudyDesign, SiteStudyParams, SiteTerms},
    study::{StudyDesign, StudyParams},
};
use libfuzzer_sys::fuzz_target;

static SHAPES: LazyLock<Vec<ReportFormat>> = LazyLock::new(|| {
    let columns = vec![
        PreparationColumn::new("a", ColumnKind::number(0.0, 1.0)),
        PreparationColumn::new("b", ColumnKind::YesNo),
    ];
    let preparation = PreparationParams::freeze(columns, 1.0, None).expect("a usual preparation");
    MechanismKind::ALL
        .iter()
        .map(|&mechanism| {
            let params = StudyParams::freeze(StudyDesign::new(
                mechanism,
                3,
                mechanism.budget(1.0, None).expect("a usual ε"),
            ))
            .expect("a usual study");
            ReportFormat::new(&params)
        })
        .chain([ReportFormat::of_preparation(&preparation)])
        .collect()
});

static SITES: LazyLock<SiteReportFormat> = LazyLock::new(|| {
    let budget = Budget::approximate(1.0, 1e-6).expect("a usual budget");
    let design = SiteStudyDesign::new(2, budget, SiteTerms::new(1_000));
    SiteReportFormat::new(&SiteStudyParams::freeze(design).expect("a usual study"))
});

fuzz_target!(|data: &[u8]| {
    let Some((&first, bytes)) = data.split_first() else {
        return;
    };
    let format = &SHAPES[usize::from(first) % SHAPES.len()];
    // Half of the time the envelope is repaired, so that the fuzzer reaches the payload.
    let mut bytes = bytes.to_vec();
    if first >= 128 && bytes.len() >= 34 {
        bytes[..2].copy_from_slice(&codec::WIRE_VERSION.to_le_bytes());
        bytes[2..34].copy_from_slice(&format.fingerprint().0);
    }
    if let Ok(report) = codec::decode_report(&bytes, format) {
        let again = codec::encode_report(&Report {
            fingerprint: format.fingerprint(),
            id: report.id(),
            payload: report.payload().as_bytes().to_vec(),
        });
        assert_eq!(again, bytes);
    }
    if let Ok(batch) = codec::decode_batch(&bytes, format) {
        let good: Option<Vec<_>> = batch.into_iter().map(Result::ok).collect();
        if let Some(good) = good {
            let payloads: Vec<_> = good.iter().map(|one| one.payload()).collect();
            let ids = good.iter().map(|one| one.id());
            let pairs = ids.zip(payloads.iter().map(|payload| payload.as_bytes()));
            assert_eq!(
                codec::encode_batch(format, pairs).expect("it was one"),
                bytes
            );
        }
    }
    if let Ok(params) = StudyParams::from_canonical(&bytes) {
        assert_eq!(params.canonical_bytes(), bytes);
    }
    if let Ok(params) = SiteStudyParams::from_canonical(&bytes) {
        assert_eq!(params.canonical_bytes(), bytes);
    }
    if let Ok(params) = PreparationParams::from_canonical(&bytes) {
        assert_eq!(params.canonical_bytes(), bytes);
    }
    if first >= 128 && bytes.len() >= 34 {
        bytes[..2].copy_from_slice(&codec::SITE_WIRE_VERSION.to_le_bytes());
        bytes[2..34].copy_from_slice(&SITES.fingerprint().0);
    }
    if let Ok(report) = codec::decode_site_report(&bytes, &SITES) {
        let again = codec::encode_site_report(&Report {
            fingerprint: SITES.fingerprint(),
            id: report.id(),
            payload: report.payload().as_bytes().to_vec(),
        });
        assert_eq!(again, bytes);
    }
});
