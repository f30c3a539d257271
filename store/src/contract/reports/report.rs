//! Reports that were decoded and validated, on their way to the engine.

use bytes::Bytes;
use eigenveil_shared::{
    Result, codec,
    enrolment::{Admission, AdmissionKey},
    mechanism::Payload,
    report::{ReportId, ValidatedReport},
    study::Fingerprint,
};
use smallvec::SmallVec;

use crate::contract::{decide::SubmitOutcome, study::Study};

/// Payloads up to this size are copied out of the body, so that its buffer, at least 8 KiB, is free for the
/// connection's next request at once instead of after the commit.
const MAX_COPIED_PAYLOAD: usize = 256;

/// A validated report waiting for its commit.
#[derive(Clone)]
pub struct NewReport {
    pub(crate) id: ReportId,
    /// Fingerprint of the study it was validated for.
    fingerprint: Fingerprint,
    /// A long payload stays in the body it came in.
    pub(crate) payload: Payload<Bytes>,
    /// Hash of the participant token it came with.
    pub(crate) token: Option<Box<AdmissionKey>>,
}

/// The reports of a request. Usually one, which needs no allocation.
pub type Reports = SmallVec<[NewReport; 1]>;
/// The outcome of each report.
pub type Outcomes = SmallVec<[SubmitOutcome; 16]>;

impl NewReport {
    /// Decodes and validates the body of one report.
    pub fn decode(body: &Bytes, study: &Study) -> Result<Self> {
        let report = codec::decode_report(body, study.report_format())?;
        Ok(Self::new(body, study, report, MAX_COPIED_PAYLOAD))
    }

    /// Decodes a batch: an outer error if the envelope is wrong, an inner one for each malformed report.
    pub fn decode_batch(body: &Bytes, study: &Study) -> Result<Vec<Result<Self>>> {
        let reports = codec::decode_batch(body, study.report_format())?;
        Ok(reports
            .into_iter()
            .map(|report| report.map(|report| Self::new(body, study, report, 0)))
            .collect())
    }

    /// The codec borrows from the body, so the payload always lies inside it.
    fn new(body: &Bytes, study: &Study, report: ValidatedReport<'_>, copied: usize) -> Self {
        let store = |bytes: &[u8]| {
            if bytes.len() <= copied {
                Bytes::copy_from_slice(bytes)
            } else {
                body.slice_ref(bytes)
            }
        };
        Self {
            id: report.id(),
            fingerprint: study.report_format().fingerprint(),
            payload: report.payload().map_bytes(store),
            token: None,
        }
    }

    /// Whether it was validated for this study, or for one with the same parameters.
    pub(crate) fn is_for(&self, study: &Study) -> bool {
        self.fingerprint == study.report_format().fingerprint()
    }

    /// Adds the credential that the report came with.
    #[must_use]
    pub fn admitted_by(mut self, admission: &Admission) -> Self {
        self.token = admission.key().map(Box::new);
        self
    }
}

impl std::fmt::Debug for NewReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "NewReport({}, {} payload bytes)",
            self.id,
            self.payload.as_bytes().len()
        )
    }
}
