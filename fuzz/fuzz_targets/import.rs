//! Any bytes as the export of a study, and a real export with changed bytes and a valid checksum: imported or refused,
//! never a 5xx.
#![no_main]

mod site;

use std::cell::OnceCell;

use axum::http::Method;
use eigenveil_shared::{
    api::{REPORT_MEDIA_TYPE, STUDY_EXPORT_MEDIA_TYPE},
    codec,
    report::{Report, ReportId},
    study::Fingerprint,
};
use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

const CHECKSUM: usize = 32;

/// An export of two reports, without its checksum.
fn real_export() -> Vec<u8> {
    site::with(|site| {
        let study = format!("/v1/studies/{}", site.study);
        let (_, document) = site.ask(&Method::GET, &study, false, "", b"");
        let document: serde_json::Value = serde_json::from_slice(&document).expect("a document");
        let fingerprint = document["fingerprint"].as_str().expect("text");
        let fingerprint: Fingerprint = fingerprint.parse().expect("digits");
        for number in [1, 2] {
            let body = codec::encode_report(&Report {
                fingerprint,
                id: ReportId::from_parts(1 << 40, [number; 16]),
                payload: vec![number; 16],
            });
            let (status, _) = site.ask(
                &Method::POST,
                &format!("{study}/reports"),
                false,
                REPORT_MEDIA_TYPE,
                &body,
            );
            assert_eq!(status, 201);
        }
        let (status, mut export) =
            site.ask(&Method::GET, &format!("{study}/export"), true, "", b"");
        assert_eq!(status, 200);
        export.truncate(export.len() - CHECKSUM);
        export
    })
}

thread_local! {
    static REAL: OnceCell<Vec<u8>> = const { OnceCell::new() };
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else {
        return;
    };
    let mut body = if first & 1 == 0 {
        data.to_vec()
    } else {
        let mut export = REAL.with(|real| real.get_or_init(real_export).clone());
        for edit in data.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % export.len();
            export[at] = edit[2];
        }
        if data.len() % 3 == 1 {
            export.truncate(usize::from(data[data.len() - 1]) * export.len() / 255);
        }
        export
    };
    let checksum = Sha256::digest(&body);
    body.extend_from_slice(&checksum);
    site::with(|site| {
        let target = match first & 2 {
            0 => "/v1/imports".to_owned(),
            _ => format!("/v1/studies/{}/import", site.study),
        };
        let (status, answer) =
            site.ask(&Method::POST, &target, true, STUDY_EXPORT_MEDIA_TYPE, &body);
        assert!(
            status < 500,
            "{target}: {status} {}",
            String::from_utf8_lossy(&answer)
        );
    });
});
